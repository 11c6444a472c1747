"""Links and topics as they come and go: what the overlay did, and what delivery makes of it."""

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


class Neighbours:
    def __init__(self, state: State, comparison: Comparison, copies: Copies, leaving: LeavingInOrder) -> None:
        self.state, self.comparison, self.copies, self.leaving = state, comparison, copies, leaving
        self.overlay, self.config = state.overlay, state.config
        self.links: dict[NodeId, int] = {}  # with the interests of their other ends, as the overlay said last
        self.interest = 0  # our own, as the overlay said last

    def look(self) -> None:
        overlay, before = self.overlay, self.links
        now, interest = overlay.neighbours(), overlay.interest
        if now == before and interest == self.interest:
            return
        for peer in [peer for peer in before if peer not in now]:
            self._drop(peer)
        if interest != self.interest:
            self._take_part(interest)
        newly_ours = interest & ~self.interest
        for peer, wants in now.items():
            if peer not in self.state.links:
                self._open(peer)
                shared = wants & interest
            else:
                shared = wants & interest & (newly_ours | ~before.get(peer, 0))
                self._unshare(peer, before.get(peer, 0) & interest & ~wants)
            for place in places(shared):
                self.comparison.share(self.state.topics[overlay.table.names[place]], peer)
        self.links, self.interest = dict(now), interest

    def down(self, peer: NodeId) -> None:
        self._drop(peer)
        self.links.pop(peer, None)

    def begin_anew(self, peer: NodeId, *, asks: bool = False) -> None:
        """A new session of ours: whatever waited is gone, so compare again."""
        self.state.counters.restarts += 1
        reached("a link begins a new session")
        for topic in self.state.topics.values():
            way = topic.ways.get(peer)
            if way is not None:
                way.is_open = False  # the peer compares as well, in its own new session
                way.announce = {}
                self.comparison.tell(topic, peer, way, asks=asks)

    def _open(self, peer: NodeId) -> None:
        self.leaving.is_back(peer)
        self.state.links[peer] = Channel(self.config, self.state.new_session(), self.state.push)

    def _drop(self, peer: NodeId) -> None:
        channel = self.state.links.pop(peer, None)
        if channel is None:
            return
        self.state.counters.resends += channel.resends
        ways = [(topic.topic, topic.ways[peer]) for topic in self.state.topics.values() if peer in topic.ways]
        self.leaving.lost(peer, frozenset(topic for topic, way in ways if not way.is_leaving))
        for topic in self.state.topics.values():
            self.comparison.part(topic, peer)
        self.copies.link_down(peer)

    def _unshare(self, peer: NodeId, topics: int) -> None:
        """The link stands, and carries these no more: another path does, or another tree link."""
        for place in places(topics):
            topic = self.state.topics[self.overlay.table.names[place]]
            if peer in topic.ways:
                self.state.put(peer, m.Part(topic.topic))
                self.comparison.part(topic, peer)

    def _take_part(self, interest: int) -> None:
        names, before = self.overlay.table.names, self.interest
        for place in places(interest & ~before):
            topic = self.state.topic(names[place])
            topic.takes_part = True
            topic.is_settled = topic.is_leaving = False
            topic.since_ms = topic.changed_ms = self.state.now_ms
            for stream in topic.streams.values():
                if stream.id.origin != self.state.id:
                    stream.seen, stream.top = Ranges(), 0  # nothing of it is held: take the window of the others anew
        for place in places(before & ~interest):
            self._take_no_part(self.state.topics[names[place]])

    def _take_no_part(self, topic: TopicState) -> None:
        for peer in list(topic.ways):
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
        """Forget the messages of another publisher. We keep our own for their window, in case that we come back.

        The node that took them over may crash. Then later messages of ours would wait for them everywhere.
        """
        for entry in list(stream.entries.values()):
            self.state.store.drop(entry)

    def _note_what_is_left(self, stream: Stream) -> None:
        """Remember whether other nodes keep the messages of this own stream after we have left its topic.

        Later messages tell it to subscribers (`State.floor`). Where nobody took them over, a subscriber must not wait
        for them.
        """
        if not self.leaving.was_taken_over(stream.id.topic):
            stream.left = None
        elif stream.entries:
            stream.left = self.state.floor(stream), self.state.now_ms + self.config.window_ms
