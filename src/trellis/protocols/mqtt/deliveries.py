"""Messages from the mesh to clients, and retained messages.  [docs/mqtt.md, Retained messages]

A publication that arrives over the mesh is unpacked (`envelope.py`), put into order (`arrivals.py`), retained if it
asks for that, and given to each session with a matching filter.

G1  A client gets a message once, however many of its filters match.  [MQTT-3.3.4-2]
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.bridge import IDENTITY
from trellis.protocols.mqtt.envelope import (
    NO_INCARNATION,
    Beat,
    Bye,
    Envelope,
    Executed,
    Grouped,
    Keep,
    Kept,
    Recall,
    Said,
    Shared,
    Testament,
    Who,
    unwrap,
)
from trellis.protocols.mqtt.interests import OURS, QUESTIONS, SHARES
from trellis.protocols.mqtt.packets import Content, is_text
from trellis.protocols.mqtt.parts import Assembly
from trellis.protocols.mqtt.recollections import Recollections
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.session import Out, Session, Subscription, Ticket
from trellis.protocols.mqtt.shares import Shares
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import carried_prefix, is_sys
from trellis.protocols.wire import WireError


class Deliveries:
    """Gives messages to the clients of this node."""

    def __init__(self, state: BrokerState) -> None:
        self.state = state
        # overlay topics that the mesh has not confirmed, although a client has had its SUBACK
        self.early: dict[Topic, None] = {}
        # the number of this node's last publication when it began to take part in an overlay topic
        self.since: dict[Topic, int] = {}
        self.recollections = Recollections(state, self._give_retained)
        self.shares = Shares(state, self._give_shared)
        self.assembly = Assembly()
        self.on_testament: Callable[[NodeId, Testament | Beat | Executed], None] = lambda origin, said: None
        self.on_keep: Callable[[NodeId, Keep], None] = lambda origin, said: None
        self.on_bye: Callable[[NodeId, Incarnation], None] = lambda node, incarnation: None

    def delivered(self, topic: Topic, origin: NodeId, payload: bytes) -> None:
        """Take in a publication that the mesh has delivered."""
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
            self.state.counters["garbage"] += 1  # no MQTT client can get a message on this topic
            return
        # The mesh gives a first subscriber what it still holds. A client gets what is published after its SUBACK.
        # Holders of patterns get copies until the overlay topic is confirmed.
        if topic != QUESTIONS and not self._is_begun(topic, origin, said):
            self.state.counters["before the subscription"] += 1
            if isinstance(said, Envelope):
                self._retain(origin, said)
            return
        if is_ours:
            self._on_share(topic, origin, said)
            if isinstance(said, Testament | Beat | Executed | Keep):
                if topic == QUESTIONS and isinstance(said, Keep):
                    self.on_keep(origin, said)
                elif topic == QUESTIONS and not isinstance(said, Keep):
                    self.on_testament(origin, said)
                return
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

    def _is_begun(self, topic: Topic, origin: NodeId, said: Said | None) -> bool:
        """Return whether clients already get messages of `origin` on `topic`.

        Publications of this node need not wait for the mesh: a client gets its own messages from its SUBSCRIBE on. What
        was published here before the SUBSCRIBE, and comes back from the mesh after it, is not given to the client.
        """
        is_ours = (
            origin == self.state.node and isinstance(said, Envelope) and said.incarnation == self.state.incarnation
        )
        if is_ours and isinstance(said, Envelope) and said.number <= self.since.get(topic, 0):
            return False
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
                self.on_bye(origin, incarnation)

    def _on_retained(self, topic: Topic, origin: NodeId, said: Recall | Kept) -> None:
        """Answer which messages are retained, or take in such an answer."""
        if isinstance(said, Recall):
            self.state.recaller.on_recall(topic, origin)
        elif self.state.config.has_clients:
            for kept in self.state.recaller.on_kept(topic, said):
                self.recollections.told(kept)

    def _retain(self, origin: NodeId, message: Envelope) -> None:
        """Keep a message as retained, if it asks for that and this node has clients."""
        if (
            message.retain
            and message.part is None
            and self.state.config.has_clients
            and not self.state.recaller.put(origin, Retained(origin, message))
        ):
            self.state.counters["retained refused"] += 1

    def tell_sys(self, message: Envelope) -> None:
        """Give a value of `$SYS` to the clients of this node."""
        for session, several in self._readers(message).items():
            if not self.state.may_read(session, message.topic):
                self.state.counters["reads denied"] += 1
                continue
            self._give(
                session,
                message,
                message.content,
                several,
                None,
                any(subscription.retain_as_published for subscription in several),
            )
            self.recollections.given(session, message.topic)

    def _hand_over(self, origin: NodeId, part: Envelope) -> None:
        """Give a message to every client with a matching filter, when all its parts have arrived."""
        message = self.assembly.take(origin, part, self.state.now_ms)
        if message is None:
            return
        if part.part is None:  # Larger messages are not retained.
            self._retain(origin, message)
        until_ms = self.state.until_ms(message)
        if until_ms is not None and until_ms <= self.state.now_ms:
            self.state.counters["expired"] += 1
            return
        kept = self.state.retained.get(message.topic) if message.retain else None
        is_ours = origin == self.state.node and message.incarnation == self.state.incarnation
        for session, several in self._readers(message, message.number if is_ours else None).items():
            if not self.state.may_read(session, message.topic):
                self.state.counters["reads denied"] += 1
                continue
            if session.is_bridge:
                self._give(session, message, _identified(message, origin), several, until_ms, message.retain)
                continue
            retain = message.retain and any(subscription.retain_as_published for subscription in several)
            self._give(session, message, message.content, several, until_ms, retain)
            if kept is not None and kept.message is message:
                self.recollections.given(session, message.topic)
        self.shares.arrived(origin, message)

    def _give_shared(
        self, session: Session, message: Envelope, subscription: Subscription, ticket: Ticket | None
    ) -> None:
        """Give a message to the member of a group that was chosen for it."""
        retain = message.retain and subscription.retain_as_published
        self._give(session, message, message.content, [subscription], self.state.until_ms(message), retain, ticket)

    def _readers(self, message: Envelope, number: int | None = None) -> dict[Session, list[Subscription]]:
        """Return the sessions with a matching filter, each with its matching subscriptions.

        `number`: the message's, if it was published here. Such a message may come back from the mesh after a SUBSCRIBE
        that followed it. This subscription does not get it, unless as a retained message.
        """
        readers: dict[Session, list[Subscription]] = {}
        for session, subscription in self.state.tree.matching(message.topic):
            if subscription.no_local and message.client == session.client:  # [MQTT-3.8.3-3]
                continue
            if number is None or number > subscription.since:
                readers.setdefault(session, []).append(subscription)
        return readers

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
        """Put a message into a session, and send what can be sent now."""
        qos = min(message.qos, max([subscription.qos for subscription in several]))  # [MQTT-3.8.4-8]
        numbers = {subscription.number for subscription in several if subscription.number is not None}
        listed = tuple(sorted(numbers)) if numbers else ()
        out = Out(message.topic, message.payload, qos, retain, listed, content, until_ms, ticket)
        self.state.counters["delivered"] += 1
        dropped = session.dropped
        packets = session.put(out, self.state.now_ms, self.state.awake_ms)
        self.state.counters["dropped"] += session.dropped - dropped
        if session.link is not None:
            for packet in packets:
                self.state.send(session.link, packet)

    def _give_retained(self, session: Session, kept: Retained, subscription: Subscription) -> None:
        """Give a retained message to a new subscription.  [MQTT-3.3.1-8, 3.3.1-9]"""
        message = kept.message
        if not self.state.config.retain_available and not is_sys(message.topic):
            return
        if not self.state.may_read(session, message.topic):
            self.state.counters["reads denied"] += 1
            return
        if subscription.no_local and message.client == session.client:
            return
        until_ms = self.state.until_ms(message)
        if until_ms is not None and until_ms <= self.state.now_ms:
            self.state.recaller.remove(message.topic)
            return
        self._give(session, message, message.content, [subscription], until_ms, True)

    def tick(self) -> None:
        """Give messages that have waited long enough for their predecessors, and more retained messages."""
        for origin, message in self.state.directory.tick():
            self._hand_over(origin, message)
        self.recollections.tick()
        self.assembly.tick(self.state.now_ms)
        self.state.counters["incomplete"] += self.assembly.dropped
        self.assembly.dropped = 0


def _identified(message: Envelope, origin: NodeId) -> Content:
    """Return the properties for a sidecar's broker, with the message's identity, by which every mesh recognizes it."""
    # another node may be of an earlier release, with a name that MQTT does not allow
    name = origin if is_text(origin) else ascii(origin)[1:-1]
    identity = (IDENTITY, f"{name}/{message.incarnation}/{message.number}")
    return msgspec.structs.replace(message.content, user=(*message.content.user, identity))
