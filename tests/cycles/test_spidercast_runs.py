"""Whole runs of SpiderCast and its baselines on both engines agree in distribution, and tables of one fit the other.

Each seed draws interests, and runs them on both engines. As in `test_whole_runs.py`: a two-sided t-test of the pairs at
a level of 1% for all measures of a test together (Bonferroni), and bounds on the difference of the means. `LEAVE`
messages are held to their bound alone.
"""

from __future__ import annotations

import json
from random import Random
from statistics import mean
from typing import Any

import numpy as np
import pytest
from scipy.stats import t as students_t
from typer.testing import CliRunner

import trellis
from both_engines import compare
from reference.cycles_spidercast import Drawn
from trellis.cli.main import app
from trellis.cycles import memory
from trellis.cycles.choice import choose, count_known, knows, make_scratch
from trellis.cycles.instance import make_instance
from trellis.cycles.neighbor_network import NeighborNetwork
from trellis.cycles.neighbors import TARGET, add, fewest_missed, most_alike, under
from trellis.errors import InputError
from trellis.lab.measures.spidercast import settled, workload
from trellis.measure.diameters import topic_diameters
from trellis.model import Interests, Overlay
from trellis.plan import construct
from trellis.protocols.spidercast import SpiderCastConfig
from trellis.protocols.spidercast.neighbors import fewest_missed as protocol_fewest_missed
from trellis.protocols.spidercast.neighbors import high_degree
from trellis.protocols.spidercast.neighbors import most_alike as protocol_most_alike
from trellis.simulate.by_cycles import simulate_cycles
from trellis.simulate.engine import Engine
from trellis.simulate.network import NetworkConfig
from trellis.simulate.probes import Snapshot
from trellis.simulate.record import Recorder
from trellis.simulate.run import RunConfig, link_names, simulate, topics_by_node, write_run
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems import maker_of

LEVEL = 0.01
# How far the means of a measure may be apart: a share of the event engine's mean, and an amount on top of it.
BOUNDS = {
    "degree": (0.015, 0.0),
    "degree deviation": (0.10, 0.05),
    "degree max": (0.10, 1.5),
    "degree after 1 s": (0.02, 0.05),
    "degree after 2 s": (0.02, 0.05),
    "components per topic": (0.05, 0.05),
    "diameter": (0.10, 1.0),
    "Connect": (0.03, 0.1),
    "ConnectOk": (0.03, 0.1),
    "Redirect": (0.10, 0.1),
    "Disconnect": (0.10, 0.2),
    "DisconnectOk": (0.15, 0.15),
    "Leave": (0.0, 0.05),
    "Heartbeat": (0.02, 0.5),
    "random coverage": (0.05, 0.02),
}
UNTESTED = ("Leave",)  # fewer heartbeats cross a change of links where they are heard at once: docs/cycles.md


def measures(run: Any, found: Snapshot, random_coverage: float) -> dict[str, float]:
    sent, nodes = run.probe.sent_by_type(), found.degrees.total
    times, degrees = run.probe.series("degree_mean")
    after = dict(zip(times, degrees, strict=True))
    reach = topic_diameters(found.interests, found.overlay, connected=found.connectivity, threads=1)
    return {
        "degree": found.degrees.mean,
        "degree deviation": found.degrees.standard_deviation,
        "degree max": float(found.degrees.maximum),
        "degree after 1 s": after[1.0],
        "degree after 2 s": after[2.0],
        "components per topic": float(found.connectivity.components.sum()) / found.topics,
        "diameter": float(reach.maximum or 0),
        **{kind: sent.get(kind, 0) / nodes for kind in BOUNDS if kind[0].isupper()},
        "random coverage": random_coverage,
    }


def run_both(
    name: str, options: dict[str, Any], interests: Interests, seed: int, share: float, overlay: Overlay | None
):
    config = RunConfig(seed=seed, duration_ms=8_000, view_share=share)
    events = simulate(maker_of(name)(**options), interests, config, overlay=overlay)
    arrays: Any = simulate_cycles(maker_of(name)(**options), interests, config, overlay=overlay)
    goals = [events.engine.world.node(one).random_task.goal for one in events.engine.world.living]
    return (
        measures(
            events, events.probe.snapshot(), mean(goal.links if name != "spidercast" else goal.k for goal in goals)
        ),
        measures(arrays, arrays.probe.snapshot(), mean(arrays.random_coverage)),
    )


def assert_alike(name: str, options: dict[str, Any], popularity: str, nodes: int, seeds: int, **more: Any) -> None:
    share, planned, slack = more.pop("share", 1.0), more.pop("planned", False), more.pop("slack", 1.0)
    pairs = []
    for seed in range(1, seeds + 1):
        interests = workload({"popularity": popularity, "nodes": nodes, **more}, seed)
        overlay = construct(interests, "lowoda", seed=seed).overlay if planned else None
        pairs.append(run_both(name, options, interests, seed, share, overlay))
    found = compare([one for one, _ in pairs], [other for _, other in pairs])
    limit = students_t.ppf(1 - LEVEL / len(found) / 2, seeds - 1)
    shown = "\n".join(f"{key}: events {a:.4f}, cycles {b:.4f}, t {t:.2f}" for key, (a, b, t) in found.items())
    for key, (one, other, t) in found.items():
        bound, amount = BOUNDS[key]
        assert key in UNTESTED or abs(t) <= limit, f"{key} differs beyond chance (t above {limit:.2f})\n{shown}"
        assert abs(other - one) <= slack * (bound * one + amount), f"{key} is too far off\n{shown}"


@pytest.mark.parametrize(
    ("name", "options", "popularity"),
    [("spidercast", {"kg": 3, "kr": 1}, "rss"), ("similarity", {"x": 4, "y": 2}, "unif")],
)
def test_small_runs_of_both_engines_are_alike(name, options, popularity):
    assert_alike(name, options, popularity, 80, 3, topics=40, subs=6, slack=3)  # three small runs vary more


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options", "popularity", "nodes", "seeds", "more"),
    [
        ("spidercast", {"kg": 3}, "rss", 300, 8, {}),
        ("spidercast", {"kg": 3}, "unif", 1000, 3, {}),
        ("spidercast", {"kg": 3, "kr": 1}, "zipf2", 200, 8, {}),
        ("spidercast", {"adaptive": True}, "zipf2", 200, 8, {}),
        ("spidercast", {"kg": 3}, "rss", 300, 6, {"share": 0.2}),
        ("spidercast", {"kg": 2, "demand": "literal"}, "nyse", 150, 6, {"topics": 300}),
        ("spidercast", {"kg": 3}, "rss", 150, 6, {"planned": True}),
        ("spidercast", {"kg": 3, "repair_only": True}, "rss", 150, 6, {"planned": True}),
        ("similarity", {"x": 10, "y": 0}, "rss", 200, 8, {}),
        ("similarity", {"x": 9, "y": 1}, "zipf2", 200, 6, {"share": 0.3}),
        ("random", {"y": 10}, "rss", 200, 8, {}),
    ],
)
def test_runs_of_both_engines_are_alike(name, options, popularity, nodes, seeds, more):
    assert_alike(name, options, popularity, nodes, seeds, **more)


@pytest.mark.parametrize(("share", "kr", "at_ms"), [(1.0, 1, 700), (0.3, 1, 700), (1.0, 0, 6_000)])
def test_tables_of_an_event_run_give_the_same_cover_and_the_same_candidates(share, kr, at_ms):
    """Links and records of a run that is under way are loaded: every task finds the same, and draws the same."""
    interests = workload({"popularity": "zipf1", "nodes": 60, "topics": 30, "subs": "2:7"}, 3)
    wanted, system = topics_by_node(interests), maker_of("spidercast")(kg=2, kr=kr, margin=1)
    engine = Engine(system, wanted, seed=3, view_share=share)
    engine.run(at_ms)
    network = NeighborNetwork(make_instance(wanted), system.config, share=share)
    loaded = load(engine, network, share)
    names, wants, rule, tasks = network.instance.nodes, network.instance.wants, network.rule, network.tasks
    number = {name: place for place, name in enumerate(names)}
    tied, random, asking = np.zeros(len(names), np.int32), Random(1), 0
    for me, task in loaded:
        lacking = task.under_covered()
        assert under(tasks, wants, rule, me) == lacking.bit_count()
        able = [(peer, record) for peer, record in task.neighbors.items() if high_degree(record, rule.strictly)]
        expected, under_then = protocol_fewest_missed(able, task.goal, lacking)
        count, missed = fewest_missed(tasks, wants, rule, me, tied)
        assert [names[peer] for peer in tied[:count]] == expected
        assert not expected or missed == under_then.bit_count()
        stranger = random.choice(names)
        room = [(peer, one) for peer, one in task.neighbors.items() if one.degree < one.target + 1 and peer != stranger]
        count = most_alike(tasks, wants, rule, me, number[stranger], tied)
        interest = engine.world.topics.bits(wanted[stranger])
        assert [names[peer] for peer in tied[:count]] == protocol_most_alike(room, interest)
        for state in range(5 if lacking else 0):
            task.view.random = Drawn(state)
            expected_one = task.choose(task.view, lacking, task.me.interest, {task.me.id, *task.neighbors})
            chosen = choose(tasks, wants, rule, network.view, me, network._scratch, np.array([state], np.uint64))
            assert (names[chosen] if chosen >= 0 else None) == expected_one
            asking += 1
    assert asking > 50 or at_ms > 5_000


def load(engine: Engine, network: NeighborNetwork, share: float) -> list[tuple[int, Any]]:
    """Take over views, neighbors and records of an event run. Return the tasks with their numbers."""
    world, names, wants = engine.world, network.instance.nodes, network.instance.wants
    number, nodes = {name: place for place, name in enumerate(names)}, [world.node(name) for name in names]
    if share != 1:
        known = [node.view.slots for node in nodes]  # slots follow the sorted names, as numbers do
        offsets = np.cumsum([0, *(len(row) for row in known)])
        network.view = network.view._replace(offsets=offsets, known=np.concatenate(known).astype(np.int32))
        network._scratch = make_scratch(wants, network.view, 100)
        for begin in range(0, len(network.tasks.spare), len(wants.topics)):
            count_known(network.view, wants, network.tasks.spare[begin : begin + len(wants.topics)])
    loaded = []
    for me in range(len(network.tasks.state)):
        node = nodes[me % len(nodes)]
        task = node.greedy if me < len(nodes) else node.random_task
        network.tasks.state[me, TARGET] = task.target
        for peer, record in task.neighbors.items():
            record.refused_at = -1
            seen = np.int32(knows(network.view, me % len(nodes), number[peer]))
            add(network.tasks, wants, network.rule, me, number[peer], record.degree, record.target, seen)
        loaded.append((me, task))
    return loaded


def small(nodes: int = 60, seed: int = 1) -> Interests:
    return workload({"popularity": "rss", "nodes": nodes, "topics": 30, "subs": 5}, seed)


def test_a_run_leaves_the_folder_of_an_event_run(tmp_path):
    """The same files, the same metrics at the same times, and the keys of the summary that say something in cycles."""
    runs = {}
    for engine in ("events", "cycles"):
        runs[engine] = trellis.simulate("spidercast", small(), engine=engine, options={"kr": 1}, duration_s=3.5)
        write_run(runs[engine], tmp_path / engine, figures=engine == "cycles")
    files = [{path.name for path in (tmp_path / engine).iterdir()} for engine in runs]
    assert files[1] == {*files[0], "figures"}
    drawn = {path.name for path in (tmp_path / "cycles" / "figures").iterdir()}
    assert drawn == {"degrees.png", "topics.png", "messages.png", "histogram.png"}
    tables = [run.probe.table() for run in runs.values()]
    metrics = [set(table["metric"].to_pylist()) for table in tables]
    assert metrics[0] ^ metrics[1] <= {"messages/Leave", "messages/Redirect"}  # too rare to be in every run
    assert runs["events"].probe.series("links")[0] == runs["cycles"].probe.series("links")[0] == [0, 1, 2, 3, 3.5]
    events, arrays = (json.loads((tmp_path / engine / "summary.json").read_text()) for engine in runs)
    assert arrays.pop("engine") == "cycles"
    assert arrays.keys() < events.keys()
    assert arrays["degree"].keys() == events["degree"].keys()
    assert arrays["control_messages"] == arrays["messages"] - arrays["messages_by_type"]["Heartbeat"] > 0
    parameters = [json.loads((tmp_path / engine / "parameters.json").read_text()) for engine in runs]
    assert parameters[0]["system"] == parameters[1]["system"]


def test_the_same_seed_gives_the_same_bytes_and_another_one_others():
    digests = [
        trellis.simulate(name, small(), engine="cycles", duration_s=3, seed=seed).summary()["digest"]
        for name, seed in (("spidercast", 1), ("spidercast", 1), ("spidercast", 2), ("similarity", 1), ("random", 1))
    ]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_a_run_without_duration_ends_when_no_link_has_come_or_gone_for_long():
    told = []
    run = trellis.simulate("spidercast", small(), engine="cycles", progress=told.append)
    summary = run.summary()
    assert summary["settled"]
    assert summary["tco"]
    assert summary["time_s"] == summary["changed_last_s"] + run.system.settle_ms / 1000
    assert [one.time_ms for one in told][:3] == [0, 1000, 2000]
    assert told[-1].connected_topics == 1


def test_links_of_an_overlay_are_kept_by_those_that_only_repair():
    overlay = construct(small(), "lowoda", seed=1).overlay
    run = trellis.simulate(
        "spidercast", small(), engine="cycles", overlay=overlay, options={"repair_only": True, "margin": 20}
    )
    assert set(link_names(run.probe.snapshot().overlay)) == set(link_names(overlay))


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"network": NetworkConfig(loss=0.1)}, "never lost"),
        ({"encode": True}, "encoded"),
        ({"rounds_per_event": 2}, "trace"),
        ({"recorder": Recorder()}, "recorded"),
        ({"schedule": Schedule((Fault(0, "partition", ("n1",), duration_ms=1),))}, '"partition"'),
        ({"schedule": Schedule((Fault(0, "publish", ("n1",), topics=("t1",)),))}, "publishes nothing"),
    ],
)
def test_what_makes_no_sense_in_cycles_is_refused_with_a_sentence(more, sentence):
    with pytest.raises(InputError, match=sentence):
        trellis.simulate("spidercast", small(), engine="cycles", **more)


def test_a_run_that_does_not_fit_into_memory_is_refused_before_it_starts(monkeypatch):
    needed = memory.neighbors_memory_needed(60, 30, 300, SpiderCastConfig())
    assert memory.neighbors_memory_needed(60, 30, 300, SpiderCastConfig(coverage_random=1)) > needed
    monkeypatch.setattr(memory, "memory_free", lambda: needed - 1)
    with pytest.raises(InputError, match=r"60 nodes with 300 subscriptions need about \d+ MiB"):
        trellis.simulate("spidercast", small(), engine="cycles", duration_s=1)
    monkeypatch.setattr(memory, "memory_free", lambda: needed)
    assert trellis.simulate("spidercast", small(), engine="cycles", duration_s=1).summary()["nodes"] == 60


def test_the_command_line_runs_cycles(tmp_path):
    trellis.write_table(small().to_table(), tmp_path / "interests.tsv")
    words = ["simulate", "spidercast", str(tmp_path / "interests.tsv"), "--engine", "cycles", "--view", "50%"]
    done = CliRunner().invoke(app, [*words, "--kg", "2", "--duration", "4", "-o", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["engine"] == "cycles"


def test_the_lab_measures_the_same_things_on_both_engines():
    given = {"popularity": "zipf2", "nodes": 50, "topics": 20, "subs": 4, "diameters": True}
    events, arrays = (
        settled("spidercast(adaptive)", {**given, **more}, 1, None) for more in ({}, {"engine": "cycles"})
    )
    assert events.keys() == arrays.keys()
    assert arrays["could_adapt"] == events["could_adapt"]
    assert 0 <= arrays["settled_at_zero"] <= 1
