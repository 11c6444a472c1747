"""Follows the overlay: opens and closes channels, and begins and ends taking part in topics.

The overlay owns the links. After each change, `look` compares the overlay's present links and interests with those that
delivery saw last, and adapts the channels (`link.py`), the topic links and the topics.
"""

from __future__ import annotations

from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.compare import Comparison
from trellis.protocols.delivery.copies import Copies
from trellis.protocols.delivery.identities import Ranges
from trellis.protocols.delivery.leaving import LeavingInOrder
from trellis.protocols.delivery.link import Channel
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import Stream, TopicState
from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places
from trellis.reached import reached


class Neighbors:
    """The links and interests of the overlay, as delivery last saw them."""

    def __init__(self, state: State, comparison: Comparison, copies: Copies, leaving: LeavingInOrder) -> None:
        self.state, self.comparison, self.copies, self.leaving = state, comparison, copies, leaving
        self.overlay, self.config = state.overlay, state.config
        self.links: dict[NodeId, int] = {}  # neighbor -> its interest, as topic bits
        self.interest = 0  # our own interest, as topic bits

    def look(self) -> None:
        """Find out what has changed in the overlay since the last call, and follow it."""
        overlay, before = self.overlay, self.links
        now, interest = overlay.neighbors(), overlay.interest
        if now == before and interest == self.interest:
            return
        for peer in [peer for peer in before if peer not in now]:
            self._drop(peer)
        if interest != self.interest:
            self._take_part(interest)
        newly_ours = interest & ~self.interest
        for peer, wants in now.items():
            if peer not in self.state.channels:
                self._open(peer)
                shared = wants & interest
            else:
                shared = wants & interest & (newly_ours | ~before.get(peer, 0))
                self._unshare(peer, before.get(peer, 0) & interest & ~wants)
            for bit in places(shared):
                self.comparison.share(self.state.topics[overlay.table.names[bit]], peer)
        self.links, self.interest = dict(now), interest

    def down(self, peer: NodeId) -> None:
        """Drop a link that went down, even if it is up again already."""
        self._drop(peer)
        self.links.pop(peer, None)

    def begin_anew(self, peer: NodeId, *, asks: bool = False) -> None:
        """Compare all topics with `peer` again: our session is new, so whatever was queued is lost."""
        self.state.counters.restarts += 1
        reached("a link begins a new session")
        for topic in self.state.topics.values():
            link = topic.links.get(peer)
            if link is not None:
                link.is_open = False  # the peer compares as well, in its own new session
                link.announce = {}
                self.comparison.tell(topic, peer, link, asks=asks)

    def _open(self, peer: NodeId) -> None:
        self.leaving.is_back(peer)
        self.state.channels[peer] = Channel(self.config, self.state.new_session(), self.state.push)

    def _drop(self, peer: NodeId) -> None:
        channel = self.state.channels.pop(peer, None)
        if channel is None:
            return
        self.state.counters.resends += channel.resends
        links = [(topic.topic, topic.links[peer]) for topic in self.state.topics.values() if peer in topic.links]
        self.leaving.lost(peer, frozenset(topic for topic, link in links if not link.is_leaving))
        for topic in self.state.topics.values():
            self.comparison.part(topic, peer)
        self.copies.link_down(peer)

    def _unshare(self, peer: NodeId, topics: int) -> None:
        """Stop using a link for these topics. The link itself stands, and other links carry the topics."""
        for bit in places(topics):
            topic = self.state.topics[self.overlay.table.names[bit]]
            if peer in topic.links:
                self.state.put(peer, m.Part(topic.topic))
                self.comparison.part(topic, peer)

    def _take_part(self, interest: int) -> None:
        """Begin and end taking part in topics, so that they match `interest`."""
        names, before = self.overlay.table.names, self.interest
        for bit in places(interest & ~before):
            topic = self.state.topic(names[bit])
            topic.takes_part = True
            topic.is_leaving, topic.is_settled = False, topic.resumes
            topic.since_ms = topic.changed_ms = self.state.now_ms
            for stream in topic.streams.values():
                if stream.id.origin != self.state.id:
                    # Nearly always we hold nothing of it: take the window of the others again.
                    stream.seen = Ranges.of(stream.entries)
                    stream.top = stream.seen.last
            if topic.resumes:
                self.state.changed[topic.topic] = None
                self.comparison.order.resume(topic)
        for bit in places(before & ~interest):
            self._take_no_part(self.state.topics[names[bit]])

    def _take_no_part(self, topic: TopicState) -> None:
        """Leave a topic: drop its links, and the messages of other publishers."""
        for peer in list(topic.links):
            self.state.put(peer, m.Part(topic.topic))
            self.comparison.part(topic, peer)
        for stream in topic.streams.values():
            if self.state.is_ours(stream):
                self._note_what_is_left(stream)
            else:
                self._drop_all(stream)
            stream.waiting.clear()
        topic.missing.clear()
        topic.takes_part = topic.is_settled = topic.is_leaving = False
        self.leaving.over(topic.topic)

    def _drop_all(self, stream: Stream) -> None:
        """Drop the messages of another publisher. Our own are kept for their window, in case we take part again.

        The node that took our messages over may crash. Without them, subscribers would wait for them before later
        messages.
        """
        for entry in list(stream.entries.values()):
            self.state.store.drop(entry)

    def _note_what_is_left(self, stream: Stream) -> None:
        """Remember whether other nodes keep the messages of our own stream after we have left its topic.

        Later messages tell subscribers (`State.floor`). If nobody took the messages over, a subscriber must not wait
        for them.
        """
        if not self.leaving.was_taken_over(stream.id.topic):
            stream.left = None
        elif stream.entries:
            stream.left = self.state.floor(stream), self.state.now_ms + self.state.keep_ms
