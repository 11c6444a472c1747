"""Publications of clients: PUBLISH, and its acknowledgement when the mesh has answered. [MQTT 5, 3.3, 3.4 to 3.7, 4.3]

A PUBLISH becomes a publication in the mesh (`Emit`), and a copy in each directory that needs one. The client gets
PUBACK or PUBREC when the mesh has acknowledged all of these.

P1  A client gets PUBACK or PUBREC only after the mesh has acknowledged its publication.
P2  A publication of a sidecar is repeated, under its identity, until the mesh has acknowledged it (`repeats.py`).
P3  At most `inflight_max` publications of a client with QoS 0 wait for the mesh. Then the client is not read.
P4  An acknowledgement belongs to a PUBLISH that came over the same connection.
P5  If the mesh refuses a client's message at once, its copies are not published. A client of MQTT 3.1.1 publishes a
    refused message again, and holders of wildcards would get it twice.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.arrivals import SIDECAR
from trellis.protocols.mqtt.effects import Connection, Emit, NotCarried, Pause
from trellis.protocols.mqtt.envelope import NO_INCARNATION, Chosen, Copy, Envelope, Part, fits, room_for_payload, wrap
from trellis.protocols.mqtt.parts import PART_BYTES_MIN, split
from trellis.protocols.mqtt.repeats import Repeats
from trellis.protocols.mqtt.replaced import Replaced
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Incoming, Link, Session
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import carried_prefix, has_wildcard
from trellis.reached import reached


class Publications:
    """Publishes for clients, and answers them."""

    def __init__(self, state: BrokerState, drop: Callable[[Session, int, str], None]) -> None:
        self.state, self.drop = state, drop
        # number of a publication in the mesh -> the session and the client's packet that wait for it
        self.waiting: dict[int, tuple[Session, Incoming]] = {}
        self.unanswered: dict[int, Session] = {}  # numbers of publications with QoS 0 that the mesh has not answered
        self.repeats = Repeats()  # the sidecar's publications that are not acknowledged
        self._last_numbers: list[int] = []
        self._refused: tuple[int, str] = (0, "")  # what the mesh refused last, and why. Its copies come right after it.
        self._replaced = Replaced(state.recaller)
        self._held: dict[Link, Session] = {}  # connections that are not read because the client's quota is used up
        # Returns for each group that shares a topic the node that gets the message. See `Groups.choose`.
        self.choose: Callable[[str], tuple[Chosen, ...]] = lambda topic: ()

    def received(self, session: Session, link: Link, packet: p.Publish) -> None:
        """Take in a PUBLISH of a client."""
        topic = self._topic(session, link, packet)
        if topic is None:
            return
        if packet.qos > self.state.config.qos_max and not session.is_bridge:
            self.drop(session, reasons.QOS_UNSUPPORTED, "a QoS above the greatest one")  # [MQTT-3.2.2-11]
            return
        if packet.retain and not self.state.config.retain_available and not session.is_bridge:
            self.drop(session, reasons.RETAIN_UNSUPPORTED, "a retained message")  # [MQTT-3.2.2-14]
            return
        incoming = None
        if packet.qos:
            assert packet.id is not None
            known = _known(session, packet.id)
            mark = hash((topic, packet.payload, packet.qos, packet.retain))
            if known is not None and (session.is_bridge or self._is_again(known, mark, packet, link)):
                self._repeated(session, link, known)
                return
            if known is not None:
                self._abandon(session, known)
            is_full = len(session.incoming) + len(session.unreleased) >= self.state.config.inflight_max
            if is_full and link.version == p.V5 and not session.is_bridge:  # a sidecar stops reading instead
                self.drop(session, reasons.RECEIVE_MAX, "receive maximum")  # [MQTT-3.3.4-7]
                return
            incoming = session.incoming[packet.id] = Incoming(packet.id, packet.qos, 0, mark, topic)
            self._pause_if_full(session, link)
        self._charge(session, link, len(topic) + len(packet.payload))
        if not self.state.may_write(session, topic):
            self.state.counters["writes denied"] += 1
            self._deny(session, link, incoming, reasons.NOT_AUTHORIZED, "the client may not publish on this topic")
            return
        payload_bytes_max = self.state.config.payload_bytes_max
        if payload_bytes_max and len(packet.payload) > payload_bytes_max and not session.is_bridge:
            self.state.counters["payloads too large"] += 1
            why = f"a payload of {len(packet.payload)} bytes is over {payload_bytes_max}"
            self._deny(session, link, incoming, reasons.QUOTA, why)  # no better code  [MQTT 5, 3.4.2.1, 3.5.2.1]
            return
        try:
            refusal = self.publish(
                session.client, topic, packet.payload, packet.qos, packet.retain, packet.content, incoming
            )
        except Exception:  # a defect of ours: nothing may wait for an answer that never comes
            if incoming is not None:
                _forget(session, incoming)
            raise
        if refusal is not None:
            self._refuse(session, incoming, topic, *refusal)
        elif incoming is None:
            self.unanswered[self._last_numbers[0]] = session
            session.unanswered += 1
            self._pause_if_full(session, link)
        else:
            incoming.numbers = tuple(self._last_numbers)
            for number in self._last_numbers:
                self.waiting[number] = (session, incoming)
            if session.is_bridge:
                emits = (emit for emit in self.state.out if isinstance(emit, Emit))
                self.repeats.give(emit for emit in emits if emit.number in self._last_numbers)

    def _charge(self, session: Session, link: Link, size: int) -> None:
        """Stop reading a client that has published more than its quota, for as long as the quota asks."""
        access = self.state.access
        if access is None or session.is_bridge:
            return
        wait_ms = access.quotas.charge(session.who.user, session.client, size, self.state.now_ms)
        if wait_ms > 0:
            link.held_until_ms = self.state.now_ms + wait_ms
            self.state.counters["held by quotas"] += link not in self._held
            self._held[link] = session
            self._pause_if_full(session, link)

    def _deny(self, session: Session, link: Link, incoming: Incoming | None, reason: int, why: str) -> None:
        """Drop a publication that the client is not allowed to make.

        With 3.1.1 a refusal could only end the connection, so there it is acknowledged, as Mosquitto does. [MQTT 3.1.1:
        3.3.5-2]
        """
        if link.version == p.V5:
            self._answer(session, incoming, reason, why)
        else:
            self._answer(session, incoming, reasons.SUCCESS, None)

    def _is_again(self, known: Incoming, mark: int, packet: p.Publish, link: Link) -> bool:
        """Return whether a packet is a publication that we have, sent again.  [MQTT-3.3.1-1, MQTT-4.3.3-10]

        A client that restarted may have forgotten its publications and number new ones from 1, while the old ones
        still wait for the mesh. Then the packet is no repetition (DUP), or it says something else. A publication that
        the mesh refused while its client was away is tried again for a client that cannot be told of the refusal.
        """
        if known.reason is not None and known.reason >= reasons.UNSPECIFIED and link.version != p.V5:
            return False
        return known.mark == mark and (packet.dup or packet.qos == 2)

    def _repeated(self, session: Session, link: Link, known: Incoming) -> None:
        """Answer a publication that the client has sent again, over the connection that brought it."""
        if session.earlier.pop(known.id, None) is not None:
            (session.unreleased if known.is_told else session.incoming)[known.id] = known
            self._pause_if_full(session, link)
        if known.is_told:
            self.state.send(link, p.Ack(p.PUBREC, known.id))
        else:
            self.tell(session)

    def came_back(self, session: Session) -> None:
        """The client has a new connection. Abandon the oldest publications that it has not sent again for long.

        Those that wait for PUBREL stay. They are bounded by the identifiers that there are.
        """
        session.begin_connection()
        waiting = [incoming for incoming in session.earlier.values() if not incoming.is_told]
        for incoming in waiting[: max(0, len(waiting) - self.state.config.inflight_max)]:
            self._abandon(session, incoming)
        self.tell(session)

    def _abandon(self, session: Session, known: Incoming) -> None:
        """Forget a publication whose packet identifier the client uses for something new. It continues in the mesh."""
        _forget(session, known)
        pending = [number for number in known.numbers if self.waiting.pop(number, None) is not None]
        if pending:  # it counts against the client's limit, as one with QoS 0 does
            self.unanswered[pending[0]] = session
            session.unanswered += 1

    def _refuse(self, session: Session, incoming: Incoming | None, topic: str, reason: int, why: str) -> None:
        """Answer a publication that is refused, and tell the operator if the publisher cannot be told."""
        self.state.counters["publications refused"] += 1
        self.state.counters["too large for the mesh"] += reason == reasons.TOO_LARGE
        if session.is_bridge or reason == reasons.TOO_LARGE:
            self.state.out.append(NotCarried(topic, why))
        if reason == reasons.TOO_LARGE and not session.is_bridge:
            reason = reasons.QUOTA  # PUBACK and PUBREC have no better reason code  [MQTT 5, 3.4.2.1, 3.5.2.1]
        is_of_server = topic.startswith("$")
        if is_of_server and session.link is not None and session.link.version != p.V5:
            # The client is not allowed to publish there, and this version cannot tell it so. It gets an
            # acknowledgement, and nobody gets the message.  [MQTT 3.1.1: MQTT-3.3.5-2, 4.7.2; MQTT 3.1: 3.3]
            reason = reasons.SUCCESS
        # No reason text here: some clients cannot read a PUBACK that is longer than its reason code.
        self._answer(session, incoming, reason, None if is_of_server else why)

    def _pause_if_full(self, session: Session, link: Link) -> None:
        """Stop reading a client of which too much waits."""
        if self._is_full(session, link) and not link.is_paused and not session.is_bridge:
            link.is_paused = True
            self.state.out.append(Pause(link.id, False))

    def _is_full(self, session: Session, link: Link) -> bool:
        """Return whether too many publications of this client wait for the mesh, or its quota is used up.

        MQTT 5 has its receive maximum for QoS 1 and 2. Publications that wait for PUBREL do not count: it comes only if
        the client is read.
        """
        if self.state.now_ms < link.held_until_ms:
            return True
        limit = self.state.config.inflight_max
        return session.unanswered >= limit or (link.version != p.V5 and len(session.incoming) >= limit)

    def _topic(self, session: Session, link: Link, packet: p.Publish) -> str | None:
        """Return the topic of a publication, with its alias resolved.  [MQTT-3.3.2-2, -8 to -12]

        Return None if the packet is invalid; then the client was disconnected.
        """
        topic, alias = packet.topic, packet.alias
        if packet.subscriptions:
            self.drop(session, reasons.PROTOCOL_ERROR, "a subscription identifier of a client")  # [MQTT-3.3.4-6]
            return None
        if alias is not None:
            if alias > self.state.config.alias_max:
                self.drop(session, reasons.ALIAS_INVALID, "topic alias")
                return None
            topic = topic or link.aliases.get(alias, "")
        if not topic:
            self.drop(session, reasons.PROTOCOL_ERROR, "no topic")
            return None
        if has_wildcard(topic):
            self.drop(session, reasons.MALFORMED, "a topic with wildcards")  # [MQTT-3.3.2-2]
            return None
        if alias is not None:
            if link.aliases.get(alias, topic) != topic:
                reached("a topic alias is given up")
            link.aliases[alias] = topic
        return topic

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
        """Publish in the mesh. Return reason and text if it is refused, or None.

        Then `_last_numbers` has the numbers of the publications whose answers must be awaited.
        """
        prefix = carried_prefix(topic, self.state.config.depth)
        if prefix is None and topic.startswith("$"):
            return reasons.NOT_AUTHORIZED, "topics that begin with $ belong to the server: no client publishes there"
        if prefix is None:
            return reasons.TOPIC_INVALID, "this topic is not carried: it is too long or too deep"
        # A client's packet with such a property was refused when it was read. A broker beside us may send one.
        if content is not p.PLAIN and not content.is_sound:
            return reasons.MALFORMED, "a property holds control characters or noncharacters, or wildcards"
        limit = self.state.payload_bytes_max
        chosen = self.choose(topic)
        nobody = (client, NO_INCARNATION, 0, 0)
        whole, payloads = Envelope(topic, payload, qos, retain, *nobody, content=content, chosen=chosen), [payload]
        if not fits(whole, prefix, limit):
            most, part_bytes = max(limit, self.state.config.packet_bytes_max), room_for_payload(whole, limit)
            if len(payload) > most or part_bytes < PART_BYTES_MIN:
                return reasons.TOO_LARGE, f"its {len(payload)} bytes and its envelope are over {most}"
            if retain and not client.startswith("$"):
                return reasons.TOO_LARGE, f"a retained message, with its envelope, has at most {limit} bytes"
            payloads = list(split(payload, part_bytes))
        number = self.state.next_number()
        is_kept = retain and not client.startswith("$")  # a sidecar's broker keeps its own retained messages
        wall_ms = self.state.wall_ms
        stamp_ms = self.state.retained.stamp_ms(topic, wall_ms) if is_kept else wall_ms
        identity = (client, self.state.incarnation, number, stamp_ms)
        replaced = None
        if is_kept:  # before the directory hears of it: the next message must not wait for one that is refused
            kept = Retained(self.state.node, Envelope(topic, payload, qos, retain, *identity, content=content))
            replaced = self._replaced.put(kept)
            if replaced is None:
                self.state.counters["retained refused"] += 1
                return reasons.QUOTA, "no room for more retained messages"
        self._last_numbers = []
        if len(payloads) == 1:
            self._emit(prefix, Envelope(topic, payload, qos, retain, *identity, content=content, chosen=chosen))
        for index, part in enumerate(payloads if len(payloads) > 1 else ()):
            known: Part = (number, index, len(payloads))
            identity = (client, self.state.incarnation, self.state.next_number() if index else number, stamp_ms)
            if index < len(payloads) - 1:
                self._emit(prefix, Envelope(topic, part, qos, retain, *identity, part=known))
            else:
                last = Envelope(topic, part, qos, retain, *identity, content=content, chosen=chosen, part=known)
                self._emit(prefix, last)
        if incoming is not None:
            incoming.waits = len(self._last_numbers)
        if replaced is not None:
            self._replaced.published(replaced, self._last_numbers)
        return None

    def _emit(self, prefix: Topic, message: Envelope) -> None:
        """Give a message or a part of one to the mesh, with its copies, and add their numbers to `_last_numbers`."""
        number = message.number
        buckets, previous, before = self.state.directory.publishes(prefix, number)
        if buckets or previous or before:
            message = replace(message, is_copied=bool(buckets), previous=previous, before=before)
        self._last_numbers.append(number)
        self.state.out.append(Emit(prefix, wrap(message), number))
        for bucket in buckets:
            copy = self.state.next_number()
            self._last_numbers.append(copy)
            self.state.directory.copied(copy, prefix, bucket)
            # A sidecar's message is published again until the mesh takes it, so its copies need not wait for that.
            copy_of = 0 if message.client.startswith(SIDECAR) else number
            self.state.out.append(Emit(bucket, wrap(Copy(prefix, message)), copy, copy_of))

    def _answered(self, number: int) -> None:
        """A publication with QoS 0 was answered."""
        session = self.unanswered.pop(number, None)
        if session is not None:
            session.unanswered -= 1
            self._go_on(session)

    def is_awaited(self, number: int) -> bool:
        """Return whether a client waits for the mesh's answer to this number."""
        return number in self.waiting

    def acknowledged(self, number: int, *, is_alone: bool = False) -> None:
        """The mesh has acknowledged a publication. `is_alone`: it has proven that no other node subscribes."""
        self._answered(number)
        self._replaced.taken(number)
        awaited = self.waiting.pop(number, None)
        self.repeats.answered(number)
        if awaited is not None:
            session, incoming = awaited
            incoming.waits -= 1
            if not incoming.waits and incoming.reason is None:
                is_unread = is_alone and len(incoming.numbers) == 1 and self._is_unread(session, incoming)
                self._answer(session, incoming, reasons.NO_MATCHING if is_unread else reasons.SUCCESS, None)

    def _is_unread(self, session: Session, incoming: Incoming) -> bool:
        """Return whether a client can be told that nobody subscribes to the topic.  [MQTT 5, 3.4.2.1]

        That is so if no client of this node does: the mesh has proven the same of other nodes. PUBREC never says so, as
        at Mosquitto.
        """
        if incoming.qos != 1 or session.link is None or session.link.version != p.V5:
            return False
        return not self.state.shared and next(iter(self.state.tree.matching(incoming.topic)), None) is None

    def not_acknowledged(self, number: int, reason: str, *, is_taken: bool) -> None:
        """The mesh has not acknowledged a publication. A sidecar's publication is repeated; a client is told.

        `is_taken`: the mesh did not refuse it at once, and may deliver it.
        """
        self._answered(number)
        if is_taken:
            self._replaced.taken(number)
        else:
            self._replaced.refused(number)
            self._refused = number, reason
        awaited = self.waiting.pop(number, None)
        emitted = self.repeats.answered(number)
        if emitted is None:
            self.state.directory.introductions.refused(number)
        if awaited is not None and emitted is not None:  # the same message: nodes that have it recognize it
            again = Emit(emitted.topic, emitted.payload, self.state.next_number())
            self.waiting[again.number] = awaited
            self.repeats.again(again, self.state.now_ms, is_taken=is_taken)
        elif awaited is not None and awaited[1].reason is None:
            self._answer(*awaited, reasons.IMPLEMENTATION, reason)

    def holds_back(self, emit: Emit) -> bool:
        """Return whether a publication must not be given to the mesh now.

        It waits behind an earlier one of the sidecar and is emitted again later, or it is a copy of a refused message.
        """
        number, reason = self._refused
        if emit.copy_of and emit.copy_of == number:
            self.not_acknowledged(emit.number, reason, is_taken=False)
            self._refused = number, reason  # there may be a second copy
            return True
        return self.repeats.holds_back(emit)

    def _answer(self, session: Session, incoming: Incoming | None, reason: int, text: str | None) -> None:
        """A publication is accepted or refused. With 3.1.1, a refusal ends the connection.  [MQTT 3.1.1: 3.3.5-2]"""
        link = session.link
        is_away = incoming is not None and (link is None or session.earlier.get(incoming.id) is incoming)
        if reason >= reasons.UNSPECIFIED and not is_away and (link is None or link.version != p.V5):
            if incoming is not None:
                _forget(session, incoming)
            if link is not None:
                self.drop(session, reason, "publication refused")
            return
        if incoming is not None:
            incoming.reason, incoming.text = reason, text
            self.tell(session)

    def tell(self, session: Session) -> None:
        """Send the acknowledgements that a client can get by now."""
        link = session.link
        if link is None:
            return
        for answer in session.answers():
            self.state.send(link, answer)
        self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """Read a client again that was not read because too much of it waited."""
        link = session.link
        if link is not None and link.is_paused and not self._is_full(session, link):
            link.is_paused, link.heard_ms = False, self.state.now_ms
            self.state.out.append(Pause(link.id, True))

    def released(self, session: Session, link: Link, number: int) -> None:
        """Take in a PUBREL."""
        known = _known(session, number)
        if known is not None and known.is_told:
            _forget(session, known)
        # Also for an unknown identifier: the client may have lost our PUBCOMP.  [MQTT 5, 3.7.2.1]
        self.state.send(link, p.Ack(p.PUBCOMP, number))
        self.tell(session)

    def begin_anew(self, connection: Connection) -> None:
        """Forget publications of the sidecar's broker: it lost our session, and its packet identifiers start again."""
        session = self.state.by_connection.get(connection)
        if session is not None:
            for kept in _all(session):
                kept.clear()
            self.forget(session)

    def forget(self, session: Session) -> None:
        """Forget the publications of a session that has ended."""
        for number in [number for number, owner in self.unanswered.items() if owner is session]:
            del self.unanswered[number]
        session.unanswered = 0
        for number in [number for number, awaited in self.waiting.items() if awaited[0] is session]:
            del self.waiting[number]
            self.repeats.answered(number)

    def tick(self) -> None:
        """Resume clients whose quota allows it, stop waiting for needless copies, and repeat the sidecar's messages."""
        for link, session in [held for held in self._held.items() if held[0].held_until_ms <= self.state.now_ms]:
            del self._held[link]
            if session.link is link:
                self._go_on(session)
        for number in self.state.directory.needless():
            self.acknowledged(number)
        self.state.out += self.repeats.due(self.state.now_ms, self.is_awaited)


def _all(session: Session) -> tuple[dict[int, Incoming], ...]:
    return session.incoming, session.unreleased, session.earlier


def _known(session: Session, number: int) -> Incoming | None:
    """Return the publication for which the client uses this identifier."""
    return next((kept[number] for kept in _all(session) if number in kept), None)


def _forget(session: Session, known: Incoming) -> None:
    """Drop a publication from its session, if it is still there."""
    for kept in _all(session):
        if kept.get(known.id) is known:
            del kept[known.id]
