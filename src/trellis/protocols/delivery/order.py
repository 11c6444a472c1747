"""Delivery to the application: exactly once, in the order of each stream.  [docs/delivery.md, Order]

Messages of a stream are delivered in the order of their sequences. A message behind a gap waits.

H1  Only the message with sequence `handed` + 1 is delivered, and `handed` falls only when a forged number is taken back
    (`take_back`). So nothing is delivered twice or out of order, whatever the links do.

A gap is skipped and counted as lost in three cases:

(a) The publisher's node is gone, and a window has passed since the topic's links last changed.
(b) The gap lies below the publisher's floor, and every neighbor on the topic has answered that it cannot send it.
(c) The message behind the gap is older than two windows, so nobody keeps or accepts the missing ones any more.

Messages published after a subscription was confirmed are owed to it. In each stream the subscription begins behind a
baseline: what a neighbor has delivered, or, if no neighbor knew the stream, what follows from its first message
(`_begin`). A subscription that ends and starts again gets a new baseline, so it does not wait for messages published in
between.
"""

from __future__ import annotations

from trellis.protocols.delivery.claims import Claims
from trellis.protocols.delivery.messages import Pull
from trellis.protocols.delivery.outcome import Lost
from trellis.protocols.delivery.state import State, is_internal
from trellis.protocols.delivery.streams import Entry, Stream, TopicState
from trellis.protocols.effects import Incarnation, NodeId
from trellis.reached import reached


class Order:
    """Delivers messages in order, and decides about gaps."""

    def __init__(self, state: State) -> None:
        self.state, self.claims = state, Claims(state)

    def take(self, topic: TopicState, entry: Entry) -> None:
        """Take in a message that has not been seen before."""
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

    def settle(self, topic: TopicState, baseline: dict[tuple[NodeId, Incarnation], int]) -> None:
        """Set the baseline of a topic and begin to deliver.

        `baseline` has the watermarks of a neighbor by stream. A stream that is not in it begins with what is here.
        Skipped messages were published before the subscription. A node may know more of a stream than its neighbor,
        most of all of its own: what it saw before the application subscribed lies before the baseline as well.
        """
        topic.is_settled = True
        self.state.changed[topic.topic] = None
        if not topic.is_wanted:
            return  # the subscription that may follow gets baselines of its own
        for (origin, incarnation), handed in baseline.items():
            if handed:
                stream = self.state.stream(topic, origin, incarnation)
                if stream is None:
                    continue
                if self.state.is_ours(stream):
                    handed = min(handed, stream.seen.last)  # nobody can have delivered what we have not published
                if not self.claims.is_absurd(incarnation, handed):
                    self._jump(stream, max(stream.handed or 0, stream.past, handed, self._seen_before(stream)))
        for stream in topic.streams.values():
            if stream.handed is None and stream.seen:
                old = max(
                    (number for number, entry in stream.waiting.items() if entry.born_ms < topic.wanted_ms), default=0
                )
                first = min(stream.waiting, default=stream.seen.last + 1)
                self._jump(stream, max(stream.past, self._seen_before(stream) or first - 1, old))
            if stream.handed is not None:
                for sequence in [number for number in stream.waiting if number <= stream.handed]:
                    del stream.waiting[sequence]
                self._hand_over(stream)
                if self.state.config.order == "none":
                    for number in sorted(stream.waiting):
                        self.state.deliver(stream.waiting.pop(number))

    def settle_alone(self, topic: TopicState) -> None:
        """Set the baseline without a neighbor: everything that is known of the streams was published before.

        Used if this node took part in the topic already, as a publisher or relay, when the application subscribed.
        """
        known = {key: stream.top for key, stream in topic.streams.items() if not stream.waiting and stream.seen}
        self.settle(topic, known)

    def resume(self, topic: TopicState) -> None:
        """Deliver restored messages of a subscription that goes on after a restart.  [durable.py]"""
        for stream in list(topic.streams.values()):
            for sequence in sorted(stream.entries):
                if sequence > (stream.handed or 0) and sequence in stream.entries:
                    self.take(topic, stream.entries[sequence])

    def end_subscription(self, topic: TopicState) -> None:
        """Forget the baselines of a topic that the application has unsubscribed from, but not what was delivered."""
        topic.confirmed_ms = None
        for stream in topic.streams.values():
            stream.waiting.clear()
            stream.past = max(stream.past, stream.handed or 0)
            if stream.handed is not None and self.state.config.order == "none":
                stream.past = max(stream.past, stream.top)  # there `handed` is the baseline only
            stream.handed = stream.begun_ms = None

    def tick(self) -> list[tuple[TopicState, Stream]]:
        """Check all gaps. Return the streams whose publishers should be asked to compare."""
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
        """Continue behind `last`: the publisher has not published anything above it, so a higher number was forged."""
        if stream.handed is None or stream.handed <= last:
            return
        self.state.counters.forged += 1
        self._jump(stream, last)
        stream.past, stream.floor = min(stream.past, last), min(stream.floor, last + 1)
        stream.top, stream.top_ms = last, self.state.time_ms
        stream.has_returned, stream.doubt, stream.begun_ms = True, None, None
        stream.refused.clear()

    def refused(self, stream: Stream, peer: NodeId, first: int, last: int) -> None:
        """Note that a neighbor cannot send these sequences."""
        if stream.handed is not None and first <= stream.handed + 1 <= last:
            stream.refused[peer] = None

    def _seen_before(self, stream: Stream) -> int:
        """Return the last sequence that was seen before the application subscribed, or 0 if there was none.

        Messages that were seen since then wait, because nothing is delivered before the baseline is set.
        """
        for first, last in reversed(stream.seen.pairs()):
            while last >= first:
                if last not in stream.waiting:
                    return last
                last -= 1
        return 0

    def _begin(self, topic: TopicState, entry: Entry) -> None:
        """Set the baseline of a stream whose first message arrives after the subscription was settled.

        The message tells when the previous one was published. If that was before the subscription was confirmed,
        nothing earlier is owed. Otherwise the previous one is owed, and what lies below the publisher's floor is lost.
        Ages leave out the time on the network, so a message seems younger than it is. If that could matter, the earlier
        message is waited for while a neighbor may have it (`_may_be_older`).
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
        """Deliver waiting messages up to the next gap."""
        handed, waiting = stream.handed, stream.waiting
        assert handed is not None
        while True:
            entry = waiting.pop(handed + 1, None)
            if entry is not None:
                handed += 1
                self.state.deliver(entry)
            elif stream.has_returned and handed + 1 in stream.seen:  # it was delivered before `handed` was taken back
                handed = min([stream.seen.end_from(handed + 1), *(number - 1 for number in waiting if number > handed)])
            else:
                break
        if handed != stream.handed:
            stream.handed, stream.begun_ms = handed, None
            stream.refused.clear()

    def _look_at_gap(self, topic: TopicState, stream: Stream) -> None:
        """Skip the gap before the next waiting message if it can be closed no more, or ask neighbors for it."""
        state = self.state
        assert stream.handed is not None
        following = min(stream.waiting)
        gap = (stream.handed + 1, following - 1)
        if stream.begun_ms is not None and self._may_be_older(topic, stream, gap):
            return
        origin, incarnation = stream.id.origin, stream.id.incarnation
        named = self.claims.told(topic, stream)
        last = gap[1] if named is None else min(gap[1], named)  # N2 of `claims.py`: nothing beyond may be skipped
        if state.now_ms - stream.waiting[following].born_ms > 2 * state.keep_ms:  # (c)
            if last < gap[1]:
                del stream.waiting[following]  # its publisher still knows nothing of it
                state.counters.forged += 1
            self._skip(stream, last, "older than two windows")
            return
        is_gone = state.overlay.is_gone(origin) or any(
            key[0] == origin and key[1] > incarnation for key in topic.streams
        )
        is_gone = is_gone and self.claims.incarnation_of(origin) != incarnation
        is_coming = state.durable is not None and (topic.must_compare or (stream, gap[0]) in topic.missing)
        if is_gone and not is_coming and state.now_ms - topic.changed_ms > state.gap_ms:
            self._skip(stream, last, "its publisher is gone")  # (a)
            return
        if gap[0] < stream.floor:  # (b)
            links = state.open_links(topic)
            if links and all(peer in stream.refused for peer, _ in links):
                self._skip(stream, min(last, stream.floor - 1), "nobody keeps it")
                return
            for peer, _ in links:
                if peer not in stream.refused:
                    state.put(peer, Pull(*stream.id, gap))

    def _may_be_older(self, topic: TopicState, stream: Stream, gap: tuple[int, int]) -> bool:
        """Ask neighbors for messages that may be older than the subscription. If none has them, begin without them.

        Return whether the gap was skipped.
        """
        state = self.state
        assert stream.begun_ms is not None
        links = state.open_links(topic)
        asked = [peer for peer, _ in links if peer not in stream.refused]
        for peer in asked:
            state.put(peer, Pull(*stream.id, gap))
        if asked or state.now_ms - max(stream.begun_ms, topic.changed_ms) < state.config.confirm_ms:
            return False
        named = self.claims.told(topic, stream)
        last = gap[1] if named is None else min(gap[1], named)
        self._skip(stream, last, "no neighbor has it, and it may be older than the subscription")
        return True

    def _skip(self, stream: Stream, last: int, why: str) -> None:
        """Count sequences up to `last` as lost, and deliver what follows."""
        self._lose(stream, last, why)
        stream.refused.clear()
        self._hand_over(stream)

    def _pass_by(self, stream: Stream, last: int) -> None:
        """Begin a subscription behind `last`, because it was published before."""
        assert stream.handed is not None
        if last > stream.handed:
            self.state.counters.passed_by += last - stream.handed
            self._jump(stream, last)

    def _jump(self, stream: Stream, last: int) -> None:
        """Continue behind `last` without delivering it."""
        stream.handed, stream.jumped_ms = last, self.state.time_ms
        if self.state.durable is not None:
            self.state.durable.jumped(stream)

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
