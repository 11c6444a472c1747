"""Bytes that nobody meant: mutated frames of real traffic end as messages or as `WireError`s, never as anything else.

The frames are those of a live node's stream: controls, and what the nodes of a small mesh said to each other over each
overlay, one of every kind. `make test` tries a few thousand, `make test-slow` a million.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from trellis.live.frames import (
    BODY_BYTES_MAX,
    MESSAGE,
    PROTOCOL,
    VERSION,
    Address,
    Addresses,
    Bye,
    Hello,
    Refused,
    Splitter,
    pack_control,
    pack_message,
    read_control,
)
from trellis.live.talk import (
    TO_CLIENT,
    TO_NODE,
    Greet,
    Message,
    Missed,
    NotTaken,
    Publish,
    Subscribe,
    Subscribed,
    Taken,
    Welcome,
)
from trellis.protocols.delivery.messages import Frame
from trellis.protocols.mesh import CODECS
from trellis.protocols.wire import WireError
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.systems.delivery import Delivery

HOME = Address("a", 7, "127.0.0.1", 7001)
CONTROLS = (Hello(PROTOCOL, VERSION, "demo", "omen", HOME), Refused("cluster", "no"), Addresses((HOME,)), Bye())
TALK_IN = (Greet("trellis-client", 2, "me", 7), Publish(1, "t", b"x" * 20), Subscribe("t"))
TALK_OUT = (
    Welcome("a", "demo", 7),
    Taken(1, 2, 2, ("a", "b")),
    NotTaken(1, "no"),
    Subscribed("t"),
    Message("t", "a", 3, b"x"),
    Missed("t", "a", 1, 2, "gone"),
)
FORMS = b"\x00\x7f\x80\x90\xc0\xc1\xc4\xca\xcb\xcf\xd3\xd9\xdb\xdc\xdd\xde\xdf\xff"  # heads of MessagePack values


@cache
def corpus(overlay: str) -> list[bytes]:
    """What a mesh of six says while it forms, delivers and loses a node: the smallest and the largest of each kind."""
    said: dict[tuple[type, ...], list[bytes]] = {}
    system = Delivery(overlay=overlay, every_ms=500)
    encode = system.codec.encode

    class Recording:
        bytes_max, decode = system.codec.bytes_max, system.codec.decode

        def encode(self, message: msgspec.Struct) -> bytes:
            data = encode(message)
            inside = {type(item) for item in message.items} if isinstance(message, Frame) else ()
            kind = (type(message), *sorted(inside, key=lambda item: item.__name__))
            known = said.setdefault(kind, [data, data])
            known[0], known[1] = min(known[0], data, key=len), max(known[1], data, key=len)
            return data

    system.codec = Recording()  # type: ignore[assignment]
    engine = Engine(system, draw_interests(InstanceDraw(nodes=6, topics=4, subscriptions=2), 3), seed=3, encode=True)
    engine.run(15_000)
    engine.crash(engine.world.living[2])
    engine.run(23_000)
    assert len(said) >= 10, said.keys()
    frames = [pack_message(one) for pair in said.values() for one in pair]
    return [*frames, *map(pack_control, CONTROLS)]


def mutated(random: Random, frames: list[bytes]) -> bytes:
    """One frame or two, with bytes changed, put in, cut out, repeated, or taken from another frame."""
    data = bytearray(frames[int(random.random() * len(frames))])
    for _ in range(1 + int(3 * random.random() ** 3)):  # mostly one: more leave little to look at
        place = int(random.random() * (len(data) + 1))
        match int(random.random() * 6):
            case 0:
                data[place : place + 1] = bytes([int(random.random() * 256)])
            case 1:
                data[place : place + 1] = FORMS[(form := int(random.random() * len(FORMS))) : form + 1]
            case 2:
                data[place:place] = random.randbytes(1 + int(random.random() * 6))
            case 3:
                del data[place : place + 1 + int(random.random() * 6)]
            case 4:
                data[place:place] = data[place : place + 16]
            case _:
                other = frames[int(random.random() * len(frames))]
                cut = int(random.random() * len(other))
                data[place : place + 24] = other[cut : cut + 24]
    if random.random() < 0.8 and len(data) > 4:  # a length that fits: the body is what is looked at
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


def receive(decode: Callable[[bytes], Any], data: bytes) -> Iterator[Any]:
    """As a node's transport does."""
    for body in Splitter(BODY_BYTES_MAX).feed(data):
        yield decode(body[1:]) if body[:1] == MESSAGE else read_control(body)


def fuzz(overlay: str, inputs: int, seed: int) -> tuple[int, int]:
    """How many were messages all the same, and how many were refused."""
    frames, codec, random = corpus(overlay), CODECS[overlay], Random(seed)
    taken = refused = 0
    for _ in range(inputs):
        data = mutated(random, frames)
        try:
            for message in receive(codec.decode, data):
                assert isinstance(message, msgspec.Struct)
                taken += 1
        except WireError:
            refused += 1
    return taken, refused


@pytest.mark.parametrize("overlay", CODECS)
def test_mutated_frames_are_messages_or_wire_errors(overlay):
    taken, refused = fuzz(overlay, 3_000, seed=1)
    assert taken > 100  # or nothing of the messages themselves was tried
    assert refused > 100


@pytest.mark.slow
@pytest.mark.parametrize("overlay", CODECS)
def test_a_million_mutated_frames_are_messages_or_wire_errors(overlay):
    fuzz(overlay, 1_000_000 // len(CODECS), seed=2)


@pytest.mark.parametrize(("codec", "talk"), [(TO_NODE, TALK_IN), (TO_CLIENT, TALK_OUT)], ids=["to node", "to client"])
def test_mutated_talk_of_clients_is_talk_or_a_wire_error(codec, talk):
    frames, random, taken = [pack_message(codec.encode(one)) for one in talk], Random(3), 0
    for _ in range(3_000):
        with contextlib.suppress(WireError):
            taken += sum(1 for _ in receive(codec.decode, mutated(random, frames)))
    assert taken > 50
