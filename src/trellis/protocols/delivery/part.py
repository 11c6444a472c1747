"""The delivery part of a node: it works over any overlay, through the interface of `seam.py`.  [docs/delivery.md]

| module          | what it does                                                                       |
| --------------- | ---------------------------------------------------------------------------------- |
| `state.py`      | what all parts share: topics, links, the window, counters                          |
| `streams.py`    | what is known of a topic and its streams                                           |
| `messages.py`   | the wire format                                                                    |
| `link.py`       | frames on one link: numbered, acknowledged, sent again; bounded queues             |
| `neighbors.py`  | follows the overlay's links and interests                                          |
| `compare.py`    | what both ends of a link hold, when it comes up                                    |
| `tree.py`       | eager push along a tree, announcements on other links, pulls                       |
| `store.py`      | the window: messages kept for others                                               |
| `order.py`      | exactly once and in order; gaps                                                    |
| `claims.py`     | which numbers are believed, depending on who says them                             |
| `copies.py`     | acknowledgements to publishers                                                     |
| `leaving.py`    | leaving a topic without losing messages                                            |
| `homes.py`      | the subscribers of a topic, known at its home; `registry.py` and `heirs.py` help   |
| `meetings.py`   | links to subscribers that homes have named                                         |
| `upkeep.py`     | subscriptions until they are confirmed, and work done once per tick                |

Inputs are messages, four timers, changes of the overlay (`overlay_changed`, `link_down`), and requests of clients.
Every input returns effects and outcomes. The part has no clock: time advances at ticks. Before an input, a driver says
how long ago the last tick was (`look_at_clock`), so that ages of messages are precise. If a driver finds that its
process was stopped for a while, it says so (`stood_still`). Otherwise ages would be too small by that time.

A driver that takes several inputs before it sends anything sets `gathers`. Then frames are made at the end of its turn
(timer `delivery/go`, without delay), so that items of one turn share frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.compare import Comparison
from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.copies import Copies, Pending
from trellis.protocols.delivery.homes import Homes
from trellis.protocols.delivery.leaving import LeavingInOrder
from trellis.protocols.delivery.meetings import Meetings
from trellis.protocols.delivery.neighbors import Neighbors
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.outcome import CANARY, ClientId, HomeTold, NotAcknowledged, Outcome, Published
from trellis.protocols.delivery.seam import Overlay
from trellis.protocols.delivery.state import State, is_internal
from trellis.protocols.delivery.streams import Entry, TopicState
from trellis.protocols.delivery.tree import Tree
from trellis.protocols.delivery.upkeep import Upkeep
from trellis.protocols.effects import Effect, NodeId, Send, SetTimer, Topic
from trellis.protocols.wire import name_fault

DeliveryEffects = list[Effect | Outcome]


class Delivery:
    """One node's delivery. Inputs return the effects to carry out and the outcomes to report."""

    gathers = False  # True: make frames at the end of the driver's turn instead of after each input.

    def __init__(self, overlay: Overlay, config: DeliveryConfig) -> None:
        self.overlay, self.config = overlay, config
        self.state = state = State(overlay, config)
        self.order = Order(state)
        self.tree = Tree(state, self.order)
        self.comparison = Comparison(state, self.tree, self.order)
        self.copies = Copies(state)
        self.leaving = LeavingInOrder(state, self.comparison)
        self.homes = Homes(state)
        self.is_going = False  # The node is leaving the mesh and accepts nothing from clients.
        self.neighbors = Neighbors(state, self.comparison, self.copies, self.leaving)
        self.upkeep = Upkeep(state, self.order, self.homes)
        self.meetings = Meetings(state, self._is_apart)
        self._is_soon = self._is_due = False
        self._handlers: dict[type, Callable[[NodeId, Any], object]] = {
            m.Push: self._on_push,
            m.Announce: self.tree.on_announce,
            m.Pull: self.tree.on_pull,
            m.Gone: self.tree.on_gone,
            m.Prune: self.tree.on_prune,
            m.Compare: self.comparison.on_compare,
            m.Part: self.comparison.on_part,
            m.Held: self.copies.on_held,
            m.Ask: self.copies.on_ask,
            m.Leaving: self.leaving.on_leaving,
            m.Stay: self.leaving.on_stay,
        }

    # Inputs

    def start(self) -> DeliveryEffects:
        """Start the timers, and look at the overlay for the first time."""
        self.state.out.append(SetTimer("delivery/tick", self.config.tick_ms))
        return self.overlay_changed()

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> DeliveryEffects:
        """Take in a message of another node."""
        self.homes.heard(sender)
        self._take(sender, message)
        return self._finish()

    def on_timer(self, tag: str) -> DeliveryEffects:
        """A timer has expired."""
        if tag == "delivery/tick":
            self._tick()
        elif tag == "delivery/meet":
            self.meetings.go()
        elif tag == "delivery/soon":
            self._is_soon = False
            self._round()
        elif self._is_due:
            self._is_due = False
            return self._go([])
        return self._finish()

    def overlay_changed(self) -> DeliveryEffects:
        """Find out which links and interests have changed in the overlay."""
        self.neighbors.look()
        return self._finish()

    def link_down(self, peer: NodeId) -> DeliveryEffects:
        """Drop a link that went down, even if it is up again already: frames in transit are lost."""
        self.neighbors.down(peer)
        return self._finish()

    def peer_ended(self, peer: NodeId, *, is_alone: bool) -> DeliveryEffects:
        """Note that the process of `peer` has certainly ended, so that it subscribes to nothing any more."""
        self.homes.ended(peer, is_alone=is_alone)
        self.leaving.ended(peer)
        return self._finish()

    def look_at_clock(self, since_tick_ms: int) -> None:
        """Set the time since the last tick, so that ages of messages are precise. Called before an input."""
        state, most_ms = self.state, 2 * self.config.tick_ms
        if since_tick_ms > most_ms:
            since_tick_ms = most_ms
        if since_tick_ms > state.since_tick_ms:
            state.since_tick_ms = since_tick_ms

    def stood_still(self, duration_ms: int) -> DeliveryEffects:
        """Add the time for which the process was stopped to the age of everything."""
        self.state.now_ms += duration_ms
        self.state.since_tick_ms = 0
        self.state.store.expire(self.state.now_ms)
        self.homes.stood_still(duration_ms)
        self.copies.stood_still(duration_ms)
        return self._finish()

    def on_synced(self, upto: int) -> DeliveryEffects:
        """Note that all records of the store below this number survive a loss of power."""
        assert self.state.durable is not None
        for entry in self.state.durable.synced(upto):
            topic_state = self.state.topics.get(entry.stream.id.topic)
            if entry.client_id is not None and topic_state is not None and self.state.is_ours(entry.stream):
                self.tree.publish(topic_state, entry)
            self.copies.synced(entry)
        return self._finish()

    # Clients

    def want(self, topic: Topic) -> DeliveryEffects:
        """The application subscribes. The node tells the overlay."""
        topic_state = self.state.topic(topic)
        if not topic_state.is_wanted:
            topic_state.is_wanted, topic_state.is_registered, topic_state.was_confirmed = (
                True,
                not self.overlay.has_homes,
                False,
            )
            topic_state.since_ms, topic_state.wanted_ms = self.state.now_ms, self.state.time_ms
            topic_state.resumes = self.state.durable is not None and self.state.durable.resume(topic_state)
            self.upkeep.unregistered[topic] = None
            self.stay(topic)
            if topic_state.takes_part and topic_state.resumes:
                topic_state.is_settled = True
                self.state.changed[topic] = None
                self.order.resume(topic_state)
            elif topic_state.takes_part:
                self.order.settle_alone(topic_state)
        return self._finish()

    def begin(self, topics: list[Topic]) -> DeliveryEffects:
        """Register new subscriptions: the overlay takes part in their topics now."""
        self.upkeep.begin(topics)
        return self._finish()

    def unwant(self, topic: Topic) -> DeliveryEffects:
        """The application unsubscribes: deliver nothing of the topic any more."""
        topic_state = self.state.topics.get(topic)
        if topic_state is not None and topic_state.is_wanted:
            topic_state.is_wanted = topic_state.is_settled = topic_state.is_registered = False
            topic_state.resumes = False
            self.upkeep.unregistered.pop(topic, None)
            self.order.end_subscription(topic_state)
            if self.overlay.has_homes:
                self.homes.unregister(topic)
        return self._finish()

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> DeliveryEffects:
        """Publish a message. The node has made the overlay take part in the topic already.

        Returns `Published`, and later `Acknowledged` or `NotAcknowledged`; or `NotAcknowledged` at once if it is
        refused. A publication that repeats a `client_id` is not published again: its outcome is reported again.
        """
        state = self.state
        if client_id is not None and self.copies.again(client_id, topic, payload):
            return self._finish()
        topic_state = state.topics.get(topic)
        reason = self._refusal(topic, topic_state, payload)
        if reason is not None or topic_state is None:
            refusal = NotAcknowledged(topic, self.overlay.incarnation, 0, reason or "no such topic here", client_id)
            state.counters.not_acknowledged += 1
            state.counters.not_acknowledged_internal += is_internal(topic)
            state.out.append(refusal)
            return self._finish()
        if client_id is not None and state.durable is not None:
            stored = state.durable.published_before(client_id, topic, payload)
            if stored is not None:
                return self._wait_again(stored, client_id, payload)
        stream = topic_state.stream(state.id, self.overlay.incarnation, state.now_ms)
        if topic_state.is_wanted and topic_state.is_settled and stream.handed is None:
            stream.handed = stream.seen.last
        sequence = stream.seen.last + 1
        entry = Entry(stream, sequence, payload, state.time_ms, state.time_ms - stream.published_ms)
        self.order.claims.take(entry)
        stream.touched_ms, stream.published_ms = state.now_ms, state.time_ms
        entry.needs = self.config.copies
        if state.durable is not None:
            entry.client_id = client_id
        if client_id is not None:
            self.copies.remember(client_id, topic, payload)
        first_question = self.homes.questions + 1  # Homes that answer this question were asked after the publication.
        state.counters.published += 1
        state.counters.published_internal += is_internal(topic)
        state.out.append(Published(topic, self.overlay.incarnation, sequence, client_id))
        if (
            self.overlay.has_homes
            and (topic_state.needs_proof or not topic_state.links)
            and not self.is_publishing(topic)
        ):
            self.homes.ask(topic)  # there is no link on the topic, or only to nodes that do not subscribe
        self.tree.take(topic_state, entry, None)
        self.copies.wait_for(Pending(entry, client_id, state.now_ms, first_question, asked_ms=state.now_ms))
        return self._finish()

    def _wait_again(self, entry: Entry, client_id: ClientId, payload: bytes) -> DeliveryEffects:
        """Acknowledge a publication that a client repeats after a restart of this node, which has it in its store."""
        state, topic = self.state, entry.stream.id.topic
        entry.needs = self.config.copies
        self.copies.remember(client_id, topic, payload)
        first_question = self.homes.questions + 1
        if self.overlay.has_homes:
            self.homes.ask(topic)
        long_ago_ms = state.now_ms - self.config.ask_ms  # it asks at the next tick
        self.copies.wait_for(Pending(entry, client_id, state.now_ms, first_question, asked_ms=long_ago_ms))
        return self._finish()

    def ask_home(self, topic: Topic) -> DeliveryEffects:
        """Ask the home of a canary topic who subscribes to it. The answer comes as a `HomeTold`.

        A publication without subscribers sends exactly this before it is acknowledged. Nothing is stored, and the
        overlay does not take part in the topic.
        """
        assert topic.startswith(CANARY), topic
        if self.overlay.has_homes:
            self.homes.ask(topic)
        return self._finish()

    # Leaving

    def leave_topic(self, topic: Topic) -> DeliveryEffects:
        """Begin to leave a topic. `is_drained` tells when the overlay may leave it."""
        topic_state = self.state.topics.get(topic)
        if topic_state is not None and topic_state.takes_part and not self.is_publishing(topic):
            self.leaving.begin(topic_state)
        return self._finish()

    def stay(self, topic: Topic) -> None:
        """Stop leaving a topic."""
        if topic in self.leaving.departures:
            self.leaving.cancel(self.state.topics[topic])

    def is_drained(self, topic: Topic) -> bool:
        """Return whether a node that stays holds everything of a topic, or `leave_ms_max` has passed."""
        if topic not in self.leaving.departures:
            topic_state = self.state.topics.get(topic)
            return topic_state is None or not topic_state.takes_part
        if self.leaving.is_drained(topic):
            return True
        return self.leaving.is_late(topic)

    def left_behind(self, topics: Iterable[Topic]) -> tuple[int, int]:
        """Return how many messages on `topics` nobody has taken over, and on how many of these topics.

        Publications without acknowledgement do not count, and neither do internal topics.
        """
        left = []
        for name in topics:
            topic_state = self.state.topics.get(name)
            if topic_state is None or is_internal(name) or self.leaving.has_left_nothing(name):
                continue
            waiting = self.copies.on_topic.get(name, {})
            for stream in topic_state.streams.values():
                is_ours = self.state.is_ours(stream)
                incarnation = stream.id.incarnation
                kept = [
                    entry
                    for number, entry in stream.entries.items()
                    if not (is_ours and (incarnation, number) in waiting)
                ]
                left += [name for entry in kept if not entry.is_given_up]
        return len(left), len(set(left))

    def stores(self, topic: Topic) -> bool:
        """Return whether the store has messages of a topic for which this node must take part in it."""
        durable, topic_state = self.state.durable, self.state.topics.get(topic)
        return durable is not None and topic_state is not None and durable.must_offer(topic_state)

    def is_publishing(self, topic: Topic) -> bool:
        """Return whether a publication on this topic waits for its copies."""
        return topic in self.copies.on_topic

    # Checks

    def metrics(self) -> dict[str, int]:
        """Return everything an operator should see, as numbers."""
        state = self.state
        streams = [stream for topic in state.topics.values() for stream in topic.streams.values()]
        return {
            **msgspec.structs.asdict(state.counters),
            "resends": state.counters.resends + sum(channel.resends for channel in state.channels.values()),
            "overflows": state.store.overflows,
            "registrations_turned_away": self.homes.table.turned_away,
            "held": state.store.count,
            "held_bytes": state.store.bytes,
            "held_back": sum(len(stream.waiting) for stream in streams),
            "missing": sum(len(topic.missing) for topic in state.topics.values()),
            "pending": len(self.copies.pending),
            "pending_bytes": self.copies.bytes,
            "queued": sum(len(channel.waiting) for channel in state.channels.values()),
            "under_way_bytes": sum(channel.flight_bytes for channel in state.channels.values()),
            "streams": len(streams),
            **(state.durable.metrics() if state.durable is not None else {}),
            "topics_alone": sum(
                topic.is_wanted and not any(state.open_links(topic)) for topic in state.topics.values()
            ),
        }

    def check(self) -> None:
        """Assert the invariants."""
        self.state.store.check(self.state.now_ms)
        for peer, channel in self.state.channels.items():
            assert peer in self.neighbors.links, f"{self.state.id} has a channel to {peer} and no link"
            channel.check()
        for topic in self.state.topics.values():
            assert all(peer in self.state.channels for peer in topic.links), (
                f"{self.state.id} has topic links without channels"
            )
            others = [stream for stream in topic.streams.values() if not self.state.is_ours(stream)]
            assert topic.takes_part or not (topic.links or any(stream.entries for stream in others))
            assert len(topic.missing) <= self.config.missing_max

    # Messages

    def _take(self, sender: NodeId, message: msgspec.Struct) -> None:
        match message:
            case m.Frame():
                self._on_frame(sender, message)
            case m.Register():
                self.homes.on_register(sender, message)
            case m.Registered():
                self.upkeep.registered(self.homes.on_registered(sender, message))
            case m.Unregister():
                self.homes.on_unregister(sender, message)
            case m.AskHome():
                self.homes.on_ask(message)
            case m.HomeTells():
                self._on_home(message)

    def _on_frame(self, sender: NodeId, frame: m.Frame) -> None:
        channel = self.state.channels.get(sender)
        if channel is None:
            self.state.counters.strange += 1
            return
        if channel.makes_us_begin(frame) and not self.comparison.may_ask(sender):
            return  # we would compare all topics once more; it sends the frame again
        items, has_begun = channel.receive(frame, self.state.new_session)
        self.state.dirty[sender] = None
        if has_begun:
            self.neighbors.begin_anew(sender)
        handlers = self._handlers
        for item in items:
            handlers[type(item)](sender, item)

    def _on_push(self, peer: NodeId, item: m.Push) -> None:
        entry = self.tree.on_push(peer, item)
        if entry is not None and entry.needs:
            self.copies.stored(self.state.topics[item.topic], entry)

    def _on_home(self, message: m.HomeTells) -> None:
        """Take in a home's answer: it may be a proof, a baseline, or the name of a subscriber to link to."""
        if not self.homes.has_asked(message.number):
            self.state.counters.strange += 1
            return
        self.homes.answered("ask", message.topic)
        if message.topic.startswith(CANARY):
            self.state.out.append(HomeTold(message.topic, message.is_sure))
            return
        others = tuple(name for name in message.names if name != self.state.id)
        topic_state = self.state.topics.get(message.topic)
        if topic_state is None:
            return
        if message.is_sure:
            self.copies.on_home(message.topic, message.number, message.names, message.total)
            if self.copies.needs_newer_proof(message.topic, message.number, message.total):
                self.homes.ask(message.topic)
            if not others:
                self.leaving.on_alone(message.topic)
                is_ours = (
                    topic_state.is_wanted and topic_state.is_registered and message.number >= topic_state.first_question
                )
                if is_ours and topic_state.takes_part and not topic_state.is_settled and not topic_state.links:
                    self.order.settle(topic_state, {})
        if others and self._is_apart(message.topic, others):
            self.meetings.note(message.topic, others)

    def _is_apart(self, name: Topic, subscribers: tuple[NodeId, ...]) -> bool:
        """Return whether this node needs a link to one of `subscribers`.

        It does if it has no link on the topic, or if, as far as it can tell, all its links lead to nodes that do not
        subscribe.
        """
        topic = self.state.topics.get(name)
        if topic is None or not topic.takes_part:
            return False
        if not topic.links:
            return True
        is_stuck = self.copies.is_stuck(name) or self.leaving.is_stuck(name)
        return is_stuck and self.state.only_subscribers_count and not any(peer in topic.links for peer in subscribers)

    # Time

    def _tick(self) -> None:
        """Advance the time by one tick, and do the periodic work."""
        state, config, overlay = self.state, self.config, self.overlay
        state.now_ms += config.tick_ms
        state.since_tick_ms = max(0, state.since_tick_ms - config.tick_ms)
        state.store.expire(state.now_ms)
        self.meetings.tick()
        for topic, stream in self.order.tick():
            self.comparison.ask(topic, stream)
        self.comparison.tick()
        self.upkeep.tick(registers=overlay.has_homes and not self.is_going)
        asked = {**dict.fromkeys(self.copies.tick()), **dict.fromkeys(self.leaving.tick())}
        for name in asked:
            if overlay.has_homes:
                self.homes.ask(name)
            else:
                others = overlay.subscribers(name)
                self.copies.on_count(name, others)
                if not others and not state.why_unjoined():
                    self.leaving.on_alone(name)
        for topic in state.topics.values():
            if topic.must_compare and len(topic.missing) < config.missing_max // 2:
                topic.must_compare = False
                for peer, link in topic.links.items():
                    self.comparison.tell(topic, peer, link)
        self.copies.forget_clients()
        if state.durable is not None:
            state.durable.tick()
        state.out.append(SetTimer("delivery/tick", config.tick_ms))

    def _round(self) -> None:
        """Announce, pull, and send unacknowledged frames again."""
        state = self.state
        state.rounds += 1
        is_busy = self.tree.round()
        for peer, channel in state.channels.items():
            if channel.is_clogged:
                channel.begin(state.new_session())
                self.neighbors.begin_anew(peer, asks=True)
                state.dirty[peer] = None
            state.out += [Send(peer, frame) for frame in channel.round()]
            acknowledgement = channel.acknowledgement()
            if acknowledgement is not None:
                state.out.append(Send(peer, acknowledgement))
            is_busy = is_busy or bool(channel.flight)
        state.is_busy = is_busy

    def _refusal(self, name: Topic, topic: TopicState | None, payload: bytes) -> str | None:
        """Return why a publication is refused, or None."""
        if self.is_going:
            return "this node leaves"
        if (fault := name_fault(name)) is not None:
            return f"a topic's name: {fault[0]}; {fault[1]}"
        if len(payload) > self.config.payload_bytes_max:
            return f"a payload of {len(payload)} bytes is over {self.config.payload_bytes_max}"
        if topic is None or not topic.takes_part:
            return "this node takes no part in the topic"
        if self.state.durable is not None and (reason := self.state.durable.refusal()) is not None:
            return reason
        return self.copies.refusal(name, len(payload))

    def _finish(self) -> DeliveryEffects:
        """Process the messages that this node sent to itself, and return the effects."""
        state = self.state
        while True:
            out, state.out = state.out, []
            mine = [effect for effect in out if type(effect) is Send and effect.to == state.id]
            if not mine and not state.changed:
                break
            for effect in mine:
                self._take(state.id, effect.message)
            self.upkeep.confirm()
            others = [effect for effect in out if not (type(effect) is Send and effect.to == state.id)]
            state.out = [*others, *state.out]
        if not self.gathers:
            return self._go(out)
        if not self._is_due and (state.dirty or (state.is_busy and not self._is_soon)):
            self._is_due = True
            out.append(SetTimer("delivery/go", 0))
        return out

    def _go(self, out: DeliveryEffects) -> DeliveryEffects:
        """Add the frames that may be sent now."""
        state = self.state
        is_busy = state.is_busy
        for peer in state.dirty:
            channel = state.channels.get(peer)
            if channel is not None:
                if channel.waiting or channel.must_greet:
                    out += [Send(peer, frame) for frame in channel.flush()]
                if channel.is_ack_urgent and (acknowledgement := channel.acknowledgement()) is not None:
                    out.append(Send(peer, acknowledgement))
                is_busy = is_busy or channel.is_ack_due or bool(channel.flight)
        state.dirty.clear()
        if is_busy and not self._is_soon:
            self._is_soon = True
            out.append(SetTimer("delivery/soon", self.config.soon_ms))
        return out
