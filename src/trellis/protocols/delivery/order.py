"""Handing over: exactly once, in the order of each stream, and what is done about gaps.  [docs/delivery.md, Order]

H1  `handed` never falls; only `handed + 1` is ever handed over. So nothing is handed over twice or out of order,
    whatever the links do.

A gap is skipped, and counted as lost, when
(a) its origin is gone and a window has passed since the last change of the topic's links;
(b) it lies below the floor, and every neighbour on the topic has answered that it cannot give it;
(c) what follows it is older than two windows: nobody keeps or accepts the missing one any more.

A subscription is owed what is published after it is confirmed. Its baseline in a stream is what a neighbor has handed
over, or, where no neighbor knew the stream, what follows from the first message of it (`_begin`). A subscription that
ends and begins again gets a new baseline: nothing waits for what was published in between.
"""

from __future__ import annotations

from trellis.protocols.delivery.claims import Claims
from trellis.protocols.delivery.messages import Pull
from trellis.protocols.delivery.outcome import Lost
from trellis.protocols.delivery.state import State, is_internal
from trellis.protocols.delivery.streams import Entry, Stream, TopicState
from trellis.protocols.effects import NodeId
from trellis.reached import reached


class Order:
    def __init__(self, state: State) -> None:
        self.state, self.claims = state, Claims(state)

    def take(self, topic: TopicState, entry: Entry) -> None:
        """A message that has not been seen before."""
        if not topic.is_wanted:
            return
        stream = entry.stream
        if stream.handed is None and topic.is_settled:
            self._begin(topic, entry)
        if stream.handed is not None and entry.sequence <= stream.handed:
            if not topic.is_settled or entry.born_ms <= stream.jumped_ms + self.state.config.window_ms:
                self.state.counters.late += topic.is_settled
                return
            self.take_back(stream, entry.sequence - 1)  # N4 of `claims.py`
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
        self.state.changed[topic.topic] = None
        if not topic.is_wanted:
            return  # the subscription that may follow gets baselines of its own
        for (origin, life), handed in baseline.items():
            if handed:
                stream = self.state.stream(topic, origin, life)
                if stream is None:
                    continue
                if self.state.is_ours(stream):
                    handed = min(handed, stream.seen.last)  # nobody can have handed over what we have not published
                if not self.claims.is_absurd(life, handed):
                    self._jump(stream, max(stream.handed or 0, stream.past, handed))
        for stream in topic.streams.values():
            if stream.handed is None and stream.seen:
                old = max((n for n, one in stream.waiting.items() if one.born_ms < topic.wanted_ms), default=0)
                self._jump(stream, max(stream.past, self._first_here(stream) - 1, old))
            if stream.handed is not None:
                for sequence in [number for number in stream.waiting if number <= stream.handed]:
                    del stream.waiting[sequence]
                self._hand_over(stream)
                if self.state.config.order == "none":
                    for number in sorted(stream.waiting):
                        self.state.deliver(stream.waiting.pop(number))

    def settle_alone(self, topic: TopicState) -> None:
        """No neighbour to ask, or we relayed the topic until now: what was published before is not ours."""
        known = {key: stream.top for key, stream in topic.streams.items() if not stream.waiting and stream.seen}
        self.settle(topic, known)

    def end_subscription(self, topic: TopicState) -> None:
        """Forget the baselines of a topic that the application has unsubscribed from, but not what was handed over."""
        topic.confirmed_ms = None
        for stream in topic.streams.values():
            stream.waiting.clear()
            stream.past = max(stream.past, stream.handed or 0)
            if stream.handed is not None and self.state.config.order == "none":
                stream.past = max(stream.past, stream.top)  # there `handed` is the baseline only
            stream.handed = stream.begun_ms = None

    def tick(self) -> list[tuple[TopicState, Stream]]:
        """Look at all gaps. Return the streams whose publishers should be asked to compare."""
        doubted = []
        for topic in self.state.topics.values():
            if not topic.is_wanted or not topic.is_settled:
                continue
            for stream in topic.streams.values():
                if stream.waiting:
                    self._look_at_gap(topic, stream)
                if stream.own_last is not None and self.claims.doubts(topic, stream):
                    doubted.append((topic, stream))
        return doubted

    def take_back(self, stream: Stream, last: int) -> None:
        """Its publisher has not published anything above `last` that was handed over: go on behind `last`."""
        if stream.handed is None or stream.handed <= last:
            return
        self.state.counters.forged += 1
        self._jump(stream, last)
        stream.past, stream.floor = min(stream.past, last), min(stream.floor, last + 1)
        stream.top, stream.top_ms = last, self.state.time_ms
        stream.has_returned, stream.doubt, stream.begun_ms = True, None, None
        stream.refused.clear()

    def refused(self, stream: Stream, peer: NodeId, first: int, last: int) -> None:
        """A neighbour cannot give these."""
        if stream.handed is not None and first <= stream.handed + 1 <= last:
            stream.refused[peer] = None

    def _first_here(self, stream: Stream) -> int:
        """Return the first sequence that a subscription without a baseline hands over of a stream it has seen."""
        if self.state.is_ours(stream):  # what we published before we subscribed comes from nowhere else
            return min(stream.waiting, default=stream.seen.last + 1)
        return min(stream.seen.firsts[0], *(stream.waiting or (stream.seen.firsts[0],)))

    def _begin(self, topic: TopicState, entry: Entry) -> None:
        """Find the baseline of a stream whose first message comes when the subscription is settled.

        The message tells when the one before it was published. Before the subscription was confirmed: then nothing
        earlier is owed. After that: then that one is owed, and what lies below its origin's floor is lost. Ages do not
        count the time on the network, so a message seems younger than it is, never older. Where that could decide, the
        earlier message is waited for while a neighbor may have it (`_may_be_older`).
        """
        state, stream, before = self.state, entry.stream, entry.sequence - 1
        self._jump(stream, stream.past)
        before_ms = entry.born_ms - entry.pause_ms
        below_floor = min(stream.floor - 1, before)
        if entry.born_ms < topic.wanted_ms:
            self._pass_by(stream, entry.sequence)
        elif topic.confirmed_ms is None or before_ms < topic.confirmed_ms:
            self._pass_by(stream, before)
        else:
            self._lose(stream, below_floor, "before the first that came")
            if before_ms <= topic.confirmed_ms + state.config.confirm_ms:
                stream.begun_ms = state.now_ms

    def _hand_over(self, stream: Stream) -> None:
        handed, waiting = stream.handed, stream.waiting
        assert handed is not None
        while True:
            entry = waiting.pop(handed + 1, None)
            if entry is not None:
                handed += 1
                self.state.deliver(entry)
            elif stream.has_returned and handed + 1 in stream.seen:  # was handed over before, in another order
                handed = min([stream.seen.end_from(handed + 1), *(number - 1 for number in waiting if number > handed)])
            else:
                break
        if handed != stream.handed:
            stream.handed, stream.begun_ms = handed, None
            stream.refused.clear()

    def _look_at_gap(self, topic: TopicState, stream: Stream) -> None:
        state, config = self.state, self.state.config
        assert stream.handed is not None
        following = min(stream.waiting)
        gap = (stream.handed + 1, following - 1)
        if stream.begun_ms is not None and self._may_be_older(topic, stream, gap):
            return
        origin, life = stream.id.origin, stream.id.life
        told = self.claims.told(topic, stream)
        last = gap[1] if told is None else min(gap[1], told)  # N2 of `claims.py`: to be skipped at most
        if state.now_ms - stream.waiting[following].born_ms > 2 * config.window_ms:  # (c)
            if last < gap[1]:
                del stream.waiting[following]  # its publisher still knows nothing of it
                state.counters.forged += 1
            self._skip(stream, last, "older than two windows")
            return
        is_gone = state.overlay.is_gone(origin) or any(key[0] == origin and key[1] > life for key in topic.streams)
        is_gone = is_gone and self.claims.incarnation_of(origin) != life
        if is_gone and state.now_ms - topic.changed_ms > config.window_ms:
            self._skip(stream, last, "its publisher is gone")  # (a)
            return
        if gap[0] < stream.floor:  # (b)
            ways = state.ways(topic)
            if ways and all(peer in stream.refused for peer, _ in ways):
                self._skip(stream, min(last, stream.floor - 1), "nobody keeps it")
                return
            for peer, _ in ways:
                if peer not in stream.refused:
                    state.put(peer, Pull(*stream.id, gap))

    def _may_be_older(self, topic: TopicState, stream: Stream, gap: tuple[int, int]) -> bool:
        """Ask the neighbors for what may have been published just before this subscription; then begin without it."""
        state = self.state
        assert stream.begun_ms is not None
        ways = state.ways(topic)
        asked = [peer for peer, _ in ways if peer not in stream.refused]
        for peer in asked:
            state.put(peer, Pull(*stream.id, gap))
        if asked or state.now_ms - max(stream.begun_ms, topic.changed_ms) < state.config.confirm_ms:
            return False
        told = self.claims.told(topic, stream)
        last = gap[1] if told is None else min(gap[1], told)
        self._skip(stream, last, "no neighbor has it, and it may be older than the subscription")
        return True

    def _skip(self, stream: Stream, last: int, why: str) -> None:
        self._lose(stream, last, why)
        stream.refused.clear()
        self._hand_over(stream)

    def _pass_by(self, stream: Stream, last: int) -> None:
        """Begin a subscription behind `last`: it was published before."""
        assert stream.handed is not None
        if last > stream.handed:
            self.state.counters.passed_by += last - stream.handed
            self._jump(stream, last)

    def _jump(self, stream: Stream, last: int) -> None:
        """Go on behind `last`, which was not handed over."""
        stream.handed, stream.jumped_ms = last, self.state.time_ms

    def _lose(self, stream: Stream, last: int, why: str) -> None:
        """Count a gap as lost and tell the application."""
        assert stream.handed is not None
        if last > stream.handed:
            reached("a gap is skipped")
            count = last - stream.handed
            self.state.counters.lost += count
            self.state.counters.lost_internal += count if is_internal(stream.id.topic) else 0
            self.state.out.append(Lost(*stream.id, stream.handed + 1, last, why))
            self._jump(stream, last)
