"""What a publisher says of itself, and what others say in its name.  [docs/tls.md, malicious members]

Messages are not signed, and most of them come through other nodes. So a neighbor can speak in the name of any
publisher, and this part bounds what follows from that:

N1  no number is believed that no publisher can reach (`SEQUENCE_MAX`, `INCARNATION_MAX`).
N2  what a publisher says over its own link, in its present incarnation, counts before what others say in its name.
N3  a node asks a publisher to compare before it takes a number back. The publisher's answer proves the number wrong
    only if the question came later than the number: an honest node never takes a number back for want of patience.
N4  a message that was published a window later than a higher number refutes that number: sequences grow with time.
    (Ages do not count time on the network. It is far less than a window.)
"""

from __future__ import annotations

from trellis.protocols.delivery.state import SESSIONS, State
from trellis.protocols.delivery.streams import Doubt, Entry, Stream, TopicState
from trellis.protocols.effects import NodeId

SEQUENCE_MAX = 1 << 44  # at 100,000 messages a second on one topic, a publisher gets there after five years
INCARNATION_MAX = (1 << 38) - 1  # a greater one has no sessions: these are numbers below 2^62
_DOUBT_TICKS = 3  # a publisher announces what it has published far sooner over a link that is not full


class Claims:
    def __init__(self, state: State) -> None:
        self.state = state

    def is_absurd(self, incarnation: int, sequence: int = 0) -> bool:
        """Return whether no publisher can have this incarnation or this sequence (N1), and count it if so."""
        is_absurd = incarnation > INCARNATION_MAX or sequence > SEQUENCE_MAX
        self.state.counters.forged += is_absurd
        return is_absurd

    def incarnation_of(self, node: NodeId) -> int | None:
        """Return the incarnation in which a neighbor speaks over its own link. None: there is no link, or no frame."""
        if node == self.state.id:
            return self.state.overlay.life
        channel = self.state.links.get(node)
        return channel.peer_session // SESSIONS if channel is not None and channel.peer_session else None

    def is_own(self, peer: NodeId, origin: NodeId, incarnation: int) -> bool:
        """Return whether `peer` speaks of its own publications, in its present incarnation."""
        return peer == origin and self.incarnation_of(peer) == incarnation

    def hear(self, peer: NodeId, stream: Stream, last: int, floor: int) -> None:
        """Note the greatest sequence and the floor that `peer` names.

        The publisher's own floor counts as it is. Where the publisher has no link to us, others may raise it, but not
        above what has come of the stream.
        """
        if self.is_own(peer, stream.id.origin, stream.id.life):
            stream.own_last = max(stream.own_last or 0, last)
            stream.floor = floor or stream.floor
        elif floor > stream.floor and self.incarnation_of(stream.id.origin) != stream.id.life:
            stream.floor = max(stream.floor, min(floor, stream.top + 1))

    def take(self, entry: Entry) -> None:
        """Note the greatest sequence that has come. One that a later publication refutes (N4) counts no more."""
        stream = entry.stream
        is_refuted = entry.born_ms > stream.top_ms + self.state.config.window_ms
        if entry.sequence > stream.top or is_refuted:
            stream.top, stream.top_ms = entry.sequence, entry.born_ms

    def told(self, topic: TopicState, stream: Stream) -> int | None:
        """Return up to where the publisher has named its sequences itself. None: it does not talk to us itself.

        It offers us everything that it publishes. So nothing beyond that number needs to be skipped yet.
        """
        way = topic.ways.get(stream.id.origin)
        is_linked = way is not None and way.is_open and self.incarnation_of(stream.id.origin) == stream.id.life
        return stream.own_last if is_linked else None

    # Doubts: have we handed over more than the publisher says that there is?

    def doubts(self, topic: TopicState, stream: Stream) -> bool:
        """Look at a stream once per tick. Return whether its publisher should be asked to compare."""
        told, now_ms = self.told(topic, stream), self.state.now_ms
        if told is None or (stream.handed or 0) <= told:
            stream.doubt = None
            return False
        if stream.doubt is None or stream.doubt.last <= told:
            stream.doubt = Doubt(stream.handed or 0, now_ms)
        return stream.doubt.mark is None and now_ms - stream.doubt.since_ms >= _DOUBT_TICKS * self.state.config.tick_ms

    def has_asked(self, stream: Stream) -> None:
        """Remember what the publisher must have taken in before its next comparison counts."""
        channel = self.state.links[stream.id.origin]
        assert stream.doubt is not None
        stream.doubt.mark = (channel.session, channel.puts)

    def is_refuted(self, stream: Stream, last: int) -> bool:
        """The publisher has compared, and named `last` as its last sequence. Return whether that proves us wrong (N3).

        Its comparison may have waited in its queue when our question came. So it is asked twice: the answer to the
        second question was made after the first one had come.
        """
        doubt, channel = stream.doubt, self.state.links[stream.id.origin]
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
