"""Both engines leave the same files, metrics and keys for every system. What differs is said in docs/cycles.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import trellis
from both_engines import interests_of
from trellis.model import ChurnTrace, Interests
from trellis.simulate.run import write_run

# What the cycle engine does not count: it has no messages on the way, no timers, and no network that could fail.
LEFT_OUT = {"messages_delivered", "messages_undeliverable", "network", "timers"}
# What it does not count for these systems beside that, and what only its summary says.
OF_TABLES = {"links_formed"}, {"dissemination"}
SYSTEMS: dict[str, tuple[dict[str, Any], set[str], set[str]]] = {
    "vitis": ({}, *OF_TABLES),
    "rvr": ({}, *OF_TABLES),
    "opt": ({}, *OF_TABLES),
    "spidercast": ({}, set(), set()),
    "spidercast by gossip": ({"gossip": True}, set(), set()),
    "similarity": ({}, set(), set()),
    "random": ({}, set(), set()),
    "omen": ({}, set(), {"repairs", "view_size"}),
    "omen-g": ({"knowledge": "global"}, set(), {"repairs", "view_size"}),
    "magnet": ({}, {"links_formed"}, {"relays", "reached"}),
    "scribe": ({}, {"links_formed"}, {"relays", "reached"}),
}
COUNTED = {  # of the types of messages; the others are compared as a whole
    "magnet": {"Climb", "Descend", "Publication"},
    "scribe": {"Climb", "Descend", "Publication"},
}


@pytest.fixture(scope="module")
def interests() -> Interests:
    return interests_of(30, 20, 4, "random", 1)


def folder_of(folder: Path) -> tuple[set[str], dict[str, Any], dict[str, Any]]:
    files = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return files, *(json.loads((folder / name).read_text()) for name in ("summary.json", "parameters.json"))


@pytest.mark.parametrize("system", SYSTEMS)
def test_both_engines_leave_the_same_folder(system, interests, tmp_path):
    options, left_out, added = SYSTEMS[system]
    name = system.partition(" ")[0].removesuffix("-g")
    overlay = trellis.plan(interests, "lowoda", seed=1).overlay if name == "omen" else None
    tables, found = [], []
    for engine in ("events", "cycles"):
        run = trellis.simulate(name, interests, engine=engine, duration_s=36, options=options, overlay=overlay)
        write_run(run, tmp_path / engine)
        tables.append(run.probe.table())
        found.append(folder_of(tmp_path / engine))
    (events, summary, parameters), (cycles, other_summary, other_parameters) = found
    # Only the event engine knows which nodes are in which cluster.
    assert events - cycles <= {"figures/clusters.png", "figures/departure.png"}
    assert cycles <= events
    assert summary.keys() - other_summary.keys() == LEFT_OUT | left_out
    assert other_summary.keys() - summary.keys() == added
    assert summary["engine"] == parameters["engine"] == "events"
    assert other_summary["engine"] == other_parameters["engine"] == "cycles"
    assert parameters.keys() == other_parameters.keys()
    assert parameters["run"] == other_parameters["run"]
    for key in ("protocol", "seed", "time_s", "nodes", "topics", "events_from_outside", "encoded_bytes_by_type"):
        assert summary[key] == other_summary[key]
    assert tables[0].schema == tables[1].schema
    assert set(tables[0]["time"].to_pylist()) == set(tables[1]["time"].to_pylist())
    metrics = [{one for one in table["metric"].to_pylist() if "/" not in one} for table in tables]
    assert metrics[0] == metrics[1]
    if name not in COUNTED:
        types = [set(each["messages_by_type"]) for each in (summary, other_summary)]
        assert types[1] <= types[0] or name in ("omen", "vitis", "rvr", "opt")


@pytest.mark.parametrize("system", ["vitis", "spidercast", "omen"])
def test_both_engines_count_the_same_events_of_a_trace(system, interests):
    leaving, crashing = list(interests.nodes)[:2]
    kind = "leave" if system == "vitis" else "crash"
    rows: list[tuple[float, str, str, str | None]] = [
        (2.0, leaving, "leave", None),
        (4.0, crashing, kind, None),
        (25.0, leaving, "join", None),
    ]
    counts = []
    overlay = trellis.plan(interests, "lowoda", seed=1).overlay if system == "omen" else None
    for engine in ("events", "cycles"):
        churn = ChurnTrace.from_rows(rows)
        run = trellis.simulate(system, interests, engine=engine, duration_s=60, churn=churn, overlay=overlay)
        summary = run.summary()
        counts.append((summary["events_from_outside"], summary["events_skipped"], summary["nodes"]))
        assert summary["control_messages_per_event"] > 0
        assert run.parameters["churn_rows"] == run.parameters["faults"] == 3
    assert counts[0] == counts[1]
    assert counts[0][1:] == (0, 29)
