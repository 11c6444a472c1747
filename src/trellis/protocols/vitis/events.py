"""Event dissemination: notify neighbors, let them pull the event, and handle each event once per node.  [VI §III-C]

A node that has an event notifies the neighbors that should get it; the node itself says which these are (`targets`). A
node that is notified for the first time pulls the event from the sender. It delivers the event to its application if it
is subscribed, and notifies its own targets, except those that have notified it. In the paper's words, "the event is
pulled from the same path as the notification propagated along", so both take the same number of hops.

A pull that is not answered for a round is repeated, each time with the next node that has notified us. The paper does
not treat lost messages.

E1  An event is delivered at most once while its identity is remembered: for at least `SEEN_FACTOR * event_rounds`
    rounds.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.effects import Deliver, Effects, NodeId, Send, Topic
from trellis.protocols.vitis.messages import Event, Handover, Notification, Pull

Identity = tuple[NodeId, int]  # origin and sequence
NOTIFIERS_MAX = 8
SEEN_FACTOR = 4


class _Asked:
    """An event that we were notified of and have not received yet."""

    __slots__ = ("notice", "notifiers", "round", "tries")

    def __init__(self, notice: Notification, sender: NodeId, now: int) -> None:
        self.notice, self.notifiers, self.round, self.tries = notice, [sender], now, 1


class Events:
    """The events of one node: those that it holds for others to pull, and those that it pulls.

    `wants` says whether the node is subscribed to a topic, `targets` which neighbors an event on a topic goes to. A
    pull is sent at most `tries_max` times.
    """

    def __init__(
        self,
        owner: NodeId,
        incarnation: int,
        wants: Callable[[Topic], bool],
        targets: Callable[[Topic], list[NodeId]],
        *,
        event_rounds: int,
        tries_max: int,
    ) -> None:
        self.owner, self.wants, self.targets = owner, wants, targets
        self.event_rounds, self.tries_max = event_rounds, tries_max
        self.given_up = 0
        # The incarnation is part of a sequence. So a restarted node does not use an identity again.
        self._sequence = incarnation << 32
        self._held: dict[Identity, tuple[Event, int]] = {}  # with the round in which it was received
        self._asked: dict[Identity, _Asked] = {}
        self._seen: dict[Identity, None] = {}  # Identities in two generations. The older one is dropped as a whole.
        self._seen_before: dict[Identity, None] = {}
        self._round = 0

    def publish(self, topic: Topic, payload: bytes) -> tuple[Event, Effects]:
        """Create an event and notify the targets. If there are none, the caller must pass the event on."""
        self._sequence += 1
        event = Event(topic, self.owner, self._sequence, 0, payload)
        return event, self._take(event, ())

    def on_notification(self, sender: NodeId, notice: Notification) -> Effects:
        """Pull an event that is new to us. Otherwise note the sender as a further source of an event that we pull."""
        identity = (notice.origin, notice.sequence)
        if identity in self._seen or identity in self._seen_before:
            asked = self._asked.get(identity)
            if asked is not None and sender not in asked.notifiers and len(asked.notifiers) < NOTIFIERS_MAX:
                asked.notifiers.append(sender)
            return []
        self._seen[identity] = None
        self._asked[identity] = _Asked(notice, sender, self._round)
        return [Send(sender, _pull(notice))]

    def on_pull(self, sender: NodeId, pull: Pull) -> Effects:
        """Send an event that we hold to the node that pulls it."""
        held = self._held.get((pull.origin, pull.sequence))
        if held is None:
            return []
        event = held[0]
        return [Send(sender, Event(event.topic, event.origin, event.sequence, event.hops + 1, event.payload))]

    def on_event(self, sender: NodeId, event: Event | Handover) -> Effects:
        """Take in an event, if we have pulled it or have not seen it before."""
        identity = (event.origin, event.sequence)
        asked = self._asked.pop(identity, None)
        if asked is None and (identity in self._seen or identity in self._seen_before):
            return []
        if isinstance(event, Handover):
            event = Event(event.topic, event.origin, event.sequence, event.hops, event.payload)
        return self._take(event, (sender,) if asked is None else (sender, *asked.notifiers))

    def tick(self) -> Effects:
        """End a round: repeat pulls that were not answered, and drop events that are old enough."""
        self._round += 1
        effects: Effects = []
        for identity, asked in list(self._asked.items()):
            if self._round - asked.round < 2:  # It may have been pulled just before this round began.
                continue
            if asked.tries >= self.tries_max:
                del self._asked[identity]  # A node that still has it may notify us again.
                self._seen.pop(identity, None)
                self._seen_before.pop(identity, None)
                self.given_up += 1
                continue
            effects.append(Send(asked.notifiers[asked.tries % len(asked.notifiers)], _pull(asked.notice)))
            asked.tries += 1
            asked.round = self._round
        oldest = self._round - self.event_rounds
        while self._held:
            identity = next(iter(self._held))
            if self._held[identity][1] >= oldest:
                break
            del self._held[identity]
        if self._round % (SEEN_FACTOR * self.event_rounds) == 0:
            self._seen, self._seen_before = {}, self._seen
        return effects

    def holds(self, origin: NodeId, sequence: int) -> bool:
        """Return whether this event can be pulled from us."""
        return (origin, sequence) in self._held

    def check(self) -> None:
        assert self._asked.keys().isdisjoint(self._held), "an event is held and asked for"

    def _take(self, event: Event, senders: tuple[NodeId, ...]) -> Effects:
        """Hold an event, deliver it if the node is subscribed, and notify the targets other than `senders`."""
        identity = (event.origin, event.sequence)
        self._seen[identity] = None
        self._held[identity] = (event, self._round)
        effects: Effects = []
        if self.wants(event.topic):
            effects.append(Deliver(event.topic, event.origin, event.sequence, event.payload))
        notice = Notification(event.topic, event.origin, event.sequence, event.hops + 1)
        effects += [Send(node, notice) for node in self.targets(event.topic) if node not in senders]
        return effects


def _pull(notice: Notification) -> Pull:
    return Pull(notice.topic, notice.origin, notice.sequence, notice.hops)
