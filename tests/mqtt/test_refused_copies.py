"""A message that the mesh refuses at once does not travel over directories either."""

from __future__ import annotations

import pytest

from mqtt.desk import Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import Ask, Copy, Envelope, unwrap, wrap
from trellis.protocols.mqtt.interests import QUESTIONS

TOPIC = "home/hall/lamp"


def beside_a_wildcard() -> Desk:
    """Return a node that knows of a wildcard at another node. That one has not taken up the overlay topic yet."""
    desk = Desk()
    desk.host.delivered(QUESTIONS, "x", wrap(Ask(7, desk.host.config.depth, ("home/#",), (1,), 1)))
    desk.pass_time(400)
    desk.emitted.clear()
    return desk


def given(desk: Desk) -> list[Envelope | Copy]:
    """Return what the host gave to the mesh for clients, since the last call."""
    found = [unwrap(one.payload) for one in desk.emitted]
    desk.emitted.clear()
    return [one for one in found if isinstance(one, Envelope | Copy)]


def back(desk: Desk, version: int) -> Talker:
    return desk.welcome("lamp", version, clean_start=False, **({"expiry_s": 600} if version == p.V5 else {}))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [p.V311, p.V5])
def test_a_refused_message_has_no_copies(version: int, qos: int):
    desk = beside_a_wildcard()
    lamp = back(desk, version)
    desk.refuses = lambda topic: topic == "home/hall"
    number = {"id": 7} if qos else {}
    lamp.publish(TOPIC, b"1", qos=qos, **number)
    (refused,) = given(desk)
    assert isinstance(refused, Envelope), "the mesh refused the message: no copy may spread it"
    desk.refuses = lambda topic: False
    if lamp.closed is not None or version == p.V311:
        lamp = back(desk, version)
    lamp.publish(TOPIC, b"1", qos=qos, dup=bool(qos), **number)
    message, *copies = given(desk)
    assert isinstance(message, Envelope)
    assert copies, "the other node gets a copy"
    assert {one.message.number for one in copies if isinstance(one, Copy)} == {message.number}


def test_a_refused_copy_takes_nothing_back_that_is_under_way():
    desk = beside_a_wildcard()
    lamp = back(desk, p.V5)
    desk.refuses = lambda topic: topic.startswith("$")
    lamp.publish(TOPIC, b"1", qos=1, id=7)
    assert [type(one) for one in given(desk)] == [Envelope, Copy]
    assert lamp.take(p.Ack).reason >= 0x80
