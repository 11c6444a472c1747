"""What nodes may do where they have no room: each test states what is an excuse, and what is none."""

from __future__ import annotations

from judge.test_strict_judge import base, found, got, said, subscribed
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
    Missed,
    Overflowed,
    Publishing,
    Received,
    Subscribing,
    Unreachable,
    Up,
)

CUT = Disturbed(45.0, 55.0, "cut")
WINDOW = Overflowed(52.0, "A", 3, "window")


def test_a_window_that_overflows_excuses_a_loss() -> None:
    events = [*base(), *said("m1", 50.0)]
    assert found([*events, CUT, WINDOW]) == []
    assert found([*events, CUT]) == ["lost"]
    assert found([*events, WINDOW]) == [], "messages may come faster than links carry them"
    assert found([*events, CUT, Overflowed(40.0, "A", 3, "window")]) == ["lost"], "it came before the message"
    assert found([*events, CUT, Overflowed(200.0, "A", 3, "window")]) == ["lost"], "it came long after the message"
    assert found([*events, CUT, Overflowed(52.0, "B", 3, "clients")]) == ["lost"], "this is no window"


def test_messages_that_a_node_drops_for_a_client_excuse_as_many_losses() -> None:
    events = [*base(reader="mqtt"), *said("m1", 50.0), *said("m2", 51.0)]
    assert found([*events, Overflowed(51.2, "B", 2, "clients")]) == []
    assert found([*events, Overflowed(51.2, "B", 1, "clients")]) == ["lost"]
    assert found([*events, Overflowed(51.2, "A", 2, "clients")]) == ["lost"], "the reader is at B"
    native = [*base(reader="native"), *said("m1", 50.0)]
    assert found([*native, Overflowed(51.2, "B", 2, "clients")]) == ["lost"], "it tells of MQTT clients"


def test_a_message_that_is_dropped_for_a_broker_is_missing_for_all_its_readers() -> None:
    events: list[Event] = [Connected(0.0, "p", "p", "A"), *said("m1", 50.0)]
    for name in ("r", "s"):
        events += [Connected(0.0, name, name, "B", "broker", "mqtt"), *subscribed(name, "x", 1.0)]
    assert found([*events, Overflowed(51.2, "B", 1, "clients")]) == []
    assert found(events) == ["lost"]


def test_a_native_client_is_told_of_messages_that_it_never_gets_before_it_gets_later_ones() -> None:
    """Losing the first message has an excuse. Saying nothing about it has none."""
    events = [*base(writer="native", reader="native"), *said("m1", 50.0), *said("m2", 51.0), got("m2", 51.2)]
    told = Missed(51.2, "s", "x")
    assert found([*events, CUT, WINDOW]) == ["gap"]
    assert found([*events, CUT, WINDOW, told]) == []
    assert found([*events, CUT, WINDOW, Missed(49.0, "s", "x")]) == ["gap"], "it was told of others"
    assert found([*events, CUT, WINDOW, Missed(51.2, "s", "y")]) == ["gap"], "it was told of another topic"
    at_broker = [Connected(0.0, "p", "p", "A", "broker", "mqtt"), *events[1:]]
    assert found([*at_broker, CUT, WINDOW]) == [], "its sidecar may give it to the mesh later"
    of_mqtt = [*base(writer="native", reader="mqtt"), *said("m1", 50.0), *said("m2", 51.0), got("m2", 51.2)]
    assert found([*of_mqtt, CUT, WINDOW]) == [], "MQTT has no words for it"


def turned_away(*others: Event) -> list[Event]:
    events: list[Event] = [*base(writer="native", reader="native"), *others]
    return [*events, Ended(60.0, "s"), Unreachable(100.0, "s", "B", 99.0, "full")]


def test_a_node_may_turn_clients_away_when_it_has_as_many_as_it_takes() -> None:
    there = [Connected(40.0, "t", "t", "B", speaks="native")]
    full = {"clients_max": {"native": 1}}
    assert found(turned_away(*there), **full) == []
    assert found(turned_away(), **full) == ["refused"], "nobody else is there"
    assert found(turned_away(*there), clients_max={"native": 2}) == ["refused"]
    assert found(turned_away(*there)) == ["refused"], "nodes without such a limit take all"
    assert found(turned_away(Connected(40.0, "t", "t", "A", speaks="native")), **full) == ["refused"], "at another node"
    assert found(turned_away(Connected(40.0, "t", "t", "B", speaks="mqtt")), **full) == ["refused"], "at another port"
    assert found(turned_away(*there, Ended(70.0, "t")), **full) == ["refused"], "it has long gone"
    assert found(turned_away(*there, Ended(90.0, "t")), **full) == [], "its connection may linger"
    late = [*turned_away(), Connected(100.5, "t", "t", "B", speaks="native")]
    assert found(late, **full) == [], "it was let in before, and hears of it later"
    late = [*turned_away(), Connected(101.5, "t", "t", "B", speaks="native")]
    assert found(late, **full) == ["refused"], "it came later"


def test_a_node_that_is_full_does_not_turn_away_an_mqtt_client_that_takes_over_its_own_connection() -> None:
    for speaks, kinds in (("mqtt", ["refused"]), ("native", [])):
        events = [*base(reader=speaks), Unreachable(100.0, "s", "B", 99.0, "full")]
        assert found(events, clients_max={speaks: 1}) == kinds


def test_a_node_may_turn_mqtt_clients_away_when_it_remembers_as_many_sessions_as_it_keeps() -> None:
    events = [*base(reader="mqtt"), Ended(60.0, "s"), Unreachable(100.0, "s", "B", 99.0, "CONNACK 0x97")]
    gone = [Connected(40.0, "t", "t", "B", speaks="mqtt"), Ended(45.0, "t")]
    assert found([*events, *gone], sessions_max=1) == []
    assert found([*events, *gone], sessions_max=2) == ["refused"]
    assert found(events, sessions_max=1) == ["refused"], "the session of the client itself does not count"


def test_a_crash_that_happens_a_moment_after_it_is_written_down_lets_a_publication_come_twice() -> None:
    """The node still took the message, and knew nothing of it when it was back."""
    events = [*base(writer="native", reader="native"), Down(49.9, "A"), *said("m1", 50.0)]
    events = [one for one in events if not isinstance(one, Acknowledged)]
    again = [Away(50.1, "p"), Back(51.0, "p", "A"), got("m1", 50.05), got("m1", 51.2)]
    answer = Acknowledged(51.3, "p", "m1", ("A", "B"))
    assert found([*events, *again, answer, Up(50.5, "A")]) == []
    without_crash = [one for one in events if not isinstance(one, Down)]
    assert found([*without_crash, *again, answer]) == ["twice"]
    assert found([*without_crash, *again, answer], remembers=False) == [], "it remembers few numbers of clients"


def test_no_gap_is_told_between_two_incarnations_of_a_node() -> None:
    """The message that is missing went down with its node; the client sends the next one when it is back."""
    events = [
        Connected(1.0, "p", "p", "a", "", "native"),
        Connected(1.0, "s", "s", "b", "", "native"),
        *[Subscribing(2.0, "s", "t"), Confirmed(3.0, "s", "t")],
        *[Publishing(40.0, "p", "m1", "t"), Acknowledged(40.1, "p", "m1", ("a",))],
        Disturbed(10.0, 60.0, "split", ("a", "b")),
        *[Down(41.0, "a"), Away(41.0, "p"), Publishing(42.0, "p", "m2", "t"), Up(45.0, "a")],
        *[Back(70.0, "p", "a"), Acknowledged(70.1, "p", "m2", ("a", "b")), Received(70.2, "s", "m2", "t")],
        Up(200.0, "late"),
    ]
    assert "gap" not in found(events)
    stays = [one for one in events if not isinstance(one, Down | Up | Away | Back) or one.t == 200.0]
    assert "gap" in found(stays)


def test_a_message_with_qos_2_that_a_full_window_refused_may_come_twice() -> None:
    events = [
        Connected(1.0, "p", "p", "a", "", "mqtt"),
        Connected(1.0, "s", "s", "b", "", "mqtt"),
        *[Subscribing(2.0, "s", "t"), Confirmed(3.0, "s", "t")],
        *[Publishing(40.0, "p", "m1", "t", 2), Received(40.1, "s", "m1", "t")],
        *[Away(41.0, "p"), Back(45.0, "p", "a"), Acknowledged(46.0, "p", "m1"), Received(45.5, "s", "m1", "t")],
        Up(200.0, "late"),
    ]
    assert found(events) == ["twice"]
    assert found([*events, Overflowed(42.0, "a", 1, "window")]) == []
    assert found([*events, Overflowed(42.0, "b", 1, "window")]) == ["twice"], "the publisher is at a"
    assert found([*events, Overflowed(39.0, "a", 1, "window")]) == ["twice"], "it came before the message"
