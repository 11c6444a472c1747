"""All clients of one door: connections, sessions, subscriptions, publications.  [docs/mqtt.md]

Inputs are packets, what the mesh says, and time; everything is answered with effects (`take`). The driver says `at`
what time it is before each input: milliseconds that only grow, and the wall clock for what crosses nodes.

| file           | what                                                                                   |
| -------------- | -------------------------------------------------------------------------------------- |
| `entrance.py`  | CONNECT, sessions that come, go and are taken over, wills, keep-alive                  |
| `session.py`   | one client                                                                             |
| `host.py`      | the packets of clients that are in, and the mesh                                       |
| `interests.py`, `directory.py` | filters as interests; wildcards                                        |
| `retained.py`  | retained messages                                                                      |

H1  a client is told PUBACK or PUBREC only after the mesh has acknowledged its publication
H2  a client gets a message once, however many of its filters match  [MQTT-3.3.4-2]
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import msgspec

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.bridge import IDENTITY
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Close, Connection, Emit, Pause, ToClient, Unwant
from trellis.protocols.mqtt.entrance import Entrance
from trellis.protocols.mqtt.envelope import Copy, Envelope, Kept, Recall, unwrap, wrap
from trellis.protocols.mqtt.interests import QUESTIONS, ROOT, WITHIN, bucket_of
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Incoming, Link, Out, Session, Subscription
from trellis.protocols.mqtt.topics import (
    PREFIX_LETTERS_MAX,
    SHARED,
    has_wildcard,
    is_filter,
    is_topic,
    matches,
    overlay_topic,
    pattern_of,
)
from trellis.protocols.wire import WireError

HOPE_MS = 30_000  # a new subscription takes retained messages of other nodes for so long
HOPES_MAX = 10_000
AGAIN_MS = 1_000  # what the mesh did not take of a sidecar is published again after so long


@dataclass
class SubAckDue:
    """A SUBACK that waits for the mesh."""

    session: Session
    link: Link
    packet: p.SubAck
    patterns: list[str]
    until_ms: int
    retained: list[tuple[str, Subscription]]


@dataclass
class Hope:
    """A new subscription that takes retained messages which other nodes still tell."""

    session: Session
    filter: str
    subscription: Subscription
    until_ms: int


class Host(Entrance):
    def __init__(self, node: NodeId, life: int, config: MqttConfig) -> None:
        super().__init__(node, life, config)
        self._subacks: list[SubAckDue] = []
        self._waiting: dict[int, tuple[Session, Incoming]] = {}  # numbers of the mesh -> what waits for them
        self._questions: dict[int, None] = {}
        self._emitted: dict[int, Emit] = {}  # of the sidecar, not acknowledged
        self._again: deque[tuple[int, Emit]] = deque()  # to be published again, and when
        self._hopes: list[Hope] = []
        self.directory.kept = self.recaller.prefixes
        self._early: dict[Topic, None] = {}  # not confirmed, though a client was told that it is subscribed

    def start(self) -> None:
        self.directory.start()
        self._settle()

    # Clients

    def received(self, connection: Connection, packet: p.Packet) -> None:
        session = self.by_connection.get(connection)
        if session is None:
            self.arrived(connection, packet)
            self._settle()
            return
        link = session.link
        assert link is not None
        link.heard_ms = self.now_ms
        match packet:
            case p.Publish():
                self._publish(session, link, packet)
            case p.Ack():
                self._on_ack(session, link, packet)
            case p.Subscribe():
                self._subscribe(session, link, packet)
            case p.Unsubscribe():
                self._unsubscribe(session, link, packet)
            case p.PingReq():
                self.send(link, p.PingResp())
            case p.Disconnect():
                self.disconnected(session, link, packet)
            case _:  # a second CONNECT, AUTH without a method, or a packet for clients  [MQTT-3.1.0-2, 4.13.1-1]
                self.drop(session, reasons.PROTOCOL_ERROR, "out of place")
        self._settle()

    def _subscribe(self, session: Session, link: Link, packet: p.Subscribe) -> None:
        codes: list[int] = []
        due = SubAckDue(session, link, p.SubAck(packet.id, ()), [], self.now_ms + int(self.config.suback_s * 1_000), [])
        text: str | None = None
        for asked in packet.asked:
            code, why = self._refusal(session, asked)
            if code is not None:
                self.counters["filters refused"] += 1
                codes.append(code if link.version == p.V5 else reasons.UNSPECIFIED)
                text = text or why
                continue
            granted = min(asked.qos, 1)  # QoS 2 is carried as 1, and said so  [MQTT-3.8.4-7]
            codes.append(granted)
            is_new = asked.filter not in session.subscriptions
            one = Subscription(granted, asked.no_local, asked.retain_as_published, packet.subscription)
            session.subscriptions[asked.filter] = one
            self.tree.put(asked.filter, session, one)
            if is_new:
                self.interests.add(asked.filter)
            due.patterns.append(pattern_of(asked.filter, self.config.depth))
            if asked.retain_handling == 0 or (asked.retain_handling == 1 and is_new):
                due.retained.append((asked.filter, one))
        due.packet = p.SubAck(packet.id, tuple(codes), text if link.wants_reasons else None)
        self.directory.changed()
        self._subacks.append(due)

    def _refusal(self, session: Session, asked: p.Asked) -> tuple[int | None, str]:
        filter_ = asked.filter
        if filter_.startswith(SHARED):
            return reasons.SHARED_UNSUPPORTED, "shared subscriptions are not carried across the mesh"
        if not is_filter(filter_):
            return reasons.FILTER_INVALID, "not a topic filter"
        if filter_.startswith("$"):
            return reasons.FILTER_INVALID, "topics that begin with $ are not carried"
        if len(pattern_of(filter_, self.config.depth)) > PREFIX_LETTERS_MAX:
            return reasons.FILTER_INVALID, f"its first levels have more than {PREFIX_LETTERS_MAX} letters"
        is_full = len(session.subscriptions) >= self.config.subscriptions_max and not session.is_bridge
        if is_full and filter_ not in session.subscriptions:
            return reasons.QUOTA, f"a client has at most {self.config.subscriptions_max} filters"
        return None, ""

    def _unsubscribe(self, session: Session, link: Link, packet: p.Unsubscribe) -> None:
        codes = [
            reasons.SUCCESS if self.leave_filter(session, one) else reasons.NO_SUBSCRIPTION for one in packet.filters
        ]
        self.directory.changed()
        self.send(link, p.UnsubAck(packet.id, tuple(codes)))

    def _publish(self, session: Session, link: Link, packet: p.Publish) -> None:
        topic = self._topic(session, link, packet)
        if topic is None:
            return
        incoming = None
        if packet.qos:
            assert packet.id is not None
            known = session.incoming.get(packet.id)
            if known is not None:  # sent again before it was acknowledged: the same publication
                if known.is_told:
                    self.send(link, p.Ack(p.PUBREC, known.id))
                return
            is_full = len(session.incoming) >= self.config.inflight_max
            if is_full and link.version == p.V5 and not session.is_bridge:  # a sidecar stops reading instead
                self.drop(session, reasons.RECEIVE_MAX, "receive maximum")  # [MQTT-3.3.4-7]
                return
            incoming = session.incoming[packet.id] = Incoming(packet.id, packet.qos, 0)
            if len(session.incoming) >= self.config.inflight_max and not link.is_paused and link.version != p.V5:
                link.is_paused = True
                self.out.append(Pause(link.id, False))
        refusal = self.publish(
            session.client, topic, packet.payload, packet.qos, packet.retain, packet.content, incoming
        )
        if refusal is not None:
            self.counters["publications refused"] += 1
            self._answer(session, incoming, *refusal)
        elif incoming is not None:
            for number in self._last_numbers:
                self._waiting[number] = (session, incoming)
            if session.is_bridge:
                mine = [one for one in self.out if isinstance(one, Emit) and one.number in self._last_numbers]
                self._emitted.update({one.number: one for one in mine})

    def _topic(self, session: Session, link: Link, packet: p.Publish) -> str | None:
        """Of a publication, its alias resolved.  [MQTT-3.3.2-2, -8 to -12]"""
        topic, alias = packet.topic, packet.alias
        if packet.subscriptions:
            self.drop(session, reasons.PROTOCOL_ERROR, "a subscription identifier of a client")  # [MQTT-3.3.4-6]
            return None
        if alias is not None:
            if alias > self.config.alias_max:
                self.drop(session, reasons.ALIAS_INVALID, "topic alias")
                return None
            topic = topic or link.aliases.get(alias, "")
        if not topic:
            self.drop(session, reasons.PROTOCOL_ERROR, "no topic")
            return None
        if has_wildcard(topic):
            self.drop(session, reasons.TOPIC_INVALID, "a topic with wildcards")
            return None
        if alias is not None:
            link.aliases[alias] = topic
        return topic

    def _answer(self, session: Session, incoming: Incoming | None, reason: int, text: str | None) -> None:
        """A publication is taken, or refused. 3.1.1 has no word for that but the end.  [MQTT 3.1.1: 3.3.5-2]"""
        link = session.link
        if reason >= reasons.UNSPECIFIED and (link is None or link.version != p.V5):
            if incoming is not None:
                session.incoming.pop(incoming.id, None)
            if link is not None:
                self.drop(session, reason, "publication refused")
            return
        if incoming is not None:
            incoming.reason, incoming.text = reason, text
            self._tell(session)

    def _tell(self, session: Session) -> None:
        link = session.link
        if link is None:
            return
        for one in session.answers():
            self.send(link, one)
        if link.is_paused and len(session.incoming) < self.config.inflight_max:
            link.is_paused, link.heard_ms = False, self.now_ms
            self.out.append(Pause(link.id, True))

    def _on_ack(self, session: Session, link: Link, packet: p.Ack) -> None:
        match packet.kind:
            case p.PUBACK:
                for one in session.acknowledged(packet.id, self.now_ms):
                    self.send(link, one)
            case p.PUBREL:
                known = session.incoming.get(packet.id)
                is_ours = known is not None and known.is_told
                if is_ours:
                    del session.incoming[packet.id]
                self.send(link, p.Ack(p.PUBCOMP, packet.id, reasons.SUCCESS if is_ours else reasons.ID_NOT_FOUND))
                self._tell(session)
            case _:  # we send nothing with QoS 2
                self.drop(session, reasons.PROTOCOL_ERROR, "out of place")

    def begin_anew(self, connection: Connection) -> None:
        """The sidecar's broker has lost our session: its identifiers begin anew."""
        session = self.by_connection.get(connection)
        if session is not None:
            session.incoming.clear()
            self._forget(session)

    def too_large(self, connection: Connection, packet: p.Packet) -> None:
        """The client takes no packet of this size: as if it had had it.  [MQTT-3.1.2-24, -25]"""
        self.counters["too large for a client"] += 1
        session = self.by_connection.get(connection)
        if session is not None and isinstance(packet, p.Publish) and packet.id is not None:
            for one in session.acknowledged(packet.id, self.now_ms):
                self.out.append(ToClient(connection, one))

    # Publications

    def publish(
        self,
        client: str,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        content: p.Content = p.PLAIN,
        incoming: Incoming | None = None,
    ) -> tuple[int, str] | None:
        """Into the mesh. A refusal and its reason, or None; then `_last_numbers` are the answers to wait for."""
        prefix = overlay_topic(topic, self.config.depth)
        if not is_topic(topic) or len(prefix) > PREFIX_LETTERS_MAX:
            return reasons.TOPIC_INVALID, "this topic is not carried"
        number = self.next_number()
        buckets, previous, before = self.directory.publishes(prefix, number)
        identity = (client, self.life, number, self.wall_ms)
        message = Envelope(topic, payload, qos, retain, *identity, bool(buckets), previous, before, content)
        is_kept = retain and not client.startswith("$")  # what a broker beside us retains, it keeps itself
        if is_kept and not self.recaller.put(self.node, Retained(self.node, message)):
            self.counters["retained refused"] += 1
            return reasons.QUOTA, "no room for more retained messages"
        self._last_numbers = [number]
        if incoming is not None:
            incoming.waits = 1 + len(buckets)
        self.out.append(Emit(prefix, wrap(message), number))
        for bucket in buckets:
            copy = self.next_number()
            self._last_numbers.append(copy)
            self.out.append(Emit(bucket, wrap(Copy(prefix, message)), copy))
        return None

    # The mesh

    def confirmed(self, topic: Topic) -> None:
        self._early.pop(topic, None)
        self.directory.confirmed(topic)
        if not topic.startswith("$") and self.config.listen:
            self.recaller.joined(topic)
        self._settle()

    def acknowledged(self, number: int) -> None:
        if number in self._questions:
            del self._questions[number]
            self.directory.acknowledged(number)
        found = self._waiting.pop(number, None)
        self._emitted.pop(number, None)
        if found is not None:
            session, incoming = found
            incoming.waits -= 1
            if not incoming.waits and incoming.reason is None:
                self._answer(session, incoming, reasons.SUCCESS, None)
        self._settle()

    def not_acknowledged(self, number: int, reason: str) -> None:
        self.counters["not acknowledged"] += 1
        if number in self._questions:
            del self._questions[number]
            self.directory.not_acknowledged(number)
        found = self._waiting.pop(number, None)
        emitted = self._emitted.pop(number, None)
        if found is not None and emitted is not None:  # the same message, known again where it has come already
            again = Emit(emitted.topic, emitted.payload, self.next_number())
            self._waiting[again.number] = found
            self._again.append((self.now_ms + AGAIN_MS, again))
        elif found is not None and found[1].reason is None:
            self._answer(*found, reasons.IMPLEMENTATION, reason)
        self._settle()

    def noticed(self, topic: Topic) -> None:
        """Somebody else published through this node: holders of wildcards are to know of the topic."""
        if is_topic(topic) and overlay_topic(topic, self.config.depth) == topic and len(topic) <= PREFIX_LETTERS_MAX:
            self.directory.publishes(topic, 0, is_plain=True)
            self._settle()

    def delivered(self, topic: Topic, origin: NodeId, payload: bytes) -> None:
        try:
            said = unwrap(payload)
        except WireError:
            self.counters["garbage"] += 1
            return
        is_ours = topic in (QUESTIONS, ROOT) or topic.startswith(WITHIN)
        if not is_ours and isinstance(said, Recall | Kept):
            self._on_retained(topic, origin, said)
            return
        if not is_ours and said is not None and not isinstance(said, Envelope):
            self.counters["garbage"] += 1
            return
        # The mesh gives a first subscriber what it still holds. A client gets what is published from its SUBACK on; and
        # holders of wildcards get copies until they are confirmed.
        if topic != QUESTIONS and not self.directory.is_confirmed(topic) and topic not in self._early:
            self.counters["before the subscription"] += 1
            if isinstance(said, Envelope):
                self._retain(origin, said)
            return
        if is_ours:
            ready = self.directory.on_said(topic, origin, said) if said is not None else []
        elif isinstance(said, Envelope):
            ready = self.directory.on_message(topic, origin, said)
        else:
            ready = [Envelope(topic, payload, 1, False, "", 0, 0, self.wall_ms)]
        for message in ready:
            self._hand_over(origin, message)
        self._settle()

    def _on_retained(self, topic: Topic, origin: NodeId, said: Recall | Kept) -> None:
        """Somebody asks what is retained, or tells."""
        if isinstance(said, Recall):
            self.recaller.on_recall(topic, origin)
        elif self.config.listen:
            for kept in self.recaller.on_kept(topic, said):
                for hope in self._hopes:
                    is_held = hope.session.subscriptions.get(hope.filter) == hope.subscription
                    if is_held and matches(hope.filter, kept.message.topic):
                        self._give_retained(hope.session, kept, hope.subscription)
        self._settle()

    def _retain(self, origin: NodeId, message: Envelope) -> None:
        if message.retain and self.config.listen and not self.recaller.put(origin, Retained(origin, message)):
            self.counters["retained refused"] += 1

    def _hand_over(self, origin: NodeId, message: Envelope) -> None:
        """To every client that wants it."""
        self._retain(origin, message)
        until_ms = self._until(message)
        if until_ms is not None and until_ms <= self.now_ms:
            self.counters["expired"] += 1
            return
        found: dict[Session, list[Subscription]] = {}
        for session, one in self.tree.matching(message.topic):
            if not (one.no_local and message.client == session.client):  # [MQTT-3.8.3-3]
                found.setdefault(session, []).append(one)
        for session, several in found.items():
            if session.is_bridge:
                self._give(session, _identified(message, origin), several, until_ms, message.retain)
                continue
            self._give(
                session, message, several, until_ms, message.retain and any(one.retain_as_published for one in several)
            )

    def _give(
        self, session: Session, message: Envelope, several: list[Subscription], until_ms: int | None, retain: bool
    ) -> None:
        qos = min(message.qos, max(one.qos for one in several))  # [MQTT-3.8.4-8]
        numbers = tuple(sorted({one.number for one in several if one.number is not None}))
        out = Out(message.topic, message.payload, qos, retain, numbers, message.content, until_ms)
        self.counters["delivered"] += 1
        dropped = session.dropped
        packets = session.put(out, self.now_ms)
        self.counters["dropped"] += session.dropped - dropped
        if session.link is not None:
            for one in packets:
                self.send(session.link, one)

    def _until(self, message: Envelope) -> int | None:
        """When it expires, by our clock."""
        expiry_s = message.content.expiry_s
        if expiry_s is None:
            return None
        return self.now_ms + expiry_s * 1_000 - max(0, self.wall_ms - message.stamp_ms)

    # What follows an input

    def tick(self) -> None:
        """A few times a second."""
        for origin, message in self.directory.tick(self.now_ms):
            self._hand_over(origin, message)
        while self._again and self._again[0][0] <= self.now_ms:
            _, emit = self._again.popleft()
            if emit.number in self._waiting:  # else its session is over
                self._emitted[emit.number] = emit
                self.out.append(emit)
        self.recaller.tick()
        self._hopes = [one for one in self._hopes if one.until_ms > self.now_ms]
        self.watch()
        self._settle()

    def _settle(self) -> None:
        """Interests and what the directory says go out; SUBACKs whose time has come as well."""
        while self.interests.out or self.directory.emits or self.recaller.emits:
            changes, self.interests.out = self.interests.out, []
            for change in changes:
                if isinstance(change, Unwant):
                    self.directory.unwanted(change.topic)
                    self.recaller.left(change.topic)
                    self._early.pop(change.topic, None)
                self.out.append(change)
            emits = [*self.directory.emits, *self.recaller.emits]
            self.directory.emits, self.recaller.emits = [], []
            for topic, payload, which in emits:
                number = self.next_number()
                if which in ("ask", "who"):
                    self.directory.asked(number, which)
                    self._questions[number] = None
                self.out.append(Emit(topic, payload, number))
        if self._subacks:
            self._subacks = [due for due in self._subacks if not self._is_told(due)]

    def _is_told(self, due: SubAckDue) -> bool:
        if due.session.link is not due.link:
            return True
        is_ready = all(self._is_ready(one) for one in due.patterns)
        if not is_ready and self.now_ms < due.until_ms:
            return False
        packet = due.packet
        if not is_ready:
            self.counters["subacks early"] += 1
            self._early.update({bucket_of(one) if has_wildcard(one) else one: None for one in due.patterns})
            if due.link.wants_reasons and packet.text is None:
                packet = p.SubAck(packet.id, packet.reasons, "granted; the mesh has not confirmed it yet")
        self.send(due.link, packet)
        for filter_, one in due.retained:
            if due.session.subscriptions.get(filter_) == one:
                for kept in self.retained.matching(filter_):
                    self._give_retained(due.session, kept, one)
                if len(self._hopes) < HOPES_MAX:
                    self._hopes.append(Hope(due.session, filter_, one, self.now_ms + HOPE_MS))
        return True

    def _is_ready(self, pattern: str) -> bool:
        return self.directory.is_ready(pattern) if has_wildcard(pattern) else self.directory.is_confirmed(pattern)

    def _give_retained(self, session: Session, kept: Retained, one: Subscription) -> None:
        """[MQTT-3.3.1-8, 3.3.1-9]"""
        message = kept.message
        if one.no_local and message.client == session.client:
            return
        until_ms = self._until(message)
        if until_ms is not None and until_ms <= self.now_ms:
            self.recaller.remove(message.topic)
            return
        self._give(session, message, [one], until_ms, True)

    # For the entrance

    def _come_back(self, session: Session) -> None:
        assert session.link is not None
        for one in session.resume(self.now_ms):
            self.send(session.link, one)
        self._tell(session)

    def _forget(self, session: Session) -> None:
        for number in [one for one, found in self._waiting.items() if found[0] is session]:
            del self._waiting[number]
            self._emitted.pop(number, None)

    def shut_down(self) -> None:
        """The node goes: clients are told, and come back elsewhere."""
        for session in list(self.by_connection.values()):
            self.drop(session, reasons.SHUTTING_DOWN, "")
        for connection in list(self.arriving):
            self.out.append(Close(connection))

    def check(self) -> None:
        self.interests.check()
        self.directory.check()
        self.recaller.check()
        for session in self.sessions.values():
            session.check()
        assert self.tree.count == sum(len(one.subscriptions) for one in self.sessions.values())


def _identified(message: Envelope, origin: NodeId) -> Envelope:
    """For a broker beside us: known again wherever it turns up."""
    identity = (IDENTITY, f"{origin}/{message.life}/{message.number}")
    content = msgspec.structs.replace(message.content, user=(*message.content.user, identity))
    return msgspec.structs.replace(message, content=content)
