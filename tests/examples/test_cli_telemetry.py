"""Telemetry is no table of subscriptions: `trellis plan` says what to do, `trellis replan` reads interests from it."""

from __future__ import annotations

import gzip
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trellis.cli.main import run
from trellis.errors import InputError
from trellis.model import Interests
from trellis.model.in_force import interests_in_force
from trellis.plan.replan import replan

# n1 and n2 want both topics. n3 only publishes, n4 has left, and n5 has unsubscribed from its last topic.
EVENTS = [
    {"time": 1, "node": "n1", "event": "subscribe", "topic": "a"},
    {"time": 1, "node": "n1", "event": "subscribe", "topic": "b"},
    {"time": 2, "node": "n2", "event": "join"},
    {"time": 2, "node": "n2", "event": "subscribe", "topic": "a"},
    {"time": 2, "node": "n2", "event": "subscribe", "topic": "b"},
    {"time": 3, "node": "n3", "event": "publish", "topic": "a", "count": 4, "seconds": 5},
    {"time": 3, "node": "n4", "event": "subscribe", "topic": "a"},
    {"time": 4, "node": "n5", "event": "subscribe", "topic": "b"},
    {"time": 5, "node": "n4", "event": "leave"},
    {"time": 6, "node": "n5", "event": "unsubscribe", "topic": "b"},
]
IN_FORCE = {("n1", "a"), ("n1", "b"), ("n2", "a"), ("n2", "b")}
REFUSAL = "is telemetry: its rows are events of nodes, and not all of them subscriptions"


def lines(events):
    return "".join(json.dumps(one) + "\n" for one in events)


def pairs(interests: Interests):
    return {tuple(row.values()) for row in interests.to_table().to_pylist()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "events.jsonl").write_text(lines(EVENTS))
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "events.jsonl").write_text(lines(EVENTS[6:]))
    (tmp_path / "logs" / "events.jsonl.1").write_text(lines(EVENTS[3:6]))
    (tmp_path / "logs" / "events.jsonl.2.gz").write_bytes(gzip.compress(lines(EVENTS[:3]).encode()))
    columns = {name: [one.get(name) for one in EVENTS] for name in ("time", "node", "event", "topic")}
    (tmp_path / "table").mkdir()
    table = pa.table(columns | {"count": pa.nulls(len(EVENTS)), "seconds": pa.nulls(len(EVENTS))})
    pq.write_table(table, tmp_path / "table" / "part-0.parquet")
    (tmp_path / "overlay.csv").write_text("u,v\nn1,n4\nn4,n2\nn5,n1\n")
    return tmp_path


@pytest.mark.parametrize("source", ["events.jsonl", "logs", "logs/events.jsonl.1", "table"])
def test_plan_says_that_telemetry_is_no_table_of_subscriptions_and_what_to_do(folder, capsys, source):
    assert run(["plan", source, "-o", "plan.csv"]) == 2
    error = capsys.readouterr().err
    assert f"{source}: {REFUSAL}; make a table of the subscriptions in force: trellis pipeline pairs {source} " in error
    assert len(error.splitlines()) == 1
    assert run(["plan", source, "--columns", "node,topic", "-o", "plan.csv"]) == 2
    assert REFUSAL in capsys.readouterr().err
    assert run(["check", source, "overlay.csv"]) == 2
    assert REFUSAL in capsys.readouterr().err


@pytest.mark.parametrize("source", ["events.jsonl", "logs", "table"])
def test_replan_takes_the_subscriptions_in_force_from_telemetry(folder, capsys, source):
    assert pairs(interests_in_force(source).interests) == IN_FORCE
    assert run(["replan", source, "overlay.csv", "-o", "changes.csv", "--overlay-out", "near.csv", "--json"]) == 0
    told = capsys.readouterr()
    assert "4 subscriptions are in force after 10 events" in told.err
    made = json.loads(told.out)
    assert (made["nodes"], made["links"], made["links_after"], made["links_of_departed_nodes"]) == (2, 3, 1, 3)
    assert made["changes"] == [
        {"do": "add", "u": "n1", "v": "n2"},
        {"do": "remove", "u": "n1", "v": "n4"},
        {"do": "remove", "u": "n1", "v": "n5"},
        {"do": "remove", "u": "n2", "v": "n4"},
    ]
    assert (folder / "near.csv").read_text().replace('"', "") == "u,v\nn1,n2\n"
    assert len((folder / "changes.csv").read_text().splitlines()) == 5


def test_replan_takes_the_output_of_a_watch(folder, capsys):
    part = folder / "followed" / "interests" / "part-0.parquet"
    part.parent.mkdir(parents=True)
    pq.write_table(pa.table({"node": ["n1", "n2"], "topic": ["a", "a"]}), part)
    (part.parent / "manifest.json").write_text(json.dumps({"job": "watch", "outputs": [{"path": "part-0.parquet"}]}))
    assert run(["replan", "followed", "overlay.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["links_of_departed_nodes"] == 3


def test_a_link_of_an_unknown_node_is_still_refused_with_a_table_of_interests(folder, capsys):
    (folder / "interests.csv").write_text("node,topic\nn1,a\nn2,a\n")
    assert run(["replan", "interests.csv", "overlay.csv"]) == 2
    assert 'u "n4" is no node of the interests' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"time": 9, "node": "n1", "event": "sleep"}, 'events.jsonl:11: event "sleep" is unknown'),
        ({"time": 9, "node": "n1", "event": "subscribe"}, "events.jsonl:11: a subscription has no topic"),
        ({"time": 9, "event": "join"}, 'events.jsonl:11: there is no key "node"'),
    ],
)
def test_a_wrong_event_is_refused_with_its_line(folder, more, told):
    (folder / "events.jsonl").write_text(lines([*EVENTS, more]))
    with pytest.raises(InputError, match=told):
        interests_in_force("events.jsonl")


def test_telemetry_after_which_nobody_wants_anything_is_refused(folder):
    (folder / "events.jsonl").write_text(lines([EVENTS[0], {"time": 9, "node": "n1", "event": "crash"}]))
    with pytest.raises(InputError, match="no subscription is in force at its end"):
        interests_in_force("events.jsonl")
    with pytest.raises(InputError, match=r"overlay\.csv: is no telemetry"):
        interests_in_force("overlay.csv")


def test_json_lines_of_subscriptions_are_no_telemetry(folder, capsys):
    rows = [{"node": "n1", "topic": "a", "event": "x"}, {"node": "n2", "topic": "a", "event": "x"}]
    (folder / "subscriptions.jsonl").write_text(lines(rows))
    assert run(["plan", "subscriptions.jsonl", "-o", "plan.csv"]) == 0
    capsys.readouterr()


def test_links_are_kept_by_name_where_nodes_have_left():
    from trellis.model import Names, Overlay
    from trellis.plan.replan import without_departed

    interests = Interests.from_pairs({"b": ["t"], "c": ["t"]})
    links = Overlay.from_pairs(Names(["a", "b", "c"]), [("a", "b"), ("b", "c")])
    present, departed = without_departed(interests, links)
    assert [tuple(one) for one in departed] == [("remove", "a", "b")]
    assert present.to_table().to_pylist() == [{"u": "b", "v": "c"}]
    assert not len(replan(interests, present))


def replayed(events):
    """The subscriptions in force, by replaying the events in the order that the page tells."""
    held = {}
    moments = sorted({(one["time"], one["node"]) for one in events})
    for time, node in moments:
        now = [one for one in events if (one["time"], one["node"]) == (time, node)]
        kinds = {one["event"] for one in now}
        topics = held.setdefault(node, set())
        if kinds & {"join", "leave", "crash"}:
            topics.clear()
        if not kinds & {"leave", "crash"} or "join" in kinds:
            topics -= {one["topic"] for one in now if one["event"] == "unsubscribe"}
            topics |= {one["topic"] for one in now if one["event"] == "subscribe"}
    return {(node, topic) for node, topics in held.items() for topic in topics}


@pytest.mark.parametrize("seed", range(30))
def test_the_subscriptions_in_force_are_those_of_a_replay(tmp_path, seed):
    chance = random.Random(seed)
    events = [{"time": 0, "node": "n9", "event": "subscribe", "topic": "t9"}]  # so that one is in force at the end
    for _ in range(80):
        event = chance.choice(["subscribe"] * 4 + ["unsubscribe", "publish", "join", "leave", "crash"])
        one = {"time": chance.randrange(12), "node": f"n{chance.randrange(4)}", "event": event}
        if event in ("subscribe", "unsubscribe", "publish"):
            one["topic"] = f"t{chance.randrange(4)}"
        events.append(one)
    (tmp_path / "events.jsonl").write_text(lines(events))
    assert pairs(interests_in_force(tmp_path / "events.jsonl").interests) == replayed(events)
