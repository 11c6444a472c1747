"""Leaving a topic in order: first, a neighbor that stays holds every message.  [docs/delivery.md, Leaving in order]

1. The node says `Leaving` on its links of the topic. From then on it does not name itself as a holder.
2. Each neighbor answers with a comparison, and says whether it stays (a neighbor that leaves as well does not). The
   node pushes what the neighbor lacks. When a neighbor that stays has acknowledged all of it, the topic is drained.
3. Only then does the node tell the overlay, which repairs around it. In the meantime the node forwards messages. Their
   senders hold them, and a node that leaves does not rely on another one that leaves.

During steps 1 and 2 the overlay treats the node as any other. If all its neighbors go, a repair gives it new ones. So
neighbors that leave at the same time do not wait for each other, as long as any node stays.
"""

from __future__ import annotations

from trellis.protocols.delivery.compare import Comparison
from trellis.protocols.delivery.messages import Leaving, Stay
from trellis.protocols.delivery.state import State, is_internal
from trellis.protocols.delivery.streams import TopicState
from trellis.protocols.effects import NodeId, Topic
from trellis.reached import reached


class Departure:
    """A topic that this node is leaving."""

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        # Neighbor that stays -> our session with it, and how many items it must have acknowledged there.
        self.marks: dict[NodeId, tuple[int, int]] = {}
        self.is_alone = False  # The topic's home knows no other subscriber.
        self.was_taken_over = False  # A neighbor that stays has, at some time, acknowledged all that we held.
        self.was_late = False  # `leave_ms_max` passed before the topic was drained.


class LeavingInOrder:
    """The topics that this node is leaving."""

    def __init__(self, state: State, comparison: Comparison) -> None:
        self.state, self.comparison = state, comparison
        self.departures: dict[Topic, Departure] = {}
        # Neighbors that we have lost within the window: when, and the topics on which they may need our messages. A
        # node whose process has certainly ended needs none.
        self._lost: dict[NodeId, tuple[int, frozenset[Topic]]] = {}

    def begin(self, topic: TopicState) -> None:
        """Start to leave a topic."""
        if topic.topic not in self.departures:
            topic.is_leaving = True
            self.departures[topic.topic] = Departure(self.state.now_ms)
            self._say(topic)

    def cancel(self, topic: TopicState) -> None:
        """Stay in the topic after all."""
        self.departures.pop(topic.topic, None)
        topic.is_leaving = False
        for peer, link in topic.links.items():
            self.comparison.tell(topic, peer, link)

    def over(self, topic: Topic) -> None:
        """Forget the departure: the topic has been left."""
        self.departures.pop(topic, None)

    def on_leaving(self, peer: NodeId, item: Leaving) -> None:
        """Answer a neighbor that leaves a topic."""
        topic = self.state.topics.get(item.topic)
        link = topic.links.get(peer) if topic is not None else None
        if topic is None or link is None or not self.comparison.may_ask(peer):
            return  # it says so again in its next tick
        link.is_leaving = True
        self.comparison.tell(topic, peer, link)
        self.state.put(peer, Stay(item.topic, topic.takes_part and self.state.vouches(topic)))

    def on_stay(self, peer: NodeId, item: Stay) -> None:
        """Take in a neighbor's answer. Its comparison came just before.

        So what it lacks is in the link's queue by now, or is to be announced if the queue was full.
        """
        topic, departure = self.state.topics.get(item.topic), self.departures.get(item.topic)
        link = topic.links.get(peer) if topic is not None else None
        channel = self.state.channels.get(peer)
        if departure is None or link is None or channel is None:
            return
        if item.stays and not link.announce and not self.comparison.is_later(peer, item.topic):
            if departure.marks.get(peer, (0, 0))[0] != channel.session:
                departure.marks[peer] = (channel.session, channel.puts)
        else:
            departure.marks.pop(peer, None)

    def tick(self) -> list[Topic]:
        """Repeat `Leaving` where nothing is drained. Return the topics whose homes should be asked."""
        alone = []
        for name, departure in self.departures.items():
            if not self.is_drained(name):
                self._say(self.state.topics[name])
                departure.marks = {peer: mark for peer, mark in departure.marks.items() if self._is_up(peer, mark)}
                if not departure.marks:
                    alone.append(name)
        return alone

    def on_alone(self, topic: Topic) -> None:
        """Note that nobody else subscribes. Other nodes that take part only publish, and no message is owed to them.

        A neighbor that has fallen silent may be cut off. Its registration has run out, but what we hold is kept for it,
        until `leave_ms_max` after we began to leave. Messages of internal topics are not kept.
        """
        departure = self.departures.get(topic)
        if departure is None:
            return
        if not is_internal(topic) and any(topic in topics for _, topics in self._lost_lately().values()):
            since_ms = min(departure.since_ms for departure in self.departures.values())
            if self.state.now_ms - since_ms <= self.state.config.leave_ms_max:
                return
            self.state.counters.left_undrained += not departure.was_late
            departure.was_late = True
        if self.state.only_subscribers_count or not self.state.topics[topic].links:
            departure.is_alone = True

    def lost(self, peer: NodeId, topics: frozenset[Topic]) -> None:
        """The link to a neighbor is down, and the neighbor had not said on these topics that it leaves."""
        if peer not in self._lost:
            self._lost = {**self._lost_lately(), peer: (self.state.now_ms, topics)}

    def ended(self, peer: NodeId) -> None:
        """The process of `peer` has certainly ended, whether or not we know yet that the link is down."""
        self._lost = {**self._lost_lately(), peer: (self.state.now_ms, frozenset())}

    def is_back(self, peer: NodeId) -> None:
        """A neighbor has a link again."""
        self._lost.pop(peer, None)

    def _lost_lately(self) -> dict[NodeId, tuple[int, frozenset[Topic]]]:
        """Return the neighbors that we have lost within the window."""
        oldest = self.state.now_ms - self.state.config.window_ms
        return {peer: lost for peer, lost in self._lost.items() if lost[0] >= oldest}

    def is_stuck(self, topic: Topic) -> bool:
        """Return whether we leave the topic and no subscriber that stays has answered."""
        return topic in self.departures and not self.departures[topic].marks and not self.is_drained(topic)

    def is_drained(self, topic: Topic) -> bool:
        """Return whether a neighbor that stays holds all our messages of a topic, or nobody needs them."""
        state, departure = self.state, self.departures.get(topic)
        if departure is None or departure.is_alone or not any(s.entries for s in state.topics[topic].streams.values()):
            return True
        is_taken_over = any(
            self._is_up(peer, mark) and state.channels[peer].taken >= mark[1] for peer, mark in departure.marks.items()
        )
        if is_taken_over and not departure.was_taken_over:
            reached("a node leaves a topic drained")
        departure.was_taken_over = departure.was_taken_over or is_taken_over
        return is_taken_over

    def was_taken_over(self, topic: Topic) -> bool:
        """Return whether another node keeps our messages of a topic that we leave."""
        departure = self.departures.get(topic)
        return departure is not None and departure.was_taken_over and not departure.is_alone

    def has_left_nothing(self, topic: Topic) -> bool:
        """Return whether our messages of a topic that we leave are held elsewhere, or nobody else subscribes.

        It must be known before `leave_ms_max` that nobody subscribes. Later, registrations of silent nodes expire.
        """
        departure = self.departures.get(topic)
        return departure is not None and (
            departure.was_taken_over or (self.is_drained(topic) and not departure.was_late)
        )

    def is_late(self, topic: Topic) -> bool:
        """Return whether `leave_ms_max` has passed, and count the topic as undrained once."""
        departure = self.departures[topic]
        is_late = self.state.now_ms - departure.since_ms > self.state.config.leave_ms_max
        self.state.counters.left_undrained += is_late and not departure.was_late
        departure.was_late = is_late
        return is_late

    def _is_up(self, peer: NodeId, mark: tuple[int, int]) -> bool:
        """Return whether the session in which the peer answered still stands."""
        channel = self.state.channels.get(peer)
        return channel is not None and channel.session == mark[0]

    def _say(self, topic: TopicState) -> None:
        """Say `Leaving` on all open links of the topic."""
        for peer, _ in self.state.open_links(topic):
            self.state.put(peer, Leaving(topic.topic))
