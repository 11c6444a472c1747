"""A broker acknowledges what its sidecar has not taken yet. The judge knows how far a sidecar is behind."""

from __future__ import annotations

from judge.test_judge import found
from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Ended,
    Event,
    Publishing,
    Received,
    Subscribing,
    Up,
)


def behind(came: float, *, left: float = 130.0, broker: str = "b", qos: int = 1) -> list[Event]:
    """A client of a broker publishes 1 and then 2. One reader gets 1 at `came`, and 2. Another leaves."""
    events: list[Event] = [Up(0.0, "A"), Up(0.0, "B"), Connected(20.0, "p", "p", "A", broker, speaks="mqtt")]
    for name, topics in (("stays", "ut"), ("leaves", "t")):
        events.append(Connected(20.0, name, name, "B", speaks="native"))
        for topic in topics:
            events += [Subscribing(20.0, name, topic), Confirmed(21.0, name, topic)]
    for message, topic, t, its_qos in (("1", "u", 100.0, qos), ("2", "t", 101.0, 1)):
        events += [Publishing(t, "p", message, topic, qos=its_qos), Acknowledged(t + 0.1, "p", message)]
        events.append(Received(came + t - 100.0, "stays", message, topic))
    return [*events, Ended(left, "leaves"), Ended(300.0, "stays")]


def test_a_reader_may_leave_before_a_sidecar_that_is_behind_has_taken_a_message() -> None:
    assert found(behind(129.0)) == [], "it left when the message before was under way"
    assert found(behind(102.0)) == ["lost"], "the sidecar was not behind"
    assert found(behind(129.0, left=250.0)) == ["lost"], "it stayed for long"
    assert found(behind(129.0, broker="")) == ["lost"], "a node acknowledges what the mesh has"
    assert found(behind(129.0, qos=0)) == ["lost"], "what has QoS 0 does not wait with the others"


def test_a_reader_that_was_away_does_not_show_that_a_sidecar_is_behind() -> None:
    assert "lost" in found([*behind(129.0), Away(99.0, "stays"), Back(128.0, "stays", "B")])
