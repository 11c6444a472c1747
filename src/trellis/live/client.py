"""The Python client of a live node: publish and subscribe through its client port.

    async with trellis.connect("127.0.0.1:7101") as client:
        await client.subscribe("news")
        await client.publish("news", b"hello")      # returns when enough nodes hold a copy
        async for message in client:
            print(message.topic, message.payload)

When its connection breaks, a client dials again and subscribes again. It also repeats unacknowledged publications under
the same session and numbers, so that the node recognizes them. A new `Client` has a new session, even under the same
name. Messages published while a client is disconnected are not delivered later, and are not listed in `client.missed`.
`client.reconnects` counts such interruptions. To wait until a topic is confirmed on the new connection, call
`subscribe` again. A node that has restarted does not remember numbers, unless it has a store. So a publication that it
had accepted and not acknowledged may be delivered twice.

A durable subscription (`subscribe(topic, durable=True)`) is kept by a node with a store under the client's name, while
the client or the node is away. The client then gets what it has missed, and recognizes what it has.  [docs/durable.md]

`client.missed` lists the latest `MISSED_MAX` reports of lost messages. `client.missed_dropped` counts older reports,
which were removed from it. An application may clear the list.

A message that an MQTT client published has the payload that this client sent. Its other parts (whole topic, retain
flag, properties) are in `message.mqtt`, which is None for messages of native clients.

`Client` owns one `Stream` at a time. A task (`_keep`) waits for the end of that stream and connects again, until the
client is closed or has failed. A client fails when its node turns it away, or is not reached within `timeout_s`. After
that all calls but `close` raise the same `ClientError`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from uuid import uuid4

import msgspec

from trellis.errors import TrellisError
from trellis.live import talk
from trellis.live.addresses import parse_address
from trellis.live.machine import machine
from trellis.live.proof import CLIENT_SILENT_S
from trellis.live.reasons import is_refused_by_tls, tls_remedy, why_not
from trellis.live.received import Message, Reader
from trellis.live.stream import Stream, StreamLimits
from trellis.live.talk import (
    CLIENT_NAME_MAX,
    CLIENT_PROTOCOL,
    CLIENT_VERSION,
    PASSWORD_BYTES_MAX,
    SESSION_MAX,
    TALK_BYTES_MAX,
    TO_CLIENT,
    Got,
    Greet,
    Missed,
    NotTaken,
    Publish,
    Subscribe,
    Subscribed,
    SubscribeKept,
    Taken,
    TurnedAway,
    Unsubscribe,
    Welcome,
    pack_to_node,
)
from trellis.protocols.delivery.messages import PAYLOAD_BYTES_MAX
from trellis.protocols.wire import name_fault

_BACKOFF_S, _BACKOFF_S_MAX = 0.1, 5.0  # pause after a failed attempt to connect: the first one, and the longest
_HANDSHAKE_S = 5.0  # longest time of one attempt to connect, from dialing to the welcome
_REMEDY = "start the node, or give the client_listen of one that runs"
MISSED_MAX = 1_000  # most reports of lost messages that a client keeps
_GOT_EVERY = 64  # positions after which a node is told what the application has taken
_READ_AHEAD = 10_000  # With so many messages that the application has not taken, the client stops reading.


class ClientError(TrellisError):
    """The node cannot be reached or has turned the client away, or an argument is not allowed."""


class NotAcknowledged(ClientError):
    """A publication did not get enough copies in time, or was refused. All, some or no subscribers may get it."""


class Receipt(msgspec.Struct, frozen=True):
    """An acknowledged publication, and the nodes that hold it."""

    topic: str
    sequence: int  # its number among the publications of the client's node on this topic
    copies: int  # number of nodes that hold a copy
    holders: tuple[str, ...]  # names of nodes that hold a copy; a very long list is cut off


@dataclass(eq=False)
class _Subscription:
    """A topic that the application has subscribed to."""

    number: int  # Number of the request. Only an answer with this number confirms it.
    confirmed: asyncio.Future[None]  # Done while the topic is confirmed on the present connection.
    is_durable: bool = False


def connect(
    address: str,
    *,
    client: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout_s: float = 30.0,
    user: str | None = None,
    password: str | bytes | None = None,
) -> Client:
    """Return a client of the node at `host:port`. It connects when it is entered with `async with`.

    `timeout_s` limits how long it tries to connect, the first time and after each interruption.

    `client` is a name for logs, of 1 to 128 letters, that does not begin with "$".

    `user` and `password` are for a node with an access list. A signed token (JWT) is given as the password.
    """
    if user is not None and (fault := name_fault(user)) is not None:
        raise ClientError(f"the user's name: {fault[0]}; {fault[1]}")
    secret = password.encode() if isinstance(password, str) else password
    if secret is not None and len(secret) > PASSWORD_BYTES_MAX:
        raise ClientError(f"a password of {len(secret)} bytes; {PASSWORD_BYTES_MAX} are allowed")
    if client is not None and not 0 < len(client) <= CLIENT_NAME_MAX:
        raise ClientError(f"a client name of {len(client)} letters; give it 1 to {CLIENT_NAME_MAX}")
    if client is not None and client.startswith("$"):
        raise ClientError(f'the client name "{client}" begins with "$", which is reserved; choose another name')
    return Client(address, client or uuid4().hex, tls, timeout_s, (user, secret))


class Client:
    """A client of one node, made by `connect`. Enter it with `async with`, and read its messages with `async for`."""

    def __init__(
        self,
        address: str,
        name: str,
        tls: ssl.SSLContext | None,
        timeout_s: float,
        proof: tuple[str | None, bytes | None] = (None, None),
    ) -> None:
        self.address, self.name, self.timeout_s = address, name, timeout_s
        self._proof = proof  # user and password
        self.session = 1 + machine().secret_below(SESSION_MAX)
        self.node: Welcome | None = None  # The node's greeting on the present connection. None before it.
        self.reconnects = 0  # connections after the first one
        # Messages that the node reported as lost, while we were connected. The latest comes last.
        self.missed: list[Missed] = []
        self.missed_dropped = 0  # reports that were removed from `missed` because it was full
        self._host_and_port, self._tls = parse_address(address), tls
        self._stream: Stream | None = None
        self._topics: dict[str, _Subscription] = {}
        self._subscriptions = 0  # number of the last subscription
        # Publications without an answer, by number. They are sent again on a new connection.
        self._publications: dict[int, tuple[Publish, asyncio.Future[Receipt]]] = {}
        self._number = 0  # number of the last publication
        self._messages: deque[Message] = deque()  # messages that the application has not taken yet
        self._reader = Reader()
        self._news = asyncio.Event()  # Set when a message has come, or the client has ended.
        self._welcomed: asyncio.Future[None] | None = None  # done when the node has welcomed us or the dial failed
        self._keeper: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()  # The present stream has ended.
        self._error: ClientError | None = None  # why the client has failed
        self._is_reading = True  # False while too many messages wait for the application.
        self._is_closed = False
        self.position = 0  # position of the last message of a durable subscription that has come
        self._taken = self._confirmed = 0  # the last ones that the application has taken, and that the node knows of

    async def __aenter__(self) -> Client:
        try:
            await self._connect()
        except BaseException:
            self._close()
            raise
        self._keeper = asyncio.get_running_loop().create_task(self._keep())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, and wait for its end. Calls that still wait raise `ClientError`."""
        stream, keeper = self._stream, self._keeper
        self._close()
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        if stream is not None and not stream.is_ended:
            await self._ended.wait()

    async def subscribe(self, topic: str, *, durable: bool = False) -> None:
        """Subscribe to a topic. Return once delivery of all later publications on it is promised to the client's node.

        A lost connection ends that promise. The client subscribes again by itself on the next connection. Another call
        for the same topic then returns when the node has confirmed it there.

        `durable`: the promise outlives the connection, and restarts of the node. The node must have a store, and the
        client a name of its own (`connect(client=...)`), until `unsubscribe` is called.
        """
        self._check(topic)
        if topic.startswith("$"):
            raise ClientError(f'the topic "{topic}" begins with "$": such topics belong to the mesh; choose another')
        if topic not in self._topics:
            self._subscriptions += 1
            confirmed = asyncio.get_running_loop().create_future()
            self._topics[topic] = _Subscription(self._subscriptions, confirmed, durable)
            self._send(self._request(topic))
        waited = None
        while (wanted := self._topics.get(topic)) is not None and wanted.confirmed is not waited:
            waited = wanted.confirmed  # If a lost connection replaces it before we run again, wait for the new one.
            await asyncio.shield(waited)

    def _request(self, topic: str) -> Subscribe | SubscribeKept:
        wanted = self._topics[topic]
        return (
            SubscribeKept(topic, wanted.number, self.position) if wanted.is_durable else Subscribe(topic, wanted.number)
        )

    async def unsubscribe(self, topic: str) -> None:
        """End the subscription to a topic. Messages that are under way may still come."""
        self._check(topic)
        wanted = self._topics.pop(topic, None)
        if wanted is not None:
            wanted.confirmed.cancel()
            self._send(Unsubscribe(topic))

    async def publish(self, topic: str, payload: bytes) -> Receipt:
        """Publish a message. Return when enough nodes hold it. Raise `NotAcknowledged` if they do not in time."""
        self._check(topic)
        if len(payload) > PAYLOAD_BYTES_MAX:
            raise ClientError(f"a payload of {len(payload)} bytes; {PAYLOAD_BYTES_MAX} are allowed")
        self._number += 1
        number, publication = self._number, Publish(self._number, topic, payload)
        future: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._publications[number] = (publication, future)
        try:
            self._send(publication)
            if self._stream is not None:
                await self._stream.drain()
            return await future
        finally:
            self._publications.pop(number, None)

    def __aiter__(self) -> Client:
        return self

    async def __anext__(self) -> Message:
        if self._taken - self._confirmed >= _GOT_EVERY or (not self._messages and self._taken > self._confirmed):
            self._confirmed = self._taken
            self._send(Got(self._taken))
        while not self._messages:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        message = self._messages.popleft()
        self._taken = max(self._taken, message.position)
        if not self._is_reading and len(self._messages) < _READ_AHEAD // 2 and self._stream is not None:
            self._is_reading = True
            self._stream.resume_reading()
        return message

    # Called by the stream (`StreamOwner`)

    def opened(self, stream: Stream) -> None:
        """Greet the node."""
        stream.notice_death(CLIENT_SILENT_S)  # A mere subscriber sends nothing, so it would not notice a dead network.
        stream.send(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, self.name, self.session, *self._proof)))

    def received(self, stream: Stream, body: bytes) -> None:
        """Take in one message of the node."""
        message = TO_CLIENT.decode(body)
        match message:
            case talk.Message():
                received = self._reader.read(message)
                if received is not None:
                    self._take(stream, received)
            case talk.Turn() if message.position > self.position:
                self.position = message.position
                received = self._reader.read(
                    talk.Message(message.topic, message.origin, message.sequence, message.payload)
                )
                if received is not None:
                    self._take(stream, msgspec.structs.replace(received, position=message.position))
            case Taken(number, sequence, copies, holders):
                publication, future = self._publications.get(number, (None, None))
                if publication is not None and future is not None and not future.done():
                    future.set_result(Receipt(publication.topic, sequence, copies, holders))
            case NotTaken(number, reason):
                publication, future = self._publications.get(number, (None, None))
                if publication is not None and future is not None and not future.done():
                    future.set_exception(NotAcknowledged(f'publication on "{publication.topic}": {reason}'))
            case Subscribed(topic, number):
                wanted = self._topics.get(topic)
                if wanted is not None and number in (wanted.number, 0) and not wanted.confirmed.done():
                    wanted.confirmed.set_result(None)  # number 0: the answer of an older node
            case Missed():
                self._note_missed(message)
            case Welcome():
                self.node = message
                if self._welcomed is not None and not self._welcomed.done():
                    self._welcomed.set_result(None)
            case TurnedAway(text):
                self._fail(ClientError(f"{self.address}: {text}"))

    def ended(self, stream: Stream) -> None:
        """Note the end of a stream. `_keep` connects again if it was the present one."""
        if stream is self._stream:
            self._lose_stream()
            self._ended.set()
        if self._welcomed is not None and not self._welcomed.done():
            error = ClientError(self._why_ended(stream))
            error.__cause__ = stream.error
            self._welcomed.set_exception(error)

    def _lose_stream(self) -> None:
        """Forget the connection and all confirmations on it. Calls that wait for a confirmation go on waiting."""
        self._stream = None
        if self._is_closed or self._error is not None:
            return  # nothing will be confirmed any more
        for wanted in self._topics.values():
            if wanted.confirmed.done():
                wanted.confirmed = asyncio.get_running_loop().create_future()

    def _why_ended(self, stream: Stream) -> str:
        """Return the likely reason why a stream ended before the welcome."""
        if isinstance(stream.error, OSError):
            return why_not(stream.error, has_tls=self._tls is not None)
        if self._tls is not None:
            return "it closed the stream before a welcome; perhaps it does not accept our certificate"
        return "it closed the stream before a welcome; perhaps this is no client port, or it speaks TLS"

    def _take(self, stream: Stream, message: Message) -> None:
        """Keep a message for the application. Stop reading if that takes too few."""
        self._messages.append(message)
        self._news.set()
        if self._is_reading and len(self._messages) >= _READ_AHEAD:
            self._is_reading = False
            stream.pause_reading()

    def _note_missed(self, report: Missed) -> None:
        """Keep a report of lost messages for the application. Remove the oldest ones beyond `MISSED_MAX`."""
        self.missed.append(report)
        beyond = max(0, len(self.missed) - MISSED_MAX)
        del self.missed[:beyond]
        self.missed_dropped += beyond

    def _send(self, message: Subscribe | SubscribeKept | Got | Unsubscribe | Publish) -> None:
        """Send a message if the client is connected. Otherwise `_connect` sends what is needed after the welcome."""
        if self._stream is not None and self.node is not None:
            self._stream.send(pack_to_node(message))

    async def _keep(self) -> None:
        """Connect again whenever the connection has ended, until that fails or the task is cancelled."""
        try:
            while True:
                await self._ended.wait()
                await self._connect()
                self.reconnects += 1
        except ClientError as error:
            self._fail(error)

    async def _connect(self) -> None:
        """Dial until the node welcomes us, then send subscriptions and unacknowledged publications again.

        Raise ClientError if the node turned us away or `timeout_s` is over.
        """
        loop, pause_s, last = asyncio.get_running_loop(), _BACKOFF_S, "no answer"
        until = loop.time() + self.timeout_s
        self.node = None
        while True:
            if self._error is not None:
                raise self._error
            try:
                await self._dial(min(_HANDSHAKE_S, max(until - loop.time(), 0.01)))
                break
            except (OSError, TimeoutError, ClientError) as error:
                last, cause = why_not(error, has_tls=self._tls is not None), error.__cause__ or error
                is_refused = self._tls is not None and isinstance(cause, ClientError)  # it closed without a reason
                remedy = tls_remedy(cause) if is_refused or is_refused_by_tls(cause) else _REMEDY
            if loop.time() + pause_s > until:
                raise ClientError(f"{self.address}: cannot be reached: {last}; {remedy}")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _BACKOFF_S_MAX)
        self._confirmed = 0
        for topic in self._topics:
            self._send(self._request(topic))
        for publication, _ in list(self._publications.values()):
            self._send(publication)

    async def _dial(self, timeout_s: float) -> None:
        """Make one attempt to connect. Return when the node has welcomed us."""
        loop = asyncio.get_running_loop()
        stream = Stream(self, StreamLimits(queue_bytes=64 << 20), TALK_BYTES_MAX)
        self._welcomed = loop.create_future()
        self._ended.clear()
        self._is_reading = True
        try:
            async with asyncio.timeout(timeout_s):
                await loop.create_connection(lambda: stream, *self._host_and_port, ssl=self._tls)
                self._stream = stream
                await self._welcomed
        except BaseException:
            self._lose_stream()
            stream.cut("closed")
            self._welcomed.cancel()
            raise

    def _check(self, topic: str) -> None:
        """Raise ClientError if the client has ended, or if `topic` is no valid name.

        The node would cut us off for an invalid name, and we would send it again after each reconnection.
        """
        if (fault := name_fault(topic)) is not None:
            raise ClientError(f"a topic's name: {fault[0]}; {fault[1]}")
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise ClientError(f"{self.address}: the client is closed")

    def _fail(self, error: ClientError) -> None:
        """End the client because of an error. The first error stays."""
        self._error = self._error or error
        self._give_up(self._error)
        if self._welcomed is not None and not self._welcomed.done():
            self._welcomed.set_exception(self._error)

    def _close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._give_up(ClientError(f"{self.address}: the client is closed"))
            if self._stream is not None:
                self._stream.close()

    def _give_up(self, error: ClientError) -> None:
        """Raise `error` in all calls that wait for a confirmation or an acknowledgement."""
        self._news.set()
        waiting: list[asyncio.Future[Any]] = [wanted.confirmed for wanted in self._topics.values()]
        waiting += [future for _, future in self._publications.values()]
        for future in waiting:
            if not future.done():
                future.set_exception(error)
                future.exception()  # Mark it as retrieved: asyncio logs errors of futures that nobody awaits.
