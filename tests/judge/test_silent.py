"""The judge and wildcards that were confirmed while the network was cut."""

from __future__ import annotations

import pytest

from judge.test_judge import END, found
from trellis.judge.history import (
    Acknowledged,
    Confirmed,
    Connected,
    Disturbed,
    Event,
    Publishing,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
    Up,
)

SPLIT = Disturbed(20.0, 50.0, "split", ("a",), ("b",))


def missed(
    *more: Event, wanted: str = "m/#", asked: float = 45.0, said: float = 46.0, at: str = "a", speaks: str = "mqtt"
) -> list[str]:
    """Judge a client of `b` that subscribes, and never gets what is published at another node afterwards."""
    events = [
        Connected(1.0, "p", "p", at, speaks="mqtt"),
        Connected(1.0, "s", "s", "b", speaks=speaks),
        *[Subscribing(asked, "s", wanted), Confirmed(asked + 0.2, "s", wanted)],
        *[Publishing(said, "p", "m1", "m/lamp"), Acknowledged(said + 0.1, "p", "m1")],
        Up(END, "late"),
    ]
    return found([*events, *more])


def other(node: str, wanted: str, asked: float, ended: float, promised: bool = True) -> list[Event]:
    """Another client subscribes at `node`, and gives its subscription up."""
    name = f"{node}{asked}"
    return [
        Connected(1.0, name, name, node, speaks="mqtt"),
        *[Subscribing(asked, name, wanted), Confirmed(asked + 0.2, name, wanted, promised)],
        *[Unsubscribing(ended, name, wanted), Unsubscribed(ended + 0.1, name, wanted)],
    ]


@pytest.mark.parametrize("wanted", ["m/#", "+/lamp", "$share/g/m/+"])
def test_a_wildcard_that_was_confirmed_in_a_long_split_may_miss_the_other_side(wanted: str) -> None:
    assert missed(SPLIT, wanted=wanted) == []
    assert missed(SPLIT, wanted=wanted, said=51.0) == [], "the publisher's node has not heard of it yet"
    assert missed(Disturbed(20.0, 50.0, "partition", ("a",)), wanted=wanted) == []
    assert missed(Disturbed(20.0, 50.0, "cut"), wanted=wanted) == []


def test_a_wildcard_may_miss_a_node_that_stood_still_when_it_was_confirmed() -> None:
    assert missed(Disturbed(20.0, 50.0, "pause", ("a",)), said=50.5) == []
    assert missed(Disturbed(20.0, 50.0, "pause", ("c",)), said=50.5) == ["lost"], "another node stood still"
    assert missed(Disturbed(44.0, 50.0, "pause", ("a",)), said=50.5) == ["lost"], "its answer was waited for"


def test_a_topic_by_name_misses_nothing_after_a_split() -> None:
    assert missed(SPLIT, wanted="m/lamp") == ["lost"]
    assert missed(SPLIT, wanted="m/lamp/#") == ["lost"], "its first two levels are a name"
    assert missed(SPLIT, wanted="m/lamp", speaks="native") == ["lost"]


def test_a_wildcard_misses_nothing_of_its_own_side_or_without_a_cut() -> None:
    assert missed() == ["lost"]
    assert missed(SPLIT, at="c") == ["lost"]
    assert missed(Disturbed(20.0, 50.0, "split", ("b",), ("c",))) == ["lost"]
    assert missed(Disturbed(20.0, 50.0, "partition", ("a", "b"))) == ["lost"], "both are on one side"
    assert missed(Disturbed(20.0, 50.0, "lossy", ("a",), ("b",))) == ["lost"]
    assert missed(SPLIT, at="b") == ["lost"]


def test_a_wildcard_waits_for_a_node_that_was_silent_for_less_than_ten_seconds() -> None:
    assert missed(SPLIT, asked=29.0) == ["lost"]
    assert missed(SPLIT, asked=19.0) == ["lost"]
    assert missed(SPLIT, asked=30.0) == []


def test_a_wildcard_misses_nothing_once_the_network_is_whole() -> None:
    assert missed(SPLIT, said=56.0) == ["lost"]
    assert missed(SPLIT, asked=56.0, said=57.0) == ["lost"]


def test_a_wildcard_that_its_node_held_before_the_split_misses_nothing() -> None:
    assert missed(SPLIT, *other("b", "m/#", 10.0, 60.0)) == ["lost"]
    assert missed(SPLIT, *other("b", "m/#", 10.0, 40.0), *other("b", "m/#", 35.0, 60.0)) == ["lost"]
    assert missed(SPLIT, *other("b", "m/#", 10.0, 40.0)) == [], "it was given up in between"
    assert missed(SPLIT, *other("b", "m/#", 10.0, 60.0, promised=False)) == [], "not all nodes had heard of it"
    assert missed(SPLIT, *other("b", "+/#", 10.0, 60.0)) == ["lost"], "another wildcard that covers the topic"
    assert missed(SPLIT, *other("b", "m/lamp", 10.0, 60.0)) == ["lost"], "the topic itself"
    assert missed(SPLIT, *other("b", "m/+", 10.0, 40.0), *other("b", "+/#", 35.0, 60.0)) == [], "the second is new"
    assert missed(SPLIT, *other("b", "x/#", 10.0, 60.0)) == [], "a wildcard for other topics"
    assert missed(SPLIT, *other("c", "m/#", 10.0, 60.0)) == [], "another node"
