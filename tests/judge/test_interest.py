"""The judge and publishers that do not subscribe, whose interest ends while the network is cut."""

from __future__ import annotations

from judge.test_judge import END, found
from trellis.judge.history import (
    Acknowledged,
    Away,
    Confirmed,
    Connected,
    Disturbed,
    Event,
    Missed,
    Publishing,
    Received,
    Subscribing,
    Up,
)

SPLIT = Disturbed(20.0, 50.0, "split", ("a",), ("b", "c"))


def judged(
    *more: Event, split: Disturbed = SPLIT, said: float = 35.0, holders: tuple[str, ...] = ("a",), **promise: float
) -> list[str]:
    """Judge a client of `b` that never gets what is published at `a` during a cut."""
    events = [
        Connected(1.0, "p", "p", "a", speaks="native"),
        Connected(1.0, "s", "s", "b", speaks="native"),
        *[Subscribing(2.0, "s", "t"), Confirmed(3.0, "s", "t")],
        *[Publishing(said, "p", "m1", "t"), Acknowledged(said + 0.1, "p", "m1", holders)],
        Up(END, "late"),
    ]
    return found([*events, split, *more], **{"interest_s": 1.0, **promise})


def again(t: float, *, retain: bool = False) -> list[Event]:
    """Publish another message at `a`. The client is told of a gap, and gets the message."""
    holders, due = ("a",) if t < SPLIT.until else ("a", "b"), max(t, SPLIT.until) + 1.0
    said = Publishing(t, "p", "m2", "t", retain=retain)
    return [said, Acknowledged(t + 0.1, "p", "m2", holders), Missed(due, "s", "t"), Received(due, "s", "m2", "t")]


def reader(node: str) -> list[Event]:
    """Subscribe at a node of the publisher's side."""
    return [
        Connected(1.0, "r", "r", node, speaks="native"),
        *[Subscribing(2.0, "r", "t"), Confirmed(3.0, "r", "t"), Received(35.2, "r", "m1", "t")],
    ]


def test_what_nobody_on_its_side_of_a_cut_wants_may_be_forgotten_when_interest_ends() -> None:
    assert judged() == []
    assert judged(interest_s=60.0) == ["lost"]
    elsewhere = Disturbed(20.0, 50.0, "split", ("b",), ("c",))
    assert judged(split=elsewhere) == ["copies", "lost"], "nothing lies between the two"
    assert judged(split=Disturbed(34.0, 50.0, "split", ("a",), ("b",))) == ["lost"], "its node knew the subscriber"
    assert judged(said=56.0, holders=("a", "b")) == ["lost"], "the cut is over"


def test_a_publisher_that_goes_on_publishes_what_it_holds_when_the_cut_is_over() -> None:
    assert judged(*again(48.0), interest_s=10.0) == ["lost"]
    assert judged(*again(38.0), interest_s=10.0) == []


def test_what_somebody_on_its_side_of_a_cut_wants_is_not_forgotten() -> None:
    assert judged(*reader("a")) == ["lost"]
    assert judged(*reader("c")) == ["lost"]
    assert judged(Up(0.0, "c"), holders=("a", "c")) == ["lost"]
    assert judged(*again(36.0, retain=True)) == ["lost"]


def test_what_was_left_to_nobody_may_come_when_its_topic_is_used_again() -> None:
    late = [*again(80.0), Received(80.9, "s", "m1", "t")]
    overtaken = [
        Connected(1.0, "q", "q", "c", speaks="native"),
        *[Publishing(60.0, "q", "m3", "t"), Acknowledged(60.1, "q", "m3", ("b", "c")), Received(60.2, "s", "m3", "t")],
    ]
    assert judged(*late, *overtaken, heal_s=8.0) == []
    assert judged(*late, *overtaken, heal_s=8.0, interest_s=60.0) == ["late"]


def test_a_subscriber_that_is_away_keeps_its_node_on_the_topic() -> None:
    """It never gets the message, and its session stays. So its node holds the message, and has it after the cut."""
    away = [one for one in reader("c") if not isinstance(one, Received)]
    away += [Away(10.0, "r", True)]
    beside = Disturbed(20.0, 50.0, "split", ("a", "c"), ("b",))
    assert judged(*away, split=beside, holders=("a",)) == ["lost"]
    assert judged(*away, split=SPLIT) == [], "it is on the other side"
