"""The delivery part: composes with any overlay node through a narrow seam.  [docs/delivery.md]

    link.py       frames: numbered, acknowledged, sent again; bounded queues
    compare.py    what both ends of a link hold, when it comes up
    tree.py       eager push, lazy announcements, pulls
    order.py      exactly once and in order, gaps
    copies.py     acknowledgements to publishers
    leaving.py    going without losing
    homes.py      who subscribes, known at a topic's home location
    meetings.py   links to subscribers that homes have named
    neighbours.py what the overlay did
    upkeep.py     subscriptions until they are confirmed, and what is done once per tick

Inputs: messages, three timers, changes of the overlay (`overlay_changed`, `link_down`), and wishes of clients.
Everything is answered with effects. Time is the tick's: the part has no clock. A driver says before an input how long
ago the last tick was (`look_at_clock`), so that ages of messages are exact. A driver that finds that its process stood
still says so (`stood_still`), or ages would be too young by that much.

A driver that takes in several inputs before it sends anything sets `gathers`: then frames are made at the end of its
turn (the timer `delivery/go`, at once), and what came together goes together.
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
from trellis.protocols.delivery.neighbours import Neighbours
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
    gathers = False

    def __init__(self, overlay: Overlay, config: DeliveryConfig) -> None:
        self.overlay, self.config = overlay, config
        self.state = state = State(overlay, config)
        self.order = Order(state)
        self.tree = Tree(state, self.order)
        self.comparison = Comparison(state, self.tree, self.order)
        self.copies = Copies(state)
        self.leaving = LeavingInOrder(state, self.comparison)
        self.homes = Homes(state)
        self.is_going = False  # the node leaves for good: nothing is taken in from clients
        self.neighbours = Neighbours(state, self.comparison, self.copies, self.leaving)
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
        self.state.out.append(SetTimer("delivery/tick", self.config.tick_ms))
        return self.overlay_changed()

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> DeliveryEffects:
        self.homes.heard(sender)
        self._take(sender, message)
        return self._finish()

    def on_timer(self, tag: str) -> DeliveryEffects:
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
        """Links, interests of neighbours or our own may have changed: look what did."""
        self.neighbours.look()
        return self._finish()

    def link_down(self, peer: NodeId) -> DeliveryEffects:
        """Even if it is up again already: what was under way is gone."""
        self.neighbours.down(peer)
        return self._finish()

    def peer_ended(self, peer: NodeId, *, is_alone: bool) -> DeliveryEffects:
        """The process of `peer` has ended for certain, so it subscribes to nothing any more."""
        self.homes.ended(peer, is_alone=is_alone)
        self.leaving.ended(peer)
        return self._finish()

    def look_at_clock(self, since_tick_ms: int) -> None:
        """Say before an input how long ago the last tick was, so that ages of messages are exact."""
        state, most_ms = self.state, 2 * self.config.tick_ms
        if since_tick_ms > most_ms:
            since_tick_ms = most_ms
        if since_tick_ms > state.since_tick_ms:
            state.since_tick_ms = since_tick_ms

    def stood_still(self, duration_ms: int) -> DeliveryEffects:
        """The process was stopped for so long: everything is that much older."""
        self.state.now_ms += duration_ms
        self.state.since_tick_ms = 0
        self.state.store.expire(self.state.now_ms)
        self.homes.stood_still(duration_ms)
        self.copies.stood_still(duration_ms)
        return self._finish()

    # Clients

    def want(self, topic: Topic) -> DeliveryEffects:
        """The application subscribes. The overlay is told by the node."""
        found = self.state.topic(topic)
        if not found.is_wanted:
            found.is_wanted, found.is_registered, found.was_confirmed = True, not self.overlay.has_homes, False
            found.since_ms, found.wanted_ms = self.state.now_ms, self.state.time_ms
            self.upkeep.unregistered[topic] = None
            self.stay(topic)
            if found.takes_part:
                self.order.settle_alone(found)
        return self._finish()

    def begin(self, topics: list[Topic]) -> DeliveryEffects:
        """The overlay takes part in the topics of new subscriptions now."""
        self.upkeep.begin(topics)
        return self._finish()

    def unwant(self, topic: Topic) -> DeliveryEffects:
        """The application unsubscribes: nothing is handed over any more."""
        found = self.state.topics.get(topic)
        if found is not None and found.is_wanted:
            found.is_wanted = found.is_settled = found.is_registered = False
            self.upkeep.unregistered.pop(topic, None)
            self.order.end_subscription(found)
            if self.overlay.has_homes:
                self.homes.unregister(topic)
        return self._finish()

    def publish(self, topic: Topic, payload: bytes, client_id: ClientId | None = None) -> DeliveryEffects:
        """The overlay takes part in the topic already: the node has seen to that."""
        state = self.state
        if client_id is not None and self.copies.again(client_id, topic, payload):
            return self._finish()
        found = state.topics.get(topic)
        reason = self._refusal(topic, found, payload)
        if reason is not None or found is None:
            refusal = NotAcknowledged(topic, self.overlay.life, 0, reason or "no such topic here", client_id)
            state.counters.not_acknowledged += 1
            state.counters.not_acknowledged_internal += is_internal(topic)
            state.out.append(refusal)
            return self._finish()
        stream = found.stream(state.id, self.overlay.life, state.now_ms)
        if found.is_wanted and found.is_settled and stream.handed is None:
            stream.handed = stream.seen.last
        sequence = stream.seen.last + 1
        entry = Entry(stream, sequence, payload, state.time_ms, state.time_ms - stream.published_ms)
        self.order.claims.take(entry)
        stream.touched_ms, stream.published_ms = state.now_ms, state.time_ms
        entry.needs = self.config.copies
        if client_id is not None:
            self.copies.remember(client_id, topic, payload)
        first_question = self.homes.questions + 1  # homes that answer this one were asked after the publication
        state.counters.published += 1
        state.counters.published_internal += is_internal(topic)
        state.out.append(Published(topic, self.overlay.life, sequence, client_id))
        if self.overlay.has_homes and (found.needs_proof or not found.ways) and not self.is_publishing(topic):
            self.homes.ask(topic)  # nobody to send it to, or only such as do not subscribe: who does?
        self.tree.take(found, entry, None)
        self.copies.wait_for(Pending(entry, client_id, state.now_ms, first_question, asked_ms=state.now_ms))
        return self._finish()

    def ask_home(self, topic: Topic) -> DeliveryEffects:
        """Ask the home of a canary's topic who subscribes to it. The answer comes as a `HomeTold`.

        This is all that a publication without subscribers sends over the network before it is acknowledged. Nothing is
        stored for it, and the overlay takes no part in the topic.
        """
        assert topic.startswith(CANARY), topic
        if self.overlay.has_homes:
            self.homes.ask(topic)
        return self._finish()

    # Leaving

    def leave_topic(self, topic: Topic) -> DeliveryEffects:
        """Say so on its links; `is_drained` tells when the overlay may be told."""
        found = self.state.topics.get(topic)
        if found is not None and found.takes_part and not self.is_publishing(topic):
            self.leaving.begin(found)
        return self._finish()

    def stay(self, topic: Topic) -> None:
        """Not leaving it after all."""
        if topic in self.leaving.departures:
            self.leaving.cancel(self.state.topics[topic])

    def is_drained(self, topic: Topic) -> bool:
        """Everything held of a topic is at somebody who stays. After `leave_ms_max` it is not waited for any longer."""
        if topic not in self.leaving.departures:
            found = self.state.topics.get(topic)
            return found is None or not found.takes_part
        if self.leaving.is_drained(topic):
            return True
        return self.leaving.is_late(topic)

    def left_behind(self, topics: Iterable[Topic]) -> tuple[int, int]:
        """Return how many messages on `topics` are held and not taken over, and on how many of these topics.

        Publications that nobody was promised do not count, and neither does what nodes say to each other.
        """
        left = []
        for name in topics:
            found = self.state.topics.get(name)
            if found is None or is_internal(name) or self.leaving.has_left_nothing(name):
                continue
            waiting = self.copies.on_topic.get(name, {})
            for stream in found.streams.values():
                is_ours = self.state.is_ours(stream)
                kept = [one for number, one in stream.entries.items() if not (is_ours and number in waiting)]
                left += [name for one in kept if not one.is_given_up]
        return len(left), len(set(left))

    def is_publishing(self, topic: Topic) -> bool:
        return topic in self.copies.on_topic

    # Checks

    def metrics(self) -> dict[str, int]:
        """Everything that an operator should see, as plain numbers."""
        state = self.state
        streams = [stream for topic in state.topics.values() for stream in topic.streams.values()]
        return {
            **msgspec.structs.asdict(state.counters),
            "resends": state.counters.resends + sum(channel.resends for channel in state.links.values()),
            "overflows": state.store.overflows,
            "registrations_turned_away": self.homes.table.turned_away,
            "held": state.store.count,
            "held_bytes": state.store.bytes,
            "held_back": sum(len(stream.waiting) for stream in streams),
            "missing": sum(len(topic.missing) for topic in state.topics.values()),
            "pending": len(self.copies.pending),
            "pending_bytes": self.copies.bytes,
            "queued": sum(len(channel.waiting) for channel in state.links.values()),
            "under_way_bytes": sum(channel.flight_bytes for channel in state.links.values()),
            "streams": len(streams),
            "topics_alone": sum(topic.is_wanted and not any(state.ways(topic)) for topic in state.topics.values()),
        }

    def check(self) -> None:
        self.state.store.check(self.state.now_ms)
        for peer, channel in self.state.links.items():
            assert peer in self.neighbours.links, f"{self.state.id} has a channel to {peer} and no link"
            channel.check()
        for topic in self.state.topics.values():
            assert all(peer in self.state.links for peer in topic.ways), f"{self.state.id} has ways without links"
            others = [stream for stream in topic.streams.values() if not self.state.is_ours(stream)]
            assert topic.takes_part or not (topic.ways or any(stream.entries for stream in others))
            assert len(topic.missing) <= self.config.missing_max

    # What comes in

    def _take(self, sender: NodeId, message: msgspec.Struct) -> None:
        match message:
            case m.Frame():
                self._on_frame(sender, message)
            case m.Register():
                self.homes.on_register(sender, message)
            case m.Registered():
                if self.homes.on_registered(sender, message):
                    self.upkeep.registered(message.topics)
            case m.Unregister():
                self.homes.on_unregister(sender, message)
            case m.AskHome():
                self.homes.on_ask(message)
            case m.HomeTells():
                self._on_home(message)

    def _on_frame(self, sender: NodeId, frame: m.Frame) -> None:
        channel = self.state.links.get(sender)
        if channel is None:
            self.state.counters.strange += 1
            return
        if channel.makes_us_begin(frame) and not self.comparison.may_ask(sender):
            return  # we would compare all topics once more; it sends the frame again
        items, has_begun = channel.receive(frame, self.state.new_session)
        self.state.dirty[sender] = None
        if has_begun:
            self.neighbours.begin_anew(sender)
        handlers = self._handlers
        for item in items:
            handlers[type(item)](sender, item)

    def _on_push(self, peer: NodeId, item: m.Push) -> None:
        entry = self.tree.on_push(peer, item)
        if entry is not None and entry.needs:
            self.copies.stored(self.state.topics[item.topic], entry)

    def _on_home(self, message: m.HomeTells) -> None:
        if not self.homes.has_asked(message.number):
            self.state.counters.strange += 1
            return
        self.homes.answered("ask", message.topic)
        if message.topic.startswith(CANARY):
            self.state.out.append(HomeTold(message.topic, message.is_sure))
            return
        others = tuple(name for name in message.names if name != self.state.id)
        found = self.state.topics.get(message.topic)
        if found is None:
            return
        if message.is_sure:
            self.copies.on_home(message.topic, message.number, message.names, message.total)
            if self.copies.needs_newer_proof(message.topic, message.number, message.total):
                self.homes.ask(message.topic)
            if not others:
                self.leaving.on_alone(message.topic)
                is_ours = found.is_wanted and found.is_registered and message.number >= found.first_question
                if is_ours and found.takes_part and not found.is_settled and not found.ways:
                    self.order.settle(found, {})
        if others and self._is_apart(message.topic, others):
            self.meetings.note(message.topic, others)

    def _is_apart(self, name: Topic, subscribers: tuple[NodeId, ...]) -> bool:
        """Nobody to talk to on the topic, or, as far as can be seen from here, only such as do not subscribe either."""
        topic = self.state.topics.get(name)
        if topic is None or not topic.takes_part:
            return False
        if not topic.ways:
            return True
        is_stuck = self.copies.is_stuck(name) or self.leaving.is_stuck(name)
        return is_stuck and self.state.only_subscribers_count and not any(peer in topic.ways for peer in subscribers)

    # Time

    def _tick(self) -> None:
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
                for peer, way in topic.ways.items():
                    self.comparison.tell(topic, peer, way)
        self.copies.forget_clients()
        state.out.append(SetTimer("delivery/tick", config.tick_ms))

    def _round(self) -> None:
        state = self.state
        state.rounds += 1
        is_busy = self.tree.round()
        for peer, channel in state.links.items():
            if channel.is_clogged:
                channel.begin(state.new_session())
                self.neighbours.begin_anew(peer, asks=True)
                state.dirty[peer] = None
            state.out += [Send(peer, frame) for frame in channel.round()]
            acknowledgement = channel.acknowledgement()
            if acknowledgement is not None:
                state.out.append(Send(peer, acknowledgement))
            is_busy = is_busy or bool(channel.flight)
        state.is_busy = is_busy

    def _refusal(self, name: Topic, topic: TopicState | None, payload: bytes) -> str | None:
        if self.is_going:
            return "this node leaves"
        if (fault := name_fault(name)) is not None:
            return f"a topic's name: {fault[0]}; {fault[1]}"
        if len(payload) > self.config.payload_bytes_max:
            return f"a payload of {len(payload)} bytes is over {self.config.payload_bytes_max}"
        if topic is None or not topic.takes_part:
            return "this node takes no part in the topic"
        return self.copies.refusal(name, len(payload))

    def _finish(self) -> DeliveryEffects:
        """What waits for the links goes, and what we say to ourselves is heard."""
        state = self.state
        while True:
            out, state.out = state.out, []
            mine = [one for one in out if type(one) is Send and one.to == state.id]
            if not mine and not state.changed:
                break
            for one in mine:
                self._take(state.id, one.message)
            self.upkeep.confirm()
            state.out = [*(one for one in out if not (type(one) is Send and one.to == state.id)), *state.out]
        if not self.gathers:
            return self._go(out)
        if not self._is_due and (state.dirty or (state.is_busy and not self._is_soon)):
            self._is_due = True
            out.append(SetTimer("delivery/go", 0))
        return out

    def _go(self, out: DeliveryEffects) -> DeliveryEffects:
        state = self.state
        is_busy = state.is_busy
        for peer in state.dirty:
            channel = state.links.get(peer)
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
