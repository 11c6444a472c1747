"""With stores, the judge accepts no crash as an excuse: `Promise.durable`. Each test states both sides."""

from __future__ import annotations

from trellis.judge import History, Promise, judge
from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Down,
    Event,
    Publishing,
    Received,
    Settled,
    Subscribing,
    Up,
)

STORED, MEMORY = Promise(durable=True), Promise()


def power_loss(*received: Event) -> History:
    """A message is acknowledged, and both of its holders crash at once and come back."""
    events: list[Event] = [
        Connected(0.0, "p", "p", "A", speaks="native"),
        Connected(0.0, "s", "s", "B", speaks="native"),
        Subscribing(1.0, "s", "x"),
        Confirmed(2.0, "s", "x"),
        Publishing(5.0, "p", "m", "x"),
        Acknowledged(5.1, "p", "m", ("A", "B")),
        *(Down(5.2, node) for node in "AB"),
        *(Away(5.2, session, True) for session in "ps"),
        *(Up(8.0, node) for node in "AB"),
        Back(9.0, "p", "A"),
        Back(9.0, "s", "B"),
        *received,
        Settled(100.0),
    ]
    return History(sorted(events, key=lambda one: one.t))


def test_a_message_that_is_lost_with_all_its_holders_is_excused_only_without_stores() -> None:
    history = power_loss()
    assert [one.kind for one in judge(history, STORED).violations if one.kind == "lost"] == ["lost"]
    assert not judge(history, MEMORY).by_kind()["lost"]


def test_a_message_that_comes_again_after_a_restart_is_excused_only_without_stores() -> None:
    history = power_loss(Received(5.15, "s", "m", "x"), Received(9.5, "s", "m", "x"))
    assert judge(history, STORED).by_kind()["twice"] == 1
    assert not judge(history, MEMORY).by_kind()["twice"]


def test_what_comes_once_after_the_restart_is_right() -> None:
    assert not judge(power_loss(Received(9.5, "s", "m", "x")), STORED).by_kind()["lost"]
