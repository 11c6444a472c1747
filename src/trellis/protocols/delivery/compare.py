"""Comparison of two neighbors on a topic: each tells what it has seen, and sends what the other lacks.

[docs/delivery.md, rule 3] Both ends compare when a link comes up, when a topic is newly shared, and when a session
starts again. An end that compares with `asks` makes the other compare again. Once the peer's comparison has come, the
topic link is open, and every new message is offered on it. So the peer gets everything that we hold or will hold.

A joining node compares like any other. It has seen nothing, says so, and is sent the whole window. It claims no
watermark for messages that it does not hold, so nodes behind it lose nothing.

A comparison of a few bytes can make us walk all messages of a topic, and send back all that we have seen. So each
neighbor has an allowance. It is used up by the streams and messages that we look at for this neighbor, and it grows
back with time. Honest neighbors compare all topics a few times in a row at most, which the allowance covers. Requests
beyond it are answered later, or when the neighbor asks again.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from trellis.protocols.delivery.messages import STREAMS_MAX, Compare, Part, Seen
from trellis.protocols.delivery.order import Order
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Entry, Stream, TopicLink, TopicState
from trellis.protocols.delivery.tree import Tree
from trellis.protocols.effects import NodeId, Topic

_STREAMS_MAX = 65_536  # Most streams of one neighbor in comparisons that are incomplete or answered later.
_TIMES = 4  # A neighbor's allowance covers comparing everything this many times in a row.
_TICKS = 64  # Ticks until a used-up allowance is whole again.
_AT_LEAST = 16_000  # Smallest allowance, in streams and messages.
# Most ranges that we send of one stream. With more, we claim less than we have seen, which costs duplicates only.
_RANGES_MAX = 64


@dataclass(frozen=True)
class _Told:
    """A comparison of a neighbor, complete with all its items."""

    known: list[Seen]
    is_settled: bool
    is_leaving: bool
    asks: bool  # The neighbor wants our comparison, because it may have lost the last one.


class Comparison:
    """Sends our comparisons and answers those of neighbors."""

    def __init__(self, state: State, tree: Tree, order: Order) -> None:
        self.state, self.tree, self.order, self.claims = state, tree, order, order.claims
        self._parts: dict[tuple[NodeId, Topic], list[Seen]] = {}  # comparisons whose last item has not come yet
        # the last comparison of a neighbor that went beyond its allowance
        self._later: dict[tuple[NodeId, Topic], _Told] = {}
        self._kept: Counter[NodeId] = Counter()  # streams in `_parts` and `_later`, by neighbor
        self._used: Counter[NodeId] = Counter()  # how much of its allowance each neighbor has used

    def share(self, topic: TopicState, peer: NodeId) -> None:
        """Compare with a neighbor that takes part in the topic as well."""
        link = self._link(topic, peer)
        if not link.has_told:
            self.tell(topic, peer, link)

    def _link(self, topic: TopicState, peer: NodeId) -> TopicLink:
        """Return the topic's link to `peer`. It is created if it is new."""
        link = topic.links.get(peer)
        if link is None:
            link = topic.links[peer] = TopicLink()
            topic.changed_ms = self.state.now_ms
            self.state.channels[peer].topics += 1
        return link

    def tell(self, topic: TopicState, peer: NodeId, link: TopicLink, *, asks: bool = False) -> None:
        """Send our comparison of a topic. `asks`: the peer must send its own again."""
        link.has_told = True
        streams = self._seen(topic)
        self._used[peer] += 1 + len(topic.streams)
        for start in range(0, max(1, len(streams)), STREAMS_MAX):
            part = tuple(streams[start : start + STREAMS_MAX])
            more = start + STREAMS_MAX < len(streams)
            self.state.put(peer, Compare(topic.topic, part, topic.is_settled, topic.is_leaving, asks, more))

    def may_ask(self, peer: NodeId) -> bool:
        """Return whether a neighbor has allowance left."""
        return self._used[peer] < self._allowance

    def is_later(self, peer: NodeId, topic: Topic) -> bool:
        """Return whether a comparison of this neighbor has come and is not processed yet."""
        return (peer, topic) in self._later

    def tick(self) -> None:
        """Let allowances grow back, and process comparisons that were left for later."""
        back = max(1, self._allowance // _TICKS)
        self._used = Counter({peer: used - back for peer, used in self._used.items() if used > back})
        for key, comparison in list(self._later.items()):
            peer, name = key
            if key in self._later and self.may_ask(peer):
                self._forget(self._later, key)
                self._take(self.state.topics[name], peer, comparison)

    @property
    def _allowance(self) -> int:
        state = self.state
        return max(_AT_LEAST, _TIMES * (state.store.count + state.streams + len(state.topics)))

    def on_compare(self, peer: NodeId, item: Compare) -> None:
        """Collect the items of a neighbor's comparison, and process it when it is complete."""
        topic = self.state.topics.get(item.topic)
        if topic is None or not topic.takes_part:
            self.state.put(peer, Part(item.topic))
            return
        asks = self._link(topic, peer).has_told and item.asks
        key = (peer, item.topic)
        known = self._parts.setdefault(key, [])
        room = max(0, _STREAMS_MAX - self._kept[peer])
        known += item.streams[:room]  # If some are left out, the neighbor is sent a few messages twice.
        self._kept[peer] += min(room, len(item.streams))
        if item.more and room:
            return
        self._forget(self._parts, key)
        asks = asks or (key in self._later and self._later[key].asks)
        self._forget(self._later, key)
        comparison = _Told(known, item.is_settled, item.is_leaving, asks)
        if self.may_ask(peer):
            self._take(topic, peer, comparison)
        else:
            self._later[key] = comparison
            self._kept[peer] += len(known)

    def _take(self, topic: TopicState, peer: NodeId, item: _Told) -> None:
        """Open the topic on the link, and send what the peer lacks."""
        link, known = topic.links[peer], item.known
        if item.asks or not link.has_told:
            self.tell(topic, peer, link)
        link.is_open, link.is_leaving = True, item.is_leaving
        link.announce = {}  # All held messages are compared now, so nothing is left to announce.
        self._hear_of_itself(topic, peer, known)
        self._send_what_is_lacking(topic, peer, link, known)
        if not topic.is_settled and item.is_settled:
            self.order.settle(topic, {(seen.origin, seen.incarnation): seen.handed for seen in known})

    def _forget(self, comparisons: dict[tuple[NodeId, Topic], Any], key: tuple[NodeId, Topic]) -> None:
        comparison = comparisons.pop(key, None)
        if comparison is not None:
            self._kept[key[0]] -= len(comparison.known if isinstance(comparison, _Told) else comparison)
            if not self._kept[key[0]]:
                del self._kept[key[0]]

    def _hear_of_itself(self, topic: TopicState, peer: NodeId, known: list[Seen]) -> None:
        """Note what the peer says about its own publications. It may refute what others said in its name."""
        for seen in known:
            if seen.origin != peer or not self.claims.is_own(peer, seen.origin, seen.incarnation):
                continue
            last = max(seen.ranges, default=0)
            stream = self.state.stream(topic, seen.origin, seen.incarnation, is_own=True)
            if stream is not None and not self.claims.is_absurd(seen.incarnation, last):
                self.claims.hear(peer, stream, last, seen.floor)
                if self.claims.is_refuted(stream, last):
                    self.order.take_back(stream, last)

    def ask(self, topic: TopicState, stream: Stream) -> None:
        """Ask a publisher to compare, because we have delivered more than it has named itself."""
        peer = stream.id.origin
        self.tell(topic, peer, topic.links[peer], asks=True)
        self.claims.has_asked(stream)

    def on_part(self, peer: NodeId, item: Part) -> None:
        """Take in that a neighbor takes no part in a topic, and stop sharing it on this link."""
        topic = self.state.topics.get(item.topic)
        if topic is not None:
            self.part(topic, peer)

    def part(self, topic: TopicState, peer: NodeId) -> None:
        """Stop sharing the topic on this link."""
        self._forget(self._parts, (peer, topic.topic))
        self._forget(self._later, (peer, topic.topic))
        if topic.links.pop(peer, None) is not None:
            if peer in self.state.channels:
                self.state.channels[peer].topics -= 1
            topic.changed_ms = self.state.now_ms
            self.tree.forget(topic, peer)

    def _seen(self, topic: TopicState) -> list[Seen]:
        """Return what we have seen of the streams of which somebody may still hold messages."""
        oldest = self.state.now_ms - 3 * self.state.keep_ms
        streams = []
        for (origin, incarnation), stream in topic.streams.items():
            if stream.touched_ms < oldest and not stream.entries and not self.state.is_ours(stream):
                continue
            flat = stream.seen.flat()[-2 * _RANGES_MAX :]
            # A node that does not subscribe delivers nothing. Messages that passed it can be a baseline, too.
            handed = 0 if stream.begun_ms is not None else stream.handed or 0
            handed = handed if topic.is_wanted else max(handed, stream.top)
            streams.append(Seen(origin, incarnation, handed, self.state.floor(stream), flat))
        return streams

    def _send_what_is_lacking(self, topic: TopicState, peer: NodeId, link: TopicLink, known: list[Seen]) -> None:
        """Offer the peer every message that we hold and it has not seen, oldest first."""
        theirs = {(seen.origin, seen.incarnation): seen for seen in known}
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
        if self.state.durable is not None:
            lacking = [entry for entry in lacking if not entry.is_private]
        self._used[peer] += 1 + len(topic.streams) + len(lacking)
        for entry in sorted(lacking, key=lambda entry: (entry.born_ms, entry.sequence)):
            self.tree.offer(peer, link, entry, is_eager=False)
