"""The judge and what comes late for good reasons: slow readers, machines that send again, nodes that were cut off."""

from __future__ import annotations

import pytest

from judge.test_judge import END, found, gets, good, without
from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Ended,
    Publishing,
    Received,
    Subscribing,
    Up,
)


def test_an_application_may_read_late_what_was_published_before_the_end_of_its_session() -> None:
    early, later = without(good(), gets("s", "m2")), Received(100.0, "s", "m2", "plant/oven")
    assert found([*early, Ended(60.0, "s"), later]) == []
    assert found([*early, Ended(40.0, "s"), later]) == ["history"]


def test_a_machine_sends_again_what_its_node_wrote_before_a_cut() -> None:
    told = [Connected(1.0, "q", "q", "d"), Subscribing(58.0, "q", "t"), Up(0.5, "d"), Down(60.0, "d")]
    late = Confirmed(80.0, "q", "t")
    cut = Disturbed(57.0, 70.0, "partition", ("q",))
    assert found([*good(), *told, late]) == ["history"]
    assert found([*good(), *told, cut, late]) == []


def test_a_node_that_was_cut_off_for_long_may_take_its_messages_along() -> None:
    lost = without(good(), gets("r", "m1"))
    lost = [Acknowledged(one.t, one.session, one.message, ()) if isinstance(one, Acknowledged) else one for one in lost]
    crash = Down(52.0, "a")
    assert found([*lost, crash]) == ["lost"]
    assert found([*lost, crash, Disturbed(48.0, 52.0, "split", ("a",))]) == ["lost"]
    assert found([*lost, crash, Disturbed(20.0, 52.0, "split", ("b",), ("c",))]) == ["lost"]
    assert found([*lost, crash, Disturbed(20.0, 52.0, "split", ("a", "b"))]) == []


def test_a_start_shows_an_end_that_was_written_down_too_early() -> None:
    """The publisher repeats to a node that has restarted and knows its message no more."""
    twice = [
        *[one for one in good() if not (isinstance(one, Acknowledged) and one.message == "m2")],
        Down(50.4, "a"),
        Away(50.6, "p"),
        Up(51.0, "a"),
        Back(52.0, "p", "a"),
        Acknowledged(53.0, "p", "m2", ("a", "b")),
        Received(53.0, "s", "m2", "plant/oven"),
    ]
    assert found(twice) == []
    assert found([one for one in twice if not isinstance(one, Up | Down) or one.t == END]) == ["twice"]


def test_a_message_that_comes_again_is_not_late() -> None:
    """A publisher of MQTT repeated it, and others came in between."""
    kept = [
        one for one in good() if not (isinstance(one, Acknowledged | Publishing | Received) and one.message == "m2")
    ]
    events = [
        *(Connected(1.0, "p", "p", "a", "", "mqtt") if one == Connected(1.0, "p", "p", "a") else one for one in kept),
        Away(50.05, "p"),
        Back(50.08, "p", "a"),
        Publishing(52.5, "p", "m3", "plant/oven"),
        Acknowledged(52.6, "p", "m3", ("a", "b")),
        *[Received(52.7, session, "m3", "plant/oven") for session in ("s", "r")],
        Received(60.0, "s", "m1", "plant/oven"),
    ]
    assert found(events, heal_s=2.0) == []
    late = [one for one in events if one != Received(50.2, "s", "m1", "plant/oven")]
    assert found(late, heal_s=2.0) == ["late"]


def test_a_publisher_may_repeat_its_message_after_each_restart_of_its_node() -> None:
    again = [
        *[one for one in good() if not (isinstance(one, Acknowledged) and one.message == "m2")],
        *[
            one
            for t in (52.0, 56.0)
            for one in (Down(t, "a"), Away(t + 0.1, "p"), Up(t + 1, "a"), Back(t + 2, "p", "a"))
        ],
        *[Received(t, "s", "m2", "plant/oven") for t in (54.5, 58.5)],
        Acknowledged(59.0, "p", "m2", ("a", "b")),
    ]
    assert found(again) == []
    once = [one for one in again if not (isinstance(one, Up | Down) and one.t in (56.0, 57.0))]
    assert found(once) == ["twice"]


@pytest.mark.parametrize(("said", "verdict"), [(53.0, []), (55.0, []), (55.2, ["late"])])
def test_a_message_is_late_if_one_that_was_published_after_its_acknowledgement_comes_first(
    said: float, verdict: list[str]
) -> None:
    """Slow applications get messages first that were published before it was acknowledged."""
    kept = [one for one in good() if not (isinstance(one, Received) and one.session == "s")]
    kept = [one for one in kept if not (isinstance(one, Acknowledged) and one.message == "m2")]
    events = [
        *kept,
        Connected(1.0, "q", "q", "b"),
        *[Away(50.55, "p"), Back(54.0, "p", "a"), Acknowledged(54.1, "p", "m2", ("a", "b"))],
        Publishing(said, "q", "n1", "plant/oven"),
        Acknowledged(said + 0.1, "q", "n1", ("b", "c")),
        *[Received(t, "s", message, "plant/oven") for t, message in ((51.0, "m1"), (56.0, "n1"), (57.0, "m2"))],
        Received(said + 0.2, "r", "n1", "plant/oven"),
    ]
    stays = [one for one in events if not isinstance(one, Away | Back)]
    assert found(stays, heal_s=2.0) == verdict


def test_who_watches_a_sidecar_may_confirm_after_the_end_of_a_client_that_nobody_noticed() -> None:
    for broker, verdict in (("B", []), ("", ["history"])):
        client = [Connected(1.0, "q", "q", "b", broker), Subscribing(2.0, "q", "x"), Ended(40.0, "q")]
        assert found([*good(), *client, Confirmed(49.0, "q", "x")]) == verdict
