"""What cannot have happened, or must not happen so late: each test states what is found, and what is right."""

from __future__ import annotations

from typing import Any

import pytest

from trellis.judge import History, Promise, judge
from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Ended,
    Event,
    Overflowed,
    Publishing,
    Received,
    Settled,
    Subscribing,
    Up,
)

TOPIC = "a/b"
GROUP = "$share/g/a/b"


def found(*parts: Any, **promise: Any) -> list[str]:
    events = [one for part in parts for one in (part if isinstance(part, list) else [part])]
    events = sorted([*events, Settled(900.0)], key=lambda one: one.t)
    return sorted(judge(History(events), Promise(**promise)).by_kind())


def nodes() -> list[Event]:
    return [Up(0.0, "n0"), Up(0.0, "n1"), Up(0.0, "n2")]


def wants(session: str, node: str, *filters: str, t: float = 30.0, speaks: Any = "mqtt") -> list[Event]:
    asked: list[Event] = [Connected(t, session, session, node, "", speaks, f"host of {session}")]
    for wanted in filters:
        asked += [Subscribing(t + 1.0, session, wanted), Confirmed(t + 1.5, session, wanted)]
    return asked


def said(message: str, t: float, **more: Any) -> list[Event]:
    return [Publishing(t, "p", message, TOPIC, **more), Acknowledged(t + 0.1, "p", message)]


def got(session: str, message: str, t: float, *, retained: bool = False) -> Event:
    return Received(t, session, message, TOPIC, retained)


def pair() -> list[Event]:
    """A publisher at one node, and a reader at another one."""
    return [*nodes(), *wants("p", "n0"), *wants("r", "n1", TOPIC)]


# Receipts without a connection


def test_a_dead_node_hands_over_nothing_that_was_published_later() -> None:
    dead = [Down(60.0, "n1"), *said("m", 150.0)]
    assert found(pair(), dead, got("r", "m", 150.2)) == ["history"]
    assert found(pair(), said("m", 59.9), Down(60.0, "n1"), got("r", "m", 63.0)) == []  # it read late what had come


def test_a_client_that_is_away_gets_nothing_that_was_published_meanwhile() -> None:
    away = [Away(60.0, "r", True), Back(170.0, "r", "n1")]
    assert found(pair(), away, said("m", 150.0), got("r", "m", 150.2)) == ["history"]
    assert found(pair(), away, said("m", 150.0), got("r", "m", 170.2)) == []


def test_a_node_that_has_crashed_does_not_crash_again() -> None:
    assert found(pair(), Down(60.0, "n2"), Down(70.0, "n2")) == ["history"]
    assert found(pair(), Down(60.0, "n2"), Up(65.0, "n2"), Down(70.0, "n2")) == []
    assert found(pair(), Down(60.0, "n2", True), Down(61.0, "n2")) == []  # it crashed while it left


# Repetitions of the publisher


def again(back: float) -> list[Event]:
    """The publisher loses its connection before the acknowledgement, and publishes again."""
    lost: list[Event] = [Publishing(100.0, "p", "m", TOPIC), Away(100.1, "p", True), Back(back, "p", "n0")]
    return [*lost, Acknowledged(back + 0.5, "p", "m"), got("r", "m", 100.05)]


def test_a_publisher_that_was_away_for_a_moment_excuses_no_copy_ten_minutes_later() -> None:
    assert found(pair(), again(101.0), got("r", "m", 101.2)) == []
    assert found(pair(), again(101.0), got("r", "m", 700.0)) == ["twice"]


def test_a_publisher_that_was_away_for_a_moment_excuses_no_order_ten_minutes_later() -> None:
    late = [one for one in again(101.0) if not isinstance(one, Received)]
    later = [*said("m2", 102.0), got("r", "m2", 102.2)]
    assert found(pair(), late, later, got("r", "m", 103.0)) == []
    assert found(pair(), late, later, got("r", "m", 700.0)) == ["order"]


def test_an_absence_after_its_time_excuses_no_late_acknowledgement() -> None:
    asked = Publishing(100.0, "p", "m", TOPIC)
    answered = [Acknowledged(140.0, "p", "m"), got("r", "m", 100.5)]
    assert found(pair(), asked, Away(139.0, "p", True), Back(139.1, "p", "n0"), answered) == ["late"]
    assert found(pair(), asked, Away(101.0, "p", True), Back(139.1, "p", "n0"), answered) == []


# Retained messages


def kept() -> list[Event]:
    return [*nodes(), *wants("p", "n0"), *said("old", 50.0, retain=True), *said("new", 60.0, retain=True)]


def test_a_retained_message_that_was_replaced_does_not_come_later_either() -> None:
    reader = [*wants("r", "n1", TOPIC, t=99.0), got("r", "new", 100.7, retained=True)]
    assert found(kept(), reader) == []
    assert found(kept(), reader, got("r", "old", 120.0, retained=True)) == ["retained"]


def test_a_retained_message_comes_to_a_new_subscription_as_such() -> None:
    reader = wants("r", "n1", TOPIC, t=99.0)
    assert found(kept(), reader, got("r", "new", 100.7, retained=False)) == ["older"]
    native = wants("r", "n1", TOPIC, t=99.0, speaks="native")
    assert found(kept(), native, got("r", "new", 100.7, retained=False)) == ["older"]  # such a client gets none
    assert found(kept(), native) == []


def test_a_message_of_long_ago_does_not_come_because_of_a_crash_of_long_ago() -> None:
    before = [*nodes(), *wants("p", "n0"), *said("m", 50.0), Down(100.0, "n2")]
    assert found(before, wants("r", "n1", TOPIC, t=550.0), got("r", "m", 552.0)) == ["older"]
    assert found(before, wants("r", "n1", TOPIC, t=110.0), got("r", "m", 112.0)) == []


def test_a_later_publication_of_a_broker_s_client_excuses_no_missing_retained_message() -> None:
    reader = wants("r", "n1", TOPIC, t=99.0)
    other = [Connected(30.0, "b", "b", "n2", "broker of n2", "mqtt")]
    late = [Publishing(700.0, "b", "m", TOPIC, retain=True), Acknowledged(700.1, "b", "m"), got("r", "m", 700.3)]
    assert found(kept(), reader, other, late) == ["retained"]
    early = [Publishing(70.0, "b", "m", TOPIC, retain=True), Acknowledged(70.1, "b", "m")]
    assert found(kept(), reader, other, early) == []  # the sidecar may bring it as a plain message


def test_an_overflow_that_is_told_a_moment_later_excuses_a_missing_retained_message() -> None:
    reader = wants("r", "n1", TOPIC, t=99.0)  # confirmed at 100.5 s, so due at 105.5 s
    assert found(kept(), reader, Overflowed(105.9, "n1", 1, "window")) == []
    assert found(kept(), reader, Overflowed(300.0, "n1", 1, "window")) == ["retained"]


# Shared subscriptions


def members() -> list[Event]:
    return [*nodes(), *wants("p", "n0"), *wants("x", "n1", GROUP), *wants("y", "n2", GROUP)]


@pytest.mark.parametrize(
    "fault",
    [Disturbed(99.0, 140.0, "pause", ("n1",)), Disturbed(99.0, 140.0, "cut", ("n1",), ("n0", "n2"))],
    ids=["pause", "cut"],
)
def test_a_message_for_a_group_may_come_twice_if_a_node_was_silent(fault: Disturbed) -> None:
    both = [*said("m", 100.0), got("y", "m", 120.0), got("x", "m", 141.0)]
    assert found(members(), fault, both) == []
    assert found(members(), both) == ["twice"]
    short = Disturbed(99.0, 101.0, fault.kind, fault.nodes, fault.peers)
    assert found(members(), short, both) == ["twice"], "nobody takes over after two seconds"


def test_a_session_gets_a_message_for_its_plain_filter_and_for_its_group() -> None:
    base = [*nodes(), *wants("p", "n0"), *wants("x", "n1", GROUP, TOPIC)]
    assert found(base, said("m", 100.0), got("x", "m", 100.2), got("x", "m", 100.3)) == []
    thrice = [got("x", "m", 100.2 + place / 10) for place in range(3)]
    assert found(base, said("m", 100.0), thrice) == ["twice"]
    assert found(base, said("m", 100.0), got("x", "m", 100.2), Ended(105.0, "p")) == []
