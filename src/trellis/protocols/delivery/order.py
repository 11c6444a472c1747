"""Handing over: exactly once, in the order of each stream, and what is done about gaps.  [docs/delivery.md, Order]

H1  `handed` never falls; only `handed + 1` is ever handed over. So nothing is handed over twice or out of order,
    whatever the links do.

A gap is skipped, and counted as lost, when
(a) its origin is gone and a window has passed since the last change of the topic's links;
(b) it lies below the floor, and every neighbour on the topic has answered that it cannot give it;
(c) what follows it is older than two windows: nobody keeps or accepts the missing one any more.
"""

from __future__ import annotations

from trellis.protocols.delivery.messages import Pull
from trellis.protocols.delivery.outcome import Lost
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Entry, Stream, TopicState
from trellis.protocols.effects import NodeId


class Order:
    def __init__(self, state: State) -> None:
        self.state = state

    def take(self, topic: TopicState, entry: Entry) -> None:
        """A message that has not been seen before."""
        if not topic.is_wanted:
            return
        stream = entry.stream
        if stream.handed is None and topic.is_settled:
            self._begin(stream, entry.sequence)
        if stream.handed is not None and entry.sequence <= stream.handed:
            self.state.counters.late += topic.is_settled
            return
        if topic.is_settled and self.state.config.order == "none":
            self.state.deliver(entry)  # never seen before, and above the baseline: that is enough for "once"
            return
        stream.waiting[entry.sequence] = entry
        if topic.is_settled:
            self._hand_over(stream)

    def settle(self, topic: TopicState, baseline: dict[tuple[NodeId, int], int]) -> None:
        """From now on messages are handed over: those above the baseline, the watermarks of a neighbour.

        Of a stream that the neighbour does not know, whatever is here. What is skipped was published before.
        """
        topic.is_settled = True
        for (origin, life), handed in baseline.items():
            stream = topic.stream(origin, life, self.state.now_ms)
            stream.handed = max(stream.handed or 0, handed)
        for stream in topic.streams.values():
            if stream.handed is None and stream.seen:
                stream.handed = min(stream.seen.firsts[0], *(stream.waiting or (stream.seen.firsts[0],))) - 1
            if stream.handed is not None:
                for sequence in [number for number in stream.waiting if number <= stream.handed]:
                    del stream.waiting[sequence]
                self._hand_over(stream)
                if self.state.config.order == "none":
                    for number in sorted(stream.waiting):
                        self.state.deliver(stream.waiting.pop(number))

    def settle_alone(self, topic: TopicState) -> None:
        """No neighbour to ask, or we relayed the topic until now: what was published before is not ours."""
        known = {key: stream.seen.last for key, stream in topic.streams.items() if not stream.waiting and stream.seen}
        self.settle(topic, known)

    def tick(self) -> None:
        for topic in self.state.topics.values():
            if not topic.is_wanted or not topic.is_settled:
                continue
            for stream in topic.streams.values():
                if stream.waiting:
                    self._look_at_gap(topic, stream)

    def refused(self, stream: Stream, peer: NodeId, first: int, last: int) -> None:
        """A neighbour cannot give these."""
        if stream.handed is not None and first <= stream.handed + 1 <= last:
            stream.refused[peer] = None

    def _begin(self, stream: Stream, sequence: int) -> None:
        """The first message of a stream: what lies below its origin's floor was out of the window before it came."""
        first = min(stream.floor, sequence)
        stream.handed = 0
        self._lose(stream, first - 1, "before the first that came")

    def _hand_over(self, stream: Stream) -> None:
        handed, waiting = stream.handed, stream.waiting
        assert handed is not None
        while (entry := waiting.pop(handed + 1, None)) is not None:
            handed += 1
            self.state.deliver(entry)
        if handed != stream.handed:
            stream.handed = handed
            stream.refused.clear()

    def _look_at_gap(self, topic: TopicState, stream: Stream) -> None:
        state, config = self.state, self.state.config
        assert stream.handed is not None
        following = min(stream.waiting)
        gap = (stream.handed + 1, following - 1)
        origin, life = stream.id.origin, stream.id.life
        if state.now_ms - stream.waiting[following].born_ms > 2 * config.window_ms:
            self._skip(stream, following - 1, "older than two windows")  # (c)
            return
        is_gone = state.overlay.is_gone(origin) or any(key[0] == origin and key[1] > life for key in topic.streams)
        if is_gone and state.now_ms - topic.changed_ms > config.window_ms:
            self._skip(stream, following - 1, "its publisher is gone")  # (a)
            return
        if gap[0] < stream.floor:  # (b)
            ways = state.ways(topic)
            if ways and all(peer in stream.refused for peer, _ in ways):
                self._skip(stream, min(gap[1], stream.floor - 1), "nobody keeps it")
                return
            for peer, _ in ways:
                if peer not in stream.refused:
                    state.put(peer, Pull(*stream.id, gap))

    def _skip(self, stream: Stream, last: int, why: str) -> None:
        self._lose(stream, last, why)
        stream.refused.clear()
        self._hand_over(stream)

    def _lose(self, stream: Stream, last: int, why: str) -> None:
        """Never silent."""
        assert stream.handed is not None
        if last > stream.handed:
            self.state.counters.lost += last - stream.handed
            self.state.out.append(Lost(*stream.id, stream.handed + 1, last, why))
            stream.handed = last
