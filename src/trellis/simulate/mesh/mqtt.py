"""Implement a plain MQTT client that reports everything it receives. It follows the standard, and never retries.

Unlike the client of `live/mqtt/client.py` it speaks 3.1.1 and 5, every QoS, clean and kept sessions, wills and retained
messages. It can stop reading, or end without a DISCONNECT. It uses the codec of the node, which tests compare with
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from trellis.live.addresses import parse_address
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import PacketError

_PACKET_BYTES_MAX = 1 << 20
_ANSWER_S = 10.0
KEEP_ALIVE_S = 4


def greeting(version: int, client: str, *, is_clean: bool = True) -> p.Connect:
    """Return a CONNECT packet, by default of a client with a clean session."""
    return p.Connect(version=version, client=client, clean_start=is_clean, keep_alive_s=KEEP_ALIVE_S)


class MqttFailed(Exception):
    """The connection is lost, or the node has refused it."""


class Connection(asyncio.Protocol):
    """One connection, from CONNECT to its end. Packet identifiers and messages in flight belong to the session."""

    def __init__(
        self,
        version: int,
        now: Callable[[], float],
        on_publish: Callable[[p.Publish], None],
        on_release: Callable[[int], None] = lambda number: None,
    ) -> None:
        self.version, self.now, self.on_publish, self.on_release = version, now, on_publish, on_release
        self.heard = now()  # when the node last sent anything
        self.is_ended = False
        self.alias_max = 0  # number of topic aliases that the node accepts
        self._aliases: dict[str, int] = {}
        self._framing = Framing(_PACKET_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        # (kind, packet identifier) -> future of the answer
        self._answers: dict[tuple[str, int], asyncio.Future[p.Packet]] = {}
        self._lost = asyncio.get_running_loop().create_future()

    async def open(self, address: str, hello: p.Connect) -> p.ConnAck:
        """Connect, and return the node's CONNACK. Raise MqttFailed if the node refuses or does not answer."""
        host, port = parse_address(address)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_ANSWER_S):
                await loop.create_connection(lambda: self, host, port)
                answer = await self.ask(hello, "ConnAck", 0)
        except (OSError, TimeoutError) as error:
            self.cut()
            raise MqttFailed(str(error) or "no CONNACK in time") from None
        assert isinstance(answer, p.ConnAck)
        if answer.reason:
            self.cut()
            raise MqttFailed(f"CONNACK {answer.reason:#x}")
        self.alias_max = answer.alias_max or 0
        self._ping()
        return answer

    def aliased(self, packet: p.Publish) -> p.Publish:
        """Return a publication with an alias for its topic. If all aliases are in use, the oldest one is replaced."""
        if not self.alias_max or self.version != p.V5:
            return packet
        alias = self._aliases.get(packet.topic)
        if alias is not None:
            return replace(packet, topic="", alias=alias)
        alias = len(self._aliases) + 1
        if alias > self.alias_max:
            alias = self._aliases.pop(next(iter(self._aliases)))
        self._aliases[packet.topic] = alias
        return replace(packet, alias=alias)

    def _ping(self) -> None:
        """Send PINGREQ every KEEP_ALIVE_S. Cut the connection if the node was silent for twice that time."""
        if self.is_ended:
            return
        if self.now() - self.heard > 2 * KEEP_ALIVE_S:
            self.cut()
            return
        self.send(p.PingReq())
        asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._ping)

    async def ask(self, packet: p.Packet, kind: str, number: int) -> p.Packet:
        """Send a packet, and return the answer of that kind with that identifier."""
        future: asyncio.Future[p.Packet] = asyncio.get_running_loop().create_future()
        self._answers[kind, number] = future
        try:
            self.send(packet)
            return await future
        finally:
            self._answers.pop((kind, number), None)

    def send(self, packet: p.Packet) -> None:
        if self._transport is None or self.is_ended:
            raise MqttFailed("the connection is lost")
        self._transport.write(encode(self.version, packet))

    def close(self) -> None:
        """Send DISCONNECT and close the connection."""
        with suppress(MqttFailed):
            self.send(p.Disconnect())
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """End the connection without DISCONNECT."""
        # CPython's `abort` may raise on a transport that has ended.
        if self._transport is not None and not self.is_ended:
            self._transport.abort()
        self._end("the connection was cut")

    async def lost(self) -> None:
        """Wait until the connection is lost."""
        await asyncio.shield(self._lost)

    def pause_reading(self) -> None:
        if self._transport is not None and not self.is_ended:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self.is_ended:
            self._transport.resume_reading()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard = self.now()
        self._framing.feed(data)
        try:
            for first, body in self._framing.packets():
                self._take(decode(self.version, first, body))
        except PacketError as error:
            self.cut()
            raise AssertionError(f"the node sends what the standard forbids: {error}") from error

    def connection_lost(self, error: Exception | None) -> None:
        self._end(str(error) if error is not None else "the node closed the connection")

    def _take(self, packet: p.Packet) -> None:
        match packet:
            case p.Publish():
                self.on_publish(packet)
            case p.Ack(kind, number) if kind == p.PUBREL:
                self.on_release(number)
                with suppress(MqttFailed):
                    self.send(p.Ack(p.PUBCOMP, number))
            case p.Ack(kind, number):
                self._answer(f"Ack{kind}", number, packet)
            case p.SubAck() | p.UnsubAck():
                self._answer(type(packet).__name__, packet.id, packet)
            case p.ConnAck():
                self._answer("ConnAck", 0, packet)
            case p.Disconnect(reason):
                self._end(f"DISCONNECT {reasons.NAMES.get(reason, hex(reason))}")

    def _answer(self, kind: str, number: int, packet: p.Packet) -> None:
        future = self._answers.get((kind, number))
        if future is not None and not future.done():
            future.set_result(packet)

    def _end(self, why: str) -> None:
        if self.is_ended:
            return
        self.is_ended = True
        for future in self._answers.values():
            if not future.done():
                future.set_exception(MqttFailed(why))
                future.exception()  # Mark it as seen: it is no error if nobody awaits it any more.
        if not self._lost.done():
            self._lost.set_result(None)
