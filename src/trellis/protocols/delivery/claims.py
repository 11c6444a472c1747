"""How far a publisher's numbers are believed, depending on who says them.  [docs/tls.md, malicious members]

Messages are not signed, and most of them arrive through other nodes. So a neighbor can speak in the name of any
publisher. These rules bound the damage:

N1  Numbers that no publisher can reach are not believed (`SEQUENCE_MAX`, `INCARNATION_MAX`).
N2  What a publisher says over its own link, in its present incarnation, counts more than what others say in its name.
N3  Before a node takes a number back, it asks the publisher to compare. The publisher's answer proves the number wrong
    only if the question came later than the number. So an honest node is never judged by an answer that was on its way.
N4  A message published a window later than a higher number refutes that number, because sequences grow with time. (Ages
    leave out the time on the network, which is far less than a window.)
"""

from __future__ import annotations

from trellis.protocols.delivery.state import SESSIONS, State
from trellis.protocols.delivery.streams import Doubt, Entry, Stream, TopicState
from trellis.protocols.effects import Incarnation, NodeId

SEQUENCE_MAX = 1 << 44  # At 100,000 messages a second on one topic, a publisher reaches this after five years.
INCARNATION_MAX = (1 << 38) - 1  # A greater incarnation has no sessions: session numbers are below 2^62.
_DOUBT_TICKS = 3  # A publisher announces its messages far sooner than this, unless the link is full.


class Claims:
    """Decides which sequences and floors of a publisher are believed."""

    def __init__(self, state: State) -> None:
        self.state = state

    def is_absurd(self, incarnation: Incarnation, sequence: int = 0) -> bool:
        """Return whether no publisher can have this incarnation or this sequence (N1), and count it if so."""
        is_absurd = incarnation > INCARNATION_MAX or sequence > SEQUENCE_MAX
        self.state.counters.forged += is_absurd
        return is_absurd

    def incarnation_of(self, node: NodeId) -> Incarnation | None:
        """Return the incarnation in which a neighbor speaks over its own link. None: no link, or no frame has come."""
        if node == self.state.id:
            return self.state.overlay.incarnation
        channel = self.state.channels.get(node)
        if channel is None or not channel.peer_session:
            return None
        return Incarnation(channel.peer_session // SESSIONS)

    def is_own(self, peer: NodeId, origin: NodeId, incarnation: Incarnation) -> bool:
        """Return whether `peer` speaks of its own publications, in its present incarnation."""
        return peer == origin and self.incarnation_of(peer) == incarnation

    def hear(self, peer: NodeId, stream: Stream, last: int, floor: int) -> None:
        """Note the greatest sequence and the floor that `peer` names.

        The publisher's own floor counts as it is. Where the publisher has no link to us, others may raise it, but not
        above what has come of the stream.
        """
        if self.is_own(peer, stream.id.origin, stream.id.incarnation):
            stream.own_last = max(stream.own_last or 0, last)
            stream.floor = floor or stream.floor
        elif floor > stream.floor and self.incarnation_of(stream.id.origin) != stream.id.incarnation:
            stream.floor = max(stream.floor, min(floor, stream.top + 1))

    def take(self, entry: Entry) -> None:
        """Note the greatest sequence that has arrived, unless a later publication refutes it (N4)."""
        stream = entry.stream
        is_refuted = entry.born_ms > stream.top_ms + self.state.config.window_ms
        if entry.sequence > stream.top or is_refuted:
            stream.top, stream.top_ms = entry.sequence, entry.born_ms

    def told(self, topic: TopicState, stream: Stream) -> int | None:
        """Return the last sequence that the publisher itself has named. None: it has no open link to us.

        A linked publisher offers us everything it publishes. So no sequence beyond this number needs to be skipped yet.
        """
        link = topic.links.get(stream.id.origin)
        is_linked = link is not None and link.is_open and self.incarnation_of(stream.id.origin) == stream.id.incarnation
        return stream.own_last if is_linked else None

    # Doubts: have we delivered more than the publisher says that it has published?

    def doubts(self, topic: TopicState, stream: Stream) -> bool:
        """Check a stream once per tick. Return whether its publisher should be asked to compare."""
        named, now_ms = self.told(topic, stream), self.state.now_ms
        if named is None or (stream.handed or 0) <= named:
            stream.doubt = None
            return False
        if stream.doubt is None or stream.doubt.last <= named:
            stream.doubt = Doubt(stream.handed or 0, now_ms)
        return stream.doubt.mark is None and now_ms - stream.doubt.since_ms >= _DOUBT_TICKS * self.state.config.tick_ms

    def has_asked(self, stream: Stream) -> None:
        """Remember which items the publisher must have processed before its next comparison counts."""
        channel = self.state.channels[stream.id.origin]
        assert stream.doubt is not None
        stream.doubt.mark = (channel.session, channel.puts)

    def is_refuted(self, stream: Stream, last: int) -> bool:
        """Return whether the publisher's comparison, with `last` as its last sequence, proves us wrong (N3).

        The comparison may have been in the publisher's queue when our question came. So we ask twice: the answer to the
        second question was made after the first question had arrived.
        """
        doubt, channel = stream.doubt, self.state.channels[stream.id.origin]
        if doubt is None or doubt.mark is None or doubt.last <= last:
            return False
        session, puts = doubt.mark
        if session != channel.session:
            stream.doubt = None  # the question may have been lost: begin again
            return False
        if channel.taken < puts:
            return False
        doubt.mark, doubt.answers = None, doubt.answers + 1
        return doubt.answers == 2
