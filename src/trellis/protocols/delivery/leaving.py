"""Leaving a topic in order: everything held is first at a neighbour that stays.  [docs/delivery.md, Leaving in order]

1. The node says `Leaving` on its links of the topic. From then on it names itself as a holder of nothing.
2. Each neighbour answers with a comparison, and whether it stays (it does not, if it leaves as well). What it lacks is
   pushed to it. When one that stays has acknowledged all of that, the topic is drained.
3. Only then is the overlay told, which mends around the node. Meanwhile the node forwards. What comes in this time is
   held by whoever sent it, and nobody who leaves counts on a node that leaves.

To the overlay, a node in steps 1 and 2 is one like any other: if all its neighbours go, the mend gives it new ones. So
neighbours that leave at once cannot wait for each other, as long as anybody stays.
"""

from __future__ import annotations

from trellis.protocols.delivery.compare import Comparison
from trellis.protocols.delivery.messages import Leaving, Stay
from trellis.protocols.delivery.state import State
from trellis.protocols.delivery.streams import TopicState
from trellis.protocols.effects import NodeId, Topic
from trellis.reached import reached


class Departure:
    """One topic that we leave."""

    def __init__(self, now_ms: int) -> None:
        self.since_ms = now_ms
        self.marks: dict[NodeId, tuple[int, int]] = {}  # who stays -> session, and what it must have acknowledged
        self.is_alone = False  # the topic's home knows nobody else
        self.was_taken_over = False  # a node that stays has acknowledged, at some time, all that we held
        self.was_late = False


class LeavingInOrder:
    def __init__(self, state: State, comparison: Comparison) -> None:
        self.state, self.comparison = state, comparison
        self.departures: dict[Topic, Departure] = {}
        # Neighbors that we have lost within the window: when, and on which topics they may want what we hold. A node
        # whose process has ended for certain wants nothing.
        self._lost: dict[NodeId, tuple[int, frozenset[Topic]]] = {}

    def begin(self, topic: TopicState) -> None:
        if topic.topic not in self.departures:
            topic.is_leaving = True
            self.departures[topic.topic] = Departure(self.state.now_ms)
            self._say(topic)

    def cancel(self, topic: TopicState) -> None:
        """It stays after all."""
        self.departures.pop(topic.topic, None)
        topic.is_leaving = False
        for peer, way in topic.ways.items():
            self.comparison.tell(topic, peer, way)

    def over(self, topic: Topic) -> None:
        self.departures.pop(topic, None)

    def on_leaving(self, peer: NodeId, item: Leaving) -> None:
        topic = self.state.topics.get(item.topic)
        way = topic.ways.get(peer) if topic is not None else None
        if topic is None or way is None or not self.comparison.may_ask(peer):
            return  # it says so again in its next tick
        way.is_leaving = True
        self.comparison.tell(topic, peer, way)
        self.state.put(peer, Stay(item.topic, topic.takes_part and self.state.vouches(topic)))

    def on_stay(self, peer: NodeId, item: Stay) -> None:
        """Its comparison came just before: what it lacks is put into the link, or announced if there was no room."""
        topic, departure = self.state.topics.get(item.topic), self.departures.get(item.topic)
        way = topic.ways.get(peer) if topic is not None else None
        channel = self.state.links.get(peer)
        if departure is None or way is None or channel is None:
            return
        if item.stays and not way.announce and not self.comparison.is_later(peer, item.topic):
            if departure.marks.get(peer, (0, 0))[0] != channel.session:
                departure.marks[peer] = (channel.session, channel.puts)
        else:
            departure.marks.pop(peer, None)

    def tick(self) -> list[Topic]:
        """Say it again where nobody has answered. The topics whose homes should be asked."""
        alone = []
        for name, departure in self.departures.items():
            if not self.is_drained(name):
                self._say(self.state.topics[name])
                departure.marks = {peer: mark for peer, mark in departure.marks.items() if self._is_up(peer, mark)}
                if not departure.marks:
                    alone.append(name)
        return alone

    def on_alone(self, topic: Topic) -> None:
        """Nobody else subscribes: whoever takes part all the same only publishes, and is owed nothing.

        A neighbor that has fallen silent may be cut off. Its registration has run out, but what we hold is kept for it.
        """
        departure = self.departures.get(topic)
        if departure is None or any(topic in topics for _, topics in self._lost_lately().values()):
            return
        if self.state.only_subscribers_count or not self.state.topics[topic].ways:
            departure.is_alone = True

    def lost(self, peer: NodeId, topics: frozenset[Topic]) -> None:
        """The link to a neighbor is gone that had not said on these topics that it leaves."""
        if peer not in self._lost:
            self._lost = {**self._lost_lately(), peer: (self.state.now_ms, topics)}

    def ended(self, peer: NodeId) -> None:
        """The process of `peer` has ended for certain, whether or not we know yet that the link is gone."""
        self._lost = {**self._lost_lately(), peer: (self.state.now_ms, frozenset())}

    def is_back(self, peer: NodeId) -> None:
        self._lost.pop(peer, None)

    def _lost_lately(self) -> dict[NodeId, tuple[int, frozenset[Topic]]]:
        oldest = self.state.now_ms - self.state.config.window_ms
        return {peer: lost for peer, lost in self._lost.items() if lost[0] >= oldest}

    def is_stuck(self, topic: Topic) -> bool:
        """We leave, and nobody who stays and subscribes has answered."""
        return topic in self.departures and not self.departures[topic].marks and not self.is_drained(topic)

    def is_drained(self, topic: Topic) -> bool:
        state, departure = self.state, self.departures.get(topic)
        if departure is None or departure.is_alone or not any(s.entries for s in state.topics[topic].streams.values()):
            return True
        is_taken_over = any(
            self._is_up(peer, mark) and state.links[peer].taken >= mark[1] for peer, mark in departure.marks.items()
        )
        if is_taken_over and not departure.was_taken_over:
            reached("a node leaves a topic drained")
        departure.was_taken_over = departure.was_taken_over or is_taken_over
        return is_taken_over

    def was_taken_over(self, topic: Topic) -> bool:
        """Return whether another node keeps what we held of a topic that we leave."""
        departure = self.departures.get(topic)
        return departure is not None and departure.was_taken_over and not departure.is_alone

    def has_left_nothing(self, topic: Topic) -> bool:
        """Return whether another node holds what we held of a topic that we leave, or nobody else subscribes to it.

        That nobody does must be known in time: later, the registrations of nodes that are only silent run out.
        """
        departure = self.departures.get(topic)
        return departure is not None and (
            departure.was_taken_over or (self.is_drained(topic) and not departure.was_late)
        )

    def is_late(self, topic: Topic) -> bool:
        """Nobody took over what is held, and it is not waited for any longer: counted."""
        departure = self.departures[topic]
        is_late = self.state.now_ms - departure.since_ms > self.state.config.leave_ms_max
        self.state.counters.left_undrained += is_late and not departure.was_late
        departure.was_late = is_late
        return is_late

    def _is_up(self, peer: NodeId, mark: tuple[int, int]) -> bool:
        """Does the session still stand in which it answered?"""
        channel = self.state.links.get(peer)
        return channel is not None and channel.session == mark[0]

    def _say(self, topic: TopicState) -> None:
        for peer, _ in self.state.ways(topic):
            self.state.put(peer, Leaving(topic.topic))
