"""A run from start to end: when it ends, what its folder holds, what a recording tells."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.model import ChurnTrace, Interests, read_overlay, read_rows
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.probes import Camera, Probe
from trellis.simulate.record import Recorder, Replay, replay_lines
from trellis.simulate.run import RunConfig, simulate, write_run
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.toys import Flooder, Mesh

INTERESTS = Interests.from_pairs(draw_interests(InstanceDraw(10, 5, 3), 2))
FAULTS = Schedule((Fault(3000, "crash-hub"), Fault(4000, "interest"), Fault(5000, "join")), ("n7",))


def mesh_run(recorder=None, **options):
    return simulate(Mesh(), INTERESTS, RunConfig(seed=2, **options), schedule=FAULTS, recorder=recorder)


def test_a_run_without_a_duration_ends_when_nothing_has_changed_for_the_time_that_its_system_says():
    run = mesh_run()
    summary = run.summary()
    assert summary["settled"]
    assert summary["time_s"] * 1000 == run.engine.quiet_from_ms + Mesh.settle_ms
    assert 5 < summary["changed_last_s"] < 10  # silence is noticed after 8 rounds of half a second
    assert summary["tco"]
    assert summary["nodes"] == 9


def test_a_run_with_a_duration_ends_then_and_says_that_it_was_not_quiet():
    run = mesh_run(duration_ms=6500)
    assert run.summary()["time_s"] == 6.5
    assert not run.settled


def test_a_run_that_never_settles_is_ended_by_its_limit():
    run = mesh_run(settle_ms=10**9, limit_ms=7000)
    assert not run.settled
    assert run.engine.world.now_ms == 5000 + 7000


def test_probes_change_nothing():
    often, seldom = mesh_run(sample_ms=10), mesh_run(sample_ms=100_000)
    assert often.engine.hexdigest() == seldom.engine.hexdigest()
    assert often.probe.table().num_rows > 50 * seldom.probe.table().num_rows


def test_recording_changes_nothing():
    assert mesh_run(Recorder()).engine.hexdigest() == mesh_run().engine.hexdigest()


def test_a_snapshot_is_the_overlay_that_both_ends_claim_over_the_living():
    run = mesh_run()
    world, found = run.engine.world, Camera(run.engine.world).take()
    links = zip(
        found.overlay.nodes.take(found.overlay.u).to_pylist(),
        found.overlay.nodes.take(found.overlay.v).to_pylist(),
        strict=True,
    )
    assert sorted(tuple(sorted(link)) for link in links) == world.links()
    rows = found.interests.to_table().to_pylist()
    told = {name: tuple(sorted(row["topic"] for row in rows if row["node"] == name)) for name in world.living}
    assert told == {name: world.topics_of(name) for name in world.living}
    assert found.degrees.mean == 2 * len(found.overlay) / 9


def test_connected_topics_are_counted_over_time_while_links_come():
    line = [("a", "b"), ("b", "c")]
    engine = Engine(Flooder(), {"a": ["t"], "b": ["t"], "c": ["t", "u"]}, seed=1, overlay=line)
    engine.at(1500, engine.crash, "b")
    probe = Probe(engine)
    for time in (0, 1000, 2000):
        engine.run(time)
        probe.sample()
    assert probe.series("connected_topics") == ([0, 1, 2], [1.0, 1.0, 0.5])
    assert probe.series("links")[1] == [2, 2, 0]
    assert probe.series("components_missing")[1] == [0, 0, 1]
    assert probe.connectivity_checks == 2  # nothing had changed at the second look


def test_young_nodes_are_left_out_of_a_series_that_says_so():
    engine = Engine(Flooder(), {"a": ["t"], "b": ["t"]}, seed=1, absent=["b"])
    engine.at(500, engine.join, "b")
    old, all_of_them = Probe(engine, age_ms_min=2000), Probe(engine)
    for time in (1000, 3000):
        engine.run(time)
        old.sample(), all_of_them.sample()
    assert old.series("connected_topics")[1] == [1.0, 0.0]
    assert all_of_them.series("connected_topics")[1] == [0.0, 0.0]
    assert old.series("nodes")[1] == [0, 2]  # at 1 s nobody is 2 s old


def test_the_folder_of_a_run_holds_what_was_promised(tmp_path):
    run = mesh_run()
    write_run(run, tmp_path / "run")
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["figures", "overlay.parquet", "parameters.json", "series.parquet", "summary.json"]
    figures = sorted(path.name for path in (tmp_path / "run" / "figures").iterdir())
    assert figures == ["degrees.png", "histogram.png", "messages.png", "topics.png"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary == run.summary()
    # Somebody who has only the files comes to the same verdict.
    overlay = read_overlay(tmp_path / "run" / "overlay.parquet", run.probe.snapshot().interests.nodes)
    assert connectivity(run.probe.snapshot().interests, overlay).is_tco == summary["tco"]
    assert json.loads((tmp_path / "run" / "parameters.json").read_text())["run"]["seed"] == 2


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        recorder = Recorder()
        run = mesh_run(recorder)
        write_run(run, tmp_path / name)
        recorder.write(tmp_path / name / "recording.jsonl.gz", run.parameters)
    files = sorted(path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file())
    assert len(files) == 9
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    with pytest.raises(InputError, match="not empty"):
        write_run(mesh_run(duration_ms=100), tmp_path)


def test_a_replay_ends_in_the_state_that_the_run_ended_in(tmp_path):
    recorder = Recorder()
    run = mesh_run(recorder)
    recorder.write(tmp_path / "r.jsonl", run.parameters)
    replay = Replay(tmp_path / "r.jsonl")
    kinds = {line["e"] for line in replay}
    world = run.engine.world
    assert sorted(replay.links) == world.links()
    assert replay.nodes == {name: world.topics_of(name) for name in world.living}
    assert replay.sent == run.engine.sent_by_type()
    assert replay.end["digest"] == run.engine.hexdigest()
    assert {"up", "down", "link", "topics", "sent", "fault", "end"} <= kinds


def test_a_replay_steps_to_any_time(tmp_path):
    recorder = Recorder()
    run = mesh_run(recorder)
    recorder.write(tmp_path / "r.jsonl.gz", run.parameters)
    replay = Replay(tmp_path / "r.jsonl.gz")
    for time in (500, 3500, 4500):
        short = mesh_run(duration_ms=time)
        replay.until(time)
        assert sorted(replay.links) == short.engine.world.links(), time
        assert sorted(replay.nodes) == short.engine.world.living


def test_a_replay_reads_as_text(tmp_path):
    recorder = Recorder()
    run = mesh_run(recorder)
    recorder.write(tmp_path / "r.jsonl", run.parameters)
    lines = list(replay_lines(tmp_path / "r.jsonl", since_ms=2900, until_ms=5100))
    assert any("fault: crash-hub" in line for line in lines)
    assert any("n7 starts with" in line for line in lines)
    assert lines[-1].startswith("mesh, seed 2: 9 nodes")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is not a recorded run"),
        ("{}\n", "is not a recorded run"),
        ("not json\n", "is no JSON object"),
        ('{"trellis":"recording","version":1}\n', "breaks off"),
        ('{"trellis":"recording","version":1}\n{"t":1,"e":"down","n":"a"}\n', "cannot have happened"),
    ],
)
def test_a_recording_that_is_damaged_is_refused_in_one_line(tmp_path, text, what):
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(InputError, match=what):
        list(Replay(tmp_path / "r.jsonl"))


def test_churn_from_a_trace_happens_when_the_trace_says():
    rows = [
        (2.0, "n3", "crash", None),
        (2.5, "new", "join", None),
        (2.5, "new", "subscribe", "t1"),
        (3.0, "n4", "leave", None),
    ]
    run = simulate(Mesh(), INTERESTS, RunConfig(seed=1), churn=ChurnTrace.from_rows(rows))
    world = run.engine.world
    assert sorted({*INTERESTS.nodes, "new"} - set(world.living)) == ["n3", "n4"]
    assert world.born_ms("new") == 2500
    assert run.summary()["events_from_outside"] == {"crash": 1, "join": 1, "leave": 1}
    assert run.summary()["control_messages_per_event"] > 0


def test_a_fresh_process_with_another_hash_seed_comes_to_the_same_digest():
    """No set or hash() may decide anything."""
    code = (
        "from trellis.model import Interests\n"
        "from trellis.simulate.draw import *\n"
        "from trellis.simulate.engine import Engine\n"
        "from trellis.simulate.faults import Injector\n"
        "from trellis.simulate.systems.toys import Mesh\n"
        "wanted = draw_interests(InstanceDraw(), 5)\n"
        "schedule = draw_schedule(FaultPlan(start_ms=1000, span_ms=6000), list(wanted), 5)\n"
        "engine = Engine(Mesh(), wanted, seed=5, absent=schedule.absent, view_share=0.5)\n"
        "injector = Injector(engine, schedule)\n"
        "engine.run(10000)\n"
        "print(engine.hexdigest(), engine.overlay_digest(), injector.happened)\n"
    )
    printed = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(printed[0]) > 64


def test_a_series_is_a_table_of_time_metric_and_value(tmp_path):
    write_run(mesh_run(), tmp_path / "run", figures=False)
    import pyarrow.parquet as pq

    table = pq.read_table(tmp_path / "run" / "series.parquet")
    assert table.column_names == ["time", "metric", "value"]
    assert {"nodes", "links", "degree_mean", "connected_topics", "messages/Hello"} <= set(table["metric"].to_pylist())
    rows = read_rows(tmp_path / "run" / "overlay.parquet")
    assert rows.kind.name == "overlay"
