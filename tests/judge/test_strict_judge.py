"""Histories that look nearly right: the judge is not fooled by faults that have nothing to do with what went wrong.

Each test states both sides: what is found, and the smallest change that makes it right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
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
    Record,
    Refused,
    Settled,
    Subscribing,
    Unsubscribed,
    Unsubscribing,
    Up,
)

END = 300.0


def base(wanted: str = "x", node: str = "B", *, writer: str = "", reader: str = "") -> list[Event]:
    """A publisher at node A, and a reader at another one."""
    return [
        Connected(0.0, "p", "p", "A", speaks=writer),  # type: ignore[arg-type]
        Connected(0.0, "s", "s", node, speaks=reader),  # type: ignore[arg-type]
        *subscribed("s", wanted, 1.0),
    ]


def subscribed(session: str, wanted: str, t: float) -> list[Event]:
    return [Subscribing(t, session, wanted), Confirmed(t + 1.0, session, wanted)]


def said(message: str, t: float, topic: str = "x", holders: tuple[str, ...] = ("A", "B"), **more: Any) -> list[Event]:
    session = more.pop("session", "p")
    return [Publishing(t, session, message, topic, **more), Acknowledged(t + 0.1, session, message, holders)]


def got(message: str, t: float, session: str = "s", topic: str = "x", *, retained: bool = False) -> Event:
    return Received(t, session, message, topic, retained)


def found(*parts: Sequence[Record] | Record, **promise: Any) -> list[str]:
    """Return the kinds of violations, each once. The history ends at `END`."""
    events: list[Any] = [one for part in parts for one in ([part] if isinstance(part, Record) else part)]
    events.append(Connected(END, "last", "last", "nowhere"))
    return sorted(judge(History(sorted(events, key=lambda one: one.t)), Promise(**promise)).by_kind())


# Twice


def test_a_repetition_to_a_node_that_has_not_restarted_is_no_excuse() -> None:
    lost: list[Event] = [Publishing(40.0, "p", "m", "x"), Away(40.05, "p"), Back(40.5, "p", "A")]
    lost += [Acknowledged(41.0, "p", "m", ("A", "B")), got("m", 41.0), got("m", 42.0)]
    assert found(base(), lost) == ["twice"]
    assert found(base(), lost, Down(40.05, "A"), Up(40.3, "A")) == []
    assert found(base(writer="mqtt"), lost) == []  # a lost PUBACK: "at least once"
    twice = [Publishing(40.0, "p", "m", "x", 2), *lost[1:]]
    assert found(base(writer="mqtt"), twice) == ["twice"]


def test_a_return_excuses_only_what_the_session_may_not_have_acknowledged() -> None:
    once = [*base(), *said("m", 40.0)]
    gone = [Away(42.0, "s", True), Back(45.0, "s", "B")]
    assert found(once, gone, got("m", 41.0), got("m", 45.5)) == []
    before = [Away(39.0, "s", True), Back(45.0, "s", "B")]
    assert found(once, before, got("m", 46.0), got("m", 90.0)) == ["twice"]
    later = [Away(120.0, "s", True), Back(121.0, "s", "B")]
    assert found(once, later, got("m", 41.0), got("m", 122.0)) == ["twice"]
    assert found(once, gone, got("m", 41.0), got("m", 90.0)) == ["twice"]
    assert found(once, gone, got("m", 41.0), got("m", 45.5), got("m", 45.6)) == ["twice"]


def test_two_members_of_a_group_do_not_get_the_same_message() -> None:
    group: list[Event] = []
    for name in ("g", "h"):
        group += [Connected(3.0, name, name, "B"), *subscribed(name, "$share/team/x", 4.0)]
    once = [*base(), *group, *said("m", 40.0), got("m", 40.2), got("m", 41.0, "g")]
    assert found(once) == []
    assert found(once, got("m", 41.0, "h")) == ["twice"]
    assert found(once, got("m", 42.0, "h"), Away(41.5, "g", True)) == []
    assert found(once, got("m", 42.0, "h"), subscribed("h", "x", 6.0)) == []  # it has a subscription of its own


# Lost


def three() -> list[Event]:
    """A reader at D and one at B, which holds a copy."""
    return [*base(node="D"), Connected(0.0, "b", "b", "B"), *subscribed("b", "x", 1.0)]


def test_the_crash_of_a_node_that_did_not_hold_the_message_is_no_excuse() -> None:
    lost = [*three(), *said("m", 40.0), got("m", 40.2, "b"), Ended(41.9, "b")]
    left = [Down(41.0, "A", leave=True), Down(42.0, "B", leave=True)]
    assert found(lost, left, Down(43.0, "C")) == ["lost"]
    assert found(lost, Down(41.0, "A", leave=True), Down(42.0, "B")) == []


def test_holders_that_crashed_before_they_held_the_message_are_no_excuse() -> None:
    """The publisher repeated it to the node when that was back, so the crashes took no copy away."""
    early = [Publishing(40.0, "p", "m", "x"), Down(40.1, "A"), Away(40.1, "p"), Down(40.2, "B"), Ended(40.2, "b")]
    early += [Up(41.0, "A"), Up(41.0, "B"), Back(41.5, "p", "A"), Acknowledged(50.0, "p", "m", ("A", "B"))]
    assert found(three(), early) == ["lost"]
    assert found(three(), early, Down(51.0, "A"), Down(51.0, "B")) == []


def test_many_short_faults_are_no_long_one() -> None:
    lost = [*base(), *said("m", 36.0)]
    assert found(lost, [Disturbed(35.0 + 4 * turn, 35.0 + 4 * turn, "reset", ("B",)) for turn in range(17)]) == ["lost"]
    assert found(lost, [Disturbed(35.0 + 4 * turn, 37.0 + 4 * turn, "cut") for turn in range(17)]) == ["lost"]
    assert found(lost, [Disturbed(35.0 + 4 * turn, 40.0 + 4 * turn, "cut") for turn in range(17)]) == []


def test_a_fault_far_from_the_way_of_a_message_is_no_excuse() -> None:
    lost = [*base(), *said("m", 36.0)]
    assert found(lost, Disturbed(35.0, 110.0, "pause", ("C",))) == ["lost"]
    assert found(lost, Disturbed(35.0, 110.0, "clock")) == ["lost"]
    for fault in (Disturbed(35.0, 110.0, "pause", ("B",)), Disturbed(35.0, 110.0, "partition", ("B",))):
        assert found(lost, fault) == [], fault
    assert found(lost, Disturbed(35.0, 110.0, "partition", ("C",))) == ["lost"]
    assert found(lost, Disturbed(35.0, 110.0, "split", ("B",), ("C",))) == ["lost"]
    assert found(lost, Disturbed(35.0, 110.0, "split", ("B",), ("A",))) == []


def test_a_message_of_the_moment_of_the_confirmation_is_owed_if_it_stands_behind_it() -> None:
    sure = [Connected(5.0, "p", "p", "A"), Connected(5.0, "s", "s", "B"), Subscribing(5.0, "s", "x")]
    rest = [Acknowledged(5.0, "p", "m", ("A", "B"))]
    assert found(sure, Confirmed(5.0, "s", "x"), Publishing(5.0, "p", "m", "x"), rest) == ["lost"]
    assert found(sure, Publishing(5.0, "p", "m", "x"), Confirmed(5.0, "s", "x"), rest) == []


def test_what_is_acknowledged_in_the_moment_of_settling_has_had_no_time() -> None:
    verdict = judge(History([*base(), *said("m", 99.9), Settled(100.0)]))
    assert verdict.counts.owed == 0
    assert verdict.holds
    assert found(base(), said("m", 99.9), Settled(100.5)) == ["lost"]


# Order, older


def test_order_holds_between_two_connections_of_a_publisher_to_one_node() -> None:
    two = [*base(), *said("m", 40.0), Away(40.2, "p"), Back(40.3, "p", "A"), *said("n", 40.4)]
    swapped = [got("n", 41.0), got("m", 41.5)]
    assert found(two, swapped) == ["order"]
    assert found(two, swapped, Down(40.2, "A"), Up(40.25, "A")) == []


@pytest.mark.parametrize("is_confirmed", [False, True])
def test_a_message_is_compared_with_the_subscription_that_stands(is_confirmed: bool) -> None:
    ended: list[Any] = [Unsubscribing(50.0, "s", "x")] + [Unsubscribed(50.1, "s", "x")] * is_confirmed
    again = subscribed("s", "x", 150.0)
    assert found(base(), ended, again, said("m", 70.0, holders=("A",)), got("m", 152.0)) == ["older"]
    assert found(base(), ended, again, said("m", 149.0, holders=("A",)), got("m", 152.0)) == []


# Copies


def test_one_copy_is_too_few_also_when_a_fault_was_a_while_ago_or_far_away() -> None:
    alone = [*base(), *said("m", 60.0, holders=("A",)), got("m", 61.0)]
    assert found(alone) == ["copies"]
    assert found(alone, Disturbed(55.0, 58.0, "slow", ("Z",))) == ["copies"]
    assert found(alone, Disturbed(59.0, 59.5, "partition", ("A",))) == ["copies"]
    assert found(alone, Down(50.0, "C"), Up(58.0, "C")) == ["copies"]
    assert found(alone, Disturbed(40.0, 58.0, "partition", ("A",))) == []  # a home may have forgotten the reader
    assert found(alone, Down(59.0, "B")) == []


def test_an_acknowledgement_names_a_node_that_holds_the_message_and_runs() -> None:
    more = [Connected(0.0, "z", "z", "C"), *subscribed("z", "x", 1.0), Ended(19.0, "z"), Down(20.0, "C")]
    dead = [*more, *base(), *said("m", 75.0, holders=("A", "C")), got("m", 75.2)]
    assert found(dead) == ["copies"]
    assert found(dead, Up(40.0, "C")) == []
    nobody = [*said("m", 40.0, holders=()), got("m", 41.0)]
    assert found(base(), said("ok", 30.0), got("ok", 30.2), nobody) == ["copies"]
    assert found(base(writer="native"), nobody) == ["copies"]
    assert found(base(writer="mqtt"), nobody) == []  # PUBACK names no nodes


# Retained messages


def kept(t: float, message: str = "m") -> list[Event]:
    return said(message, t, "y", ("A",), retain=True)


def late() -> list[Event]:
    return subscribed("s", "y", 100.0)


def test_a_retained_message_comes_to_a_later_subscription_once_and_is_the_last() -> None:
    assert found(base(), kept(10.0), late(), got("m", 101.5, topic="y", retained=True)) == []
    assert found(base(), kept(10.0), late()) == ["retained"]
    assert found(base(), kept(10.0), late(), retained_max=0) == []  # its node has no room for it
    assert found(base(), kept(10.0), late(), Down(50.0, "A"), Up(51.0, "A")) == []  # it was in memory only
    assert found(base(), kept(10.0), late(), Disturbed(99.0, 100.0, "cut")) == []
    for t, where, verdict in ((101.2, "window", []), (101.2, "clients", ["retained"]), (95.0, "window", ["retained"])):
        assert found(base(), kept(10.0), late(), Overflowed(t, "C", 1, where)) == verdict  # type: ignore[arg-type]
    stale = got("m", 101.5, topic="y", retained=True)
    assert found(base(), kept(10.0), kept(60.0, "n"), late(), stale) == ["retained"]
    assert found(base(), kept(10.0), kept(60.0, "n"), late(), got("n", 101.5, topic="y", retained=True)) == []
    thrice = [got("m", 101.5, topic="y", retained=True)] * 3
    assert found(base(), kept(10.0), late(), thrice) == ["retained"]
    assert found(base(), kept(10.0), late(), late(), late(), thrice) == []  # it asked three times


def test_a_retained_message_that_its_publisher_repeats_comes_once_more() -> None:
    """The first PUBACK is lost with the connection. The reader then subscribes anew, and gets the retained message."""
    lost: list[Event] = [Publishing(140.0, "p", "m", "y", retain=True), Away(140.1, "p", True), Back(141.0, "p", "A")]
    lost += [got("m", 140.2, topic="y"), got("m", 141.1, topic="y"), Acknowledged(141.2, "p", "m")]
    anew = [Unsubscribing(150.0, "s", "y"), Unsubscribed(150.1, "s", "y"), *subscribed("s", "y", 151.0)]
    anew += [got("m", 152.1, topic="y", retained=True)]
    assert found(base(writer="mqtt"), late(), lost, anew) == []
    assert found(base(writer="mqtt"), late(), lost, anew, got("m", 152.2, topic="y", retained=True)) == ["retained"]
    connected = [one for one in lost if not isinstance(one, Away | Back)]
    assert found(base(writer="mqtt"), late(), connected, anew) == ["retained", "twice"]
    early = [Unsubscribing(140.5, "s", "y"), Unsubscribed(140.6, "s", "y"), *anew[2:]]  # nobody subscribes at 141 s
    again = [*lost[:4], lost[5], got("m", 152.2, topic="y", retained=True)]
    assert found(base(writer="mqtt"), late(), again, early) == ["retained"]


def test_a_message_with_qos_0_is_not_repeated() -> None:
    lost: list[Event] = [Publishing(40.0, "p", "m", "x", 0), Away(40.1, "p", True), Back(41.0, "p", "A")]
    lost += [got("m", 40.2)]
    assert found(base(writer="mqtt"), lost) == []
    assert found(base(writer="mqtt"), lost, got("m", 41.1)) == ["twice"]


def test_of_two_retained_messages_that_overlap_in_time_either_may_be_the_last() -> None:
    def both(until: float, session: str = "q", *more: Event) -> list[Event]:
        there = Connected(1.0, "q", "q", "A", speaks="mqtt")
        old = said("o", 10.0, "y", (), retain=True)
        first: list[Event] = [Publishing(60.0, session, "m", "y", retain=True), Acknowledged(until, session, "m")]
        last: list[Event] = [Publishing(61.0, "p", "n", "y", retain=True), Acknowledged(63.0, "p", "n")]
        return [*base(writer="mqtt"), there, *old, *first, *last, *late(), *more]

    old, first, last = (got(message, 101.5, topic="y", retained=True) for message in ("o", "m", "n"))
    for until in (62.0, 64.0):
        assert found(both(until), first) == found(both(until), last) == []
        assert found(both(until), old) == found(both(until)) == ["retained"]
    assert found(both(60.5), first) == ["retained"]
    assert found(both(60.5), last) == []
    # One client: its messages come in their order, unless it repeats the first one.
    assert found(both(62.0, "p"), first) == ["retained"]
    assert found(both(62.0, "p"), last) == []
    assert found(both(62.0, "p", Away(61.2, "p", True), Back(61.5, "p", "A")), first) == []


def test_a_retained_message_that_was_replaced_through_its_own_node_is_stale() -> None:
    events = [*base(writer="mqtt"), Connected(1.0, "q", "q", "C", speaks="mqtt"), *late()]
    for t, message, session in ((10.0, "m", "p"), (60.0, "n", "p"), (70.0, "o", "q")):
        events += said(message, t, "y", (), session=session, retain=True)
    for message in ("n", "o"):  # the clocks of the two nodes decide
        assert found(events, got(message, 101.5, topic="y", retained=True)) == []
    assert found(events, got("m", 101.5, topic="y", retained=True)) == ["retained"]


def test_an_empty_payload_removes_the_retained_message() -> None:
    removal = [Publishing(60.0, "p", "n", "y", retain=True, removes=True), Acknowledged(60.1, "p", "n")]
    events, first = [*base(writer="mqtt"), *late()], said("m", 10.0, "y", (), retain=True)
    came = got("m", 101.5, topic="y", retained=True)
    assert found(events, first, removal) == []
    assert found(events, first, removal, came) == ["retained"]
    unsure = Publishing(60.0, "p", "n", "y", 0, retain=True, removes=True)  # nobody answers it
    assert found(events, first, unsure, came) == found(events, first, unsure) == []
    anew = said("o", 70.0, "y", (), retain=True)
    assert found(events, first, removal, anew) == ["retained"]
    assert found(events, first, removal, anew, got("o", 101.5, topic="y", retained=True)) == []
    assert found(events, first, removal, anew, came) == ["retained"]
    there = Connected(1.0, "q", "q", "C", speaks="mqtt")
    other = [there, Publishing(20.0, "q", "o", "y", retain=True), Acknowledged(21.0, "q", "o")]
    assert found(events, other, removal) == []  # the clocks of the two nodes decide
    assert found(events, other, removal, got("o", 101.5, topic="y", retained=True)) == []


def test_a_removal_of_a_retained_message_is_owed_to_nobody_by_its_name() -> None:
    removal = [Publishing(60.0, "p", "n", "x", retain=True, removes=True), Acknowledged(60.1, "p", "n")]
    assert found(base(writer="mqtt"), removal) == []
    assert found(base(writer="mqtt", reader="native"), removal, said("o", 70.0, holders=()), got("o", 70.1)) == []
    assert found(base(writer="mqtt"), [Publishing(60.0, "p", "n", "x", removes=True), removal[1]]) == ["history"]


def test_a_retained_message_may_be_gone_with_the_node_of_one_that_replaced_it() -> None:
    there = Connected(1.0, "q", "q", "C")
    replaces = Publishing(60.0, "q", "n", "y", retain=True)
    events = [base(), kept(10.0), there, replaces, late()]
    assert "retained" in found(*events)
    assert "retained" not in found(*events, Down(70.0, "C"), Up(71.0, "C"))
    assert "retained" in found(*events, Down(70.0, "B2"), Up(71.0, "B2"))


def test_a_plain_message_does_not_come_as_a_retained_one() -> None:
    plain = said("m", 10.0, "y", ("A",))
    assert found(base(), plain, late(), got("m", 101.5, topic="y", retained=True)) == ["retained"]
    assert found(base(), said("m", 40.0), got("m", 41.0), got("m", 42.0, retained=True)) == ["retained"]


# Native clients and those of MQTT


def test_names_with_wildcards_are_ordinary_names_to_native_clients() -> None:
    other = [*said("ok", 30.0, "c/#"), got("ok", 30.2, topic="c/#"), *said("m", 40.0, "c/d", ("A",))]
    assert found(base("c/#", writer="native", reader="native"), other) == []
    assert found(base("c/#", writer="native", reader="native"), other, got("m", 40.2, topic="c/d")) == [
        "not subscribed"
    ]
    assert found(base("c/#", writer="native", reader="mqtt"), said("m", 40.0, "c/#", ("A",))) == []


def test_a_native_reader_gets_deeper_topics_of_mqtt_clients() -> None:
    mixed = base("home/hall", writer="mqtt", reader="native")
    deep = said("m", 40.0, "home/hall/temp", ())
    assert found(mixed, deep, got("m", 40.2, topic="home/hall")) == []
    assert found(mixed, deep, got("m", 40.2, topic="home/hall/temp")) == []
    assert found(mixed, deep) == ["lost"]
    assert found(mixed, deep, depth=3) == []
    assert found(mixed, deep, got("m", 40.2, topic="home")) == ["unknown"]


def test_topics_below_the_depth_are_apart() -> None:
    deep = said("m", 40.0, "a/b/c", ("A",))
    assert found(base("a/b/c", writer="native", reader="mqtt"), deep) == []
    assert found(base("a/b/c", writer="native", reader="mqtt"), deep, depth=3) == ["copies", "lost"]
    assert found(base("a/b/c", writer="native", reader="native"), deep) == ["copies", "lost"]


def test_a_wildcard_may_miss_native_messages_where_it_does_not_name_the_topic() -> None:
    first = said("m", 40.0, "home/new", ("A",))
    assert found(base("home/#", writer="native", reader="mqtt"), first) == []
    assert found(base("home/#", writer="mqtt", reader="mqtt"), said("m", 40.0, "home/new", ())) == ["lost"]
    assert found(base("home/new/#", writer="native", reader="mqtt"), first) == ["copies", "lost"]


# Promises about time


def test_a_node_with_clients_that_nobody_saw_start_is_not_gone() -> None:
    waits = [*base(), Connected(0.0, "c", "c", "C"), Down(50.0, "Z"), Publishing(51.0, "p", "m", "x")]
    assert found(waits, Acknowledged(59.0, "p", "m", ("A", "B")), got("m", 59.1)) == []


def test_refusals_in_calm_are_judged_only_where_it_is_said_which_are_right() -> None:
    no = [Publishing(100.0, "p", "m", "x"), Refused(100.1, "p", "m", "no room")]
    assert found(base(), no) == []
    assert found(base(), no, may_refuse=("room",)) == []
    assert found(base(), no, may_refuse=("quota",)) == ["refused"]


# Histories that make no sense


def test_a_client_hears_nothing_after_its_end() -> None:
    assert found(base(), Ended(50.0, "p"), said("m", 60.0), got("m", 61.0)) == ["history"]
    assert found(base(), Ended(50.0, "p"), Publishing(52.0, "p", "m", "x")) == []  # it has not noticed yet
    assert found(base(), Ended(35.0, "s"), Away(35.0, "s"), Back(36.0, "s", "B")) == ["history"]


def test_nobody_comes_back_who_was_not_away() -> None:
    assert found(base(), Back(50.0, "s", "C")) == ["history"]
    assert found(base(), Away(49.0, "s", True), Back(50.0, "s", "C")) == []


def test_a_node_starts_once_and_answers_only_while_it_runs() -> None:
    assert found(base(), Up(50.0, "C"), Up(51.0, "C")) == ["history"]
    assert found(base(), Up(50.0, "C"), Down(50.5, "C"), Up(51.0, "C")) == []
    told = [*said("m", 100.0), got("m", 101.0)]
    assert "history" in found(base(), Down(25.0, "A"), told)
    assert found(base(), Down(25.0, "A"), Up(26.0, "A"), told) == []
    assert found(base(), Down(75.0, "A", leave=True), told) == []  # it takes a while to leave


# Size


def test_the_work_grows_with_the_history_and_not_with_its_square() -> None:
    def calls(count: int) -> int:
        events: list[Event] = [Connected(0.0, "p", "p", "A")]
        events += [Connected(0.0, f"s{number}", f"s{number}", f"n{number % 5}") for number in range(count)]
        for number in range(count):
            events += [Subscribing(1.0, f"s{number}", f"t/{number}/+"), Confirmed(1.0, f"s{number}", f"t/{number}/+")]
        for number in range(5 * count):
            t, place = 30.0 + 0.01 * number, number % count
            topic, holders = f"t/{place}/x", ("A", f"n{place % 5}")
            events += [Publishing(t, "p", f"m{number}", topic), Acknowledged(t, "p", f"m{number}", holders)]
            events.append(Received(t, f"s{place}", f"m{number}", topic))
        history, made = History([*events, Settled(events[-1].t + 60.0)]), 0

        def count_calls(_: object, what: str, __: object) -> None:
            nonlocal made
            made += what == "call"

        before = sys.getprofile()
        sys.setprofile(count_calls)
        try:
            verdict = judge(history)
        finally:
            sys.setprofile(before)
        assert verdict.holds
        assert verdict.counts.owed == 5 * count
        return made

    assert calls(160) < 6 * calls(40)  # more than sixteen times as many, if each message met each subscription


def test_a_sidecar_may_keep_what_a_client_of_its_broker_subscribed_to() -> None:
    """The broker's counts leave the sidecar in doubt whether the client's session has ended."""

    def with_reader(broker: str) -> list[Event]:
        reader = [Connected(0.0, "s", "s", "B", broker), *subscribed("s", "x", 1.0), Ended(20.0, "s")]
        return [Connected(0.0, "p", "p", "A", speaks="native"), *reader]

    late_copy = said("m", 150.0)
    assert found(with_reader(""), late_copy) == ["copies"], "nobody subscribes at B"
    assert found(with_reader("b"), late_copy) == []
    assert found(with_reader("b"), late_copy, learned_s=60.0) == ["copies"], "it has given the client up"
    asked = [one for one in with_reader("b") if not isinstance(one, Ended)]
    over = [Unsubscribing(20.0, "s", "x"), Unsubscribed(20.1, "s", "x")]
    assert found(asked, over, late_copy) == ["copies"], "the broker has told the sidecar of the end"
