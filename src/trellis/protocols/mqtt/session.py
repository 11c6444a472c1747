"""A client's session: its subscriptions, the messages on their way to it, and its publications that wait for an answer.

A message for the client is in `queue`, then in `flying` until PUBACK or PUBREC, and with QoS 2 then in `releasing`
until PUBCOMP. A publication of the client is in `incoming` until it is acknowledged.

S1  At most `window` messages are unacknowledged by the client, each with its own identifier. A message with QoS 2
    counts until PUBCOMP.  [MQTT-4.9.0-2]
S2  Acknowledgements go to the client in the order of its publications.  [MQTT-4.6.0-2, -3]
S3  Waiting messages are bounded in number and bytes. While the client acknowledges messages, `BURST` times as many may
    wait: a node that stood still gets the messages of a minute at once.
S4  A message with QoS 0 waits behind a waiting message on the same topic, so that it does not overtake it.
S5  A message with QoS 2 keeps its identifier until PUBCOMP, also over reconnections. After PUBREC it is not sent again.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from trellis.protocols.access.decide import Who
from trellis.protocols.effects import Incarnation, NodeId
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Connection
from trellis.protocols.mqtt.suspicion import Suspicion
from trellis.protocols.mqtt.topics import levels_of
from trellis.reached import reached

SOON_MS = 10_000  # If a client disconnects this soon after a suspect was sent again, the suspect is the reason.
PROMPT_MS = 10_000  # A client that acknowledges nothing for this long does not keep up.
BURST = 20  # For a client that keeps up, this many times `queue_max` messages may wait.
BRIDGE_QUEUE_MAX = 1_000_000  # Most messages that wait for a sidecar's broker. Their bytes are the real limit.


# A message for a group: the group; the message's node, incarnation and number.
Ticket = tuple[str, NodeId, Incarnation, int]


class Subscription(msgspec.Struct, frozen=True):
    """A client's subscription to a filter."""

    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    number: int | None = None  # subscription identifier
    since: int = 0  # number of this node's last publication before the SUBSCRIBE: the client gets later ones


class Out(msgspec.Struct, frozen=True):
    """A message for the client."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    subscriptions: tuple[int, ...]
    content: p.Content
    until_ms: int | None  # when it expires; None: never
    ticket: Ticket | None = None  # set if it was sent because of a shared subscription

    @property
    def size(self) -> int:
        """Roughly how much memory it takes, properties included, in bytes."""
        return len(self.payload) + len(self.topic) + self.content.size + 64


@dataclass(slots=True, eq=False)
class Incoming:
    """A publication of the client with QoS 1 or 2."""

    id: int
    qos: int
    waits: int  # number of answers of the mesh that it waits for
    mark: int = 0  # a hash of its content: tells whether another packet repeats it
    topic: str = ""
    numbers: tuple[int, ...] = ()  # numbers of its publications in the mesh
    reason: int | None = None  # set when the client can be answered
    text: str | None = None
    is_told: bool = False  # QoS 2: PUBREC was sent, and PUBREL has not come


@dataclass(eq=False)
class Link:
    """A client's network connection whose CONNECT was accepted. It is no link of the overlay."""

    id: Connection
    version: int
    heard_ms: int
    keep_alive_ms: int
    receive_max: int
    packet_bytes_max: int | None
    wants_reasons: bool
    will: p.Will | None
    aliases: dict[int, str]
    alias_max: int = 0  # most topic aliases that we may use towards the client
    aliases_out: dict[str, int] = field(default_factory=dict)  # topic -> the alias that the client knows for it
    is_paused: bool = False
    until_ms: int | None = None  # when the client's token expires; None: never
    held_until_ms: int = 0  # The client has published more than its quota, and is not read before this time.

    def aliased(self, packet: p.Publish) -> p.Publish:
        """Return a PUBLISH with a topic alias, if the client allows one more or knows the topic's.  [MQTT-3.3.2-12]

        A packet that may be too large for the client introduces no alias, since it may never be sent.
        """
        known = self.aliases_out.get(packet.topic)
        if known is not None:
            return msgspec.structs.replace(packet, topic="", alias=known)
        size = len(packet.payload) + 4 * (len(packet.topic) + packet.content.size) + 5 * len(packet.subscriptions) + 64
        if len(self.aliases_out) >= self.alias_max or size > (self.packet_bytes_max or size):
            return packet
        self.aliases_out[packet.topic] = alias = len(self.aliases_out) + 1
        return msgspec.structs.replace(packet, alias=alias)


def filter_size(filter_: str) -> int:
    """Return roughly how much memory a filter takes: its letters twice, and an object for each level."""
    return 2 * len(filter_) + 300 * levels_of(filter_)


class Session:
    """The state of one client, which may survive its connection."""

    def __init__(self, client: str, config: MqttConfig) -> None:
        self.client, self.config = client, config
        self.who = Who(None, client)  # the client's identity for the access rules
        self.link: Link | None = None
        self.is_bridge = False  # It is the sidecar's session: its messages carry their identity.
        self.expiry_s = 0
        self.gone_ms = 0  # since when it has no connection
        self.subscriptions: dict[str, Subscription] = {}
        self.filter_bytes = 0  # memory that the filters of `subscriptions` take, roughly
        self.queue: deque[Out] = deque()
        self.queue_bytes = 0
        self._queued: Counter[str] = Counter()  # topic -> number of its messages in `queue`
        # sent with QoS 1 or 2, and neither PUBACK nor PUBREC has come
        self.flying: OrderedDict[int, Out] = OrderedDict()
        self.releasing: OrderedDict[int, None] = OrderedDict()  # QoS 2: PUBREC has come, and PUBCOMP has not
        # Publications of the client by packet identifier: those of its present connection that wait for an answer, or
        # for PUBREL (QoS 2), and those of earlier connections that it has not sent again. Only the first are answered.
        self.incoming: OrderedDict[int, Incoming] = OrderedDict()
        self.unreleased: OrderedDict[int, Incoming] = OrderedDict()
        self.earlier: OrderedDict[int, Incoming] = OrderedDict()
        self.dropped = 0
        self.unanswered = 0  # publications of the client with QoS 0 that the mesh has not answered
        self.suspicion = Suspicion()
        self.finished: list[Ticket] = []  # shared messages that the client has acknowledged, or will never get
        # Those of `flying` that are not sent again yet: a suspect is sent alone, or the client accepts fewer than last
        # time.
        self._held: list[int] = []
        self._resumed_ms = 0  # when the client last reconnected
        # When the client last owed no acknowledgement, or sent one. Leaves out time for which the node stood still.
        self._prompt_ms = 0
        self._id = 0

    @property
    def window(self) -> int:
        """Most messages that may be unacknowledged by the client.  [MQTT-3.3.4-9]"""
        return min(self.config.inflight_max, self.link.receive_max) if self.link is not None else 0

    @property
    def _room(self) -> int:
        """How many more messages may be sent to the client now."""
        return self.window - len(self.flying) - len(self.releasing) + len(self._held)

    @property
    def has_room(self) -> bool:
        """Whether a message would be sent at once."""
        return self.link is not None and not self.queue and not self._waits and self._room > 0

    @property
    def _waits(self) -> bool:
        """Whether earlier messages must be sent again before anything new."""
        return bool(self.suspicion.times or self._held)

    def messages_max(self, keeps_up: bool) -> int:
        """Return how many messages may wait. `keeps_up`: the client is connected, and acknowledges messages."""
        if self.is_bridge:
            return BRIDGE_QUEUE_MAX
        return self.config.queue_max * BURST if keeps_up else self.config.queue_max

    @property
    def bytes_max(self) -> int:
        """Most bytes that may wait."""
        return self.config.broker_queue_bytes if self.is_bridge else self.config.queue_bytes

    # To the client

    def put(self, message: Out, now_ms: int, awake_ms: int) -> list[p.Publish]:
        """Take in a message. Return what to send now.

        `awake_ms` is a clock that leaves out the time for which the node stood still.
        """
        if not self.flying:
            self._prompt_ms = awake_ms
        if not message.qos and (self.link is None or not self._queued[message.topic]):
            self._finish(message)
            return [self._packet(message, None, now_ms)] if self.link is not None else []
        if not self.queue and not self._waits and self._room > 0:  # it need not wait
            return self._fly(message, now_ms)
        if self.link is not None and not self.queue:
            reached("an MQTT client's window is full")
        keeps_up = self.link is not None and awake_ms - self._prompt_ms < PROMPT_MS
        if len(self.queue) >= self.messages_max(keeps_up) or self.queue_bytes + message.size > self.bytes_max:
            reached("a message is dropped for want of room for its MQTT client")
            self.dropped += 1
            self._finish(message)
            return []
        self.queue.append(message)
        self._count(message, 1)
        return self.pump(now_ms)

    def _count(self, message: Out, change: int) -> None:
        """Note that a message was put into the queue (1) or taken from it (-1)."""
        self.queue_bytes += change * message.size
        self._queued[message.topic] += change
        if not self._queued[message.topic]:
            del self._queued[message.topic]

    def drop_denied(self, may_read: Callable[[str], bool]) -> int:
        """Drop waiting messages that the client may no longer read. Return how many."""
        gone = [message for message in self.queue if not may_read(message.topic)]
        if gone:
            self.queue = deque(message for message in self.queue if may_read(message.topic))
            for message in gone:
                self._count(message, -1)
                self._finish(message)
        return len(gone)

    def _fly(self, message: Out, now_ms: int) -> list[p.Publish]:
        """Return the packet of a message that is sent now. Nothing if it has expired."""
        if message.until_ms is not None and message.until_ms <= now_ms:  # [MQTT-3.3.2-5]
            self._finish(message)
            return []
        if not message.qos:
            self._finish(message)
            return [self._packet(message, None, now_ms)]
        number = self._next_id()
        self.flying[number] = message
        return [self._packet(message, number, now_ms)]

    def pump(self, now_ms: int) -> list[p.Publish]:
        """Return the waiting messages that can be sent now."""
        out: list[p.Publish] = []
        while self.link is not None and self.queue and not self._waits:
            if self.queue[0].qos and self._room <= 0:
                break
            message = self.queue.popleft()
            self._count(message, -1)
            out += self._fly(message, now_ms)
        return out

    def resume(self, now_ms: int) -> list[p.Publish | p.Ack]:
        """After a reconnection, return unacknowledged messages, then waiting ones.  [MQTT-4.4.0-1, 3.3.1-1]"""
        self._resumed_ms = now_ms
        self._held = list(self.flying)
        released = [p.Ack(p.PUBREL, number) for number in self.releasing]
        return [*released, *self._go_on(now_ms)]

    def _go_on(self, now_ms: int) -> list[p.Publish]:
        """Return messages that must be sent again, under their identifiers, then waiting ones, as space allows.

        A suspect is sent alone: the others are held back.
        """
        self._held = [number for number in self._held if number in self.flying]
        is_alone = self.suspicion.times > 0
        count = max(0, min(self._room, 1 - (len(self.flying) - len(self._held)) if is_alone else len(self._held)))
        numbers, self._held = self._held[:count], self._held[count:]
        again = [self._packet(self.flying[number], number, now_ms) for number in numbers]
        return [*(msgspec.structs.replace(packet, dup=True) for packet in again), *self.pump(now_ms)]

    def acknowledged(self, number: int, now_ms: int, awake_ms: int) -> list[p.Publish]:
        """The client has the message, or will never accept it. An identifier that we do not know is stale."""
        had = self.flying.pop(number, None)
        if had is not None:
            self._finish(had)
            self._prompt_ms = awake_ms
            self.suspicion.acknowledged()
        return self._go_on(now_ms)

    def expected(self, number: int) -> tuple[int, ...]:
        """Return the kinds of acknowledgements that the client may send for an identifier. Stale ones are no error."""
        sent = self.flying.get(number)
        if sent is not None:
            return (p.PUBACK,) if sent.qos == 1 else (p.PUBREC,)
        return (p.PUBREC, p.PUBCOMP) if number in self.releasing else (p.PUBACK, p.PUBREC, p.PUBCOMP)

    def received(self, number: int, reason: int, now_ms: int, awake_ms: int) -> list[p.Publish | p.Ack]:
        """PUBREC: the client has a message with QoS 2, or does not accept it.  [MQTT-4.3.3-4 to -8]"""
        if number in self.releasing:
            return [p.Ack(p.PUBREL, number)]
        if reason >= reasons.UNSPECIFIED:  # no PUBREL follows
            return [*self.acknowledged(number, now_ms, awake_ms)]
        if number not in self.flying:  # the client may have lost our PUBREL  [MQTT 5, 3.6.2.1]
            return [p.Ack(p.PUBREL, number)]
        self.releasing[number] = None
        return [p.Ack(p.PUBREL, number), *self.acknowledged(number, now_ms, awake_ms)]

    def completed(self, number: int, now_ms: int) -> list[p.Publish]:
        """PUBCOMP: the identifier is free again."""
        self.releasing.pop(number, None)
        return self._go_on(now_ms)

    def ended(self, now_ms: int) -> Out | None:
        """The client ended the connection with an error, or without DISCONNECT. Return a message to set aside."""
        if not self.flying or (self.suspicion.times and now_ms - self._resumed_ms > SOON_MS):
            return None
        number = next(iter(self.flying))
        if not self.suspicion.ended(number):
            return None
        self._finish(self.flying[number])
        return self.flying.pop(number)

    # Shared subscriptions

    def _finish(self, message: Out) -> None:
        """Note that a shared message is done with."""
        if message.ticket is not None:
            self.finished.append(message.ticket)

    def tickets(self) -> list[Ticket]:
        """Return the shared messages that are on their way to this client."""
        return [message.ticket for message in (*self.flying.values(), *self.queue) if message.ticket is not None]

    def surrender(self, may_move: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take back shared messages that the client has not acknowledged, oldest first, and return them.

        A message with QoS 2 that was sent stays: nobody else may get it.  [MQTT-4.8.2-4, -5]
        """
        sent = [
            number
            for number, message in self.flying.items()
            if message.qos < 2 and message.ticket is not None and may_move(message.ticket)
        ]
        out = [self.flying.pop(number).ticket for number in sent]
        waiting: list[Out] = []
        staying: deque[Out] = deque()
        for message in self.queue:
            (waiting if message.ticket is not None and may_move(message.ticket) else staying).append(message)
        self.queue = staying
        for message in waiting:
            self._count(message, -1)
        return [ticket for ticket in (*out, *(each.ticket for each in waiting)) if ticket is not None]

    def withdraw(self, ticket: Ticket) -> bool:
        """Take back a shared message that was not sent yet. Return whether it was there."""
        queued = next((message for message in self.queue if message.ticket == ticket), None)
        if queued is not None:
            self.queue.remove(queued)
            self._count(queued, -1)
        return queued is not None

    def _packet(self, message: Out, number: int | None, now_ms: int) -> p.Publish:
        """Return the PUBLISH of a message."""
        content = message.content
        if message.until_ms is not None:  # the client gets the time that is left  [MQTT-3.3.2-6]
            content = msgspec.structs.replace(content, expiry_s=max(0, (message.until_ms - now_ms + 999) // 1_000))
        return p.Publish(
            topic=message.topic,
            payload=message.payload,
            qos=message.qos,
            retain=message.retain,
            id=number,
            subscriptions=message.subscriptions,
            content=content,
        )

    def _next_id(self) -> int:
        """Return a free packet identifier."""
        while True:
            self._id = self._id % 65_535 + 1
            if self._id not in self.flying and self._id not in self.releasing:
                return self._id

    # From the client

    def begin_connection(self) -> None:
        """Keep the publications of the last connection until the client sends them again.  [MQTT-4.4.0-1]

        They are not answered before. A client that has forgotten them may use their identifiers for others, and would
        take the answers for those of the others.
        """
        for kept in (self.unreleased, self.incoming):
            self.earlier.update(kept)
            kept.clear()

    def answers(self) -> list[p.Ack]:
        """Return the acknowledgements that can be sent by now, in the order of PUBLISH packets on this connection."""
        out: list[p.Ack] = []
        done: list[int] = []
        if self.link is None:
            return out
        for incoming in self.incoming.values():
            if incoming.reason is None:
                break
            kind = p.PUBACK if incoming.qos == 1 else p.PUBREC
            out.append(p.Ack(kind, incoming.id, incoming.reason, incoming.text if self.link.wants_reasons else None))
            if incoming.qos == 2 and incoming.reason < reasons.UNSPECIFIED:
                incoming.is_told = True
                self.unreleased[incoming.id] = incoming
            done.append(incoming.id)
        for number in done:
            del self.incoming[number]
        return out

    def check(self) -> None:
        assert len(self.flying) + len(self.releasing) <= self.config.inflight_max, "S1"
        assert not self.flying.keys() & self.releasing.keys(), "S5"
        numbers = [*self.incoming, *self.unreleased, *self.earlier]
        assert len(numbers) == len(set(numbers)), "an identifier stands for one publication"
        assert sum(not incoming.is_told for incoming in self.earlier.values()) <= self.config.inflight_max
        assert self.filter_bytes == sum(filter_size(filter_) for filter_ in self.subscriptions)
        assert self.queue_bytes == sum(message.size for message in self.queue), "S3"
        assert self._queued == Counter(message.topic for message in self.queue), "S4"
        assert len(self.queue) <= self.messages_max(True) + self.config.inflight_max, "S3"
