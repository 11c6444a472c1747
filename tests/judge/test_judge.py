"""The judge finds each kind of broken promise in a history written by hand, and excuses what is not promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

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
    Publishing,
    Received,
    Refused,
    Settled,
    Subscribing,
    Unreachable,
    Unsubscribed,
    Unsubscribing,
    Up,
)

END = 200.0


def good() -> list[Event]:
    """Two messages of one publisher reach two subscribers on a mesh of three nodes."""
    events: list[Event] = []
    for session, node in (("p", "a"), ("s", "b"), ("r", "c")):
        events.append(Connected(1.0, session, session, node))
    for session, wanted in (("s", "plant/oven"), ("r", "plant/#")):
        events += [Subscribing(2.0, session, wanted), Confirmed(3.0, session, wanted)]
    for number, t in ((1, 50.0), (2, 50.5)):
        events.append(Publishing(t, "p", f"m{number}", "plant/oven"))
        events.append(Acknowledged(t + 0.1, "p", f"m{number}", ("a", "b")))
        events += [Received(t + 0.2, session, f"m{number}", "plant/oven") for session in ("s", "r")]
    return [*events, Up(END, "late")]


def found(events: list[Event], **promise: float) -> list[str]:
    """Return the kinds of violations, each once."""
    ordered = sorted(events, key=lambda one: one.t)
    return sorted(judge(History(ordered), Promise(**promise)).by_kind())  # type: ignore[arg-type]


def without(events: list[Event], is_out: Callable[[Event], bool]) -> list[Event]:
    return [one for one in events if not is_out(one)]


def gets(session: str, message: str) -> Callable[[Event], bool]:
    return lambda one: isinstance(one, Received) and (one.session, one.message) == (session, message)


def test_a_good_history_holds_and_says_how_much_was_owed() -> None:
    verdict = judge(History(good()))
    assert verdict.holds
    assert (verdict.counts.owed, verdict.acknowledged, verdict.received) == (4, 2, 4)
    assert verdict.counts.copies_judged == 2
    assert "all arrived" in list(verdict.lines())[-1]


def test_a_history_in_which_nothing_is_owed_says_so() -> None:
    verdict = judge(History([Connected(1.0, "p", "p", "a")]))
    assert verdict.holds
    assert "shows nothing" in list(verdict.lines())[-1]


@pytest.mark.parametrize("message", ["m1", "m2"])
@pytest.mark.parametrize("session", ["s", "r"])
def test_a_lost_message_is_found(session: str, message: str) -> None:
    assert found(without(good(), gets(session, message))) == ["lost"]


def test_a_message_that_comes_after_its_time_is_not_lost_but_one_that_never_comes_is() -> None:
    late = without(good(), gets("s", "m2"))
    assert found([*late, Received(190.0, "s", "m2", "plant/oven")]) == []


def test_a_message_that_was_not_acknowledged_may_be_missing() -> None:
    events = without(good(), lambda one: isinstance(one, Acknowledged) and one.message == "m2")
    events = without(events, gets("s", "m2"))
    assert found([*events, Refused(80.0, "p", "m2", "too few copies")]) == []


def test_a_subscriber_that_ended_soon_after_is_owed_nothing() -> None:
    assert found([*without(good(), gets("s", "m2")), Ended(51.0, "s")]) == []
    assert found([*without(good(), gets("s", "m2")), Ended(60.0, "s")]) == ["lost"]


def test_a_subscriber_that_unsubscribed_is_owed_nothing_more() -> None:
    assert found([*without(good(), gets("s", "m2")), Unsubscribing(50.4, "s", "plant/oven")]) == []


def test_a_message_that_comes_twice_is_found() -> None:
    assert found([*good(), Received(60.0, "r", "m1", "plant/oven")]) == ["twice"]
    assert found([*good(), Received(60.0, "r", "m2", "plant/oven")]) == ["twice"]


def test_messages_out_of_order_are_found() -> None:
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    swapped = [Received(51.0, "s", "m2", "plant/oven"), Received(51.1, "s", "m1", "plant/oven")]
    assert found([*events, *swapped]) == ["order"]


def test_a_session_that_came_back_gets_messages_again_and_no_new_one_out_of_order() -> None:
    back = [Away(52.0, "s", True), Back(53.0, "s", "b")]
    assert found([*good(), *back, Received(53.1, "s", "m1", "plant/oven")]) == []
    swapped = [Received(53.1, "s", "m2", "plant/oven"), Received(53.2, "s", "m1", "plant/oven")]
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    assert found([*events, *back, *swapped]) == ["order"]


@pytest.mark.parametrize(("broker", "qos", "kinds"), [("b", 0, []), ("b", 1, ["order"]), ("", 0, ["order"])])
def test_only_at_a_broker_a_message_with_qos_0_may_overtake_others(broker: str, qos: int, kinds: list[str]) -> None:
    events = [Connected(1.0, "p", "p", "a", broker, "mqtt"), Connected(1.0, "s", "s", "a", speaks="native")]
    events += [Subscribing(2.0, "s", "plant/oven"), Confirmed(3.0, "s", "plant/oven")]
    events += [Publishing(50.0, "p", "m1", "plant/oven"), Acknowledged(50.1, "p", "m1")]
    events += [Publishing(50.5, "p", "m2", "plant/oven", qos)]
    events += [Acknowledged(50.6, "p", "m2")] if qos else []
    events += [Received(51.0, "s", "m2", "plant/oven"), Received(52.0, "s", "m1", "plant/oven"), Up(END, "late")]
    assert found(events) == kinds


def test_order_is_promised_from_the_confirmation_on() -> None:
    events = [Received(50.9, "s", "m1", "plant/oven"), *without(good(), gets("s", "m1"))]
    unsure = [one for one in events if not (isinstance(one, Confirmed) and one.session == "s")]
    assert found(events) == ["order"]
    assert found([*unsure, Confirmed(3.0, "s", "plant/oven", False)]) == []


def test_order_holds_between_messages_of_one_publisher_only() -> None:
    events = [*good(), Connected(1.0, "q", "q", "c"), Publishing(49.0, "q", "m0", "plant/oven")]
    late = [Received(52.0, session, "m0", "plant/oven") for session in ("s", "r")]
    assert found([*events, Acknowledged(49.1, "q", "m0", ("c", "b")), *late]) == []


def test_a_message_before_the_subscription_is_found() -> None:
    early = [
        Connected(1.0, "n", "n", "b"),
        Received(51.0, "n", "m1", "plant/oven"),
        Subscribing(52.0, "n", "plant/oven"),
    ]
    assert found([*good(), *early]) == ["not subscribed", "outcome"]


def test_a_message_on_a_topic_that_nobody_asked_for_is_found() -> None:
    other = [Publishing(60.0, "p", "m3", "hall/lamp"), Acknowledged(60.1, "p", "m3", ("a",))]
    assert found([*good(), *other, Received(60.2, "s", "m3", "hall/lamp")]) == ["not subscribed"]


def test_a_message_long_before_the_subscription_is_found_unless_it_is_retained() -> None:
    events = [
        *good(),
        Connected(70.0, "n", "n", "b"),
        Subscribing(71.0, "n", "plant/oven"),
        Confirmed(72.0, "n", "plant/oven"),
    ]
    assert found([*events, Received(73.0, "n", "m2", "plant/oven")]) == ["older"]
    kept = [replace(one, retain=True) if isinstance(one, Publishing) else one for one in events]
    assert found([*kept, Received(73.0, "n", "m2", "plant/oven", True)]) == []


def test_a_message_that_nobody_published_is_found() -> None:
    assert found([*good(), Received(60.0, "s", "m9", "plant/oven")]) == ["unknown"]


def test_a_message_on_another_topic_than_its_own_is_found() -> None:
    events = without(good(), gets("r", "m1"))
    assert "unknown" in found([*events, Received(50.2, "r", "m1", "plant/press")])


def test_an_acknowledgement_with_too_few_copies_is_found() -> None:
    events = without(good(), lambda one: isinstance(one, Acknowledged) and one.message == "m1")
    assert found([*events, Acknowledged(50.1, "p", "m1", ("a",))]) == ["copies"]
    assert found([*events, Acknowledged(50.1, "p", "m1", ("a", "a"))]) == ["copies"]
    assert found([*events, Acknowledged(50.1, "p", "m1", ("a", "x"))]) == ["copies"]
    assert found([*events, Acknowledged(50.1, "p", "m1", ("b", "c"))]) == []


def test_one_copy_is_enough_where_nobody_subscribes() -> None:
    events = [Connected(1.0, "p", "p", "a"), Publishing(50.0, "p", "m1", "x"), Acknowledged(50.1, "p", "m1", ("a",))]
    assert found([*events, Up(END, "late")]) == []


def test_a_publication_without_an_outcome_is_found_and_so_is_one_with_two() -> None:
    events = without(good(), lambda one: isinstance(one, Acknowledged) and one.message == "m2")
    assert found(events) == ["outcome"]
    assert found([*good(), Refused(55.0, "p", "m2", "late")]) == ["outcome"]


def test_a_subscription_that_is_never_confirmed_is_found() -> None:
    assert found([*good(), Connected(4.0, "n", "n", "b"), Subscribing(5.0, "n", "x")]) == ["outcome"]


def test_the_crash_of_every_holder_is_an_excuse_and_that_of_one_is_none() -> None:
    events = without(good(), gets("r", "m2"))
    assert found([*events, Down(50.7, "a"), Down(50.7, "b")]) == []
    assert found([*events, Down(50.7, "a")]) == ["lost"]
    assert found([*events, Down(50.7, "a", True), Down(50.7, "b", True)]) == ["lost"]  # departures lose nothing
    assert found([*events, Down(150.0, "a"), Down(150.0, "b")]) == ["lost"]  # it had the time to spread


def test_a_cut_longer_than_the_window_is_an_excuse_and_a_shorter_one_is_none() -> None:
    events = without(good(), gets("r", "m2"))
    assert found([*events, Disturbed(50.0, 130.0, "partition", ("c",))]) == []
    assert found([*events, Disturbed(50.0, 109.0, "partition", ("c",))]) == []  # links are tried again a little later
    assert found([*events, Disturbed(50.0, 104.0, "partition", ("c",))]) == ["lost"]


def test_a_publisher_that_repeated_its_message_to_a_restarted_node_may_cause_two() -> None:
    base = [*good(), Publishing(90.0, "p", "m3", "plant/oven"), Away(90.05, "p"), Down(90.05, "a"), Up(91.0, "a")]
    base += [Back(92.0, "p", "a"), Acknowledged(92.5, "p", "m3", ("a", "b")), Received(90.1, "s", "m3", "plant/oven")]
    base += [Received(90.1, "r", "m3", "plant/oven"), Received(92.6, "s", "m3", "plant/oven")]
    assert found(base) == []


def test_a_kept_session_gets_what_was_published_while_it_was_away() -> None:
    away = [Away(49.0, "s", True), Back(60.0, "s", "b")]
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    assert found([*events, *away]) == ["lost"]
    late = [Received(60.1, "s", f"m{number}", "plant/oven") for number in (1, 2)]
    assert found([*events, *away, *late]) == []


def test_a_session_that_is_away_without_being_kept_is_owed_nothing() -> None:
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    assert found([*events, Away(49.0, "s"), Back(60.0, "s", "b")]) == []


def test_a_history_that_contradicts_itself_is_not_judged_good() -> None:
    assert found([*good(), Connected(5.0, "s", "s", "b")]) == ["history"]
    assert found([*good(), Ended(5.0, "nobody")]) == ["history"]
    assert found([*good(), Publishing(60.0, "p", "m1", "plant/oven")]) == ["history"]


def test_everything_is_due_when_the_driver_says_that_all_has_settled() -> None:
    """Without the driver's word the judge waits `settle_s` after the last fault, and this history ends before."""
    events = [one for one in without(good(), gets("r", "m2")) if one.t < END]
    crash: list[Event] = [Down(53.0, "d"), Up(54.0, "d")]
    assert found([*events, *crash]) == []
    assert found([*events, *crash, Settled(60.0)]) == ["lost"]


def test_a_message_whose_holders_are_unknown_is_excused_only_with_its_publishers_node() -> None:
    """PUBACK names no holders. The publisher's node is always one of them."""
    events = [
        replace(one, holders=()) if isinstance(one, Acknowledged) else one for one in without(good(), gets("r", "m2"))
    ]
    assert found([*events, Down(50.7, "a"), Down(50.8, "b")]) == []
    assert found([*events, Down(50.7, "d"), Down(50.8, "b")]) == ["lost"]
    assert found([*events, Down(50.7, "a"), Down(150.8, "b")]) == ["lost"]


def test_nothing_is_owed_where_the_node_was_not_sure() -> None:
    unsure = [Connected(1.0, "n", "n", "c"), Subscribing(2.0, "n", "plant/+"), Confirmed(7.0, "n", "plant/+", False)]
    assert found([*good(), *unsure]) == []
    sure = [*unsure[:2], Confirmed(7.0, "n", "plant/+")]
    assert found([*good(), *sure]) == ["lost"]


def test_messages_may_come_until_the_node_has_confirmed_the_end_and_no_later() -> None:
    end = [Unsubscribing(52.0, "s", "plant/oven")]
    late = [Publishing(70.0, "p", "m3", "plant/oven"), Acknowledged(70.1, "p", "m3", ("a", "c"))]
    late += [Received(70.2, "r", "m3", "plant/oven"), Received(70.2, "s", "m3", "plant/oven")]
    assert found([*good(), *end, *late]) == ["not subscribed"]
    assert found([*good(), *end, Unsubscribed(80.0, "s", "plant/oven"), *late]) == []
    assert found([*good(), *end, Unsubscribed(52.1, "s", "plant/oven"), *late]) == ["not subscribed"]


def test_what_was_published_before_the_end_of_a_subscription_may_come_after_its_confirmation() -> None:
    """A server may still send what it had taken in before it took in the end of the subscription."""
    end = [Unsubscribing(52.0, "s", "plant/oven"), Unsubscribed(52.3, "s", "plant/oven")]
    made = [Publishing(52.2, "p", "m3", "plant/oven"), Acknowledged(52.4, "p", "m3", ("a", "c"))]
    made += [Received(52.3, "r", "m3", "plant/oven")]
    assert found([*good(), *end, *made, Received(52.35, "s", "m3", "plant/oven")]) == []
    assert found([*good(), *end, *made, Received(90.0, "s", "m3", "plant/oven")]) == ["not subscribed"]


def test_a_message_that_comes_long_after_the_last_fault_is_late() -> None:
    more: list[Event] = [Connected(1.0, "q", "q", "b")]
    for t in (53.0, 60.0):  # the reader keeps up: it gets what another client publishes later, at another node
        more += [Publishing(t, "q", f"q{t:g}", "plant/oven"), Acknowledged(t + 0.1, "q", f"q{t:g}", ("b", "c"))]
        more += [Received(t + 0.2, session, f"q{t:g}", "plant/oven") for session in ("s", "r")]
    events = [*without(good(), gets("s", "m2")), *more]
    assert found([*events, Received(54.0, "s", "m2", "plant/oven")], heal_s=8.0) == []
    assert found([*events, Received(61.0, "s", "m2", "plant/oven")], heal_s=8.0) == ["late"]
    assert found([*events, Received(61.0, "s", "m2", "plant/oven")]) == []
    cut = Disturbed(49.0, 58.0, "cut")
    assert found([*events, cut, Received(64.0, "s", "m2", "plant/oven")], heal_s=8.0) == []
    assert found([*events, cut, Received(67.0, "s", "m2", "plant/oven")], heal_s=8.0) == ["late"]
    slow = [*without(good(), gets("s", "m2")), Received(61.0, "s", "m2", "plant/oven")]
    assert found(slow, heal_s=8.0) == []


def left_alone(answered: float, *, silent: bool = False) -> list[Event]:
    """Node b ends, and a publication at node a is answered some time later."""
    events: list[Event] = [Up(0.0, "a"), Up(0.0, "b"), Connected(1.0, "p", "p", "a")]
    events += [Down(30.0, "b", silent=silent), Publishing(31.0, "p", "m", "plant/oven")]
    return [*events, Acknowledged(answered, "p", "m", ("a",)), Up(60.0, "b")]


def test_a_node_that_is_left_alone_does_not_wait_for_those_that_have_ended() -> None:
    assert found(left_alone(32.0)) == []
    assert found(left_alone(44.0)) == ["late"]
    assert found(left_alone(44.0, silent=True)) == []
    assert found([*left_alone(44.0), Disturbed(28.0, 29.0, "cut")]) == []


def back_soon(answered: float, wanted: str = "plant/oven") -> list[Event]:
    """Node a restarts, and a publication there is answered some time later. Node b has a subscriber."""
    events: list[Event] = [Up(0.0, "a"), Up(0.0, "b"), Connected(1.0, "s", "s", "b")]
    events += [Subscribing(2.0, "s", wanted), Confirmed(3.0, "s", wanted)]
    events += [Down(40.0, "a"), Up(41.0, "a"), Connected(42.0, "p", "p", "a")]
    events += [Publishing(43.0, "p", "m", "plant/oven"), Acknowledged(answered, "p", "m", ("a", "b"))]
    return [*events, Received(43.1, "s", "m", "plant/oven"), Up(END, "late")]


def test_a_node_that_is_back_in_a_calm_mesh_answers_soon_where_a_subscriber_has_the_message() -> None:
    assert found(back_soon(51.0), restart_s=9.0) == []
    assert found(back_soon(53.0), restart_s=9.0) == ["late"]
    assert found(back_soon(53.0)) == []
    assert found(back_soon(53.0, "plant/#"), restart_s=9.0) == []  # somebody may have to be asked about wildcards
    assert "late" not in found(
        back_soon(53.0), restart_s=9.0, copies=3
    )  # it is to be proved that there is no third one
    for fault in (Disturbed(35.0, 36.0, "cut"), Down(45.0, "b"), Down(35.0, "c"), Up(44.0, "c")):
        assert found([*back_soon(53.0), fault], restart_s=9.0) == [], fault
    # Nobody reads this one, and answers keep their order.
    earlier = [Publishing(42.5, "p", "first", "plant/hall"), Acknowledged(53.0, "p", "first", ("a",))]
    assert found([*back_soon(53.0), *earlier], restart_s=9.0) == []


def test_a_client_that_cannot_connect_is_found_unless_its_node_or_the_network_is_broken() -> None:
    kept_out = Unreachable(60.0, "late", "a", 58.0, "closed before a welcome")
    assert found([*good(), kept_out, Down(10.0, "a"), Up(12.0, "a")], accept_s=6.0, settle_s=100.0) == ["refused"]
    for fault in (Disturbed(48.0, 53.0, "cut"), Down(59.0, "a"), Down(51.0, "a"), Up(57.0, "a")):
        assert found([*good(), fault, kept_out], accept_s=6.0, settle_s=100.0) == [], fault


def test_a_kept_session_that_never_comes_back_is_owed_nothing_from_then_on() -> None:
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    assert found([*events, Away(49.0, "s", True)]) == []
    assert found([*events, Away(49.0, "s", True), Ended(150.0, "s")]) == []
    assert found([*events, Away(52.0, "s", True)]) == []  # it had less than the time to get them
    assert found([*events, Away(190.0, "s", True)]) == ["lost"]


def test_a_kept_session_has_time_to_get_its_messages_when_it_is_back() -> None:
    events = without(without(good(), gets("s", "m1")), gets("s", "m2"))
    assert found([*events, Away(49.0, "s", True), Back(END - 1.0, "s", "b")]) == []
    assert found([*events, Away(49.0, "s", True), Back(END - 6.0, "s", "b")]) == ["lost"]


def test_a_session_that_leaves_later_is_no_excuse_for_an_outcome_that_never_came() -> None:
    events = without(good(), lambda one: isinstance(one, Acknowledged) and one.message == "m2")
    assert found([*events, Away(190.0, "p")]) == ["outcome"]
    assert found([*events, Away(60.0, "p")]) == []
    asks = [Connected(4.0, "n", "n", "b"), Subscribing(5.0, "n", "x")]
    assert found([*good(), *asks, Away(190.0, "n", True)]) == ["outcome"]
    assert found([*good(), *asks, Away(6.0, "n", True)]) == []


def test_an_outcome_that_another_session_hears_is_no_outcome() -> None:
    events = without(good(), lambda one: isinstance(one, Acknowledged) and one.message == "m2")
    assert found([*events, Acknowledged(50.6, "s", "m2", ("a", "b"))]) == ["history", "outcome"]
    assert found([*events, Refused(50.6, "s", "m2", "full")]) == ["history", "outcome"]
    assert found([*good(), Acknowledged(60.0, "s", "m2", ("a", "b"))]) == ["history"]


def test_a_confirmation_of_what_nobody_asked_for_makes_no_sense() -> None:
    assert found([*good(), Confirmed(60.0, "s", "hall/lamp")]) == ["history"]


@pytest.mark.parametrize("kind", ["cut", "nobody knows", "stranger"])
def test_a_fault_without_an_end_excuses_nothing_after_everything_has_settled(kind: str) -> None:
    """The driver says that all is healed, so the fault has ended by then."""
    endless = Disturbed(20.0, 1e308, kind)
    more = [Settled(30.0), Publishing(150.0, "p", "m3", "plant/oven"), Acknowledged(150.1, "p", "m3", ("a", "b"))]
    assert found([*good(), endless, *more, Received(150.2, "r", "m3", "plant/oven")]) == ["lost"]
    assert found([*good(), Disturbed(20.0, 10.0, kind)]) == ["history"]


def test_a_fault_that_lasts_until_the_end_leaves_nothing_owed() -> None:
    verdict = judge(History([*without(good(), gets("s", "m2")), Disturbed(END, 1e308, "cut")]))
    assert not verdict.holds
    ordered = sorted([*without(good(), gets("s", "m2")), Disturbed(0.0, 1e308, "cut")], key=lambda one: one.t)
    verdict = judge(History(ordered))
    assert verdict.counts.owed == 0
    assert "shows nothing" in list(verdict.lines())[-1]


def shared(*got: str) -> list[Event]:
    """Two sessions share a subscription, and `got` are those that receive m1."""
    events: list[Event] = []
    for name in ("g", "h"):
        events += [Connected(1.0, name, name, "b"), Subscribing(2.0, name, "$share/team/plant/+")]
        events += [Confirmed(3.0, name, "$share/team/plant/+"), Received(50.7, name, "m2", "plant/oven")][
            : 1 + (name == "g")
        ]
    return [*events, *(Received(50.3, name, "m1", "plant/oven") for name in got)]


def test_one_session_of_a_shared_subscription_gets_each_message() -> None:
    assert found([*good(), *shared("g")]) == []
    assert found([*good(), *shared("h")]) == []
    assert found([*good(), *shared()]) == ["lost"]
    other = [Publishing(60.0, "p", "m3", "hall/lamp"), Acknowledged(60.1, "p", "m3", ("a",))]
    assert found([*good(), *shared("g"), *other, Received(60.2, "g", "m3", "hall/lamp")]) == ["not subscribed"]
