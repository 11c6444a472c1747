"""The node of a mesh: an overlay below, delivery above. The live shell runs exactly this object.

    node = MeshNode(OMenOverlay(OMenNode(...)), topics, DeliveryConfig())
    node.publish("t", b"...", ("client-7", 4711, 12))    -> ..., later Acknowledged or NotAcknowledged
    node.subscribe("t")                             -> ..., later Confirmed, then Deliver

Subscriptions change in batches. A node leaves a topic in two steps: delivery drains it, then the overlay repairs itself
around the node. A node that publishes on a topic without subscribing takes part in it for a while. [SC §2.1: publishers
are interested] Some overlays make a node take part in topics that it relays for others. It then holds and resends
messages like a subscriber.

M1  A topic is wanted, published on, or being left (`draining`, then `parting`): never two of these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

import msgspec

from trellis.errors import InputError
from trellis.protocols.delivery import DeliveryConfig, DeliveryMessage
from trellis.protocols.delivery.outcome import ClientId, NotAcknowledged, Outcome
from trellis.protocols.delivery.part import Delivery, DeliveryEffects
from trellis.protocols.delivery.state import is_internal
from trellis.protocols.effects import Deliver, Effect, Effects, LinkDown, LinkUp, NodeId, SetTimer, Topic
from trellis.protocols.forgetting import held_bits
from trellis.protocols.mesh.driven import DrivenOverlay
from trellis.protocols.wire import TOPICS_BYTES_MAX, TOPICS_MAX, name_fault

TOPIC_BYTES = 8  # most bytes that a topic takes in a message besides its name

_SMALL_BATCH = 16  # After a larger batch of changes of subscriptions, the next batch is gathered for `batch_ms`.
_FIRST_MS = 5  # A client that publishes on many new topics sends them within a few milliseconds.
_OF_DELIVERY = frozenset(kind for union in get_args(DeliveryMessage) for kind in (get_args(union) or (union,)))


class MeshNode:
    """A node of a mesh. Its driver passes on messages and timers, and the requests of its clients."""

    def __init__(self, overlay: DrivenOverlay, topics: Iterable[Topic], config: DeliveryConfig) -> None:
        """Create the node. `topics` are those with which the overlay's node was created."""
        self.id, self.overlay, self.config = overlay.id, overlay, config
        self.delivery = Delivery(overlay, config)
        self.wanted: dict[Topic, None] = dict.fromkeys(topics)  # the topics that the application subscribes to
        # topics that are published on without a subscription -> the time of the last publication
        self.interested: dict[Topic, int] = {}
        self.draining: dict[Topic, None] = {}  # topics that will be left when delivery has drained them
        self.parting: dict[Topic, None] = {}  # Drained topics, until the overlay takes no part in them any more.
        self.is_leaving = False
        self._leaving_since_ms = 0
        self._has_left_overlay = False
        self._left_behind = (0, 0)  # The result of `left_behind` when the overlay was left.
        self._changes: dict[Topic, bool] = {}  # Changes of subscriptions for the next batch. True: subscribe.
        # Publications on topics that this node took no part in. The overlay is told all these topics at once.
        self._first: dict[Topic, list[tuple[bytes, ClientId | None]]] = {}
        self._batch_size = 0  # the number of changes in the last batch of subscriptions
        self._overlay_changes = -1  # The overlay's `changes` when delivery was last told.
        self._is_counted = True  # False: `topics_count` and `topics_bytes` may be too large.
        self._count_topics()

    # Inputs

    def start(self) -> list[Effect | Outcome]:
        effects: list[Effect | Outcome] = [*self.overlay.node.start()]
        for topic in self.wanted:
            effects += self.delivery.want(topic)
        return [*effects, *self.delivery.start()]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> list[Effect | Outcome]:
        """Pass a message to delivery or to the overlay."""
        if type(message) in _OF_DELIVERY:
            return self.delivery.on_message(sender, message)
        return self._after(self.overlay.node.on_message(sender, message), type(message) in self.overlay.telling)

    def on_timer(self, tag: str) -> list[Effect | Outcome]:
        """Pass a timer to delivery or to the overlay, or handle it here."""
        if tag == "delivery/tick":
            self._forget_topics()
            return [*self.delivery.on_timer(tag), *self._tick()]
        if tag.startswith("delivery/"):
            return self.delivery.on_timer(tag)
        if tag == "mesh/batch":
            return self._change_subscriptions()
        if tag == "mesh/first":
            return self._publish_first()
        return self._after(self.overlay.node.on_timer(tag))

    def on_peer_down(self, peer: NodeId) -> list[Effect | Outcome]:
        return self._after(self.overlay.node.on_peer_down(peer))

    def on_peer_ended(self, peer: NodeId, *, is_alone: bool = False) -> list[Effect | Outcome]:
        """Note that the process of `peer` has ended for certain: nothing listens at its address any more.

        Silence is no such proof, because the network may be partitioned. A home forgets the subscriptions of a node
        that has ended, so that publications do not wait for its copy. `is_alone`: all nodes that this one has heard of
        have ended.
        """
        return [*self.delivery.peer_ended(peer, is_alone=is_alone)]

    def subscribe(self, topic: Topic) -> list[Effect | Outcome]:
        """Subscribe to a topic. The overlay is told with the next batch."""
        fault = name_fault(topic)
        if fault is not None:
            raise InputError("a topic's name", *fault)
        self._add_topic(topic)
        if self.is_leaving:
            return []
        return [*self.delivery.want(topic), *self._note_change(topic, True)]

    def unsubscribe(self, topic: Topic) -> list[Effect | Outcome]:
        """Unsubscribe from a topic.

        Nothing is delivered from now on, but messages that are held are passed on first.
        """
        return [*self.delivery.unwant(topic), *self._note_change(topic, False)]

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> list[Effect | Outcome]:
        """Publish for a client. If this node takes no part in the topic, its overlay must take it up first.

        A client may publish on thousands of new topics at once, so these are taken up together (`mesh/first`).
        """
        if topic in self._first or self._is_coming(topic):
            self._first.setdefault(topic, []).append((payload, client_id))
            return []
        if topic not in self.wanted and name_fault(topic) is None and not self.is_leaving:
            is_new = topic not in self.interested
            reason = self.refusal(topic) if is_new else None
            if reason is not None:
                counters = self.delivery.state.counters
                counters.not_acknowledged += 1
                counters.not_acknowledged_internal += is_internal(topic)
                return [NotAcknowledged(topic, self.overlay.incarnation, 0, reason, client_id)]
            self._add_topic(topic)
            self.interested[topic] = self.delivery.state.now_ms
            if is_new:
                self._stay(topic)
                is_first = not self._first
                self._first[topic] = [(payload, client_id)]
                return [SetTimer("mesh/first", _FIRST_MS)] if is_first else []
        return [*self.delivery.publish(topic, payload, client_id)]

    def overlay_did(self, effects: Effects) -> list[Effect | Outcome]:
        """Handle effects of the overlay that were not caused by its messages and timers."""
        return self._after(effects)

    def ask_home(self, topic: Topic) -> list[Effect | Outcome]:
        """Ask the home of a canary's topic. The answer comes as a `HomeTold`."""
        return self.delivery.ask_home(topic)

    def refusal(self, topic: Topic, count_max: int = TOPICS_MAX, bytes_max: int = TOPICS_BYTES_MAX) -> str | None:
        """Return why this node cannot take part in one more topic, or None if it can or takes part in it already.

        Other nodes are told the list of all topics, so its length and its bytes are limited.
        """
        if topic in self.wanted or topic in self.interested or self._changes.get(topic):
            return None
        if self.topics_count >= count_max:
            return f"this node takes part in {self.topics_count} topics, and {count_max} is the limit"
        size = self.topics_bytes + topic_bytes(topic)
        if size > bytes_max:
            return f"the names of this node's topics would have {size} bytes, and {bytes_max} is the limit"
        return None

    def leave(self) -> list[Effect | Outcome]:
        """Leave in order. That ends when others hold what this node holds, and the overlay is repaired around it."""
        if self.is_leaving:
            return []
        self.is_leaving = self.delivery.is_going = True
        self._leaving_since_ms = self.delivery.state.now_ms
        coming = [topic for topic in self._changes if self._is_coming(topic)]
        self._changes.clear()
        self.interested.clear()
        effects: list[Effect | Outcome] = []
        for topic in [*self.wanted, *coming]:
            effects += self.delivery.unwant(topic)
        self.wanted.clear()
        names = self.overlay.table.topics(self.overlay.interest)
        self.draining.update(dict.fromkeys(names))
        return [*effects, *self._tick()]

    def left_behind(self) -> tuple[int, int]:
        """Return how many messages nobody has taken over from this leaving node, and the number of their topics."""
        if self._has_left_overlay or not self.is_leaving:
            return self._left_behind
        return self.delivery.left_behind(self.draining)

    def resume(self) -> list[Effect | Outcome]:
        """Take up the topics of the store again: those with durable subscribers, and those of messages held."""
        durable = self.delivery.state.durable
        if durable is None:
            return []
        effects: list[Effect | Outcome] = []
        for topic in durable.wanted:
            if topic not in self.wanted and not self._is_coming(topic) and self.refusal(topic) is None:
                effects += self.subscribe(topic)
        for topic in durable.held_topics():
            if topic not in self.wanted and not self._is_coming(topic) and self.refusal(topic) is None:
                self._add_topic(topic)
                self.interested[topic] = self.delivery.state.now_ms
                if not self._first:
                    effects.append(SetTimer("mesh/first", _FIRST_MS))
                self._first.setdefault(topic, [])
        return effects

    def on_synced(self, upto: int) -> list[Effect | Outcome]:
        """Note that all records of the store below this number survive a loss of power."""
        return [*self.delivery.on_synced(upto)]

    def stood_still(self, duration_ms: int) -> DeliveryEffects:
        """Tell delivery that the process did not run for this time."""
        return self.delivery.stood_still(duration_ms)

    def check(self) -> None:
        """Assert the invariant M1, and those of overlay and delivery."""
        self.overlay.node.check()
        self.delivery.check()
        states = [*self.wanted, *self.interested, *self.draining, *self.parting]
        assert self.is_leaving or len(set(states)) == len(states), f"M1: {self.id}: {sorted(states)}"

    # The number of topics, and the bytes of their names

    def _count_topics(self) -> None:
        """Count all topics. Topics that are being left count as well, because the overlay still tells them."""
        topics = {**self.wanted, **self.interested, **self.draining, **self.parting}
        topics.update((topic, None) for topic, wanted in self._changes.items() if wanted)
        self.topics_count, self.topics_bytes = len(topics), sum(map(topic_bytes, topics))

    def _add_topic(self, topic: Topic) -> None:
        """Count a topic that may be counted already. The result may be too large until the next tick counts all."""
        if topic not in self.wanted and topic not in self.interested and not self._changes.get(topic):
            self.topics_count += 1
            self.topics_bytes += topic_bytes(topic)
            self._is_counted = False

    # What follows from inputs

    def _after(self, effects: Effects, is_told: bool = False) -> list[Effect | Outcome]:
        """Return the effects of the overlay, and tell delivery about changes that can matter there.

        Most effects come from gossip, and do not matter there.
        """
        out: list[Effect | Outcome] = []
        for effect in effects:
            if type(effect) is Deliver:
                continue  # Some overlays could publish themselves, but they are not asked to. Only delivery delivers.
            out.append(effect)
            if type(effect) is LinkDown:
                out += self.delivery.link_down(effect.peer)
                is_told = True
            elif type(effect) is LinkUp:
                is_told = True
        changes = self.overlay.changes
        if is_told or changes != self._overlay_changes or self.overlay.interest != self.delivery.neighbors.interest:
            self._overlay_changes = changes
            out += self.delivery.overlay_changed()
        return out

    def _publish_first(self) -> list[Effect | Outcome]:
        """Let the overlay take up all topics that were published on first, and publish."""
        first, self._first = self._first, {}
        for topic in first:
            # A subscription was about to take it up, and has ended.
            if topic not in self.wanted and topic not in self.interested:
                self.interested[topic] = self.delivery.state.now_ms
                self._stay(topic)
        effects = [] if self.is_leaving else self._after(self.overlay.publish_on(list(first)))
        for topic, publications in first.items():
            for payload, client_id in publications:
                effects += self.delivery.publish(topic, payload, client_id)
        return effects

    def _note_change(self, topic: Topic, wanted: bool) -> list[Effect | Outcome]:
        """Note a change of a subscription. The first one sets the timer of the batch."""
        if self.is_leaving:
            return []
        is_first = not self._changes
        self._changes[topic] = wanted
        if not is_first:
            return []
        was_large = self._batch_size > _SMALL_BATCH
        return [SetTimer("mesh/batch", self.config.batch_ms if was_large else min(_FIRST_MS, self.config.batch_ms))]

    def _is_coming(self, topic: Topic) -> bool:
        """Return whether the overlay takes up a topic in the next batch, and takes no part in it now."""
        return bool(self._changes.get(topic)) and topic not in self.wanted and topic not in self.interested

    def _change_subscriptions(self) -> list[Effect | Outcome]:
        """Carry out a batch of changes of subscriptions."""
        changes, self._changes = self._changes, {}
        self._batch_size = len(changes)
        effects: list[Effect | Outcome] = []
        new = [topic for topic, wanted in changes.items() if wanted]
        for topic in new:
            self.wanted[topic] = None
            self.interested.pop(topic, None)
            self._stay(topic)
        if new:
            effects += self._after(self.overlay.subscribe(new))
            effects += self.delivery.begin(new)
        for topic, wanted in changes.items():
            if not wanted and topic in self.wanted:
                del self.wanted[topic]
                self.draining[topic] = None
        if any(topic in self._first for topic in changes):
            effects += self._publish_first()
        return [*effects, *self._tick()] if self.draining else effects

    def _forget_topics(self) -> None:
        """Forget names of topics that nothing here uses any more, if there are many.

        Between two inputs all bitsets are in the state of the overlay, or are what delivery last saw of it.
        """
        table, seen = self.overlay.table, self.delivery.neighbors
        if not table.is_shared and len(table) >= table.due:
            table.keep_only(held_bits((self.overlay, seen.links, seen.interest), len(table.names)))

    def _stay(self, topic: Topic) -> None:
        """Stay on a topic that we were about to leave."""
        if topic in self.draining or topic in self.parting:
            self.draining.pop(topic, None)
            self.parting.pop(topic, None)
            self.delivery.stay(topic)

    def _tick(self) -> list[Effect | Outcome]:
        """Run the periodic work: leave topics that are not used any more, and leave the overlay when all is drained."""
        delivery = self.delivery
        if not self._is_counted or self.draining or self.parting:
            self._count_topics()
            self._is_counted = not self.draining and not self.parting  # The numbers shrink while topics are being left.
        for topic, last_ms in list(self.interested.items()):
            late = delivery.state.now_ms - last_ms > self.config.interest_ms and not delivery.stores(topic)
            if late and not delivery.is_publishing(topic):
                del self.interested[topic]
                self.draining[topic] = None
        for topic in [topic for topic in self.parting if not self.overlay.interest & self.overlay.table.bit(topic)]:
            del self.parting[topic]
        if not self.draining and not self.is_leaving:
            return []
        is_late = delivery.state.now_ms - self._leaving_since_ms > self.config.leave_ms_max
        if self.is_leaving and (is_late or delivery.state.why_unjoined()):
            delivery.copies.gives_up("this node leaves")
        effects: list[Effect | Outcome] = []
        for topic in self.draining:
            effects += delivery.leave_topic(topic)
        drained = [topic for topic in self.draining if delivery.is_drained(topic)]
        if not self.is_leaving:
            for topic in drained:
                del self.draining[topic]
                self.parting[topic] = None
            if drained:
                effects += self._after(self.overlay.unsubscribe(drained))
            if self.overlay.relays:
                for topic in drained:  # If the node still takes part in the topic, it is a relay now, and stays.
                    self._stay(topic)
        elif len(drained) == len(self.draining) and not self._has_left_overlay:
            self._has_left_overlay, self._left_behind = True, delivery.left_behind(self.draining)
            delivery.state.counters.left_behind += self._left_behind[0]
            effects += self._after(self.overlay.leave())
        return effects


def topic_bytes(topic: Topic) -> int:
    """Return the most bytes that a topic takes in a message."""
    return (len(topic) if topic.isascii() else len(topic.encode("utf-8", "surrogatepass"))) + TOPIC_BYTES
