"""A client's session: its subscriptions, what is on its way to it, and what it published and waits for.

S1  at most `window` messages are under way to the client, each with an identifier of its own. One with QoS 2 is under
    way until PUBCOMP  [MQTT-4.9.0-2]
S2  acknowledgements go to the client in the order of its publications  [MQTT-4.6.0-2, -3]
S3  what waits is bounded in number and bytes. While the client acknowledges what it gets, `BURST` times as many
    messages may wait, since a node that stood still gets the messages of a minute at once.
S4  a message with QoS 0 waits behind one on its topic that waits, so that it does not overtake it
S5  a message with QoS 2 keeps its identifier until PUBCOMP, over reconnections, too. After PUBREC it is not sent again
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

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

SOON_MS = 10_000  # A client that leaves so soon after a suspect was sent again leaves because of it.
PROMPT_MS = 10_000  # A client that acknowledges nothing for so long does not keep up.
BURST = 20  # For a client that keeps up, so many times `queue_max` messages may wait.
BRIDGE_QUEUE_MAX = 1_000_000  # messages that wait for a broker; their bytes are the limit


Ticket = tuple[
    str, NodeId, Incarnation, int
]  # a message for a group: the group; the message's node, incarnation and number


class Subscription(msgspec.Struct, frozen=True):
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    number: int | None = None  # subscription identifier


class Out(msgspec.Struct, frozen=True):
    """A message for this client."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    subscriptions: tuple[int, ...]
    content: p.Content
    until_ms: int | None  # it expires then
    ticket: Ticket | None = None  # of a shared subscription

    @property
    def size(self) -> int:
        """Return about how much memory it takes, its properties included."""
        return len(self.payload) + len(self.topic) + self.content.size + 64


@dataclass
class Incoming:
    """A publication of the client with QoS 1 or 2."""

    id: int
    qos: int
    waits: int  # for so many answers of the mesh
    mark: int = 0  # tells whether another packet says the same
    numbers: tuple[int, ...] = ()  # of the mesh, that it waits for
    reason: int | None = None  # known: the client can be told
    text: str | None = None
    is_told: bool = False  # QoS 2: PUBREC was sent, PUBREL is to come


@dataclass(eq=False)
class Link:
    """A network connection, once its CONNECT was taken."""

    id: Connection
    version: int
    heard_ms: int
    keep_alive_ms: int
    receive_max: int
    packet_bytes_max: int | None
    wants_reasons: bool
    will: p.Will | None
    aliases: dict[int, str]
    is_paused: bool = False
    until_ms: int | None = None  # the client's token ends then
    held_until_ms: int = 0  # the client has published more than its quota, and is not read before


def filter_size(filter_: str) -> int:
    """Return about how much memory a filter takes: its letters twice, and an object for each level."""
    return 2 * len(filter_) + 300 * levels_of(filter_)


class Session:
    def __init__(self, client: str, config: MqttConfig) -> None:
        self.client, self.config = client, config
        self.who = Who(None, client)  # for the access rules
        self.link: Link | None = None
        self.is_bridge = False  # what it gets bears its identity
        self.expiry_s = 0
        self.gone_ms = 0  # since when without a connection
        self.subscriptions: dict[str, Subscription] = {}
        self.filter_bytes = 0  # memory that the filters of `subscriptions` take, about
        self.queue: deque[Out] = deque()
        self.queue_bytes = 0
        self._queued: Counter[str] = Counter()  # topic -> messages in `queue`
        self.flying: OrderedDict[int, Out] = OrderedDict()  # sent with QoS 1 or 2; neither PUBACK nor PUBREC has come
        self.releasing: OrderedDict[int, None] = OrderedDict()  # QoS 2: PUBREC has come, and PUBCOMP has not
        self.incoming: OrderedDict[int, Incoming] = OrderedDict()  # by packet identifier
        self.dropped = 0
        self.unanswered = 0  # publications of the client with QoS 0 that the mesh has not answered
        self.suspicion = Suspicion()
        self.finished: list[Ticket] = []  # shared messages that the client has had, or will never get
        # Of `flying`: not sent again yet, because a suspect is sent alone, or the client takes fewer than last time.
        self._held: list[int] = []
        self._resumed_ms = 0  # when the client last came back
        self._prompt_ms = 0  # when the client last owed no acknowledgement, or sent one; by the time the node was awake
        self._id = 0

    @property
    def window(self) -> int:
        """Messages under way to the client.  [MQTT-3.3.4-9]"""
        return min(self.config.inflight_max, self.link.receive_max) if self.link is not None else 0

    @property
    def _room(self) -> int:
        """How many more messages may be under way to the client."""
        return self.window - len(self.flying) - len(self.releasing) + len(self._held)

    @property
    def has_room(self) -> bool:
        """Return whether a message would be sent at once."""
        return self.link is not None and not self.queue and not self._waits and self._room > 0

    @property
    def _waits(self) -> bool:
        """Return whether earlier messages must be sent again before anything new is."""
        return bool(self.suspicion.times or self._held)

    def messages_max(self, keeps_up: bool) -> int:
        """Return how many messages may wait. `keeps_up`: the client is connected, and acknowledges what it gets."""
        if self.is_bridge:
            return BRIDGE_QUEUE_MAX
        return self.config.queue_max * BURST if keeps_up else self.config.queue_max

    @property
    def bytes_max(self) -> int:
        return self.config.broker_queue_bytes if self.is_bridge else self.config.queue_bytes

    # To the client

    def put(self, one: Out, now_ms: int, awake_ms: int) -> list[p.Publish]:
        """Return what to send now. `awake_ms` is a clock that leaves out the time for which the node stood still."""
        if not self.flying:
            self._prompt_ms = awake_ms
        if not one.qos and (self.link is None or not self._queued[one.topic]):
            self._finish(one)
            return [self._packet(one, None, now_ms)] if self.link is not None else []
        if not self.queue and not self._waits and self._room > 0:  # it need not wait
            return self._fly(one, now_ms)
        if self.link is not None and not self.queue:
            reached("an MQTT client's window is full")
        keeps_up = self.link is not None and awake_ms - self._prompt_ms < PROMPT_MS
        if len(self.queue) >= self.messages_max(keeps_up) or self.queue_bytes + one.size > self.bytes_max:
            self.dropped += 1
            self._finish(one)
            return []
        self.queue.append(one)
        self._count(one, 1)
        return self.pump(now_ms)

    def _count(self, one: Out, change: int) -> None:
        """Note that a message was put into the queue (1) or taken out of it (-1)."""
        self.queue_bytes += change * one.size
        self._queued[one.topic] += change
        if not self._queued[one.topic]:
            del self._queued[one.topic]

    def drop_denied(self, may_read: Callable[[str], bool]) -> int:
        """Drop messages that wait and that the client may not read any more. Return how many."""
        gone = [one for one in self.queue if not may_read(one.topic)]
        if gone:
            self.queue = deque(one for one in self.queue if may_read(one.topic))
            for one in gone:
                self._count(one, -1)
                self._finish(one)
        return len(gone)

    def _fly(self, one: Out, now_ms: int) -> list[p.Publish]:
        if one.until_ms is not None and one.until_ms <= now_ms:  # [MQTT-3.3.2-5]
            self._finish(one)
            return []
        if not one.qos:
            self._finish(one)
            return [self._packet(one, None, now_ms)]
        number = self._next_id()
        self.flying[number] = one
        return [self._packet(one, number, now_ms)]

    def pump(self, now_ms: int) -> list[p.Publish]:
        out: list[p.Publish] = []
        while self.link is not None and self.queue and not self._waits:
            if self.queue[0].qos and self._room <= 0:
                break
            one = self.queue.popleft()
            self._count(one, -1)
            out += self._fly(one, now_ms)
        return out

    def resume(self, now_ms: int) -> list[p.Publish | p.Ack]:
        """After a reconnection: again what was not acknowledged, then what waits.  [MQTT-4.4.0-1, 3.3.1-1]"""
        self._resumed_ms = now_ms
        self._held = list(self.flying)
        released = [p.Ack(p.PUBREL, number) for number in self.releasing]
        return [*released, *self._go_on(now_ms)]

    def _go_on(self, now_ms: int) -> list[p.Publish]:
        """Send what is held back again, under its identifiers, as far as there is room; then what waits.

        A suspect is sent alone: the others are held back.
        """
        self._held = [number for number in self._held if number in self.flying]
        is_alone = self.suspicion.times > 0
        count = max(0, min(self._room, 1 - (len(self.flying) - len(self._held)) if is_alone else len(self._held)))
        numbers, self._held = self._held[:count], self._held[count:]
        again = [self._packet(self.flying[number], number, now_ms) for number in numbers]
        return [*(msgspec.structs.replace(one, dup=True) for one in again), *self.pump(now_ms)]

    def acknowledged(self, number: int, now_ms: int, awake_ms: int) -> list[p.Publish]:
        """The client has the message, or will never take it. An identifier that we do not know is stale."""
        had = self.flying.pop(number, None)
        if had is not None:
            self._finish(had)
            self._prompt_ms = awake_ms
            self.suspicion.acknowledged()
        return self._go_on(now_ms)

    def received(self, number: int, reason: int, now_ms: int, awake_ms: int) -> list[p.Publish | p.Ack]:
        """PUBREC: the client has a message with QoS 2, or will not take it.  [MQTT-4.3.3-4 to -8]"""
        if number in self.releasing:
            return [p.Ack(p.PUBREL, number)]
        if number not in self.flying:
            return [p.Ack(p.PUBREL, number, reasons.ID_NOT_FOUND)]
        if reason >= reasons.UNSPECIFIED:
            return [*self.acknowledged(number, now_ms, awake_ms)]
        self.releasing[number] = None
        return [p.Ack(p.PUBREL, number), *self.acknowledged(number, now_ms, awake_ms)]

    def completed(self, number: int, now_ms: int) -> list[p.Publish]:
        """PUBCOMP: the identifier is free."""
        self.releasing.pop(number, None)
        return self._go_on(now_ms)

    def ended(self, now_ms: int) -> Out | None:
        """The client ended the connection, without a word or with an error. Return the message that is set aside."""
        if not self.flying or (self.suspicion.times and now_ms - self._resumed_ms > SOON_MS):
            return None
        number = next(iter(self.flying))
        if not self.suspicion.ended(number):
            return None
        self._finish(self.flying[number])
        return self.flying.pop(number)

    # Shared subscriptions

    def _finish(self, one: Out) -> None:
        if one.ticket is not None:
            self.finished.append(one.ticket)

    def tickets(self) -> list[Ticket]:
        """Return the shared messages that are on their way to this client."""
        return [one.ticket for one in (*self.flying.values(), *self.queue) if one.ticket is not None]

    def surrender(self, may_move: Callable[[Ticket], bool]) -> list[Ticket]:
        """Give up shared messages that the client has not acknowledged, oldest first, and return them.

        A message with QoS 2 that was sent stays: nobody else may get it.  [MQTT-4.8.2-4, -5]
        """
        sent = [
            number
            for number, one in self.flying.items()
            if one.qos < 2 and one.ticket is not None and may_move(one.ticket)
        ]
        out = [self.flying.pop(number).ticket for number in sent]
        waiting: list[Out] = []
        staying: deque[Out] = deque()
        for one in self.queue:
            (waiting if one.ticket is not None and may_move(one.ticket) else staying).append(one)
        self.queue = staying
        for one in waiting:
            self._count(one, -1)
        return [one for one in (*out, *(each.ticket for each in waiting)) if one is not None]

    def withdraw(self, ticket: Ticket) -> bool:
        """Take back a shared message that was not sent yet. Return whether it was there."""
        found = next((one for one in self.queue if one.ticket == ticket), None)
        if found is not None:
            self.queue.remove(found)
            self._count(found, -1)
        return found is not None

    def _packet(self, one: Out, number: int | None, now_ms: int) -> p.Publish:
        content = one.content
        if one.until_ms is not None:  # what is left of it  [MQTT-3.3.2-6]
            content = msgspec.structs.replace(content, expiry_s=max(0, (one.until_ms - now_ms + 999) // 1_000))
        return p.Publish(
            topic=one.topic,
            payload=one.payload,
            qos=one.qos,
            retain=one.retain,
            id=number,
            subscriptions=one.subscriptions,
            content=content,
        )

    def _next_id(self) -> int:
        while True:
            self._id = self._id % 65_535 + 1
            if self._id not in self.flying and self._id not in self.releasing:
                return self._id

    # From the client

    def answers(self) -> list[p.Ack]:
        """What the client can be told by now, in the order of its publications."""
        out: list[p.Ack] = []
        done: list[int] = []
        if self.link is None:
            return out
        for one in self.incoming.values():
            if one.is_told:
                continue
            if one.reason is None:
                break
            kind = p.PUBACK if one.qos == 1 else p.PUBREC
            out.append(p.Ack(kind, one.id, one.reason, one.text if self.link.wants_reasons else None))
            if one.qos == 2 and one.reason < reasons.UNSPECIFIED:
                one.is_told = True
            else:
                done.append(one.id)
        for number in done:
            del self.incoming[number]
        return out

    def check(self) -> None:
        assert len(self.flying) + len(self.releasing) <= self.config.inflight_max, "S1"
        assert not self.flying.keys() & self.releasing.keys(), "S5"
        assert self.filter_bytes == sum(filter_size(one) for one in self.subscriptions)
        assert self.queue_bytes == sum(one.size for one in self.queue), "S3"
        assert self._queued == Counter(one.topic for one in self.queue), "S4"
        assert len(self.queue) <= self.messages_max(True) + self.config.inflight_max, "S3"
