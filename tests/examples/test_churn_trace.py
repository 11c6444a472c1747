"""Replaying a trace: joins come whole, and who is there is known at every row."""

from __future__ import annotations

from trellis.model import ChurnTrace, Event, Interests, replay

INTERESTS = Interests.from_pairs({"a": ["x", "y"], "b": ["x"], "late": ["y"]})


def replayed(*rows):
    return [
        (event.time, event.event, event.node, event.topics) for event in replay(ChurnTrace.from_rows(rows), INTERESTS)
    ]


def test_a_join_takes_the_subscribe_rows_of_the_same_time_with_it():
    assert replayed((1, "new", "join", None), (1, "new", "subscribe", "x"), (1, "new", "subscribe", "z")) == [
        (1, Event.join, "new", ("x", "z"))
    ]


def test_a_subscription_at_a_later_time_is_an_event_of_its_own():
    assert replayed((1, "late", "join", None), (2, "late", "subscribe", "x")) == [
        (1, Event.join, "late", ("y",)),
        (2, Event.subscribe, "late", ("x",)),
    ]


def test_a_node_returns_with_its_row_of_the_table_unless_it_says_otherwise():
    assert replayed(
        (1, "a", "leave", None),
        (2, "a", "join", None),
        (3, "a", "crash", None),
        (4, "a", "join", None),
        (4, "a", "subscribe", "z"),
    ) == [
        (1, Event.leave, "a", ()),
        (2, Event.join, "a", ("x", "y")),
        (3, Event.crash, "a", ()),
        (4, Event.join, "a", ("z",)),
    ]


def test_two_joins_at_one_time_keep_their_own_topics():
    assert replayed(
        (1, "p", "join", None), (1, "p", "subscribe", "x"), (1, "q", "join", None), (1, "q", "subscribe", "y")
    ) == [(1, Event.join, "p", ("x",)), (1, Event.join, "q", ("y",))]


def test_a_node_may_drop_its_last_topic_and_take_up_another():
    assert [
        event[1]
        for event in replayed((1, "b", "unsubscribe", "x"), (1, "b", "subscribe", "y"), (2, "b", "leave", None))
    ] == [
        Event.unsubscribe,
        Event.subscribe,
        Event.leave,
    ]
