"""The goal of a neighbor maintenance task: whether it needs another neighbor, and which one it can do without.

`CoverTopics` is the goal of SpiderCast: at least K neighbors subscribe to each topic of our interest.  [SC Fig. 3]
`HaveLinks` is the goal of the baselines: a fixed number of neighbors.  [SC §3.9.1, A-SPC-20]

Both return bitsets. `under()` is 0 if nothing is missing, and `under_without(...)` if nothing would be missing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from trellis.protocols.coverage import Coverage
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.membership import InterestView
from trellis.protocols.spidercast.messages import Stamp
from trellis.protocols.topics import TopicTable, places

_ANY_TOPIC = -1  # The bitset of all topics: any neighbor helps.


class Me:
    """What a node knows about itself. Its tasks share this object."""

    def __init__(self, node: NodeId, topics: tuple[Topic, ...], table: TopicTable, incarnation: int) -> None:
        self.id, self.table = node, table
        self.topics = table.normal(topics)
        self.interest = table.own_bits(self.topics)
        self.stamp = Stamp(incarnation, 0)

    def change(self, interest: int) -> None:
        """Set the interest of the node. The version of its stamp grows."""
        self.interest = interest
        self.topics = self.table.topics(interest)
        self.stamp = Stamp(self.stamp.incarnation, self.stamp.version + 1)


class Goal(Protocol):
    """What a task asks about its neighbors. The task reports gained and lost neighbors."""

    @property
    def active(self) -> bool:
        """Return whether the task's loop runs. If not (K = 0), the task still accepts links."""
        ...

    @property
    def limit(self) -> int:
        """Return L^max."""
        ...

    @property
    def depends_on_view(self) -> bool:
        """Return whether a change of the view could change `under`."""
        ...

    def gain(self, interest: int) -> None:
        """Note a new neighbor with this interest."""
        ...

    def lose(self, interest: int) -> None:
        """Note the loss of a neighbor with this interest."""
        ...

    def under(self, neighbors: Collection[NodeId]) -> int:
        """Return the topics that are under-covered (CALCKUNCOVERED)."""
        ...

    def under_without(self, under: int, interest: int, also: int | None = None) -> int:
        """Return the same after the loss of a neighbor with this interest, and of a second one if `also` is given."""
        ...


class CoverTopics:
    """Cover each topic of our interest min(K, known other subscribers) times (A-SPC-10), or K times (`literal`)."""

    def __init__(self, k: int, me: Me, view: InterestView, *, literal: bool = False) -> None:
        self.k, self.me, self.view, self.literal = k, me, view, literal
        self.coverage = Coverage()

    @property
    def active(self) -> bool:
        return self.k > 0

    @property
    def limit(self) -> int:
        return self.k * self.me.interest.bit_count()  # [SC Fig. 2, l. 4]

    @property
    def depends_on_view(self) -> bool:
        return self.me.interest & ~self.coverage.at_least(self.k) != 0

    def gain(self, interest: int) -> None:
        self.coverage.add(interest)

    def lose(self, interest: int) -> None:
        self.coverage.remove(interest)

    def under(self, neighbors: Collection[NodeId]) -> int:
        lacking = self.me.interest & ~self.coverage.at_least(self.k)
        if lacking and not self.literal:
            for index in places(lacking):
                topic = 1 << index
                if not self._somebody_is_left(topic, neighbors):
                    lacking ^= topic
        return lacking

    def under_without(self, under: int, interest: int, also: int | None = None) -> int:
        # The view knows this neighbor as a subscriber of its topics. So without it a topic is under-covered exactly if
        # it is covered K times or less now.
        lost = interest & self.me.interest & ~self.coverage.at_least(self.k + 1)
        if also is not None:
            lost |= also & self.me.interest & ~self.coverage.at_least(self.k + 1)
            lost |= interest & also & self.me.interest & ~self.coverage.at_least(self.k + 2)
        return under | lost

    def _somebody_is_left(self, topic: int, neighbors: Collection[NodeId]) -> bool:
        """Return whether the view knows a subscriber that is not our neighbor."""
        known = self.view.subscribers(topic)
        if known > len(neighbors):
            return True
        return known > sum(1 for node in neighbors if self.view.interest_of(node) & topic)


class HaveLinks:
    """Have a fixed number of links, to any nodes."""

    def __init__(self, links: int) -> None:
        self.links, self.count = links, 0

    @property
    def active(self) -> bool:
        return self.links > 0

    @property
    def limit(self) -> int:
        return self.links

    @property
    def depends_on_view(self) -> bool:
        return self.count < self.links

    def gain(self, interest: int) -> None:
        self.count += 1

    def lose(self, interest: int) -> None:
        self.count -= 1

    def under(self, neighbors: Collection[NodeId]) -> int:
        return _ANY_TOPIC if self.count < self.links else 0

    def under_without(self, under: int, interest: int, also: int | None = None) -> int:
        return int(self.count - (1 if also is None else 2) < self.links)
