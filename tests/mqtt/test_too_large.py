"""Publications that the mesh does not carry, because they are too large or cannot be read: none holds up the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from live.lives import run, until
from mqtt.attached import client_of, sidecars
from mqtt.brokers import brokers, needs_mosquitto
from mqtt.desk import Desk
from trellis.live.mqtt import sidecar
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.effects import NotCarried
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.envelope import Copy, Envelope, fits, wrap
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import PacketError
from trellis.protocols.wire import COUNT_MAX

LIMIT = 4_000


class FakeBroker:
    """Welcomes one client, then sends what the test gives, and keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[p.Packet] = []
        self.connections = 0
        self.writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer, framing = writer, Framing(1 << 24)
        while data := await reader.read(65_536):
            framing.feed(data)
            for first, body in framing.packets():
                packet = decode(p.V5, first, body)
                if isinstance(packet, p.Connect):
                    writer.write(encode(p.V5, p.ConnAck(reason=0, session_present=self.connections > 1)))
                elif isinstance(packet, p.Subscribe):
                    writer.write(encode(p.V5, p.SubAck(packet.id, (1,) * len(packet.asked))))
                elif isinstance(packet, p.PingReq):
                    writer.write(encode(p.V5, p.PingResp()))
                else:
                    self.heard.append(packet)
        writer.close()

    def send(self, *packets: p.Packet) -> None:
        assert self.writer is not None
        self.writer.write(b"".join(encode(p.V5, one) for one in packets))


@asynccontextmanager
async def beside_a_fake() -> AsyncIterator[tuple[FakeBroker, LiveNode]]:
    fake = FakeBroker()
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    try:
        async with sidecars(f"mqtt://127.0.0.1:{server.sockets[0].getsockname()[1]}", want=("w/#",)) as (node,):
            yield fake, node
    finally:
        server.close()


def publication(number: int, payload: bytes = b"x", **fields: object) -> p.Publish:
    return p.Publish(topic="cam/x", payload=payload, qos=1, id=number, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [600_000, 1_300_000])
def test_a_publication_of_a_broker_that_is_too_large_is_acknowledged_and_costs_no_other(size: int, caplog):
    async def work() -> None:
        async with beside_a_fake() as (fake, node):
            fake.send(*(publication(number, b"y" * size if number == 2 else b"x") for number in range(1, 5)))
            await until(lambda: {1, 2, 3, 4} <= {one.id for one in fake.heard if isinstance(one, p.Ack)})
            fake.send(*(publication(number) for number in range(1, 5)))  # the identifiers are free again
            await until(lambda: len([one for one in fake.heard if isinstance(one, p.Ack)]) == 8)
            bridge = node.mqtt.sidecar.bridge
            assert bridge.counters["not carried"] == 1
            assert fake.connections == 1
            assert node.metrics()["mqtt too large for the mesh"] == 1
            limit = node.config.delivery.payload_bytes_max
            assert (
                f"a publication on cam/x was refused: its {size} bytes and its envelope are over {limit}" in caplog.text
            )

    run(work())


def test_a_packet_of_a_broker_that_is_larger_than_all_that_is_kept_is_read_past(monkeypatch, caplog):
    """A broker of 3.1.1 knows no limit. Closing the connection would make it send the packet again, for ever."""
    monkeypatch.setattr(sidecar, "PACKET_BYTES_MAX", 100_000)

    async def work() -> None:
        async with beside_a_fake() as (fake, node):
            fake.send(*(publication(number, b"y" * 300_000 if number == 2 else b"x") for number in range(1, 5)))
            await until(lambda: {1, 2, 3, 4} <= {one.id for one in fake.heard if isinstance(one, p.Ack)})
            assert fake.connections == 1
            assert node.mqtt.sidecar.bridge.counters["not carried"] == 1
            assert "a publication on cam/x was refused: its 300" in caplog.text
            (told,) = node.mqtt.complaints()
            assert told.startswith("A message of the broker at 127.0.0.1:")
            assert told.endswith("bytes) was left out: it is too large for the mesh.")

    run(work(), 20)


@pytest.mark.parametrize("step", [1, 7, 1_000, 65_536, 10_000_000])
def test_a_packet_that_is_read_past_is_known_by_its_head_and_never_held_whole(step: int):
    framing = Framing(90_000, reads_past=True)
    large, small = publication(2, b"y" * 200_000), publication(3)
    data = b"".join(encode(p.V311, one) for one in (publication(1), large, small, large, small))
    found, most = [], 0
    for start in range(0, len(data), step):
        framing.feed(data[start : start + step])
        for first, body in framing.packets():
            whole = not framing.left_out
            found.append(decode(p.V311, first, body) if whole else (framing.left_out, body[:9]))
        most = max(most, len(framing))
    head = (len(encode(p.V311, large)) - 4, b"\x00\x05cam/x\x00\x02")
    assert found == [publication(1), head, small, head, small]
    assert most < 90_000
    strict = Framing(90_000)
    strict.feed(encode(p.V311, large))
    with pytest.raises(PacketError, match="is over 90000"):
        list(strict.packets())


def test_a_publication_of_a_broker_that_cannot_be_read_is_acknowledged_and_costs_no_other(caplog):
    """More user properties than we keep, and text with control characters: the broker carries both."""

    async def work() -> None:
        async with beside_a_fake() as (fake, node):
            many = p.Content(user=(("k", "v"),) * (p.USER_PROPERTIES_MAX + 1))
            lines = p.Content(user=(("k", "1\n2"),))
            fake.send(publication(1, content=many), publication(2, content=lines), publication(3))
            await until(lambda: {1, 2, 3} <= {one.id for one in fake.heard if isinstance(one, p.Ack)})
            assert node.mqtt.sidecar.bridge.counters["not carried"] == 2
            assert fake.connections == 1
            assert caplog.text.count("a publication on cam/x was refused") == 2

    run(work())


def test_an_error_of_ours_costs_one_message_of_the_broker_and_none_behind_it(monkeypatch, caplog):
    async def work() -> None:
        async with beside_a_fake() as (fake, node):
            publications = node.mqtt.host.publications
            publish = publications.publish

            def break_once(client: str, topic: str, payload: bytes, *rest: object) -> object:
                if payload == b"bad":
                    raise ValueError("an error of ours")
                return publish(client, topic, payload, *rest)  # type: ignore[arg-type]

            monkeypatch.setattr(publications, "publish", break_once)
            fake.send(*(publication(number, b"bad" if number == 2 else b"x") for number in range(1, 5)))
            await until(lambda: {1, 2, 3, 4} <= {one.id for one in fake.heard if isinstance(one, p.Ack)})
            fake.send(publication(2, b"the next one under this identifier"))
            await until(lambda: len([one for one in fake.heard if isinstance(one, p.Ack)]) == 5)
            bridge = node.mqtt.sidecar.bridge
            assert (bridge.counters["bugs"], bridge.counters["not carried"]) == (1, 1)
            assert "Publish of the broker broke a handler" in caplog.text

    run(work())


def test_a_client_is_told_that_its_publication_is_too_large_for_the_mesh():
    desk = Desk(packet_bytes_max=2 * LIMIT)
    desk.host.state.payload_bytes_max = LIMIT
    client = desk.welcome()
    for number, size in ((1, LIMIT), (2, LIMIT // 2)):
        client.publish("a/b", b"x" * size, qos=1, id=number, retain=True)
    answer = client.take(p.Ack)
    assert (answer.id, answer.reason) == (1, reasons.QUOTA)
    assert str(LIMIT) in answer.text
    assert client.take(p.Ack).reason == reasons.SUCCESS
    assert desk.host.counters["too large for the mesh"] == 1


def test_a_publication_that_is_too_large_leaves_nothing_behind_in_the_directory():
    desk = Desk()
    desk.host.state.payload_bytes_max = LIMIT
    client = desk.welcome()
    before = len(desk.emitted)
    client.publish("new/topic", b"x" * LIMIT, qos=0, retain=True)
    assert len(desk.emitted) == before
    assert not desk.host.publications.waiting
    desk.host.received(client.number, p.Publish(topic="new/topic", payload=b"x" * LIMIT, retain=True))
    assert [one.topic for one in desk.host.take() if isinstance(one, NotCarried)] == ["new/topic"]


@pytest.mark.parametrize("letter", ["a", "\N{SNOWMAN}"])
def test_what_fits_can_be_wrapped_whatever_its_numbers(letter: str):
    content = p.Content(user=((letter * 50, letter * 50),) * 4, correlation=b"c" * 99, expiry_s=2**32 - 1)
    is_fit = set()
    for size in range(LIMIT // 4, LIMIT, 7):
        big = (COUNT_MAX,) * 3
        one = Envelope(letter * 99, b"x" * size, 1, True, letter * 9, *big, True, COUNT_MAX, COUNT_MAX, content)
        if fits(one, letter * 99, LIMIT):
            assert len(wrap(Copy(letter * 99, one))) <= LIMIT
        is_fit.add(fits(one, letter * 99, LIMIT))
    assert is_fit == {True, False}


@needs_mosquitto
def test_beside_mosquitto_a_publication_that_is_too_large_costs_no_other(tmp_path):
    async def work() -> None:
        async with brokers(tmp_path, "x", "y") as (x, y), sidecars(x.url, y.url) as (first, _):
            reader, publisher = await client_of(y, "reader", "cam/#"), await client_of(x, "publisher")
            for number in range(6):
                publisher.send(publication(number + 1, b"y" * 1_300_000 if number == 2 else b"%d" % number))
            assert await reader.messages(5) == [b"0", b"1", b"3", b"4", b"5"]
            assert first.mqtt.sidecar.bridge.counters["not carried"] == 1

    run(work())
