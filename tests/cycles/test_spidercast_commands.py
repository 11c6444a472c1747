"""`trellis simulate spidercast --engine cycles` with `--churn` and `--gossip`, against the event engine.

Each seed draws interests and a trace of joins, leaves and crashes. As in `test_whole_runs.py`: a two-sided t-test of
the pairs at a level of 1% for all measures together (Bonferroni), and bounds on the difference of the means.
"""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

import trellis
from both_engines import expect_alike, interests_of
from trellis.cli.main import run
from trellis.errors import InputError
from trellis.model import ChurnTrace, Interests
from trellis.simulate.schedule import Fault, Schedule

LEVEL, SEEDS, NODES = 0.01, 6, 36
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "links on average": (0.05, 0.0),
    "links at the end": (0.06, 0.0),
    "degree max": (0.15, 1.0),
    "connected topics": (0.02, 0.01),
    "Connect": (0.20, 0.0),
    "Leave": (0.20, 6.0),
}


def trace_of(interests: Interests, seed: int) -> ChurnTrace:
    """Every two seconds from 6 s on a node leaves or crashes, and comes back 9 s later."""
    random, rows = Random(seed), []
    for turn, name in enumerate(random.sample(list(interests.nodes), 10)):
        rows.append((6.0 + 2 * turn, name, random.choice(["leave", "crash"]), None))
        rows.append((15.0 + 2 * turn, name, "join", None))
    return ChurnTrace.from_rows(sorted(rows, key=lambda row: row[0]))


def measured(engine: str, seed: int, options: dict[str, Any]) -> dict[str, float]:
    interests = interests_of(NODES, 24, 4, "random", seed)
    done = trellis.simulate(
        "spidercast", interests, engine=engine, churn=trace_of(interests, seed), duration_s=45, seed=seed,
        broken_stream_s=0.05, options=options,
    )  # fmt: skip
    summary, links = done.summary(), done.probe.series("links")[1]
    assert summary["events_from_outside"]["join"] == 10
    assert summary["nodes"] == NODES
    return {
        "links on average": float(np.mean(links)),
        "links at the end": links[-1],
        "degree max": float(summary["degree"]["max"]),
        "connected topics": float(np.mean(done.probe.series("connected_topics")[1])),
        "Connect": float(summary["messages_by_type"]["Connect"]),
        "Leave": float(summary["messages_by_type"].get("Leave", 0)),
    }


@pytest.mark.parametrize("options", [{}, {"gossip": True}], ids=["full views", "gossip"])
def test_runs_with_a_trace_are_alike_on_both_engines(options):
    runs = {
        engine: [measured(engine, seed, options) for seed in range(1, SEEDS + 1)] for engine in ("events", "cycles")
    }
    expect_alike(runs, BOUNDS, LEVEL)


@pytest.mark.parametrize("name", ["spidercast", "similarity", "random"])
@pytest.mark.parametrize("more", ["--churn c.tsv", "--gossip", "--churn c.tsv --gossip --broken-stream 0.05"])
def test_the_command_takes_churn_and_gossip(tmp_path, monkeypatch, capsys, name, more):
    monkeypatch.chdir(tmp_path)
    interests = interests_of(NODES, 24, 4, "random", 1)
    trellis.write_table(interests.to_table(), Path("i.tsv"))
    trellis.write_table(trace_of(interests, 1).to_table(), Path("c.tsv"))
    words = f"simulate {name} i.tsv --engine cycles --duration 20 {more} --json -o run".split()
    found = []
    for seed in ("1", "1", "2"):
        assert run([*words, "--seed", seed]) == 0, capsys.readouterr().err
        found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert found[0] == found[1]
    assert found[0]["digest"] != found[2]["digest"]
    assert sum(found[0]["events_from_outside"].values()) == (11 if "churn" in more else 0)
    assert ("NewscastRequest" in found[0]["messages_by_type"]) == ("gossip" in more)
    assert json.loads(Path("run/parameters.json").read_text())["churn_rows"] == (20 if "churn" in more else 0)


def test_a_node_that_crashes_without_a_broken_stream_is_missed_by_its_silence():
    """Neighbors suspect it after `silence_max` heartbeats, and at once where streams break."""
    interests = interests_of(NODES, 24, 4, "random", 1)
    churn = ChurnTrace.from_rows([(10.0, interests.nodes[0], "crash", None)])
    lost = {}
    for broken in (None, 0.05):
        done = trellis.simulate(
            "spidercast", interests, engine="cycles", churn=churn, duration_s=13, broken_stream_s=broken
        )
        lost[broken] = sum(name == 0 for task in range(NODES) for name in done.network.neighbors(task))
        assert done.summary()["nodes"] == NODES - 1
    assert lost[None] > lost[0.05] == 0


def test_a_node_that_comes_back_at_once_waits_until_no_message_of_before_is_under_way():
    interests = interests_of(NODES, 24, 4, "random", 1)
    name = interests.nodes[0]
    schedule = Schedule((Fault(5_000, "crash", (name,)), Fault(5_000, "join", (name,))))
    summary = trellis.simulate(
        "spidercast", interests, engine="cycles", schedule=schedule, duration_s=8
    ).summary()  # fmt: skip
    assert (summary["events_from_outside"], summary["nodes"]) == ({"crash": 1, "join": 1}, NODES)


def test_what_makes_no_sense_is_refused_with_a_sentence():
    interests = interests_of(NODES, 24, 4, "random", 1)
    churn, name = trace_of(interests, 1), interests.nodes[0]
    with pytest.raises(InputError, match="--view: nodes that gossip know whom they have heard of"):
        trellis.simulate("spidercast", interests, engine="cycles", churn=churn, view_share=0.5)
    publish = Schedule((Fault(0, "publish", (name,), topics=("t1",)),))
    with pytest.raises(InputError, match="spidercast publishes nothing"):
        trellis.simulate("spidercast", interests, engine="cycles", schedule=publish)
    cut = Schedule((Fault(0, "partition", (name,), duration_ms=1),))
    with pytest.raises(InputError, match='knows no "partition"'):
        trellis.simulate("spidercast", interests, engine="cycles", schedule=cut)
