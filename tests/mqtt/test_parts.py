"""Large messages: they travel through the mesh in parts, and a client gets each of them whole and once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import client_address, run
from mqtt.desk import Desk
from mqtt.talk import connect, doors
from trellis.live.client import connect as native
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import parts, reasons
from trellis.protocols.mqtt.envelope import Envelope, unwrap
from trellis.protocols.mqtt.parts import Assembly, split

LIMIT = 4_000  # most bytes of a publication of the mesh in these tests


def desk_of_parts() -> Desk:
    desk = Desk(packet_bytes_max=20 * LIMIT)
    desk.host.state.payload_bytes_max = LIMIT
    return desk


def pieces_of(payload: bytes, count: int, first: int = 1) -> list[Envelope]:
    size = -(-len(payload) // count)
    cut = list(split(payload, size))
    return [
        Envelope("t", part, 1, False, "c", 1, first + index, 0, part=(first, index, len(cut)))
        for index, part in enumerate(cut)
    ]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("filter_", ["a/b/c", "a/#", "#"])
def test_a_large_message_comes_whole_and_once_to_every_client(qos: int, filter_: str):
    desk = desk_of_parts()
    reader, writer = desk.welcome("r"), desk.welcome("w")
    reader.subscribe(p.Asked(filter_, 2))
    reader.got.clear()
    content = p.Content(user=(("k", "v"),), content_type="image/png")
    payload = bytes(range(256)) * 100
    writer.publish("a/b/c", payload, qos=qos, id=1 if qos else None, content=content)
    (got,) = [one for one in reader.got if isinstance(one, p.Publish)]
    assert (got.payload, got.topic, got.content) == (payload, "a/b/c", content)
    if qos:
        assert writer.take(p.Ack).reason == reasons.SUCCESS


def test_a_large_message_is_acknowledged_when_the_mesh_has_acknowledged_every_part():
    desk = desk_of_parts()
    writer = desk.welcome("w")
    desk.acknowledges = False
    writer.publish("a/b", b"x" * (3 * LIMIT), qos=1, id=1)
    assert len(desk.unanswered) > 3
    *most, last = desk.unanswered
    desk.unanswered = most
    desk.acknowledge()
    assert not writer.got
    desk.unanswered = [last]
    desk.acknowledge()
    assert writer.take(p.Ack).id == 1


def test_every_part_fits_into_a_publication_of_the_mesh():
    desk = desk_of_parts()
    writer = desk.welcome("w")
    before = len(desk.emitted)
    writer.publish("a/b", b"x" * (5 * LIMIT), qos=1, id=1, content=p.Content(user=(("k", "v" * 200),)))
    sent = desk.emitted[before:]
    assert len(sent) > 5
    assert all(len(emit.payload) <= LIMIT for emit in sent)
    assert sum(len(unwrap(emit.payload).payload) for emit in sent) == 5 * LIMIT


def test_a_retained_message_that_needs_parts_is_refused():
    desk = desk_of_parts()
    writer = desk.welcome("w")
    writer.publish("a/b", b"x" * (2 * LIMIT), qos=1, id=1, retain=True)
    assert writer.take(p.Ack).reason == reasons.QUOTA
    assert not desk.host.state.retained


@given(st.permutations(range(6)), st.binary(min_size=6, max_size=60))
def test_parts_may_arrive_in_any_order(order: list[int], payload: bytes):
    assembly, pieces = Assembly(), pieces_of(payload, 6)
    order = [index for index in order if index < len(pieces)]
    got = [assembly.take("n", pieces[index], 0) for index in order]
    assembly.check()
    assert got[:-1] == [None] * (len(pieces) - 1)
    assert got[-1] is not None
    assert (got[-1].payload, got[-1].part, got[-1].number) == (payload, None, pieces[-1].number)


def test_parts_of_several_messages_are_kept_apart():
    assembly = Assembly()
    one, other = pieces_of(b"abcd", 2), pieces_of(b"wxyz", 2, first=10)
    assert assembly.take("n", one[0], 0) is None
    assert assembly.take("n", other[0], 0) is None
    assert assembly.take("m", one[1], 0) is None, "a part of another node"
    assert assembly.take("n", one[0], 0) is None, "a part that came before"
    whole = assembly.take("n", one[1], 0)
    assert whole is not None
    assert whole.payload == b"abcd"


def test_a_message_whose_parts_stay_out_is_dropped_and_counted():
    assembly = Assembly()
    first, second = pieces_of(b"abcd", 2)
    assembly.take("n", first, 0)
    assembly.tick(parts.WAIT_MS - 1)
    assert assembly.dropped == 0
    assembly.tick(parts.WAIT_MS)
    assembly.check()
    assert assembly.dropped == 1
    assert assembly.take("n", second, parts.WAIT_MS) is None


def test_incomplete_messages_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(parts, "BYTES_MAX", 1_000)
    assembly = Assembly()
    for first in range(1, 100, 10):
        assembly.take("n", pieces_of(b"x" * 400, 2, first=first)[0], 0)
        assembly.check()
    assert assembly.dropped == 5


def test_16_mib_cross_a_mesh_to_mqtt_clients_and_to_native_ones():
    payload = bytes(range(256)) * (16 << 12)

    async def work() -> None:
        async with doors("a", "b", mqtt={"packet_bytes_max": 17 << 20}) as (first, second):
            writer, reader = await connect(first, "w"), await connect(second, "r")
            reader.framing.bytes_max = 17 << 20
            async with native(client_address(second)) as client:
                await client.subscribe("cam/1")
                await reader.subscribe("cam/#")
                assert await writer.publish("cam/1/picture", payload) == reasons.SUCCESS
                got = await reader.until(p.Publish)
                assert got.payload == payload
                message = await anext(aiter(client))
                assert message.payload == payload
                assert message.mqtt is not None
                assert message.mqtt.topic == "cam/1/picture"

    run(work())


def test_the_node_uses_topic_aliases_towards_a_client_that_allows_them():
    desk = Desk()
    reader, writer = desk.welcome("r", alias_max=1), desk.welcome("w")
    reader.subscribe("a/b", "c/d")
    reader.got.clear()
    for topic in ("a/b", "a/b", "c/d", "a/b"):
        writer.publish(topic, b"x")
    got = [(one.topic, one.alias) for one in reader.got if isinstance(one, p.Publish)]
    assert got == [("a/b", 1), ("", 1), ("c/d", None), ("", 1)]


def test_a_message_that_may_be_too_large_for_its_client_introduces_no_alias():
    desk = Desk()
    reader, writer = desk.welcome("r", alias_max=5, packet_bytes_max=300), desk.welcome("w")
    reader.subscribe("a/b")
    reader.got.clear()
    for size in (250, 10, 10):
        writer.publish("a/b", b"x" * size)
    got = [(one.topic, one.alias) for one in reader.got if isinstance(one, p.Publish)]
    assert got == [("a/b", None), ("a/b", 1), ("", 1)]
