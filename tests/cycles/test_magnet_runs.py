"""Runs of Magnet and the strawman in cycles, from Python and from the command line, and beside the event engine.

Each seed draws interests, and runs them on both engines. Of every measure the differences of these pairs must not tell
the engines apart by a two-sided t-test, at a level of 1% for all measures of a test together (Bonferroni). The means
must not be further apart than the bounds below, either.
"""

from __future__ import annotations

import json

import pytest
from scipy.stats import t as students_t
from typer.testing import CliRunner

import both_magnets as both
import trellis
from both_engines import compare
from trellis.cli.main import app
from trellis.cycles import memory
from trellis.errors import InputError
from trellis.model import Interests
from trellis.simulate.network import NetworkConfig
from trellis.simulate.publications import one_per_topic, together
from trellis.simulate.run import topics_by_node, write_run
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems import maker_of

LEVEL = 0.01


@pytest.fixture(scope="module")
def interests() -> Interests:
    return both.interests_of(60, 30, 5, (1, 5), 1)


def test_a_run_leaves_the_folder_of_an_event_run(interests, tmp_path):
    """The same files, metrics and keys of the summary, but for messages that are not counted in cycles."""
    runs = {}
    for engine in ("events", "cycles"):
        system = maker_of("magnet")(links=9, trees_ms=12_000)
        runs[engine] = trellis.simulate(system, interests, engine=engine, duration_s=20)
        write_run(runs[engine], tmp_path / engine)
    names = [{path.name for path in (tmp_path / engine).rglob("*")} for engine in runs]
    assert names[0] == names[1]
    metrics = [{m for m in run.probe.table()["metric"].to_pylist() if "/" not in m} for run in runs.values()]
    assert metrics[0] == metrics[1]
    events, cycles = (json.loads((tmp_path / engine / "summary.json").read_text()) for engine in runs)
    assert cycles["engine"] == "cycles"
    assert cycles["time_s"] == events["time_s"] == 20
    assert cycles["nodes"] == events["nodes"] == 60
    assert cycles["reached"] == 1.0
    assert runs["events"].probe.series("reached")[1][-1] == 1.0
    assert runs["cycles"].probe.series("reached")[1][0] == 0.0
    assert json.loads((tmp_path / "cycles" / "parameters.json").read_text())["system"]["skewed"]["links"] == 9


def test_the_same_seed_gives_the_same_bytes_and_another_one_others(interests):
    digests = [
        trellis.simulate(name, interests, engine="cycles", duration_s=15, seed=seed).summary()["digest"]
        for name, seed in (("magnet", 1), ("magnet", 1), ("magnet", 2), ("scribe", 1), ("scribe", 1))
    ]
    assert digests[0] == digests[1]
    assert digests[3] == digests[4]
    assert len(set(digests)) == 3


@pytest.mark.parametrize("name", ["magnet", "scribe"])
@pytest.mark.parametrize("tree", ["graft", "greedy-path"])
def test_a_run_without_duration_ends_when_nothing_changes_and_reaches_everybody(interests, name, tree):
    run = trellis.simulate(name, interests, engine="cycles", options={"tree": tree, "links": 8})
    summary = run.summary()
    assert summary["settled"]
    assert summary["reached"] == 1.0
    assert 7 < summary["degree"]["mean"] < 8.5


def test_publications_go_down_the_trees(interests):
    """Each subscriber gets each publication once, over as many messages as the tree has links."""
    faults = one_per_topic(topics_by_node(interests), start_ms=30_000, span_ms=1_000, seed=1)
    early = Fault(0, "publish", faults[0].nodes, topics=faults[0].topics)  # No tree stands yet.
    run = trellis.simulate("magnet", interests, engine="cycles", schedule=together(faults, [early]), duration_s=32)
    found = run.network.reached()
    assert run.summary()["deliveries"] == interests.subscriptions
    sent = int(found.reached.sum() + found.relays.sum()) - len(interests.topics)
    assert run.summary()["messages_by_type"]["Publication"] == sent


@pytest.mark.parametrize(
    ("options", "more", "sentence"),
    [
        ({}, {"network": NetworkConfig(loss=0.1)}, "never lost"),
        ({}, {"encode": True}, "encoded"),
        ({}, {"view_share": 0.5}, "by joining"),
        ({}, {"schedule": Schedule((Fault(0, "join", ("n1",)),))}, '"join"'),
        ({}, {"schedule": Schedule((Fault(0, "publish", ("nobody",), topics=("t0",)),))}, "cannot publish"),
        ({"improve_rounds": 2}, {}, "keep their positions"),
        ({"sampling": "uniform"}, {}, "truncated as written"),
        ({"trees_ms": 5_000}, {}, "give at least 11770"),
    ],
)
def test_what_makes_no_sense_in_cycles_is_refused_with_a_sentence(interests, options, more, sentence):
    with pytest.raises(InputError, match=sentence):
        trellis.simulate("magnet", interests, engine="cycles", options=options, **more)


def test_a_run_that_does_not_fit_into_memory_is_refused_before_it_starts(interests, monkeypatch):
    needed = memory.magnet_memory_needed(60, 30, interests.subscriptions, maker_of("magnet")().config)
    monkeypatch.setattr(memory, "memory_free", lambda: needed - 1)
    with pytest.raises(InputError, match=r"60 nodes with 300 subscriptions need about \d+ MiB"):
        trellis.simulate("magnet", interests, engine="cycles", duration_s=1)


def test_the_command_line_runs_cycles(interests, tmp_path):
    trellis.write_table(interests.to_table(), tmp_path / "interests.tsv")
    words = ["simulate", "scribe", str(tmp_path / "interests.tsv"), "--engine", "cycles", "--links", "8"]
    done = CliRunner().invoke(app, [*words, "-o", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["engine"] == "cycles"
    assert {path.name for path in (tmp_path / "run" / "figures").iterdir()} >= {"ring.png", "tree.png"}


# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "relays": (0.08, 0.2),
    "relays deviation": (0.15, 0.2),
    "hops": (0.04, 0.0),
    "inner": (0.08, 0.2),
    "degree": (0.01, 0.0),
    "degree deviation": (0.05, 0.0),
    "degree max": (0.15, 1.0),
    "likeness of successors": (0.02, 0.005),
    "likeness of fingers": (0.08, 0.005),
    "fingers": (0.01, 0.0),
    "finger rank": (0.02, 0.0),
    "guests deviation": (0.05, 0.0),
    "control fingers": (0.005, 0.0),
    "control finger rank": (0.02, 0.0),
    "control guests deviation": (0.05, 0.0),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "size", "modes", "seeds"),
    [
        ("magnet", {"tree": "graft"}, (200, 100, 10), (1, 10), 10),
        ("magnet", {"tree": "greedy-path", "join_gap_ms": 60}, (200, 100, 10), (5, 25), 10),
        ("scribe", {"tree": "graft"}, (200, 100, 10), (1, 10), 10),
        ("magnet", {"tree": "graft", "first_gap_ms": 500}, (500, 200, 20), (1, 10), 6),
    ],
)
def test_runs_of_both_engines_are_alike(name, options, size, modes, seeds):
    events, arrays = [], []
    for seed in range(1, seeds + 1):
        interests = both.interests_of(*size, modes, seed)
        events.append(both.run_events(both.system_of(name, size[0], **options), interests, seed))
        arrays.append(both.run_cycles(both.system_of(name, size[0], **options), interests, seed))
    found = compare(events, arrays)
    limit = students_t.ppf(1 - LEVEL / len(found) / 2, seeds - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    for key, (one, other, t) in found.items():
        share, amount = BOUNDS[key]
        assert abs(t) <= limit, f"{key} differs beyond chance (t above {limit:.2f})\n{shown}"
        assert abs(other - one) <= share * one + amount, f"{key} is too far off\n{shown}"
