"""Eager push along a tree that forms by itself, lazy announcements on the other links.  [docs/delivery.md, rules 1, 2]

A link begins eager. A message that comes twice makes the later link lazy, at both ends; a message that was announced
and does not come is pulled, and the link that it is pulled over becomes eager. A link whose queue is full is lazy as
well, until its peer pulls.
"""

from __future__ import annotations

from trellis.protocols.delivery.identities import Ranges, pairs_of
from trellis.protocols.delivery.messages import RANGES_MAX, Announce, Gone, Prune, Pull, Push
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Entry, Missing, Stream, TopicState, Way
from trellis.protocols.effects import NodeId
from trellis.reached import reached


class Tree:
    def __init__(self, state: State, order: Order) -> None:
        self.state, self.order, self.claims = state, order, order.claims

    # Messages

    def on_push(self, peer: NodeId, item: Push) -> Entry | None:
        """The entry, if the message is new here."""
        state, config = self.state, self.state.config
        topic = state.topics.get(item.topic)
        if topic is None or not topic.takes_part or not item.sequence:
            return None
        state.counters.pushes_in += 1
        if self._is_forged(topic, item):
            state.counters.forged += 1
            return None
        if self.claims.is_absurd(item.life, item.sequence):
            return None
        is_own = self.claims.is_own(peer, item.origin, item.life)
        ended = state.ended.get(item.origin)
        if ended is not None and item.life <= ended[0]:
            if not is_own:
                state.counters.stale += 1
                return None
            del state.ended[item.origin]  # it speaks itself, so this incarnation is not over
        if item.age_ms > 2 * config.window_ms:
            state.counters.too_old += 1
            return None
        stream = state.stream(topic, item.origin, item.life, is_own=is_own)
        if stream is None:
            return None
        stream.touched_ms = state.now_ms
        if item.sequence in stream.seen:
            self.claims.hear(peer, stream, item.sequence, item.floor)
            state.counters.duplicates += 1
            way = topic.ways.get(peer)
            if way is not None and item.is_eager:
                way.is_eager = False
                state.put(peer, Prune(item.topic))
            return None
        entry = Entry(stream, item.sequence, item.payload, state.time_ms - item.age_ms, item.pause_ms)
        entry.needs, entry.asker = item.needs, peer
        self.claims.take(entry)
        self.claims.hear(peer, stream, item.sequence, item.floor)
        self.take(topic, entry, peer)
        return entry

    def _is_forged(self, topic: TopicState, item: Push) -> bool:
        """Say whether a message claims to be of our present incarnation, or a later one, and is not ours.

        What this incarnation has published on a topic is in `seen` until it ends. So a neighbor cannot bring us
        anything new in our own name, except from an earlier incarnation, which we do not remember.
        """
        if item.origin != self.state.id or item.life < self.state.overlay.life:
            return False
        stream = topic.streams.get((item.origin, item.life))
        return stream is None or item.sequence not in stream.seen

    def take(self, topic: TopicState, entry: Entry, peer: NodeId | None) -> None:
        """A new message, from a peer or of our own: keep it, offer it, hand it over."""
        stream = entry.stream
        stream.seen.add(entry.sequence)
        self.state.store.put(entry)
        missing = topic.missing.pop((stream, entry.sequence), None) if topic.missing else None
        for other, way in topic.ways.items():
            if way.is_open and other != peer and (missing is None or other not in missing.peers):
                self.offer(other, way, entry, is_eager=True)
        self.order.take(topic, entry)

    def offer(self, peer: NodeId, way: Way, entry: Entry, *, is_eager: bool) -> None:
        """Push it, or note that it is to be announced."""
        channel = self.state.links[peer]
        if way.is_eager or not is_eager:
            if not channel.is_full:
                self.state.put_message(peer, entry, is_eager=is_eager)
                return
            if way.is_eager:
                way.is_eager = False
                self.state.counters.turned_lazy += 1
                reached("a link's queue is full")
        ranges = way.announce.get(entry.stream)
        if ranges is None:
            ranges = way.announce[entry.stream] = Ranges()
            self.state.topics[entry.stream.id.topic].has_news = True
        ranges.add(entry.sequence)
        self.state.is_busy = True

    # Identities

    def on_announce(self, peer: NodeId, item: Announce) -> None:
        state = self.state
        topic = state.topics.get(item.topic)
        if topic is None or not topic.takes_part:
            return
        if item.origin == state.id and item.life >= state.overlay.life:
            return  # we have all that we have published, whatever others say
        pairs = pairs_of(item.ranges)
        if not pairs or self.claims.is_absurd(item.life, pairs[-1][1]):
            return
        is_own = self.claims.is_own(peer, item.origin, item.life)
        stream = state.stream(topic, item.origin, item.life, is_own=is_own)
        if stream is None:
            return
        self.claims.hear(peer, stream, pairs[-1][1], 0)
        left = state.config.missing_max  # to be walked for one item
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
        state = self.state
        topic = state.topics.get(item.topic)
        way = topic.ways.get(peer) if topic is not None else None
        stream = topic.streams.get((item.origin, item.life)) if topic is not None else None
        gone = Ranges()
        given = 0
        pairs = pairs_of(item.ranges)
        long = [pair for pair in pairs if pair[1] - pair[0] >= 4 * state.config.pull_max]
        for first, last in pairs:
            if (first, last) in long[1:]:
                continue  # nobody who means it asks so: each would look at all that is held
            held = _held(stream, first, last) if stream is not None else []
            for number in sorted(held):
                if given < state.config.pull_max and stream is not None and not state.links[peer].is_crammed:
                    state.put_message(peer, stream.entries[number], is_eager=False)
                    given += 1
            _add_without(gone, first, last, held)
        if way is not None and given:
            way.is_eager = True
        flat = gone.flat()
        for start in range(0, len(flat), RANGES_MAX):
            state.put(peer, Gone(item.topic, item.origin, item.life, flat[start : start + RANGES_MAX]))

    def on_gone(self, peer: NodeId, item: Gone) -> None:
        topic = self.state.topics.get(item.topic)
        stream = topic.streams.get((item.origin, item.life)) if topic is not None else None
        if topic is None or stream is None:
            return
        gone = Ranges(pairs_of(item.ranges))
        for first, last in gone.pairs():
            self.order.refused(stream, peer, first, last)
        for (other, number), missing in list(topic.missing.items()) if topic.missing else ():
            if other is stream and number in gone:
                self._not_from(topic, stream, number, missing, peer)

    def on_prune(self, peer: NodeId, item: Prune) -> None:
        topic = self.state.topics.get(item.topic)
        way = topic.ways.get(peer) if topic is not None else None
        if way is not None:
            way.is_eager = False

    def forget(self, topic: TopicState, peer: NodeId) -> None:
        """The link is down, or the peer takes no part any more."""
        for (stream, number), missing in list(topic.missing.items()):
            self._not_from(topic, stream, number, missing, peer)
        for stream in topic.streams.values():
            stream.refused.pop(peer, None)

    # Once per round

    def round(self) -> bool:
        """Announce, and pull what is due. Says whether there is more to come."""
        state, is_busy = self.state, False
        state.missing = sum(len(topic.missing) for topic in state.topics.values())
        # One batch waits at most. It stands behind messages: a link that is never idle announces, too. Asked before the
        # first topic, so that one that always has something to announce does not keep the others from it.
        is_time = state.rounds % state.config.announce_rounds == 0
        free = {peer for peer, channel in state.links.items() if not channel.controls} if is_time else set()
        for topic in state.topics.values():
            if topic.missing:
                self._pull(topic)
                is_busy = True
            if topic.has_news:
                topic.has_news = False
                for peer, way in topic.ways.items():
                    if way.announce:
                        is_busy = True
                        if peer in free:
                            self._announce(topic, peer, way)
                        else:
                            topic.has_news = True
        return is_busy

    def _announce(self, topic: TopicState, peer: NodeId, way: Way) -> None:
        for stream, ranges in way.announce.items():
            flat = ranges.flat()
            for start in range(0, len(flat), RANGES_MAX):
                self.state.put(peer, Announce(*stream.id, flat[start : start + RANGES_MAX]))
        way.announce = {}

    def _pull(self, topic: TopicState) -> None:
        state, config = self.state, self.state.config
        asked: dict[tuple[NodeId, Stream], Ranges] = {}
        counts: dict[NodeId, int] = {}
        for missing in topic.missing.values():
            if missing.was_pulled and state.rounds - missing.since < config.retry_rounds:
                counts[next(iter(missing.peers))] = counts.get(next(iter(missing.peers)), 0) + 1
        for (stream, number), missing in topic.missing.items():
            wait = config.retry_rounds if missing.was_pulled else config.pull_rounds
            if state.rounds - missing.since < wait:
                continue
            if missing.was_pulled and len(missing.peers) > 1:  # somebody else may be faster
                slow = next(iter(missing.peers))
                del missing.peers[slow]
                missing.peers[slow] = None
            peer = next(iter(missing.peers))
            if counts.get(peer, 0) < config.pull_max:
                counts[peer] = counts.get(peer, 0) + 1
                missing.was_pulled, missing.since = True, state.rounds
                asked.setdefault((peer, stream), Ranges()).add(number)
        for (peer, stream), ranges in asked.items():
            state.counters.pulls += len(ranges)
            flat = ranges.flat()
            for start in range(0, len(flat), RANGES_MAX):
                state.put(peer, Pull(*stream.id, flat[start : start + RANGES_MAX]))
            way = topic.ways.get(peer)
            if way is not None:
                way.is_eager = True

    def _not_from(self, topic: TopicState, stream: Stream, number: int, missing: Missing, peer: NodeId) -> None:
        if missing.peers.pop(peer, 0) is None:
            missing.was_pulled, missing.since = False, self.state.rounds - self.state.config.pull_rounds
            if not missing.peers:
                del topic.missing[stream, number]


def _held(stream: Stream, first: int, last: int) -> list[int]:
    if last - first <= len(stream.entries):
        return [number for number in range(first, last + 1) if number in stream.entries]
    return [number for number in stream.entries if first <= number <= last]


def _add_without(ranges: Ranges, first: int, last: int, held: list[int]) -> None:
    """first..last but what is held."""
    for number in sorted(held):
        if first < number:
            ranges.add(first, number - 1)
        first = number + 1
    if first <= last:
        ranges.add(first, last)
