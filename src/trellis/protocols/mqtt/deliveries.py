"""From the mesh to the clients: messages, and what is retained.  [docs/mqtt.md, Retained messages]

G1  a client gets a message once, however many of its filters match  [MQTT-3.3.4-2]
"""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt.bridge import IDENTITY
from trellis.protocols.mqtt.envelope import (
    NO_INCARNATION,
    Bye,
    Envelope,
    Grouped,
    Kept,
    Recall,
    Said,
    Shared,
    Who,
    unwrap,
)
from trellis.protocols.mqtt.interests import OURS, QUESTIONS, SHARES
from trellis.protocols.mqtt.packets import Content, is_text
from trellis.protocols.mqtt.recollections import Recollections
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Out, Session, Subscription, Ticket
from trellis.protocols.mqtt.shares import Shares
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import carried_prefix
from trellis.protocols.wire import WireError


class Deliveries:
    def __init__(self, state: BrokerState) -> None:
        self.state = state
        self.early: dict[Topic, None] = {}  # not confirmed, though a client was told that it is subscribed
        self.recollections = Recollections(state, self._give_retained)
        self.shares = Shares(state, self._give_shared)

    def delivered(self, topic: Topic, origin: NodeId, payload: bytes) -> None:
        try:
            said = unwrap(payload)
        except WireError:
            self.state.counters["garbage"] += 1
            return
        is_ours = topic.startswith(OURS)
        if isinstance(said, Envelope) and not said.is_of(topic, self.state.config.depth):
            self.state.counters["garbage"] += 1
            return
        if not is_ours and isinstance(said, Recall | Kept):
            self._on_retained(topic, origin, said)
            return
        if not is_ours and said is not None and not isinstance(said, Envelope):
            self.state.counters["garbage"] += 1
            return
        if said is None and carried_prefix(topic, self.state.config.depth) is None:
            self.state.counters["garbage"] += 1  # no client of MQTT takes a message on this topic
            return
        # The mesh gives a first subscriber what it still holds. A client gets what is published from its SUBACK on; and
        # holders of wildcards get copies until they are confirmed.
        if topic != QUESTIONS and not self._is_begun(topic, origin):
            self.state.counters["before the subscription"] += 1
            if isinstance(said, Envelope):
                self._retain(origin, said)
            return
        if is_ours:
            self._on_share(topic, origin, said)
            if isinstance(said, Shared | Grouped):
                return
            ready = self.state.directory.on_said(topic, origin, said) if said is not None else []
        elif isinstance(said, Envelope):
            ready = self.state.directory.on_message(topic, origin, said)
        else:
            ready = [Envelope(topic, payload, 1, False, "", NO_INCARNATION, 0, self.state.wall_ms)]
        for message in ready:
            self._hand_over(origin, message)
        late = self.state.directory.arrivals.late
        while late:
            self._retain(*late.pop())

    def _is_begun(self, topic: Topic, origin: NodeId) -> bool:
        """Return whether clients that have named `topic` get its messages of `origin` already.

        What this node publishes itself need not wait for the mesh: a client hears itself from its SUBSCRIBE on.
        """
        if self.state.directory.is_confirmed(topic) or topic in self.early:
            return True
        return origin == self.state.node and not self.state.interests.is_covered(topic)

    def _on_share(self, topic: Topic, origin: NodeId, said: Said | None) -> None:
        """Take in what nodes with members of groups tell each other."""
        match said:
            case Shared() if topic == SHARES:
                self.shares.on_shared(origin, said)
            case Grouped() if topic == QUESTIONS:
                self.shares.on_grouped(origin, said)
            case Who(incarnation):
                self.shares.on_who(origin, incarnation)
            case Bye(incarnation):
                self.shares.on_bye(origin, incarnation)

    def _on_retained(self, topic: Topic, origin: NodeId, said: Recall | Kept) -> None:
        """Somebody asks what is retained, or tells."""
        if isinstance(said, Recall):
            self.state.recaller.on_recall(topic, origin)
        elif self.state.config.listen:
            for kept in self.state.recaller.on_kept(topic, said):
                self.recollections.told(kept)

    def _retain(self, origin: NodeId, message: Envelope) -> None:
        if (
            message.retain
            and self.state.config.listen
            and not self.state.recaller.put(origin, Retained(origin, message))
        ):
            self.state.counters["retained refused"] += 1

    def tell_sys(self, message: Envelope) -> None:
        """Give what this node tells about itself to its clients."""
        for session, several in self._readers(message).items():
            if not self.state.may_read(session, message.topic):
                self.state.counters["reads denied"] += 1
                continue
            self._give(
                session, message, message.content, several, None, any(one.retain_as_published for one in several)
            )
            self.recollections.given(session, message.topic)

    def _hand_over(self, origin: NodeId, message: Envelope) -> None:
        """To every client that wants it."""
        self._retain(origin, message)
        until_ms = self.state.until_ms(message)
        if until_ms is not None and until_ms <= self.state.now_ms:
            self.state.counters["expired"] += 1
            return
        kept = self.state.retained.get(message.topic) if message.retain else None
        for session, several in self._readers(message).items():
            if not self.state.may_read(session, message.topic):
                self.state.counters["reads denied"] += 1
                continue
            if session.is_bridge:
                self._give(session, message, _identified(message, origin), several, until_ms, message.retain)
                continue
            retain = message.retain and any(one.retain_as_published for one in several)
            self._give(session, message, message.content, several, until_ms, retain)
            if kept is not None and kept.message is message:
                self.recollections.given(session, message.topic)
        self.shares.arrived(origin, message)

    def _give_shared(self, session: Session, message: Envelope, one: Subscription, ticket: Ticket | None) -> None:
        retain = message.retain and one.retain_as_published
        self._give(session, message, message.content, [one], self.state.until_ms(message), retain, ticket)

    def _readers(self, message: Envelope) -> dict[Session, list[Subscription]]:
        """Return the clients that want a message, with their subscriptions that match it."""
        found: dict[Session, list[Subscription]] = {}
        for session, one in self.state.tree.matching(message.topic):
            if not (one.no_local and message.client == session.client):  # [MQTT-3.8.3-3]
                found.setdefault(session, []).append(one)
        return found

    def _give(
        self,
        session: Session,
        message: Envelope,
        content: Content,
        several: list[Subscription],
        until_ms: int | None,
        retain: bool,
        ticket: Ticket | None = None,
    ) -> None:
        qos = min(message.qos, max([one.qos for one in several]))  # [MQTT-3.8.4-8]
        numbers = {one.number for one in several if one.number is not None}
        listed = tuple(sorted(numbers)) if numbers else ()
        out = Out(message.topic, message.payload, qos, retain, listed, content, until_ms, ticket)
        self.state.counters["delivered"] += 1
        dropped = session.dropped
        packets = session.put(out, self.state.now_ms, self.state.awake_ms)
        self.state.counters["dropped"] += session.dropped - dropped
        if session.link is not None:
            for one in packets:
                self.state.send(session.link, one)

    def _give_retained(self, session: Session, kept: Retained, one: Subscription) -> None:
        """[MQTT-3.3.1-8, 3.3.1-9]"""
        message = kept.message
        if not self.state.may_read(session, message.topic):
            self.state.counters["reads denied"] += 1
            return
        if one.no_local and message.client == session.client:
            return
        until_ms = self.state.until_ms(message)
        if until_ms is not None and until_ms <= self.state.now_ms:
            self.state.recaller.remove(message.topic)
            return
        self._give(session, message, message.content, [one], until_ms, True)

    def tick(self) -> None:
        for origin, message in self.state.directory.tick():
            self._hand_over(origin, message)
        self.recollections.tick()


def _identified(message: Envelope, origin: NodeId) -> Content:
    """For a broker beside us: known again wherever it turns up."""
    name = origin if is_text(origin) else ascii(origin)[1:-1]  # of another node, which may be of an earlier release
    identity = (IDENTITY, f"{name}/{message.incarnation}/{message.number}")
    return msgspec.structs.replace(message.content, user=(*message.content.user, identity))
