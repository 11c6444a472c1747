"""Copies: a publication is acknowledged when enough nodes hold it.  [docs/delivery.md, Copies]

A message says how many more holders its publisher's node wants to learn of. A node that stores the message reports its
own name to the neighbor that sent it, and passes on the names that it hears from nodes further away. Names are counted,
not numbers: while the tree changes, a sum could count a node twice, and a set of names cannot.

A publication that still waits after `ask_ms` asks over all links of its topic (`Ask`). The question is passed on as
long as more holders are wanted, and answers then go back along its path. The publisher's node also asks the topic's
home who subscribes. If there are fewer subscribers than copies and all of them hold the message, it is acknowledged
with the copies that there are.

C1  A holder names itself, and only while it holds the message and is not leaving.
C2  Besides the publisher's node, only subscribers are named (where the overlay can prove who subscribes).
C3  Waiting publications take at most `window_bytes`. If the window drops a message, its publication fails at the next
    tick: this node can no longer send it to anybody.
C4  A node passes on a neighbor's question about one message once per tick, and again in that tick only if it must go
    further or needs more holders. Needs and hops are at most our own `copies`, whatever the neighbor says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from trellis.protocols.delivery.identities import StreamId
from trellis.protocols.delivery.messages import Ask, Held
from trellis.protocols.delivery.outcome import Acknowledged, ClientId, NotAcknowledged
from trellis.protocols.delivery.state import State, is_internal
from trellis.protocols.delivery.streams import ENTRY_BYTES, Entry, TopicState
from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.reached import reached


@dataclass(eq=False)
class Pending:
    """A publication of this node that is not acknowledged yet."""

    entry: Entry
    client_id: ClientId | None
    since_ms: int
    question: int  # Answers of homes to this question or later ones were asked for after the publication.
    holders: dict[NodeId, None] = field(default_factory=dict)  # the holders reported so far, without this node
    asked_ms: int = 0
    # All other subscribers, as the home has said after the publication. Set only if they are fewer than the copies
    # wanted.
    proof: tuple[NodeId, ...] | None = None


@dataclass(eq=False)
class Remembered:
    """A publication of a client, kept so that a repeated one is published once."""

    since_ms: int
    topic: Topic
    digest: bytes  # of the payload
    outcome: Acknowledged | NotAcknowledged | None = None  # None while the publication waits for copies.


class Copies:
    """Counts holders: for publications of this node, and on behalf of other publishers' nodes."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.pending: dict[tuple[Topic, Incarnation, int], Pending] = {}
        # `pending` by topic, because thousands may wait on other topics
        self.on_topic: dict[Topic, dict[tuple[Incarnation, int], Pending]] = {}
        self.clients: dict[ClientId, Remembered] = {}  # in the order of `since_ms`
        self.bytes = 0  # bytes of the publications in `pending`, as the window counts them
        # By neighbor and message: the needs and hops with which we passed its question on. Cleared at every tick.
        self._passed_on: dict[NodeId, dict[tuple[StreamId, int], tuple[int, int]]] = {}

    # At the publisher

    def refusal(self, topic: Topic, size: int) -> str | None:
        """Return why one more publication of `size` bytes is refused, or None. Without space it would wait in vain.

        Publications on internal topics may be four times as many. Otherwise clients' publications could delay the
        confirmations of subscriptions.
        """
        config, reason = self.state.config, None
        # A publication of an MQTT client may have a copy in each of two directories, which are internal topics.
        pending_max = config.pending_max * (4 if is_internal(topic) else 1)
        if len(self.pending) >= pending_max:
            reason = f"{pending_max} publications wait for their copies"
        elif self.bytes + size + ENTRY_BYTES > config.window_bytes:
            limit = f"window_bytes is {config.window_bytes}"
            reason = f"publications that wait for their copies fill this node's window: {limit}; try again later"
        if reason is not None:
            self.state.counters.window_full += 1
            reached("there is no room for a publication")
        return reason

    def wait_for(self, pending: Pending) -> None:
        """Wait for holders of a publication. It may already have enough of them."""
        topic, _, incarnation = pending.entry.stream.id
        self.pending[topic, incarnation, pending.entry.sequence] = pending
        self.on_topic.setdefault(topic, {})[incarnation, pending.entry.sequence] = pending
        self.bytes += pending.entry.size
        self._look_at(pending)

    def tick(self) -> list[Topic]:
        """Ask again, and let publications fail that waited too long. Return the topics whose homes should be asked."""
        state, config = self.state, self.state.config
        self._passed_on.clear()
        topics: dict[Topic, None] = {}
        for pending in list(self.pending.values()):
            topic, entry = pending.entry.stream.id.topic, pending.entry
            if not entry.is_kept and state.topics[topic].takes_part:
                self._end_unkept(pending)
            elif state.now_ms - pending.since_ms > config.publish_timeout_ms:
                copies, unjoined = 1 + len(pending.holders), state.why_unjoined()
                reached("a publication is not acknowledged in time")
                too_few = f"{copies} of {config.copies} copies after {config.publish_timeout_ms} ms"
                self._over(pending, f"this node has not joined the mesh: {unjoined}" if unjoined else too_few)
            elif state.now_ms - pending.asked_ms >= config.ask_ms:
                pending.asked_ms = state.now_ms
                topics[topic] = None
                # `now_ms` advances only at ticks, so the publication may be much younger than it seems at the first
                # one.
                links = state.open_links(state.topics[topic]) if state.now_ms - pending.since_ms > config.ask_ms else ()
                wanted = config.copies - 1
                for peer, _ in links:
                    state.put(peer, Ask(*entry.stream.id, entry.sequence, wanted, config.copies))
        return list(topics)

    def on_home(self, topic: Topic, question: int, names: tuple[NodeId, ...], total: int) -> None:
        """Take in a home's answer. If all subscribers are named and they are fewer than `copies`, it is a proof."""
        if total >= self.state.config.copies or len(names) < total:
            return
        for pending in list(self.on_topic.get(topic, {}).values()):
            if pending.question <= question:
                pending.proof = tuple(name for name in names if name != self.state.id)
                self._look_at(pending)

    def needs_newer_proof(self, topic: Topic, question: int, total: int) -> bool:
        """Return whether publications wait that are later than a question whose answer was a proof.

        Nothing was asked for them while that question was under way. So there is one question at a time on a topic, and
        no publication waits for `ask_ms` because another one came shortly before it.
        """
        if total >= self.state.config.copies or not self.state.topics[topic].needs_proof:
            return False
        return any(pending.question > question for pending in self.on_topic.get(topic, {}).values())

    def on_count(self, topic: Topic, others: int) -> None:
        """Acknowledge publications that all `others` other subscribers hold, if these are fewer than `copies`.

        This is for overlays without homes, which know the number of subscribers themselves.
        """
        if others + 1 >= self.state.config.copies or self.state.why_unjoined():
            return
        for pending in list(self.on_topic.get(topic, {}).values()):
            if len(pending.holders) >= others:
                self._acknowledge(pending)

    def is_stuck(self, topic: Topic) -> bool:
        """Return whether a publication on this topic waits and no subscriber has reported that it holds it."""
        oldest = self.state.now_ms - self.state.config.ask_ms
        waiting = self.on_topic.get(topic, {}).values()
        return any(not pending.holders and pending.since_ms <= oldest for pending in waiting)

    def link_down(self, peer: NodeId) -> None:
        """Stop counting a peer that may have crashed. It counts again when it reports again."""
        for pending in self.pending.values():
            pending.holders.pop(peer, None)

    def stood_still(self, duration_ms: int) -> None:
        """Extend all waits by the time for which our process was stopped: no answer could arrive in it."""
        for pending in self.pending.values():
            pending.since_ms += duration_ms

    def remember(self, client_id: ClientId, topic: Topic, payload: bytes) -> None:
        """Remember a client's publication, so that `again` recognizes it."""
        if len(self.clients) < self.state.config.clients_max:
            self.clients[client_id] = Remembered(self.state.now_ms, topic, _digest(payload))

    def again(self, client_id: ClientId, topic: Topic, payload: bytes) -> bool:
        """Return whether this publication was taken in before. If so, tell its outcome again as soon as it is known.

        A number that was used for another topic or payload is refused: one of the two would be lost silently.
        """
        known = self.clients.get(client_id)
        if known is None:
            return False
        if (known.topic, known.digest) != (topic, _digest(payload)):
            reason = f"number {client_id[2]} of this client's session was used for another publication; number it anew"
            self.state.counters.not_acknowledged += 1
            self.state.out.append(NotAcknowledged(topic, self.state.overlay.incarnation, 0, reason, client_id))
        elif known.outcome is not None:
            self.state.out.append(known.outcome)
        return True

    def forget_clients(self) -> None:
        """Forget clients' publications after one window. `clients` is in the order of their times."""
        oldest, old = self.state.now_ms - self.state.config.window_ms, []
        for client, known in self.clients.items():
            if known.since_ms >= oldest:
                break
            old.append(client)
        for client in old:
            del self.clients[client]

    def gives_up(self, reason: str) -> None:
        """Let all waiting publications fail for this reason."""
        for pending in list(self.pending.values()):
            self._over(pending, reason)

    # At holders

    def synced(self, entry: Entry) -> None:
        """Note that a message is on this node's disk: report it, or acknowledge it if it is our own."""
        if not entry.needs:
            return
        stream_id = entry.stream.id
        if self.state.is_ours(entry.stream):
            pending = self.pending.get((stream_id.topic, stream_id.incarnation, entry.sequence))
            if pending is not None:
                self._look_at(pending)
        elif (topic := self.state.topics.get(stream_id.topic)) is not None:
            self.stored(topic, entry)

    def stored(self, topic: TopicState, entry: Entry) -> None:
        """Report a new message to the neighbor that sent it, if its publisher wants to learn of holders.

        With a store, that waits until the message is synced.
        """
        if entry.needs and entry.is_synced and entry.asker is not None and self.state.vouches(topic, entry.stream):
            self.state.put(entry.asker, Held(*entry.stream.id, entry.sequence, (self.state.id,)))

    def on_held(self, peer: NodeId, item: Held) -> None:
        """Take in names of holders: for our own publication, or to pass them on toward the publisher."""
        state = self.state
        topic = state.topics.get(item.topic)
        stream = topic.streams.get((item.origin, item.incarnation)) if topic is not None else None
        if topic is None or stream is None:
            return
        # With a store, a publication of an earlier incarnation may wait as well.
        pending = self.pending.get((item.topic, item.incarnation, item.sequence)) if item.origin == state.id else None
        if pending is not None or (item.origin, item.incarnation) == self._me:
            if pending is not None:
                pending.holders.update((name, None) for name in item.names if name != state.id)
                self._look_at(pending)
            return
        entry = stream.entries.get(item.sequence)
        if entry is None or entry.asker is None or entry.asker == peer:
            return
        if entry.names is None:
            entry.names = {}
        new = tuple(name for name in item.names if name not in entry.names and name != state.id)
        room = max(0, entry.needs - state.vouches(topic, stream) - len(entry.names))
        if new[:room]:
            entry.names.update((name, None) for name in new[:room])
            state.put(entry.asker, Held(*stream.id, item.sequence, new[:room]))

    def on_ask(self, peer: NodeId, item: Ask) -> None:
        """Answer which nodes hold a message: this one, and those that answer us."""
        state = self.state
        topic = state.topics.get(item.topic)
        stream = topic.streams.get((item.origin, item.incarnation)) if topic is not None else None
        entry = stream.entries.get(item.sequence) if stream is not None else None
        if topic is None or entry is None or not item.needs or (item.origin, item.incarnation) == self._me:
            return
        wanted = min(item.needs, state.config.copies)
        hops = min(item.hops, state.config.copies)
        entry.asker, entry.needs, entry.names = peer, wanted, {}
        self.stored(topic, entry)
        needs = wanted - state.vouches(topic, entry.stream)
        if needs and hops:
            self._pass_on(peer, topic, entry, needs, hops)

    def _pass_on(self, peer: NodeId, topic: TopicState, entry: Entry, needs: int, hops: int) -> None:
        """Ask on all other links of the topic, unless that was done in this tick (C4)."""
        state, asked, key = self.state, self._passed_on.setdefault(peer, {}), (entry.stream.id, entry.sequence)
        if key not in asked and len(asked) >= state.config.control_max // 2:
            return  # the neighbor asks again at its next tick
        needs_before, hops_before = asked.get(key, (0, 0))
        if needs <= needs_before and hops <= hops_before:
            return
        asked[key] = needs, hops = max(needs, needs_before), max(hops, hops_before)
        for neighbor, _ in state.open_links(topic):
            if neighbor != peer:
                state.put(neighbor, Ask(*entry.stream.id, entry.sequence, needs, hops - 1))

    @property
    def _me(self) -> tuple[NodeId, Incarnation]:
        return self.state.id, self.state.overlay.incarnation

    def _look_at(self, pending: Pending) -> None:
        """Acknowledge a publication if it has enough holders, or a proof that there are no more subscribers."""
        if 1 + len(pending.holders) >= self.state.config.copies:
            self.state.topics[pending.entry.stream.id.topic].needs_proof = False
            self._acknowledge(pending)
        elif pending.proof is not None and all(name in pending.holders for name in pending.proof):
            self.state.topics[pending.entry.stream.id.topic].needs_proof = True
            reached("a publication is acknowledged by proof with fewer copies")
            self._acknowledge(pending)

    def _end_unkept(self, pending: Pending) -> None:
        """Let a publication fail whose message is no longer in the window: nobody can get it from us."""
        config, entry = self.state.config, pending.entry
        is_old = self.state.now_ms - entry.born_ms >= self.state.keep_ms
        self.state.counters.window_full += not is_old
        limit = f"window_ms is {config.window_ms}" if is_old else f"window_bytes is {config.window_bytes}"
        self.state.topics[entry.stream.id.topic].needs_proof = True  # the next one asks at once
        self._over(pending, f"this node's window did not keep it until it had its copies: {limit}")

    def _acknowledge(self, pending: Pending) -> None:
        if not pending.entry.is_synced:
            return  # with a store: `synced` looks at it again
        if not pending.entry.is_kept:
            return  # C1: we hold no copy of it. The next tick ends it (C3).
        stream_id, sequence = pending.entry.stream.id, pending.entry.sequence
        self._waits_no_more(pending)
        holders = (self.state.id, *pending.holders)
        outcome = Acknowledged(
            stream_id.topic, stream_id.incarnation, sequence, len(holders), holders, pending.client_id
        )
        self.state.counters.acknowledged += 1
        self.state.counters.acknowledged_internal += is_internal(stream_id.topic)
        self._tell(pending, outcome)

    def _over(self, pending: Pending, reason: str) -> None:
        stream_id, sequence = pending.entry.stream.id, pending.entry.sequence
        self._waits_no_more(pending)
        pending.entry.is_given_up = True
        self.state.counters.not_acknowledged += 1
        self.state.counters.not_acknowledged_internal += is_internal(stream_id.topic)
        self._tell(
            pending, NotAcknowledged(stream_id.topic, stream_id.incarnation, sequence, reason, pending.client_id)
        )

    def _waits_no_more(self, pending: Pending) -> None:
        (topic, _, incarnation), sequence = pending.entry.stream.id, pending.entry.sequence
        del self.pending[topic, incarnation, sequence]
        self.bytes -= pending.entry.size
        del self.on_topic[topic][incarnation, sequence]
        if not self.on_topic[topic]:
            del self.on_topic[topic]
        pending.entry.needs = 0

    def _tell(self, pending: Pending, outcome: Acknowledged | NotAcknowledged) -> None:
        if pending.client_id is not None and pending.client_id in self.clients:
            self.clients[pending.client_id].outcome = outcome
        self.state.out.append(outcome)


def _digest(payload: bytes) -> bytes:
    return blake2b(payload, digest_size=16).digest()
