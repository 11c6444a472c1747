"""Runs of the cycle engine from Python and from the command line."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import trellis
from both_engines import interests_of
from trellis.cli.main import app
from trellis.cycles import memory
from trellis.errors import InputError
from trellis.model import Interests
from trellis.protocols.vitis import VitisConfig
from trellis.simulate.network import NetworkConfig
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.record import Recorder
from trellis.simulate.run import topics_by_node, write_run
from trellis.simulate.schedule import Fault, Schedule


@pytest.fixture(scope="module")
def interests() -> Interests:
    return interests_of(60, 40, 6, "random", 1)


def test_a_run_leaves_the_folder_of_an_event_run(interests, tmp_path):
    """The same files, the same metrics, and the keys of the summary that say something in cycles."""
    folders = {}
    for engine in ("events", "cycles"):
        run = trellis.simulate("vitis", interests, engine=engine, duration_s=35, options={"publications": 2})
        folders[engine] = run, tmp_path / engine
        write_run(run, tmp_path / engine, figures=engine == "cycles")
    (events, _), (cycles, folder) = folders["events"], folders["cycles"]
    files = [{path.name for path in (tmp_path / engine).iterdir()} for engine in folders]
    assert files[1] == {*files[0], "figures"}
    drawn = {path.name for path in (folder / "figures").iterdir()}
    assert drawn == {"degrees.png", "topics.png", "messages.png", "histogram.png", "dissemination.png"}
    metrics = [set(run.probe.table()["metric"].to_pylist()) for run in (events, cycles)]
    assert metrics[0] - metrics[1] <= {"messages/Unlink", "messages/Relay"}
    assert cycles.probe.series("degree_mean")[0] == events.probe.series("degree_mean")[0]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["engine"] == "cycles"
    assert summary["time_s"] == 35
    assert summary["dissemination"]["hit_ratio"] > 0.99
    assert summary["dissemination"]["publications"] == cycles.measure().publications > 10
    assert json.loads((folder / "parameters.json").read_text())["system"]["table_size"] == 15


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(interests):
    digests = [
        trellis.simulate(name, interests, engine="cycles", duration_s=32, seed=seed).summary()["digest"]
        for name, seed in (("vitis", 1), ("vitis", 1), ("vitis", 2), ("rvr", 1), ("opt", 1), ("opt", 1), ("opt", 2))
    ]
    assert digests[0] == digests[1]
    assert digests[4] == digests[5]
    assert len(set(digests)) == 5


@pytest.mark.slow
def test_a_run_without_duration_ends_when_no_table_changes(interests):
    run = trellis.simulate("vitis", interests, engine="cycles", options={"publications": 0})
    summary = run.summary()
    assert summary["settled"]
    assert summary["time_s"] == summary["changed_last_s"] + 36


def test_events_of_a_schedule_are_published(interests):
    schedule = together(one_per_topic(topics_by_node(interests), start_ms=20_000, span_ms=5_000, seed=1))
    run = trellis.simulate(
        "rvr", interests, engine="cycles", duration_s=26, schedule=schedule, options={"publications": 0}
    )
    found = run.measure()
    assert found.publications == len(interests.topics)
    assert found.hit_ratio == 1
    assert found.overhead > 0


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"network": NetworkConfig(loss=0.1)}, "never lost"),
        ({"encode": True}, "encoded"),
        ({"broken_stream_s": 1}, "crashes"),
        ({"view_share": 0.5}, "gossip"),
        ({"rounds_per_event": 2}, "trace"),
        ({"recorder": Recorder()}, "recorded"),
        ({"schedule": Schedule((Fault(0, "partition", ("n1",), duration_ms=1),))}, '"partition"'),
    ],
)
def test_what_makes_no_sense_in_cycles_is_refused_with_a_sentence(interests, more, sentence):
    with pytest.raises(InputError, match=sentence):
        trellis.simulate("vitis", interests, engine="cycles", **more)


def test_systems_and_engines_that_are_not_there_are_refused(interests):
    with pytest.raises(InputError, match="does not run delivery; choose from vitis, rvr"):
        trellis.simulate("delivery", interests, engine="cycles")
    with pytest.raises(InputError, match="choose from events, cycles"):
        trellis.simulate("vitis", interests, engine="peersim")


def test_a_run_that_does_not_fit_into_memory_is_refused_before_it_starts(interests, monkeypatch):
    needed = memory.estimate(60, 40, 360, VitisConfig(), seconds=1) + 60 * memory.PUBLICATION_BYTES
    monkeypatch.setattr(memory, "memory_free", lambda: needed // 2)
    with pytest.raises(InputError, match=r"60 nodes with 360 subscriptions need about \d+ MiB"):
        trellis.simulate("vitis", interests, engine="cycles", duration_s=1)
    monkeypatch.setattr(memory, "memory_free", lambda: needed)
    assert trellis.simulate("vitis", interests, engine="cycles", duration_s=1).summary()["nodes"] == 60


def test_the_command_line_runs_cycles(interests, tmp_path):
    trellis.write_table(interests.to_table(), tmp_path / "interests.tsv")
    words = ["simulate", "vitis", str(tmp_path / "interests.tsv"), "--engine", "cycles", "--duration", "31"]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["engine"] == "cycles"
    refused = CliRunner().invoke(app, [*words, "--check"])
    assert isinstance(refused.exception, InputError)
    assert "events" in str(refused.exception)
