"""Comparison: two ends of a link that share a topic tell each other what they have seen of it, and send what the other
lacks, oldest first.  [docs/delivery.md, rule 3]

It happens when a link comes up, when a topic is newly shared, when a session begins anew, and when either end asks for
it by comparing again. From the peer's comparison on, everything new is offered as well: that is the link invariant.

A joiner compares like everybody else. It has seen nothing, says so, and is given the whole window; it claims no
watermark that it does not hold, so nothing is lost behind it (u - N - x).

A comparison of a few bytes can make us look at all that is held of a topic, and answer with all that we have seen of
it. So each neighbor has an allowance, which is used up by streams and messages looked at for it, and which grows back
with time. Honest neighbors compare all topics a few times in a row at most, which is within it. What a neighbor asks
beyond it is answered later, or when it asks again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from trellis.protocols.delivery.messages import STREAMS_MAX, Compare, Part, Seen
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Entry, Stream, TopicState, Way
from trellis.protocols.delivery.tree import Tree
from trellis.protocols.effects import NodeId, Topic

_STREAMS_MAX = 65_536  # of all comparisons of one neighbor that are still coming in, or are answered later
_TIMES = 4  # comparing everything so many times in a row is within the allowance of a neighbor
_TICKS = 64  # after so many ticks an allowance is whole again
_AT_LEAST = 16_000  # streams and messages
_RANGES_MAX = 64  # of one stream; a stream with more claims less than it has seen, which costs duplicates only


@dataclass(frozen=True)
class _Told:
    """A comparison of a neighbor that has come in all its items."""

    known: list[Seen]
    is_settled: bool
    is_leaving: bool
    asks: bool  # for ours, which it may have lost


class Comparison:
    def __init__(self, state: State, tree: Tree, order: Order) -> None:
        self.state, self.tree, self.order, self.claims = state, tree, order, order.claims
        self._parts: dict[tuple[NodeId, Topic], list[Seen]] = {}  # comparisons that are still coming in
        self._later: dict[tuple[NodeId, Topic], _Told] = {}  # the last one beyond an allowance
        self._kept: Counter[NodeId] = Counter()  # streams in both, by neighbor
        self._used: Counter[NodeId] = Counter()  # what each neighbor has used up of its allowance

    def share(self, topic: TopicState, peer: NodeId) -> None:
        """Both ends want the topic, as far as we know."""
        way = self._way(topic, peer)
        if not way.has_told:
            self.tell(topic, peer, way)

    def _way(self, topic: TopicState, peer: NodeId) -> Way:
        way = topic.ways.get(peer)
        if way is None:
            way = topic.ways[peer] = Way()
            topic.changed_ms = self.state.now_ms
            self.state.links[peer].topics += 1
        return way

    def tell(self, topic: TopicState, peer: NodeId, way: Way, *, asks: bool = False) -> None:
        way.has_told = True
        streams = self._seen(topic)
        self._used[peer] += 1 + len(topic.streams)
        for start in range(0, max(1, len(streams)), STREAMS_MAX):
            part = tuple(streams[start : start + STREAMS_MAX])
            more = start + STREAMS_MAX < len(streams)
            self.state.put(peer, Compare(topic.topic, part, topic.is_settled, topic.is_leaving, asks, more))

    def may_ask(self, peer: NodeId) -> bool:
        """Return whether a neighbor has something left of its allowance."""
        return self._used[peer] < self._allowance

    def is_later(self, peer: NodeId, topic: Topic) -> bool:
        """Return whether a comparison of this neighbor has come and is still to be looked at."""
        return (peer, topic) in self._later

    def tick(self) -> None:
        """Let allowances grow back, and look at what was left for later."""
        back = max(1, self._allowance // _TICKS)
        self._used = Counter({peer: used - back for peer, used in self._used.items() if used > back})
        for key, told in list(self._later.items()):
            peer, name = key
            if key in self._later and self.may_ask(peer):
                self._forget(self._later, key)
                self._take(self.state.topics[name], peer, told)

    @property
    def _allowance(self) -> int:
        state = self.state
        return max(_AT_LEAST, _TIMES * (state.store.count + state.streams + len(state.topics)))

    def on_compare(self, peer: NodeId, item: Compare) -> None:
        topic = self.state.topics.get(item.topic)
        if topic is None or not topic.takes_part:
            self.state.put(peer, Part(item.topic))
            return
        asks = self._way(topic, peer).has_told and item.asks
        key = (peer, item.topic)
        known = self._parts.setdefault(key, [])
        room = max(0, _STREAMS_MAX - self._kept[peer])
        known += item.streams[:room]  # with less than it has seen, it is sent some messages twice
        self._kept[peer] += min(room, len(item.streams))
        if item.more and room:
            return
        self._forget(self._parts, key)
        asks = asks or (key in self._later and self._later[key].asks)
        self._forget(self._later, key)
        told = _Told(known, item.is_settled, item.is_leaving, asks)
        if self.may_ask(peer):
            self._take(topic, peer, told)
        else:
            self._later[key] = told
            self._kept[peer] += len(known)

    def _take(self, topic: TopicState, peer: NodeId, item: _Told) -> None:
        way, known = topic.ways[peer], item.known
        if item.asks or not way.has_told:
            self.tell(topic, peer, way)
        way.is_open, way.is_leaving = True, item.is_leaving
        way.announce = {}  # all that is held is looked at now
        self._hear_of_itself(topic, peer, known)
        self._send_what_is_lacking(topic, peer, way, known)
        if not topic.is_settled and item.is_settled:
            self.order.settle(topic, {(seen.origin, seen.life): seen.handed for seen in known})

    def _forget(self, comparisons: dict[tuple[NodeId, Topic], Any], key: tuple[NodeId, Topic]) -> None:
        found = comparisons.pop(key, None)
        if found is not None:
            self._kept[key[0]] -= len(found.known if isinstance(found, _Told) else found)
            if not self._kept[key[0]]:
                del self._kept[key[0]]

    def _hear_of_itself(self, topic: TopicState, peer: NodeId, known: list[Seen]) -> None:
        """Note what the peer says of its own publications. It may refute what others have said in its name."""
        for seen in known:
            if seen.origin != peer or not self.claims.is_own(peer, seen.origin, seen.life):
                continue
            last = max(seen.ranges, default=0)
            stream = self.state.stream(topic, seen.origin, seen.life, is_own=True)
            if stream is not None and not self.claims.is_absurd(seen.life, last):
                self.claims.hear(peer, stream, last, seen.floor)
                if self.claims.is_refuted(stream, last):
                    self.order.take_back(stream, last)

    def ask(self, topic: TopicState, stream: Stream) -> None:
        """Ask a publisher to compare: we have handed over more than it has named itself."""
        peer = stream.id.origin
        self.tell(topic, peer, topic.ways[peer], asks=True)
        self.claims.has_asked(stream)

    def on_part(self, peer: NodeId, item: Part) -> None:
        topic = self.state.topics.get(item.topic)
        if topic is not None:
            self.part(topic, peer)

    def part(self, topic: TopicState, peer: NodeId) -> None:
        """The topic is no longer shared on this link."""
        self._forget(self._parts, (peer, topic.topic))
        self._forget(self._later, (peer, topic.topic))
        if topic.ways.pop(peer, None) is not None:
            if peer in self.state.links:
                self.state.links[peer].topics -= 1
            topic.changed_ms = self.state.now_ms
            self.tree.forget(topic, peer)

    def _seen(self, topic: TopicState) -> list[Seen]:
        """Streams that somebody may still hold something of."""
        oldest = self.state.now_ms - 3 * self.state.config.window_ms
        found = []
        for (origin, life), stream in topic.streams.items():
            if stream.touched_ms < oldest and not stream.entries and not self.state.is_ours(stream):
                continue
            flat = stream.seen.flat()[-2 * _RANGES_MAX :]
            # A node that does not subscribe hands nothing over. What has passed through it can be a baseline, too.
            handed = 0 if stream.begun_ms is not None else stream.handed or 0
            handed = handed if topic.is_wanted else max(handed, stream.top)
            found.append(Seen(origin, life, handed, self.state.floor(stream), flat))
        return found

    def _send_what_is_lacking(self, topic: TopicState, peer: NodeId, way: Way, known: list[Seen]) -> None:
        theirs = {(seen.origin, seen.life): seen for seen in known}
        lacking: list[Entry] = []
        for key, stream in topic.streams.items():
            seen = theirs.get(key)
            if seen is None:
                lacking += stream.entries.values()
                continue
            if seen.floor > stream.floor:
                self.claims.hear(peer, stream, 0, seen.floor)
            held = list(zip(seen.ranges[::2], seen.ranges[1::2], strict=False))
            if not stream.entries or any(a <= min(stream.entries) and max(stream.entries) <= b for a, b in held[-1:]):
                continue  # nearly always: nothing is lacking
            lacking += [
                entry
                for number, entry in stream.entries.items()
                if not any(first <= number <= last for first, last in held)
            ]
        self._used[peer] += 1 + len(topic.streams) + len(lacking)
        for entry in sorted(lacking, key=lambda entry: (entry.born_ms, entry.sequence)):
            self.tree.offer(peer, way, entry, is_eager=False)
