"""A small MQTT 5 client for our own tools: QoS 1, and a session that survives its connection.  [docs/mqtt.md]

    async with MqttClient("127.0.0.1:1883", "reader") as client:
        await client.subscribe("news/#")                # returns with SUBACK
        await client.publish("news/today", b"hello")    # returns with PUBACK
        async for message in client:
            print(message.topic, message.payload)

A message is acknowledged when the application takes it, so at most `_RECEIVE_MAX` messages wait here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Any

from msgspec.structs import replace

from trellis.live.addresses import parse_address
from trellis.live.client import ClientError, NotAcknowledged
from trellis.live.proof import CLIENT_SILENT_S
from trellis.live.stream import Stream, StreamLimits, StreamOwner
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.primitives import PacketError

_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 2.0
_HANDSHAKE_S = 10.0
_PACKET_BYTES_MAX = 1 << 20
_RECEIVE_MAX = 1_000
_EXPIRY_S = 3_600  # session expiry: the time for which we can reconnect


class _PacketStream(Stream):
    """A TCP connection that carries MQTT packets instead of frames."""

    def __init__(self, owner: MqttClient) -> None:
        super().__init__(owner, StreamLimits(queue_bytes=64 << 20), 0)
        self.framing, self.fed = Framing(_PACKET_BYTES_MAX), owner.fed

    def data_received(self, data: bytes) -> None:
        self.framing.feed(data)
        self.fed(self)


class MqttClient(StreamOwner):
    """A client that reconnects by itself. Iterate over it to get messages."""

    def __init__(self, address: str, name: str, timeout_s: float = 30.0) -> None:
        self.address, self.name, self.timeout_s = address, name, timeout_s
        self.reconnects = 0
        self._host_and_port = parse_address(address)
        self._stream: _PacketStream | None = None
        self._welcomed: asyncio.Future[p.ConnAck] | None = None
        self._filters: dict[str, None] = {}  # filters that were granted
        # SUBSCRIBE and UNSUBSCRIBE packets that are not answered
        self._asked: dict[int, tuple[p.Subscribe | p.Unsubscribe, asyncio.Future[None]]] = {}
        # publications that wait because the broker's receive maximum is reached
        self._waiting: deque[p.Publish] = deque()
        self._flying: dict[int, p.Publish] = {}
        self._answers: dict[int, asyncio.Future[None]] = {}
        self._window = 0
        self._id = 0
        self._messages: deque[p.Publish] = deque()
        self._news = asyncio.Event()  # set when there are messages, or the client has ended
        self._ended = asyncio.Event()  # set when the stream has ended
        self._keeper: asyncio.Task[None] | None = None
        self._error: ClientError | None = None

    async def __aenter__(self) -> MqttClient:
        try:
            await self._connect(is_first=True)
        except BaseException:
            self._give_up(ClientError(f"{self.address}: the client is closed"))
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection and the session."""
        stream, keeper = self._stream, self._keeper
        self._give_up(ClientError(f"{self.address}: the client is closed"))
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        if stream is not None and not stream.is_ended:
            stream.send(encode(p.V5, p.Disconnect(expiry_s=0)))
            stream.close()
            await self._ended.wait()

    async def subscribe(self, filter_: str) -> None:
        """Subscribe, and wait for SUBACK. A node sends it when the mesh has confirmed the subscription."""
        await self._ask(p.Subscribe(self._next_id(), (p.Asked(filter_, 1),)))
        self._filters[filter_] = None

    async def unsubscribe(self, filter_: str) -> None:
        """Unsubscribe, and wait for UNSUBACK."""
        self._filters.pop(filter_, None)
        await self._ask(p.Unsubscribe(self._next_id(), (filter_,)))

    async def publish(self, topic: str, payload: bytes) -> None:
        """Publish, and wait for PUBACK. Raises `NotAcknowledged` if the broker refuses."""
        self._check()
        number = self._next_id()
        future = self._answers[number] = asyncio.get_running_loop().create_future()
        self._waiting.append(p.Publish(topic=topic, payload=payload, qos=1, id=number))
        self._pump()
        try:
            await future
        finally:
            self._answers.pop(number, None)

    def __aiter__(self) -> MqttClient:
        return self

    async def __anext__(self) -> p.Publish:
        while not self._messages:
            if self._error is not None:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        if message.id is not None:
            self._send(p.Ack(p.PUBACK, message.id))
        return message

    # The stream

    def opened(self, stream: Stream) -> None:
        stream.notice_death(CLIENT_SILENT_S)

    def received(self, stream: Stream, body: bytes) -> None:
        raise AssertionError("MQTT streams have no frames")

    def ended(self, stream: Stream) -> None:
        if stream is self._stream:
            self._stream = None
            self._ended.set()
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(ClientError("the connection was closed before a CONNACK"))

    def fed(self, stream: _PacketStream) -> None:
        try:
            for first, body in stream.framing.packets():
                self._take(decode(p.V5, first, body, is_strict=False))
        except PacketError as error:
            stream.cut(str(error) or "garbage")

    def _take(self, packet: p.Packet) -> None:
        match packet:
            case p.Publish():
                self._messages.append(packet)
                self._news.set()
            case p.Ack(kind, number, reason, text) if kind == p.PUBACK:
                self._flying.pop(number, None)
                self._answer(self._answers.get(number), reason, text)
                self._pump()
            case p.SubAck() | p.UnsubAck():
                _, future = self._asked.pop(packet.id, (None, None))
                text = packet.text if isinstance(packet, p.SubAck) else None
                self._answer(future, max(packet.reasons, default=0), text)
            case p.ConnAck() if self._welcomed is not None and not self._welcomed.done():
                if packet.session_present:  # unacknowledged messages are sent again
                    self._messages = deque(message for message in self._messages if message.id is None)
                self._welcomed.set_result(packet)

    def _answer(self, future: asyncio.Future[None] | None, reason: int, text: str | None) -> None:
        if future is None or future.done():
            return
        if reason >= reasons.UNSPECIFIED:
            future.set_exception(NotAcknowledged(text or reasons.NAMES.get(reason, hex(reason))))
        else:
            future.set_result(None)

    def _send(self, packet: p.Packet) -> None:
        if self._stream is not None:
            self._stream.send(encode(p.V5, packet))

    def _pump(self) -> None:
        while self._waiting and self._stream is not None and len(self._flying) < self._window:
            packet = self._waiting.popleft()
            assert packet.id is not None
            self._flying[packet.id] = packet
            self._send(packet)

    async def _ask(self, packet: p.Subscribe | p.Unsubscribe) -> None:
        self._check()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked[packet.id] = (packet, future)
        self._send(packet)
        try:
            await future
        finally:
            self._asked.pop(packet.id, None)

    # Connecting

    async def _keep(self) -> None:
        """Reconnect whenever the connection has ended."""
        try:
            while True:
                await self._ended.wait()
                await self._connect(is_first=False)
                self.reconnects += 1
        except ClientError as error:
            self._give_up(error)

    async def _connect(self, *, is_first: bool) -> None:
        """Connect, with retries until the broker accepts or `timeout_s` is over. Raises `ClientError`."""
        loop, pause_s = asyncio.get_running_loop(), _BACKOFF_S
        until = loop.time() + self.timeout_s
        while True:
            try:
                answer = await self._dial(is_first, max(min(_HANDSHAKE_S, until - loop.time()), 0.01))
                break
            except (OSError, TimeoutError, ClientError) as error:
                last = str(error) or "no answer in time"
            if loop.time() + pause_s > until:
                raise ClientError(f"{self.address}: cannot be reached: {last}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _BACKOFF_S_MAX)
        if not answer.session_present:
            for number, filter_ in enumerate(self._filters, start=1):
                self._send(p.Subscribe(65_535 - number, (p.Asked(filter_, 1),)))
        for asked, _ in self._asked.values():
            self._send(asked)
        self._window = answer.receive_max or 65_535
        again = [replace(message, dup=answer.session_present) for message in self._flying.values()]  # [MQTT-4.4.0-1]
        self._flying.clear()
        self._waiting.extendleft(reversed(again))
        self._pump()

    async def _dial(self, is_first: bool, timeout_s: float) -> p.ConnAck:
        """Open a connection, and return the broker's CONNACK."""
        loop = asyncio.get_running_loop()
        stream = _PacketStream(self)
        self._welcomed = loop.create_future()
        self._ended.clear()
        hello = p.Connect(
            version=p.V5, client=self.name, clean_start=is_first, expiry_s=_EXPIRY_S, receive_max=_RECEIVE_MAX
        )
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: stream, *self._host_and_port)
                self._stream = stream
                self._window = 0  # nothing but CONNECT before its answer
                stream.send(encode(p.V5, hello))
                answer = await self._welcomed
            if answer.reason:
                raise ClientError(f"it refuses us: {reasons.NAMES.get(answer.reason, hex(answer.reason))}")
            return answer
        except BaseException:
            self._stream = None
            stream.cut("closed")
            self._welcomed.cancel()
            raise

    def _next_id(self) -> int:
        """Return a free packet identifier, outside of those with which filters are subscribed again."""
        while True:
            self._id = self._id % 60_000 + 1
            if self._id not in self._answers and self._id not in self._asked:
                return self._id

    def _check(self) -> None:
        """Raise the error that has ended the client, if there is one."""
        if self._error is not None:
            raise self._error

    def _give_up(self, error: ClientError) -> None:
        """End the client. Everybody who waits for something gets `error`."""
        self._error = self._error or error
        self._news.set()
        waiting: list[asyncio.Future[Any]] = [future for _, future in self._asked.values()]
        for future in (*waiting, *self._answers.values()):
            if not future.done():
                future.set_exception(self._error)
                future.exception()  # so that asyncio does not complain if nobody awaits it
