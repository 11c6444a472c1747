"""A publication that the mesh refuses at once does not replace what is retained."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from live.lives import DELIVERY, run
from mqtt.desk import WALL_MS, Desk
from mqtt.talk import connect, doors
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons

NO_ROOM = reasons.IMPLEMENTATION


def retained_at(desk: Desk, filter_: str = "home/hall/light") -> list[bytes]:
    """Return what a new subscriber gets."""
    reader = desk.welcome(f"reader {len(desk.talkers)}")
    reader.subscribe(filter_)
    desk.pass_time(2_000)
    found = reader.payloads()
    reader.drop()
    return found


def say(desk: Desk, *payloads: bytes, refused: bool = False) -> None:
    talker = desk.welcome(f"publisher {len(desk.talkers)}")
    desk.refuses = lambda topic: refused and topic == "home/hall"
    for number, payload in enumerate(payloads, 1):
        talker.publish("home/hall/light", payload, qos=1, retain=True, id=number)
        assert talker.take(p.Ack).reason == (NO_ROOM if refused else 0)
    desk.refuses = lambda topic: False
    talker.drop()


@pytest.mark.parametrize("refused", [[b"new"], [b""], [b"new", b"newer"], [b"", b"new"], [b"new", b""]])
def test_what_was_retained_stays(refused: list[bytes]):
    desk = Desk()
    say(desk, b"old")
    say(desk, *refused, refused=True)
    assert retained_at(desk) == [b"old"]
    say(desk, b"later")
    assert retained_at(desk) == [b"later"]


@pytest.mark.parametrize("before", [[], [b"old", b""]])
def test_where_nothing_was_retained_nothing_is(before: list[bytes]):
    desk = Desk()
    say(desk, *before)
    wanted = set(desk.wanted)
    say(desk, b"new", refused=True)
    assert retained_at(desk) == []
    desk.pass_time(1_000)
    assert set(desk.host.interests.wanted) == wanted  # the node does not stay on the topic for it


def test_a_publication_that_came_after_a_refused_one_is_retained():
    desk = Desk()
    say(desk, b"old")
    talker = desk.welcome("p")
    desk.acknowledges = False
    refused = [b"new"]
    desk.refuses = lambda topic: topic == "home/hall" and bool(refused) and bool(refused.pop())
    talker.publish("home/hall/light", b"new", qos=1, retain=True, id=1)
    talker.publish("home/hall/light", b"newer", qos=1, retain=True, id=2)
    desk.acknowledge()
    assert retained_at(desk) == [b"newer"]


def test_a_publication_that_the_mesh_took_and_did_not_acknowledge_is_retained():
    """Other nodes may have got it."""
    desk = Desk()
    say(desk, b"old")
    desk.acknowledges = False
    talker = desk.welcome("p")
    talker.publish("home/hall/light", b"new", qos=1, retain=True, id=1)
    desk.host.not_acknowledged(desk.unanswered.pop(), "1 of 2 copies after 10000 ms")
    desk.carry_out()
    assert talker.take(p.Ack).reason == NO_ROOM
    desk.acknowledges = True
    assert retained_at(desk) == [b"new"]


def test_a_node_without_room_for_a_publication_keeps_what_it_retains():
    async def work() -> None:
        async with doors("a", delivery=replace(DELIVERY, window_bytes=4_096)) as (node,):
            publisher = await connect(node, "p")
            assert await publisher.publish("home/hall/light", b"on", retain=True) == 0
            assert await publisher.publish("home/hall/light", bytes(5_000), retain=True) == NO_ROOM
            late = await connect(node, "late")
            await late.subscribe("home/hall/light")
            assert (await late.message()).payload == b"on"

    run(work())


def test_a_retained_message_replaces_an_earlier_one_although_the_clock_was_set_back():
    desk = Desk()
    say(desk, b"first")
    for step, payload in ((-3_600_000, b"second"), (-7_200_000, b"third")):
        desk.host.at(desk.now_ms, WALL_MS + step)
        say(desk, payload)
        assert retained_at(desk) == [payload]
    desk.host.at(desk.now_ms, WALL_MS - 9_000_000)
    say(desk, b"")
    assert retained_at(desk) == []
    desk.host.at(desk.now_ms, WALL_MS - 9_500_000)
    say(desk, b"fourth")
    assert retained_at(desk) == [b"fourth"]
