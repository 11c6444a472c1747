"""Publications of clients, and what they are answered.  [MQTT 5, 3.3, 3.4 to 3.7, 4.3]

P1  a client is told PUBACK or PUBREC only after the mesh has acknowledged its publication
P2  what a sidecar gives us is published again, under its identity, until the mesh has acknowledged it
P3  at most `inflight_max` publications of a client with QoS 0 wait for the mesh; then the client is not read
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.effects import Connection, Emit, NotCarried, Pause
from trellis.protocols.mqtt.envelope import NO_INCARNATION, Chosen, Copy, Envelope, fits, wrap
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Incoming, Link, Session
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import carried_prefix, has_wildcard
from trellis.reached import reached

AGAIN_MS = 1_000  # what the mesh did not take of a sidecar is published again after so long


class Publications:
    def __init__(self, state: BrokerState, drop: Callable[[Session, int, str], None]) -> None:
        self.state, self.drop = state, drop
        self.waiting: dict[int, tuple[Session, Incoming]] = {}  # numbers of the mesh -> what waits for them
        self.unanswered: dict[int, Session] = {}  # numbers of publications with QoS 0
        self.emitted: dict[int, Emit] = {}  # of the sidecar, not acknowledged
        self._again: deque[tuple[int, Emit]] = deque()  # to be published again, and when
        self._last_numbers: list[int] = []
        self._held: dict[Link, Session] = {}  # not read, because the client's quota is used up
        self.choose: Callable[[str], tuple[Chosen, ...]] = lambda topic: ()  # nodes for groups that share a topic

    def received(self, session: Session, link: Link, packet: p.Publish) -> None:
        topic = self._topic(session, link, packet)
        if topic is None:
            return
        incoming = None
        if packet.qos:
            assert packet.id is not None
            known, mark = session.incoming.get(packet.id), hash((topic, packet.payload, packet.qos, packet.retain))
            if known is not None and (session.is_bridge or self._is_again(known, mark, packet)):
                if known.is_told:
                    self.state.send(link, p.Ack(p.PUBREC, known.id))
                return
            if known is not None:
                self._abandon(session, known)
            is_full = len(session.incoming) >= self.state.config.inflight_max
            if is_full and link.version == p.V5 and not session.is_bridge:  # a sidecar stops reading instead
                self.drop(session, reasons.RECEIVE_MAX, "receive maximum")  # [MQTT-3.3.4-7]
                return
            incoming = session.incoming[packet.id] = Incoming(packet.id, packet.qos, 0, mark)
            self._pause_if_full(session, link)
        self._charge(session, link, len(topic) + len(packet.payload))
        if not self.state.may_write(session, topic):
            self._deny(session, link, incoming)
            return
        try:
            refusal = self.publish(
                session.client, topic, packet.payload, packet.qos, packet.retain, packet.content, incoming
            )
        except Exception:  # an error of ours: nothing waits for an answer that never comes
            if incoming is not None:
                session.incoming.pop(incoming.id, None)
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
                mine = [one for one in self.state.out if isinstance(one, Emit) and one.number in self._last_numbers]
                self.emitted.update({one.number: one for one in mine})

    def _charge(self, session: Session, link: Link, size: int) -> None:
        """Do not read a client that has published more than its quota for as long as that takes."""
        access = self.state.access
        if access is None or session.is_bridge:
            return
        wait_ms = access.quotas.charge(session.who.user, session.client, size, self.state.now_ms)
        if wait_ms > 0:
            link.held_until_ms = self.state.now_ms + wait_ms
            self.state.counters["held by quotas"] += link not in self._held
            self._held[link] = session
            self._pause_if_full(session, link)

    def _deny(self, session: Session, link: Link, incoming: Incoming | None) -> None:
        """Drop a publication that the client may not make. 3.1.1 has no word for that but the end of the connection.

        So there it is acknowledged, as by Mosquitto.  [MQTT 3.1.1: 3.3.5-2]
        """
        self.state.counters["writes denied"] += 1
        if link.version == p.V5:
            self._answer(session, incoming, reasons.NOT_AUTHORIZED, "the client may not publish on this topic")
        else:
            self._answer(session, incoming, reasons.SUCCESS, None)

    def _is_again(self, known: Incoming, mark: int, packet: p.Publish) -> bool:
        """Return whether a packet is a publication that we have, sent again.  [MQTT-3.3.1-1, MQTT-4.3.3-10]

        A client that restarted may have forgotten its publications and number new ones from 1, while the old ones
        still wait for the mesh. Then the packet is no repetition (DUP), or it says something else.
        """
        return known.mark == mark and (packet.dup or packet.qos == 2)

    def _abandon(self, session: Session, known: Incoming) -> None:
        """The client uses an identifier for something new. The old publication goes on, and nobody is told of it."""
        del session.incoming[known.id]
        pending = [number for number in known.numbers if self.waiting.pop(number, None) is not None]
        if pending:  # it counts against the client's limit, as one with QoS 0 does
            self.unanswered[pending[0]] = session
            session.unanswered += 1

    def _refuse(self, session: Session, incoming: Incoming | None, topic: str, reason: int, why: str) -> None:
        self.state.counters["publications refused"] += 1
        self.state.counters["too large for the mesh"] += reason == reasons.TOO_LARGE
        if session.is_bridge or reason == reasons.TOO_LARGE:
            self.state.out.append(NotCarried(topic, why))
        if reason == reasons.TOO_LARGE and not session.is_bridge:
            reason = reasons.QUOTA  # PUBACK and PUBREC have no other word for it  [MQTT 5, 3.4.2.1, 3.5.2.1]
        is_of_server = topic.startswith("$")
        if is_of_server and session.link is not None and session.link.version != p.V5:
            # The client has no right to publish there, and cannot be told. It gets an acknowledgement, and nobody
            # gets the message.  [MQTT 3.1.1: MQTT-3.3.5-2, 4.7.2; MQTT 3.1: 3.3]
            reason = reasons.SUCCESS
        # No words with this one: some clients read no PUBACK that is longer than its reason code.
        self._answer(session, incoming, reason, None if is_of_server else why)

    def _pause_if_full(self, session: Session, link: Link) -> None:
        if self._is_full(session, link) and not link.is_paused and not session.is_bridge:
            link.is_paused = True
            self.state.out.append(Pause(link.id, False))

    def _is_full(self, session: Session, link: Link) -> bool:
        """Return whether too much of this client waits for the mesh, or its quota is used up.

        MQTT 5 has its receive maximum for QoS 1 and 2.
        """
        if self.state.now_ms < link.held_until_ms:
            return True
        limit = self.state.config.inflight_max
        return session.unanswered >= limit or (link.version != p.V5 and len(session.incoming) >= limit)

    def _topic(self, session: Session, link: Link, packet: p.Publish) -> str | None:
        """Of a publication, its alias resolved.  [MQTT-3.3.2-2, -8 to -12]"""
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
            self.drop(session, reasons.TOPIC_INVALID, "a topic with wildcards")
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
        """Into the mesh. A refusal and its reason, or None; then `_last_numbers` are the answers to wait for."""
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
        if not fits(Envelope(topic, payload, qos, retain, *nobody, content=content, chosen=chosen), prefix, limit):
            return reasons.TOO_LARGE, f"its {len(payload)} bytes and its envelope are over {limit}"
        number = self.state.next_number()
        identity = (client, self.state.incarnation, number, self.state.wall_ms)
        is_kept = retain and not client.startswith("$")  # what a broker beside us retains, it keeps itself
        if is_kept:  # the directory hears of it afterwards: the next message must not wait for one that is refused
            kept = Retained(self.state.node, Envelope(topic, payload, qos, retain, *identity, content=content))
            if not self.state.recaller.put(self.state.node, kept):
                self.state.counters["retained refused"] += 1
                return reasons.QUOTA, "no room for more retained messages"
        buckets, previous, before = self.state.directory.publishes(prefix, number)
        message = Envelope(topic, payload, qos, retain, *identity, bool(buckets), previous, before, content, chosen)
        self._last_numbers = [number]
        if incoming is not None:
            incoming.waits = 1 + len(buckets)
        self.state.out.append(Emit(prefix, wrap(message), number))
        for bucket in buckets:
            copy = self.state.next_number()
            self._last_numbers.append(copy)
            self.state.directory.copied(copy, prefix, bucket)
            self.state.out.append(Emit(bucket, wrap(Copy(prefix, message)), copy))
        return None

    def _answered(self, number: int) -> None:
        session = self.unanswered.pop(number, None)
        if session is not None:
            session.unanswered -= 1
            self._go_on(session)

    def is_awaited(self, number: int) -> bool:
        """Return whether a client waits for the answer of the mesh to this number."""
        return number in self.waiting

    def acknowledged(self, number: int) -> None:
        self._answered(number)
        found = self.waiting.pop(number, None)
        self.emitted.pop(number, None)
        if found is not None:
            session, incoming = found
            incoming.waits -= 1
            if not incoming.waits and incoming.reason is None:
                self._answer(session, incoming, reasons.SUCCESS, None)

    def not_acknowledged(self, number: int, reason: str) -> None:
        self._answered(number)
        found = self.waiting.pop(number, None)
        emitted = self.emitted.pop(number, None)
        if emitted is None:
            self.state.directory.introductions.refused(number)
        if found is not None and emitted is not None:  # the same message, known again where it has come already
            again = Emit(emitted.topic, emitted.payload, self.state.next_number())
            self.waiting[again.number] = found
            self._again.append((self.state.now_ms + AGAIN_MS, again))
        elif found is not None and found[1].reason is None:
            self._answer(*found, reasons.IMPLEMENTATION, reason)

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
            self.tell(session)

    def tell(self, session: Session) -> None:
        link = session.link
        if link is None:
            return
        for one in session.answers():
            self.state.send(link, one)
        self._go_on(session)

    def _go_on(self, session: Session) -> None:
        """Read a client again that was not read because too much of it waited for the mesh."""
        link = session.link
        if link is not None and link.is_paused and not self._is_full(session, link):
            link.is_paused, link.heard_ms = False, self.state.now_ms
            self.state.out.append(Pause(link.id, True))

    def released(self, session: Session, link: Link, number: int) -> None:
        """PUBREL."""
        known = session.incoming.get(number)
        is_ours = known is not None and known.is_told
        if is_ours:
            del session.incoming[number]
        self.state.send(link, p.Ack(p.PUBCOMP, number, reasons.SUCCESS if is_ours else reasons.ID_NOT_FOUND))
        self.tell(session)

    def begin_anew(self, connection: Connection) -> None:
        """The sidecar's broker has lost our session: its identifiers begin anew."""
        session = self.state.by_connection.get(connection)
        if session is not None:
            session.incoming.clear()
            self.forget(session)

    def forget(self, session: Session) -> None:
        for number in [one for one, found in self.unanswered.items() if found is session]:
            del self.unanswered[number]
        session.unanswered = 0
        for number in [one for one, found in self.waiting.items() if found[0] is session]:
            del self.waiting[number]
            self.emitted.pop(number, None)

    def tick(self) -> None:
        for link, session in [one for one in self._held.items() if one[0].held_until_ms <= self.state.now_ms]:
            del self._held[link]
            if session.link is link:
                self._go_on(session)
        for number in self.state.directory.needless():
            self.acknowledged(number)
        while self._again and self._again[0][0] <= self.state.now_ms:
            _, emit = self._again.popleft()
            if emit.number in self.waiting:  # else its session is over
                self.emitted[emit.number] = emit
                self.state.out.append(emit)
