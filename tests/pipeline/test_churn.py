"""Churn traces that can be replayed, from every kind of trace."""

from __future__ import annotations

import random

import pytest

from trellis.errors import InputError
from trellis.model.churn import Event, replay
from trellis.model.read import read_churn, read_interests
from trellis.pipeline import jobs
from trellis.pipeline.schemas import CHURN, SESSIONS
from trellis.pipeline.stages import churn as stages
from trellis.pipeline.stages.interests import final_subscriptions


@pytest.fixture
def interests(write) -> str:
    return write("interests.tsv", "node\ttopic\n" + "".join(f"n{n}\tt{n % 2}\n" for n in range(4)))


def google(rows):
    return "".join(f"{int(time * 1e6)},{machine},{kind},platform,0.5,0.25\n" for time, machine, kind in rows)


def replayed(trace, interests):
    known = read_interests(interests)
    return [(event.time, event.event.name, event.node) for event in replay(read_churn(trace, known), known)]


def test_machines_come_and_go_as_their_nodes(spark, write, tmp_path, interests):
    """ADD = join, REMOVE = leave; who is there at time 0 is the population, not churn; UPDATE is ignored.  [E-9]"""
    rows = [(0, machine, 0) for machine in range(10, 14)]
    rows += [(700, 10, 1), (800.5, 11, 2), (900, 10, 0), (950, 12, 1)]
    report = jobs.churn(spark, write("m.csv", google(rows)), tmp_path / "out", map_to=interests, seed=1)
    events = replayed(tmp_path / "out", interests)
    assert [(time, kind) for time, kind, _ in events] == [(700, "leave"), (900, "join"), (950, "leave")]
    assert events[0][2] == events[1][2] != events[2][2]
    assert report.facts["machines"] == 4
    assert (report.facts["add"], report.facts["remove"], report.facts["update"]) == (5, 2, 1)
    assert report.facts["nodes_present_at_start"] == 4
    assert report.facts["events"] == {"leave": 2, "join": 1}


def test_only_machines_of_the_start_are_drawn_unless_asked_otherwise(spark, write, tmp_path, interests):
    """[E-10] Machine 14 comes late: OMen's samples never hold it."""
    rows = [(0, machine, 0) for machine in range(10, 13)] + [(600, 14, 0)]
    source = write("m.csv", google(rows))
    with pytest.raises(
        InputError, match=r"4 nodes, but the trace has only 3 machines .* map only some .* --machines 3"
    ):
        jobs.churn(spark, source, tmp_path / "a", map_to=interests)
    report = jobs.churn(spark, source, tmp_path / "b", map_to=interests, sample_from="all")
    assert [kind for _, kind, _ in replayed(tmp_path / "b", interests)] == ["join"]
    assert report.facts["nodes_present_at_start"] == 3


def test_nodes_without_a_machine_stay_all_the_time(spark, write, tmp_path, interests):
    rows = [(0, 10, 0), (0, 11, 0), (5, 10, 1), (6, 11, 1)]
    report = jobs.churn(spark, write("m.csv", google(rows)), tmp_path / "out", map_to=interests, machines=2)
    assert report.facts["nodes_present_at_start"] == 4
    assert len({node for *_, node in replayed(tmp_path / "out", interests)}) == 2


def test_events_that_change_nothing_are_dropped_and_counted(spark, write, tmp_path, interests):
    """A machine added twice, removed twice, and removed before it was ever added (it was there all along)."""
    rows = [(0, 10, 0), (0, 11, 0), (0, 12, 0)]
    rows += [(5, 10, 0), (6, 10, 1), (7, 10, 1), (8, 13, 1), (9, 13, 0)]
    report = jobs.churn(spark, write("m.csv", google(rows)), tmp_path / "out", map_to=interests)
    assert report.facts["changes_without_effect"] == 2
    assert [(time, kind) for time, kind, _ in replayed(tmp_path / "out", interests)] == [
        (6, "leave"),
        (8, "leave"),
        (9, "join"),
    ]


def test_a_restart_within_one_tick_is_a_leave_and_then_a_join(spark, write, tmp_path, interests):
    rows = [(0, machine, 0) for machine in range(4)] + [(5, 1, 0), (5, 1, 1)]
    jobs.churn(spark, write("m.csv", google(rows)), tmp_path / "out", map_to=interests)
    assert [(time, kind) for time, kind, _ in replayed(tmp_path / "out", interests)] == [(5, "leave"), (5, "join")]


def test_sessions_become_joins_and_leaves(spark, write, tmp_path, interests):
    """Up at the start: no join. Up when the trace ends: no leave. Sessions that touch are one."""
    text = "a\t2\t 0 10 20 30\nb\t1\t 5 100\nc\t2\t 7 9 9 12\nd\t1\t 0 100\n"
    report = jobs.churn(spark, write("s.avt", text), tmp_path / "out", map_to=interests, seed=2)
    events = replayed(tmp_path / "out", interests)
    assert [(time, kind) for time, kind, _ in events] == [
        (5, "join"),
        (7, "join"),
        (10, "leave"),
        (12, "leave"),
        (20, "join"),
        (30, "leave"),
    ]
    facts = report.facts
    assert (facts["machines"], facts["sessions"], facts["sessions_merged"], facts["sessions_open_at_end"]) == (
        4,
        6,
        1,
        2,
    )
    assert facts["nodes_present_at_start"] == 2


def test_times_count_from_the_beginning_of_the_trace(spark, write, tmp_path, interests):
    header = "node_id\tevent_type\tevent_start_time\tevent_stop_time\n"
    rows = [("a", 1, 1000, 1010), ("a", 1, 1020, 1100), ("b", 1, 1000, 1100), ("b", 0, 1, 2), ("c", 1, 1001, 1100)]
    text = header + "".join("\t".join(map(str, row)) + "\n" for row in rows)
    jobs.churn(spark, write("event_trace.tab", text), tmp_path / "out", format="fta", map_to=interests, machines=3)
    # The trace begins with what was observed first, although it is no session: all three come later.
    assert [(time, kind) for time, kind, _ in replayed(tmp_path / "out", interests)] == [
        (999, "join"),
        (999, "join"),
        (1000, "join"),
        (1009, "leave"),
        (1019, "join"),
    ]


def random_sessions(chance, machines):
    lines = []
    for machine in range(machines):
        times = sorted(chance.sample(range(1000), 2 * chance.randint(1, 6)))
        pairs = " ".join(map(str, times))
        lines.append(f"m{machine}\t{len(times) // 2}\t {pairs}\n")
    return lines


@pytest.mark.parametrize("counts", [(1, 7), pytest.param((1, 2, 7, 64), marks=pytest.mark.slow)])
def test_a_trace_is_the_same_on_any_number_of_partitions(spark, write, tmp_path, partitions, counts):
    chance = random.Random(7)
    lines = random_sessions(chance, 60)
    interests = write("i.tsv", "node\ttopic\n" + "".join(f"n{n}\tt\n" for n in range(40)))
    tables = []
    for count in counts:
        chance.shuffle(lines)
        for part in range(min(count, 5)):
            write(f"in{count}/part-{part}", "".join(lines[part :: min(count, 5)]))
        with partitions(count):
            jobs.churn(spark, tmp_path / f"in{count}", tmp_path / f"out{count}", map_to=interests, seed=3)
        tables.append(read_churn(tmp_path / f"out{count}", read_interests(interests)).to_table())
    assert len(tables[0]) > 100
    assert all(table.equals(tables[0]) for table in tables)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "a trace of machines needs nodes to stand for; name interests with --map-to"),
        ({"map_to": "interests", "machines": 5}, "5 machines for 4 nodes; ask for 1 to 4"),
        ({"map_to": "interests", "sample_from": "end"}, "choose start or all"),
        ({"map_to": "machines"}, 'has no column "node"'),
    ],
)
def test_what_cannot_be_mapped_is_refused(spark, write, tmp_path, interests, options, message):
    source = write("m.csv", google([(0, machine, 0) for machine in range(9)]))
    named = {"interests": interests, "machines": source}
    options = {key: named.get(value, value) for key, value in options.items()}
    with pytest.raises(InputError, match=message):
        jobs.churn(spark, source, tmp_path / "out", **options)


def test_overlapping_sessions_of_one_machine_are_one(spark):
    rows = [("a", 0.0, 5.0), ("a", 3.0, 4.0), ("a", 5.0, 6.0), ("a", 8.0, 9.0), ("b", 1.0, 2.0)]
    merged = stages.merged_sessions(spark.createDataFrame(rows, SESSIONS))
    assert sorted(tuple(row) for row in merged.collect()) == [("a", 0.0, 6.0), ("a", 8.0, 9.0), ("b", 1.0, 2.0)]


TELEMETRY = [
    (0.0, "a", "join", None),
    (1.0, "a", "subscribe", "x"),
    (1.0, "a", "subscribe", "y"),
    (2.0, "a", "subscribe", "x"),  # holds it already
    (3.0, "a", "unsubscribe", "z"),  # does not hold it
    (4.0, "a", "unsubscribe", "y"),
    (5.0, "a", "leave", None),
    (6.0, "b", "subscribe", "x"),  # its join was lost
    (7.0, "b", "join", None),  # it starts anew: it had crashed
    (8.0, "b", "subscribe", "y"),
    (9.0, "c", "join", None),  # never wants anything
    (9.5, "c", "leave", None),
]


def test_telemetry_becomes_a_trace_of_nodes_with_interests(spark):
    trace = stages.trace_of_telemetry(spark.createDataFrame(TELEMETRY, CHURN))
    assert [tuple(row) for row in trace.collect()] == [
        (1.0, "a", "join", None),
        (1.0, "a", "subscribe", "x"),
        (1.0, "a", "subscribe", "y"),
        (4.0, "a", "unsubscribe", "y"),
        (5.0, "a", "leave", None),
        (6.0, "b", "join", None),
        (6.0, "b", "subscribe", "x"),
        (7.0, "b", "crash", None),
        (8.0, "b", "join", None),
        (8.0, "b", "subscribe", "y"),
    ]


def random_telemetry(chance):
    events = [event.name for event in Event]
    for _ in range(80):
        event = chance.choice(events + ["subscribe"] * 3)
        topic = f"t{chance.randrange(3)}" if event.endswith("subscribe") else None
        yield float(chance.randrange(25)), f"n{chance.randrange(4)}", event, topic


def reference_final(rows):
    """Who wants what after all of it, one event at a time."""
    rank = {"leave": 0, "crash": 0, "join": 1, "unsubscribe": 2, "subscribe": 3}
    held: dict[str, set[str]] = {}
    for _, node, event, topic in sorted(rows, key=lambda row: (row[0], rank[row[2]])):
        if rank[event] < 2:
            held[node] = set()
        elif event == "subscribe":
            held.setdefault(node, set()).add(topic)
        else:
            held.setdefault(node, set()).discard(topic)
    return {(node, topic) for node, topics in held.items() for topic in topics}


@pytest.mark.parametrize("seed", range(3))
def test_any_telemetry_gives_a_trace_that_ends_in_its_final_subscriptions(spark, seed):
    rows = list(random_telemetry(random.Random(seed)))
    events = spark.createDataFrame(rows, CHURN)
    expected = reference_final(rows)
    assert {tuple(row) for row in final_subscriptions(events).collect()} == expected

    from trellis.model.churn import ChurnTrace
    from trellis.model.interests import Interests

    trace = ChurnTrace.from_rows(tuple(row) for row in stages.trace_of_telemetry(events).collect())
    held: dict[str, set[str]] = {}
    for event in replay(trace, Interests.from_pairs([("nobody", "nothing")])):
        match event.event:
            case Event.join:
                held[event.node] = set(event.topics)
            case Event.subscribe:
                held[event.node].add(event.topics[0])
            case Event.unsubscribe:
                held[event.node].remove(event.topics[0])
            case _:
                del held[event.node]
    assert {(node, topic) for node, topics in held.items() for topic in topics} == expected


def test_telemetry_is_read_by_both_jobs(spark, write, tmp_path):
    import json

    keys = ("time", "node", "event", "topic")
    text = "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in TELEMETRY)
    source = write("log.jsonl.gz", text)
    jobs.churn(spark, source, tmp_path / "trace")
    jobs.pairs(spark, source, tmp_path / "interests", format="telemetry")
    assert len(replayed(tmp_path / "trace", tmp_path / "interests")) == 6
    table = read_interests(tmp_path / "interests").to_table().to_pylist()
    assert table == [{"node": "b", "topic": "y"}]
