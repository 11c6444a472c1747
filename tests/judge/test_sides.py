"""A fault excuses only what it can have touched: its nodes, the paths between its two sides, as many drops as are told.

Each test states both sides: what is an excuse, and what is none.
"""

from __future__ import annotations

import pytest

from judge.test_strict_judge import base, found, got, said, subscribed
from trellis.judge.faults import is_among, is_between
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
    Left,
    Overflowed,
    Publishing,
    Subscribing,
    Up,
)

CUT = Disturbed(45.0, 55.0, "cut")


@pytest.mark.parametrize(
    ("nodes", "peers", "kind", "hit", "spared"),
    [
        (("A",), ("B",), "cut", [("A", "B"), ("B", "A")], [("A", "C"), ("B", "C")]),
        (("A", "C"), ("B",), "split", [("A", "B"), ("C", "B")], [("A", "C")]),
        (("A",), (), "partition", [("A", "B"), ("A", "C")], [("B", "C")]),
        (("A",), ("B",), "lossy", [("A", "B")], [("A", "C")]),
        (("A",), (), "pause", [("A", "B"), ("C", "A")], [("B", "C")]),
        ((), (), "cut", [("A", "B"), ("B", "C")], []),
        (("A",), (), "clock", [], [("A", "B")]),
        (("A",), ("B",), "cut", [("A", ""), ("", "C")], []),
    ],
)
def test_a_fault_is_on_the_paths_between_its_two_sides(
    nodes: tuple[str, ...],
    peers: tuple[str, ...],
    kind: str,
    hit: list[tuple[str, str]],
    spared: list[tuple[str, str]],
) -> None:
    fault = Disturbed(1.0, 2.0, kind, nodes, peers)
    assert all(is_between(fault, *pair) for pair in hit)
    assert not any(is_between(fault, *pair) for pair in spared)
    assert all(is_among(fault, pair) for pair in hit if "" not in pair)
    assert not any(is_among(fault, pair) for pair in spared)


def test_a_window_that_overflows_excuses_as_many_messages_as_the_node_counts() -> None:
    events = [*base(), *said("m1", 50.0), *said("m2", 51.0), CUT]
    assert found(events, Overflowed(52.0, "A", 2, "window")) == []
    assert found(events, Overflowed(52.0, "A", 1, "window")) == ["lost"]
    second = [Connected(0.0, "r", "r", "C"), *subscribed("r", "x", 1.0)]
    assert found(events, second, Overflowed(52.0, "A", 2, "window")) == [], "each is missing for two readers"


def test_a_window_that_overflows_far_from_the_message_is_no_excuse() -> None:
    events = [*base(), *said("m1", 50.0), CUT, Up(0.0, "C")]
    assert found(events, Overflowed(52.0, "C", 9, "window")) == ["lost"], "nobody subscribes at C"
    reader = [Connected(0.0, "r", "r", "C"), *subscribed("r", "x", 1.0), got("m1", 51.0, "r")]
    assert found(events, reader, Overflowed(52.0, "C", 9, "window")) == [], "C may have to pass it on"


def test_of_two_overflows_each_loss_gets_the_one_that_suits_it() -> None:
    """The first reader was at both nodes. It must leave the drop of B to the reader that was at B alone."""
    events = [*base(reader="mqtt"), *said("m", 50.0), Away(20.0, "s", keeps=True), Back(21.0, "s", "C")]
    events += [Connected(0.0, "r", "r", "B", speaks="mqtt"), *subscribed("r", "x", 1.0)]
    at_b, at_c = Overflowed(50.2, "B", 1, "clients"), Overflowed(50.3, "C", 1, "clients")
    assert found(events, at_b, at_c) == []
    assert found(events, at_c, at_c) == ["lost"], "the second reader was never at C"
    assert found(events, at_b) == ["lost"], "it is missing twice"


def test_a_cut_that_separates_others_does_not_let_a_node_that_has_ended_answer() -> None:
    events: list[Event] = [Up(0.0, "A"), *base(), Connected(0.0, "q", "q", "A", host="h"), Down(50.0, "A")]
    late = [Publishing(49.0, "q", "m", "x"), Acknowledged(75.0, "q", "m", ("A", "B")), got("m", 49.5)]
    assert found(events, late, Disturbed(49.0, 70.0, "cut", ("A",), ("h",))) == []
    assert found(events, late, Disturbed(49.0, 70.0, "cut", ("A",), ("B",))) == ["history"]
    assert found(events, late, Disturbed(49.0, 70.0, "partition", ("h", "A"), ("B",))) == ["history"]


def test_a_node_that_has_left_holds_no_copy() -> None:
    events = [*base(), *said("m", 50.0), got("m", 50.2), Down(42.0, "B", leave=True)]
    assert found(events) == [], "nobody knows when it had left"
    assert found(events, Left(48.0, "B")) == [], "a moment before"
    assert found(events, Left(43.0, "B")) == ["copies"]


@pytest.mark.parametrize("kind", ["disk", "clock", "cut"])
def test_a_fault_that_hides_no_node_is_no_excuse_for_too_few_copies(kind: str) -> None:
    events = [Up(0.0, "A"), Up(0.0, "B"), *base(writer="native"), *said("m", 50.0, holders=("A",)), got("m", 50.2)]
    fault = Disturbed(20.0, 52.0, kind, ("client",) if kind == "cut" else ("A",))
    assert found(events, fault) == ["copies"]
    assert found(events, Disturbed(20.0, 52.0, "cut", ("B",))) == []


def at_brokers(*receipts: Event) -> list[Event]:
    """A publisher at one broker, and a reader at another."""
    return [
        Connected(0.0, "p", "p", "A", "a", "mqtt"),
        Connected(0.0, "s", "s", "B", "b", "mqtt"),
        *subscribed("s", "x", 1.0),
        *said("m1", 50.0, holders=()),
        *said("m2", 51.0, holders=()),
        *receipts,
    ]


def test_messages_of_brokers_come_twice_or_out_of_order_only_where_the_two_sites_are_disturbed() -> None:
    twice = at_brokers(got("m1", 50.2), got("m2", 51.2), got("m2", 51.5))
    order = at_brokers(got("m2", 51.2), got("m1", 51.5))
    for events, kind in ((twice, "twice"), (order, "order")):
        for near in (
            Disturbed(49.0, 52.0, "pause", ("b",)),
            Disturbed(49.0, 52.0, "cut", ("A",), ("a",)),
            Disturbed(51.0, 51.0, "reset", ("b",), ("B",)),
            Up(40.0, "A"),
        ):
            assert found(events, near) == [], near
        for far in (
            Disturbed(49.0, 52.0, "pause", ("C",)),
            Disturbed(49.0, 52.0, "cut", ("A",), ("B",)),
            Disturbed(51.0, 51.0, "reset", ("B",), ("A",)),
            Up(40.0, "C"),
            Disturbed(5.0, 6.0, "pause", ("b",)),
        ):
            assert found(events, far) == [kind], far


def test_a_message_that_the_window_of_its_sidecar_has_dropped_may_come_after_later_ones() -> None:
    order = at_brokers(got("m2", 51.2), got("m1", 52.5))
    assert found(order, Overflowed(51.0, "A", 1, "window")) == []
    assert found(order, Overflowed(51.0, "B", 1, "window")) == ["order"], "A is the sidecar of the publisher's broker"
    assert found(order, Overflowed(55.0, "A", 1, "window")) == ["order"], "later"
    at_nodes = [*base(), *said("m1", 50.0), *said("m2", 51.0), got("m2", 51.2), got("m1", 52.5)]
    assert found(at_nodes, Overflowed(51.0, "A", 1, "window")) == ["order"], "its node does not publish it again"


def test_a_message_may_wait_for_one_that_a_window_has_dropped() -> None:
    others = [Connected(0.0, "q", "q", "B"), *said("m2", 52.0, holders=("B",), session="q"), got("m2", 52.2)]
    late = [*base(), *said("m1", 50.0), *others, got("m1", 62.0)]
    assert found(late, heal_s=8.0) == ["late"]
    assert found(late, Overflowed(49.0, "A", 1, "window"), heal_s=8.0) == []
    assert found(late, Overflowed(49.0, "C", 1, "window"), heal_s=8.0) == ["late"], "nobody subscribes at C"
    assert found(late, Overflowed(30.0, "A", 1, "window"), heal_s=8.0) == ["late"], "long before"


def test_a_node_that_subscribes_in_a_cut_is_no_copy_for_the_other_side_before_the_cut_is_over() -> None:
    """The cut is too short for a home to forget a node that had registered before."""
    events = [Up(0.0, "A"), Up(0.0, "B"), *base("y", writer="native"), got("m", 50.2)]
    events += said("m", 50.0, holders=("A",))
    cut = Disturbed(45.0, 51.0, "cut", ("A",), ("B",))
    assert found(events, subscribed("s", "x", 46.0), cut) == []
    assert found(events, subscribed("s", "x", 43.0), cut) == ["copies"], "it had registered before"
    assert found(events, subscribed("s", "x", 46.0), Disturbed(45.0, 51.0, "cut", ("C",), ("B",))) == ["copies"]
    assert found(events, subscribed("s", "x", 39.0), Disturbed(37.0, 42.0, "cut", ("A",), ("B",))) == ["copies"], "over"


def test_a_short_absence_long_after_a_message_does_not_let_it_come_again() -> None:
    """Elsewhere a node restarts, so that the mesh is not calm."""
    events = [Connected(0.0, "p", "p", "A"), Connected(0.0, "s", "s", "B", "", "mqtt", "h"), *subscribed("s", "x", 1.0)]
    events += [*said("m", 50.0), got("m", 50.2), Up(49.0, "C")]

    def again(t: float) -> list[Event]:
        return [Away(t, "s", keeps=True), Back(t + 0.1, "s", "B"), got("m", t + 0.2)]

    assert found(events, again(52.0)) == [], "its acknowledgement may be lost"
    assert found(events, again(62.0)) == ["twice"]
    assert found(events, again(62.0), Disturbed(49.0, 61.0, "cut", ("h",), ("B",))) == [], "it was held up"
    assert found(events, again(62.0), Disturbed(49.0, 61.0, "cut", ("h",), ("A",))) == ["twice"]


def test_a_node_keeps_copies_for_a_session_whose_client_does_not_come_back() -> None:
    events = [*base("y"), Connected(0.0, "q", "q", "C", "", "mqtt"), *subscribed("q", "x", 1.0)]
    events += said("m", 200.0, holders=("A", "C"))
    assert found(events, Ended(20.0, "q", keeps=True)) == []
    assert found(events, Ended(20.0, "q")) == ["copies"]


def test_messages_of_all_clients_of_a_node_keep_their_order_if_each_was_acknowledged_before_the_next_began() -> None:
    def heard(second: float, node: str = "A", broker: str = "") -> list[Event]:
        other = Connected(0.0, "q", "q", node, broker)
        later = said("m2", second, holders=(node, "B"), session="q")
        return [*base(), other, *said("m1", 50.0), *later, got("m2", 52.0), got("m1", 53.0)]

    assert found(heard(51.0)) == ["order"]
    assert found(heard(50.05)) == [], "both were under way to the node"
    assert found(heard(51.0, "C")) == [], "nothing is promised between two nodes"
    again = [*base(), Ended(50.5, "p"), Connected(51.0, "p2", "p", "A"), *said("m1", 50.0)]
    again += [*said("m2", 51.5, session="p2"), got("m2", 52.0), got("m1", 53.0)]
    assert found(again) == ["order"], "the client connected again in between"
    assert found(again, Down(50.6, "A"), Up(50.8, "A")) == [], "the node has restarted in between"


def test_a_departure_in_order_after_the_crash_of_the_other_holder_excuses_no_loss() -> None:
    events = [*base("x", "D"), *said("m", 50.0, holders=("A", "B"))]
    events += [Connected(0.0, "r", "r", "B"), *subscribed("r", "x", 1.0), got("m", 50.2, "r")]
    crash, leave = Down(51.0, "B"), Down(52.0, "A", leave=True)
    assert found(events, crash, leave, Left(55.0, "A")) == ["lost"], "it had to hand the message on"
    early = Down(50.5, "A", leave=True)
    assert found(events, early, Left(50.8, "A"), crash) == [], "it handed the message on to the node that crashed"


def test_a_disk_that_is_full_elsewhere_does_not_let_a_client_get_old_messages() -> None:
    events = [*base("y"), *said("m", 50.0, holders=("A",)), *subscribed("s", "x", 150.0), got("m", 152.0)]
    assert found(events) == ["older"]
    assert found(events, Disturbed(100.0, 101.0, "disk", ("A",))) == ["older"]
    assert found(events, Disturbed(100.0, 101.0, "cut")) == [], "a cut may have held it up"


def test_a_copy_at_a_node_that_does_not_exist_is_none() -> None:
    events = [*base(), *said("m", 50.0, holders=("A", "Z")), got("m", 50.2), Disturbed(45.0, 60.0, "cut")]
    assert found(events, Up(0.0, "A"), Up(0.0, "B")) == ["copies"]
    assert found(events, Up(0.0, "A"), Up(0.0, "B"), Up(0.0, "Z")) == []


def test_a_subscription_that_is_confirmed_for_sure_later_is_owed_from_then_on() -> None:
    asked: list[Event] = [Subscribing(20.0, "s", "x"), Confirmed(21.0, "s", "x", promised=False)]
    events = [*base("y"), *asked, *said("m", 50.0)]
    assert found(events) == []
    again: list[Event] = [Subscribing(30.0, "s", "x"), Confirmed(31.0, "s", "x")]
    assert found(events, again) == ["lost"]


def test_a_long_chain_of_overflows_is_matched_without_an_error() -> None:
    """Each reader was at two nodes, and takes the drop of the first. The final one makes all take the second."""
    count = 1_100
    events: list[Event] = [Connected(0.0, "p", "p", "A"), *said("m", 50.0, holders=("A",))]
    for number in range(count):
        name = f"r{number}"
        events += [Connected(0.0, name, name, f"N{number}", speaks="mqtt"), *subscribed(name, "x", 1.0)]
        events += [Away(20.0, name, keeps=True), Back(21.0, name, f"N{number + 1}")]
    events += [Connected(0.1, "final", "final", "N0", speaks="mqtt"), *subscribed("final", "x", 1.0)]
    drops = [Overflowed(50.2, f"N{number}", 1, "clients") for number in range(count + 1)]
    assert "lost" not in found(events, drops)
    assert "lost" in found(events, drops[:-1])
