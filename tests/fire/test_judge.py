"""The judge of `benchmarks/fire`, in both directions: what it must call lost, twice or out of order, and what not."""

from __future__ import annotations

import pytest
from benchmarks.fire.judge import judge

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
    Up,
)

TOPIC = "s0/t"


def start(*readers: str) -> list[Event]:
    """A publisher at s0, and a reader at each of the named brokers."""
    events: list[Event] = [Connected(0.0, "p", "p", "s0")]
    for node in readers:
        events += [Connected(0.0, f"r-{node}", f"r-{node}", node), Confirmed(0.5, f"r-{node}", TOPIC)]
    return events


def said(message: str, t: float, acknowledged: float | None = None) -> list[Event]:
    events: list[Event] = [Publishing(t, "p", message, TOPIC)]
    if acknowledged is not None:
        events.append(Acknowledged(acknowledged, "p", message))
    return events


def got(message: str, t: float, session: str = "r-s1") -> Event:
    return Received(t, session, message, TOPIC)


def verdict_of(*events: Event, since: float = 0.0):
    return judge(sorted(events, key=lambda event: event.t), since)


def test_a_delivered_message_is_neither_lost_nor_twice_nor_out_of_order():
    verdict = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), got("m1", 1.2), *said("m2", 2.0, 2.1), got("m2", 2.2))
    assert (verdict.owed, verdict.delivered, verdict.crossed) == (2, 2, 2)
    assert (verdict.lost, verdict.twice, verdict.repeated, verdict.disorder, verdict.unsettled) == (0, 0, 0, 0, 0)
    assert verdict.delays_s == pytest.approx([0.2, 0.2])


def test_an_acknowledged_message_that_one_of_two_readers_does_not_get_is_lost_once():
    verdict = verdict_of(*start("s1", "s2"), *said("m1", 1.0, 1.1), got("m1", 1.2))
    assert (verdict.owed, verdict.lost) == (2, 1)
    assert dict(verdict.lost_by) == {"neither broker was disturbed": 1}


def test_a_message_without_an_acknowledgement_is_not_lost_but_unsettled():
    verdict = verdict_of(*start("s1"), *said("m1", 1.0))
    assert (verdict.lost, verdict.unsettled, verdict.acknowledged) == (0, 1, 0)


def test_nothing_is_owed_to_a_subscription_that_is_confirmed_later_or_refused():
    late: list[Event] = [Connected(0.0, "r", "r", "s1"), Confirmed(2.0, "r", TOPIC)]
    refused: list[Event] = [Connected(0.0, "q", "q", "s1"), Confirmed(0.5, "q", TOPIC, False)]
    verdict = verdict_of(*start(), *late, *refused, *said("m1", 1.0, 1.1))
    assert (verdict.owed, verdict.lost) == (0, 0)


def test_a_forgotten_session_excuses_no_loss():
    """The client comes back to a broker that has forgotten it, and subscribes again."""
    again: list[Event] = [
        Away(1.0, "r-s1", True), Down(1.0, "s1"), Up(2.0, "s1"), Ended(2.1, "r-s1"),
        Connected(2.1, "r-s1#2", "r-s1", "s1"), Confirmed(4.0, "r-s1#2", TOPIC),
    ]  # fmt: skip
    published = [*said("m1", 1.5, 1.6), *said("m2", 3.0, 3.1), *said("m3", 5.0, 5.1)]
    verdict = verdict_of(*start("s1"), *again, *published, got("m3", 5.2, "r-s1#2"))
    assert (verdict.owed, verdict.lost, verdict.forgotten_sessions) == (3, 2, 1)
    assert dict(verdict.lost_by) == {"the reader's broker forgot its session": 2}


def test_a_loss_is_told_with_what_happened_to_the_two_brokers():
    publishers = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), Down(2.0, "s0"), Up(3.0, "s0"))
    assert dict(publishers.lost_by) == {"the publisher's broker was down": 1}
    readers = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), Down(2.0, "s1"), Up(3.0, "s1"))
    assert dict(readers.lost_by) == {"the reader's broker was down": 1}
    cut = verdict_of(*start("s1"), *said("m1", 5.0, 5.1), Disturbed(4.0, 34.0, "cut", ("s1",)))
    assert dict(cut.lost_by) == {"the brokers were cut off from each other": 1}
    later = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), Down(20.0, "s1"), Up(21.0, "s1"))
    assert dict(later.lost_by) == {"neither broker was disturbed": 1}


def test_a_message_that_comes_again_without_a_lost_connection_is_twice():
    verdict = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), got("m1", 1.2), got("m1", 1.3))
    assert (verdict.twice, verdict.repeated, verdict.lost, verdict.disorder) == (1, 0, 0, 0)


@pytest.mark.parametrize("session", ["p", "r-s1"])
def test_a_message_that_comes_again_after_a_client_lost_its_connection_is_repeated(session):
    broken: list[Event] = [Away(1.05, session, True), Back(1.2, session, "s0")]
    verdict = verdict_of(*start("s1"), *said("m1", 1.0, 1.5), got("m1", 1.02), got("m1", 1.3), *broken)
    assert (verdict.twice, verdict.repeated) == (0, 1)


def test_a_connection_that_was_lost_before_the_publication_excuses_no_repetition():
    broken: list[Event] = [Away(0.6, "r-s1", True), Back(0.8, "r-s1", "s1")]
    verdict = verdict_of(*start("s1"), *broken, *said("m1", 1.0, 1.1), got("m1", 1.2), got("m1", 1.3))
    assert (verdict.twice, verdict.repeated) == (1, 0)


def test_a_message_behind_a_later_one_is_out_of_order_and_a_repetition_is_not():
    made = [*said("m1", 1.0, 1.1), *said("m2", 1.5, 1.6)]
    assert verdict_of(*start("s1"), *made, got("m2", 2.0), got("m1", 2.1)).disorder == 1
    assert verdict_of(*start("s1"), *made, got("m1", 2.0), got("m2", 2.1), got("m1", 2.2)).disorder == 0


def test_messages_of_different_publishers_have_no_order():
    other: list[Event] = [Connected(0.0, "q", "q", "s2"), Publishing(1.5, "q", "m2", TOPIC)]
    other.append(Acknowledged(1.6, "q", "m2"))
    verdict = verdict_of(*start("s1"), *other, *said("m1", 1.0, 1.1), got("m2", 2.0), got("m1", 2.1))
    assert (verdict.disorder, verdict.lost) == (0, 0)


def test_only_publications_of_the_load_are_judged():
    verdict = verdict_of(*start("s1"), *said("m1", 1.0, 1.1), *said("m2", 5.0, 5.1), got("m2", 5.2), since=4.0)
    assert (verdict.published, verdict.lost) == (1, 0)


def test_a_message_on_another_topic_than_it_was_published_on_counts_for_nothing():
    wrong = Received(1.2, "r-s1", "m1", "s0/other")
    assert verdict_of(*start("s1"), *said("m1", 1.0, 1.1), wrong).lost == 1


def test_flow_between_other_brokers_is_counted_from_the_fault_to_the_last_late_arrival():
    fault: list[Event] = [Down(30.0, "s2"), Up(33.0, "s2")]
    made = [*said("m1", 30.1, 30.2), *said("m2", 31.0, 31.1), *said("m3", 32.0, 32.1)]
    come = [got("m1", 31.5), got("m2", 31.7), got("m3", 32.2)]
    verdict = verdict_of(*start("s1"), *fault, *made, *come)
    assert verdict.others_s == pytest.approx([1.7])
    assert verdict.again_s == [0.0]
    prompt = verdict_of(*start("s1"), *fault, *made, got("m1", 30.3), got("m2", 31.2), got("m3", 32.2))
    assert prompt.others_s == [0.0]


def test_flow_at_a_broker_that_is_back_is_counted_from_its_return():
    fault: list[Event] = [Down(30.0, "s1"), Up(33.0, "s1")]
    made = [*said("m1", 31.0, 31.1), *said("m2", 34.0, 34.1), *said("m3", 35.0, 35.1)]
    verdict = verdict_of(*start("s1"), *fault, *made, got("m1", 33.1), got("m2", 36.0), got("m3", 36.1))
    assert verdict.others_s == []  # both ends of every message were hit, or recover
    assert verdict.again_s == pytest.approx([3.1])
    lost = verdict_of(*start("s1"), *fault, *made, got("m1", 33.1), got("m3", 35.1))
    assert (lost.lost, lost.again_s) == (1, pytest.approx([1.0]))


def test_a_cut_disturbs_only_messages_that_cross_it():
    cut = Disturbed(30.0, 60.0, "cut", ("s1",))
    made = said("m1", 35.0, 35.1)
    verdict = verdict_of(*start("s1", "s2"), cut, *made, got("m1", 61.0), got("m1", 35.2, "r-s2"))
    assert (verdict.lost, verdict.others_s, verdict.again_s) == (0, [0.0], [0.0])
    slow = verdict_of(*start("s1", "s2"), cut, *made, got("m1", 61.0), got("m1", 37.0, "r-s2"))
    assert slow.others_s == pytest.approx([7.0])
