"""Eager push along a tree that forms by itself, lazy announcements on all other links.  [docs/delivery.md, rules 1, 2]

On each topic link, a node either pushes messages (eager) or announces their sequences in batches (lazy). Eager links
come to form a tree:

- A topic link begins eager.
- A message that arrives a second time makes the link that brought it lazy, at both ends (`Prune`).
- A message that was announced and does not arrive is pulled. The link over which it is pulled becomes eager.
- A link whose queue is full becomes lazy until its peer pulls.

Over one link, at most `pull_max` messages of all topics are pulled at a time.
"""

from __future__ import annotations

from collections import Counter, deque

from trellis.protocols.delivery.identities import Ranges, pairs_of
from trellis.protocols.delivery.messages import RANGES_MAX, Announce, Gone, Prune, Pull, Push
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Entry, Missing, Stream, TopicLink, TopicState
from trellis.protocols.effects import NodeId
from trellis.reached import reached


class Tree:
    """Passes messages on, and gets those that are missing."""

    def __init__(self, state: State, order: Order) -> None:
        self.state, self.order, self.claims = state, order, order.claims

    # Messages

    def on_push(self, peer: NodeId, item: Push) -> Entry | None:
        """Take in a message. Return its entry if it is new here, or None."""
        state = self.state
        topic = state.topics.get(item.topic)
        if topic is None or not topic.takes_part or not item.sequence:
            return None
        state.counters.pushes_in += 1
        if self._is_forged(topic, item):
            state.counters.forged += 1
            return None
        if self.claims.is_absurd(item.incarnation, item.sequence):
            return None
        is_own = self.claims.is_own(peer, item.origin, item.incarnation)
        ended = state.ended.get(item.origin)
        if ended is not None and item.incarnation <= ended[0]:
            if not is_own:
                state.counters.stale += 1
                return None
            del state.ended[item.origin]  # the publisher itself speaks, so this incarnation has not ended
        if item.age_ms > 2 * state.keep_ms:
            state.counters.too_old += 1
            return None
        stream = state.stream(topic, item.origin, item.incarnation, is_own=is_own)
        if stream is None:
            return None
        stream.touched_ms = state.now_ms
        if item.sequence in stream.seen:
            self.claims.hear(peer, stream, item.sequence, item.floor)
            state.counters.duplicates += 1
            link = topic.links.get(peer)
            if link is not None and item.is_eager:
                link.is_eager = False
                state.put(peer, Prune(item.topic))
            return None
        entry = Entry(stream, item.sequence, item.payload, state.time_ms - item.age_ms, item.pause_ms)
        entry.needs, entry.asker = item.needs, peer
        self.claims.take(entry)
        self.claims.hear(peer, stream, item.sequence, item.floor)
        self.take(topic, entry, peer)
        return entry

    def _is_forged(self, topic: TopicState, item: Push) -> bool:
        """Return whether a message claims to be of our present incarnation, or a later one, and is not ours.

        `seen` has everything that this incarnation has published on a topic. So a neighbor cannot bring us anything new
        in our own name, except from an earlier incarnation, which we do not remember.
        """
        if item.origin != self.state.id or item.incarnation < self.state.overlay.incarnation:
            return False
        stream = topic.streams.get((item.origin, item.incarnation))
        return stream is None or item.sequence not in stream.seen

    def take(self, topic: TopicState, entry: Entry, peer: NodeId | None) -> None:
        """Keep a new message, offer it to neighbors, and deliver it. `peer` sent it; None: it is our own."""
        stream = entry.stream
        stream.seen.add(entry.sequence)
        self.state.store.put(entry)
        if self.state.durable is not None:
            self.state.durable.keep(entry)
        missing = topic.missing.pop((stream, entry.sequence), None) if topic.missing else None
        if self.state.durable is None or not entry.is_private:
            for neighbor, link in topic.links.items():
                if link.is_open and neighbor != peer and (missing is None or neighbor not in missing.peers):
                    self.offer(neighbor, link, entry, is_eager=True)
        self.order.take(topic, entry)

    def publish(self, topic: TopicState, entry: Entry) -> None:
        """Offer a message of our own that was private until it was synced."""
        for peer, link in topic.links.items():
            if link.is_open:
                self.offer(peer, link, entry, is_eager=True)

    def offer(self, peer: NodeId, link: TopicLink, entry: Entry, *, is_eager: bool) -> None:
        """Push a message, or note that it is to be announced."""
        channel = self.state.channels[peer]
        if link.is_eager or not is_eager:
            if not channel.is_full:
                self.state.put_message(peer, entry, is_eager=is_eager)
                return
            if link.is_eager:
                link.is_eager = False
                self.state.counters.turned_lazy += 1
                reached("a link's queue is full")
        ranges = link.announce.get(entry.stream)
        if ranges is None:
            ranges = link.announce[entry.stream] = Ranges()
            self.state.topics[entry.stream.id.topic].has_news = True
        ranges.add(entry.sequence)
        self.state.is_busy = True

    # Announcements and pulls

    def on_announce(self, peer: NodeId, item: Announce) -> None:
        """Note which announced messages are missing here."""
        state = self.state
        topic = state.topics.get(item.topic)
        if topic is None or not topic.takes_part:
            return
        if item.origin == state.id and item.incarnation >= state.overlay.incarnation:
            return  # we have all that we have published, whatever others say
        pairs = pairs_of(item.ranges)
        if not pairs or self.claims.is_absurd(item.incarnation, pairs[-1][1]):
            return
        is_own = self.claims.is_own(peer, item.origin, item.incarnation)
        stream = state.stream(topic, item.origin, item.incarnation, is_own=is_own)
        if stream is None:
            return
        self.claims.hear(peer, stream, pairs[-1][1], 0)
        left = state.config.missing_max  # most sequences that we look at for one item
        for first, last in pairs:
            walked = range(first, min(last, first + left - 1) + 1)
            left -= len(walked)
            for sequence in walked:
                if sequence in stream.seen:
                    continue
                known = topic.missing.get((stream, sequence))
                if known is not None:
                    known.peers[peer] = None
                elif max(state.missing, len(topic.missing)) < state.config.missing_max:
                    topic.missing[stream, sequence] = Missing(peer, state.rounds)
                    state.missing += 1
                    state.is_busy = True
                else:
                    topic.must_compare = True
                    return
            if len(walked) <= last - first:
                topic.must_compare = True  # the rest of the range is not looked at
                return

    def on_pull(self, peer: NodeId, item: Pull) -> None:
        """Send the messages that a neighbor asks for, and say which of them we do not hold."""
        state = self.state
        topic = state.topics.get(item.topic)
        link = topic.links.get(peer) if topic is not None else None
        stream = topic.streams.get((item.origin, item.incarnation)) if topic is not None else None
        gone = Ranges()
        given = 0
        pairs = pairs_of(item.ranges)
        long = [pair for pair in pairs if pair[1] - pair[0] >= 4 * state.config.pull_max]
        for first, last in pairs:
            if (first, last) in long[1:]:
                continue  # An honest peer does not ask so. Each long range would make us look at all that is held.
            held = _held(stream, first, last) if stream is not None else []
            for number in sorted(held):
                if state.durable is not None and stream is not None and stream.entries[number].is_private:
                    continue
                if given < state.config.pull_max and stream is not None and not state.channels[peer].is_crammed:
                    state.put_message(peer, stream.entries[number], is_eager=False)
                    given += 1
            _add_without(gone, first, last, held)
        if link is not None and given:
            link.is_eager = True
        flat = gone.flat()
        for start in range(0, len(flat), RANGES_MAX):
            state.put(peer, Gone(item.topic, item.origin, item.incarnation, flat[start : start + RANGES_MAX]))

    def on_gone(self, peer: NodeId, item: Gone) -> None:
        """Note that a neighbor cannot send these messages."""
        topic = self.state.topics.get(item.topic)
        stream = topic.streams.get((item.origin, item.incarnation)) if topic is not None else None
        if topic is None or stream is None:
            return
        gone = Ranges(pairs_of(item.ranges))
        for first, last in gone.pairs():
            self.order.refused(stream, peer, first, last)
        for (missed, number), missing in list(topic.missing.items()) if topic.missing else ():
            if missed is stream and number in gone:
                self._not_from(topic, stream, number, missing, peer)

    def on_prune(self, peer: NodeId, item: Prune) -> None:
        """Announce to this neighbor from now on, instead of pushing."""
        topic = self.state.topics.get(item.topic)
        link = topic.links.get(peer) if topic is not None else None
        if link is not None:
            link.is_eager = False

    def forget(self, topic: TopicState, peer: NodeId) -> None:
        """Forget what a peer announced: the link is down, or the peer takes no part in the topic any more."""
        for (stream, number), missing in list(topic.missing.items()):
            self._not_from(topic, stream, number, missing, peer)
        for stream in topic.streams.values():
            stream.refused.pop(peer, None)

    # Once per round

    def round(self) -> bool:
        """Announce, and pull what is due. Return whether there is more to do in the next round."""
        state, is_busy = self.state, False
        state.missing = sum(len(topic.missing) for topic in state.topics.values())
        # A link gets a new batch only when the last one has left its queue. The batch stands behind queued messages, so
        # a busy link gets announcements too. The check comes before the first topic, so that one busy topic does not
        # keep others from announcing.
        is_time = state.rounds % state.config.announce_rounds == 0
        free = {peer for peer, channel in state.channels.items() if not channel.controls} if is_time else set()
        if state.missing:
            self._pull()
            is_busy = True
        for topic in state.topics.values():
            if topic.has_news:
                topic.has_news = False
                for peer, link in topic.links.items():
                    if link.announce:
                        is_busy = True
                        if peer in free:
                            self._announce(topic, peer, link)
                        else:
                            topic.has_news = True
        return is_busy

    def _announce(self, topic: TopicState, peer: NodeId, link: TopicLink) -> None:
        for stream, ranges in link.announce.items():
            flat = ranges.flat()
            for start in range(0, len(flat), RANGES_MAX):
                self.state.put(peer, Announce(*stream.id, flat[start : start + RANGES_MAX]))
        link.announce = {}

    def _pull(self) -> None:
        """Pull messages that were announced long enough ago, or whose last pull had no answer.

        A neighbor has room for `pull_max` pulled messages of all topics together, and does not answer pulls beyond it
        (`Channel.is_crammed`). So we ask for no more at a time. Topics take turns. Messages that the application will
        not get are pulled last: we only keep them for others.
        """
        state = self.state
        topics = [topic for topic in state.topics.values() if topic.missing]
        room = self._room(topics)
        if not room:
            return
        topics.sort(key=lambda topic: topic.pulled)
        due = [self._due(topic) for topic in topics]
        asked: dict[tuple[NodeId, Stream], Ranges] = {}
        for queues in ([awaited for awaited, _ in due], [stored for _, stored in due]):
            turns = deque(zip(topics, map(iter, queues), strict=True))
            while turns and room:
                topic, queue = turns.popleft()
                for stream, number in queue:
                    peer = self._ask_for(topic.missing[stream, number], room)
                    if peer is not None:
                        asked.setdefault((peer, stream), Ranges()).add(number)
                        topic.pulled = state.rounds
                        turns.append((topic, queue))
                        break
        for (peer, stream), ranges in asked.items():
            state.counters.pulls += len(ranges)
            flat = ranges.flat()
            for start in range(0, len(flat), RANGES_MAX):
                state.put(peer, Pull(*stream.id, flat[start : start + RANGES_MAX]))
            link = state.topics[stream.id.topic].links.get(peer)
            if link is not None:
                link.is_eager = True

    def _room(self, topics: list[TopicState]) -> dict[NodeId, int]:
        """Return how many more messages can be pulled from each neighbor that has announced some."""
        config, rounds = self.state.config, self.state.rounds
        announced: set[NodeId] = set()
        pulled: Counter[NodeId] = Counter()
        for topic in topics:
            for missing in topic.missing.values():
                announced.update(missing.peers)
                if missing.was_pulled and rounds - missing.since < config.retry_rounds:
                    pulled[next(iter(missing.peers))] += 1
        return {
            peer: config.pull_max - pulled[peer]
            for peer in self.state.channels
            if peer in announced and pulled[peer] < config.pull_max
        }

    def _due(self, topic: TopicState) -> tuple[list[tuple[Stream, int]], list[tuple[Stream, int]]]:
        """Return the messages to pull now: those that the application may get, and those that we only keep."""
        config, rounds = self.state.config, self.state.rounds
        awaited: list[tuple[Stream, int]] = []
        stored: list[tuple[Stream, int]] = []
        for key, missing in topic.missing.items():
            if rounds - missing.since >= (config.retry_rounds if missing.was_pulled else config.pull_rounds):
                stream, number = key
                is_passed = topic.is_wanted and stream.handed is not None and number <= stream.handed
                (stored if is_passed else awaited).append(key)
        return awaited, stored

    def _ask_for(self, missing: Missing, room: dict[NodeId, int]) -> NodeId | None:
        """Choose the neighbor to pull a message from. None: those that have it have no room for more pulls."""
        peers = list(missing.peers)
        if missing.was_pulled:
            peers = [*peers[1:], peers[0]]  # another neighbor may be faster
        for peer in peers:
            if peer in room:
                room[peer] -= 1
                if not room[peer]:
                    del room[peer]
                missing.peers = dict.fromkeys((peer, *peers))
                missing.was_pulled, missing.since = True, self.state.rounds
                return peer
        return None

    def _not_from(self, topic: TopicState, stream: Stream, number: int, missing: Missing, peer: NodeId) -> None:
        """Note that a missing message cannot come from `peer`."""
        if missing.peers.pop(peer, 0) is None:
            missing.was_pulled, missing.since = False, self.state.rounds - self.state.config.pull_rounds
            if not missing.peers:
                del topic.missing[stream, number]


def _held(stream: Stream, first: int, last: int) -> list[int]:
    """Return the sequences from `first` to `last` that we hold."""
    if last - first <= len(stream.entries):
        return [number for number in range(first, last + 1) if number in stream.entries]
    return [number for number in stream.entries if first <= number <= last]


def _add_without(ranges: Ranges, first: int, last: int, held: list[int]) -> None:
    """Add `first` to `last` to `ranges`, except what is held."""
    for number in sorted(held):
        if first < number:
            ranges.add(first, number - 1)
        first = number + 1
    if first <= last:
        ranges.add(first, last)
