"""What a neighbour maintenance task wants: when it needs another neighbour, and which one it can do without.

`CoverTopics` is SpiderCast's: each topic of our interest is wanted by at least K neighbours.  [SC Fig. 3]
`HaveLinks` is the baselines': a fixed number of neighbours.  [SC §3.9.1, A-SPC-20]

Both answer with bitsets: `under()` is empty where nothing is missing, `under_without(...)` where nothing would be.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from trellis.protocols.coverage import Coverage
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.membership import InterestView
from trellis.protocols.spidercast.messages import Stamp
from trellis.protocols.topics import TopicTable, places

_ANY_TOPIC = -1  # a bitset of ones without end: a neighbor helps whatever it wants


class Me:
    """What a node knows about itself, shared by its tasks."""

    def __init__(self, node: NodeId, topics: tuple[Topic, ...], table: TopicTable, incarnation: int) -> None:
        self.id, self.table = node, table
        self.topics = table.normal(topics)
        self.interest = table.own_bits(self.topics)
        self.stamp = Stamp(incarnation, 0)

    def change(self, interest: int) -> None:
        self.interest = interest
        self.topics = self.table.topics(interest)
        self.stamp = Stamp(self.stamp.incarnation, self.stamp.version + 1)


class Goal(Protocol):
    @property
    def active(self) -> bool:
        """False: the task's loop does not run (K = 0); it still accepts links."""
        ...

    @property
    def limit(self) -> int:
        """L^max."""
        ...

    @property
    def depends_on_view(self) -> bool:
        """True where a change of the view could change `under`."""
        ...

    def gain(self, interest: int) -> None: ...

    def lose(self, interest: int) -> None: ...

    def under(self, neighbors: Collection[NodeId]) -> int:
        """CALCKUNCOVERED, as the bitset of the under-covered topics."""
        ...

    def under_without(self, under: int, interest: int, also: int | None = None) -> int:
        """The same without a neighbour of that interest, and without a second one."""
        ...


class CoverTopics:
    """Each topic of our interest is covered min(K, known other subscribers) times (A-SPC-10), or K times (literal)."""

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
            for place in places(lacking):
                topic = 1 << place
                if not self._somebody_is_left(topic, neighbors):
                    lacking ^= topic
        return lacking

    def under_without(self, under: int, interest: int, also: int | None = None) -> int:
        # A topic that this neighbour wants is known to have it as a subscriber, so losing the neighbour leaves the
        # topic under-covered exactly where it is now covered K times or less.
        lost = interest & self.me.interest & ~self.coverage.at_least(self.k + 1)
        if also is not None:
            lost |= also & self.me.interest & ~self.coverage.at_least(self.k + 1)
            lost |= interest & also & self.me.interest & ~self.coverage.at_least(self.k + 2)
        return under | lost

    def _somebody_is_left(self, topic: int, neighbors: Collection[NodeId]) -> bool:
        """Does the view know a subscriber that is not our neighbour?"""
        known = self.view.subscribers(topic)
        if known > len(neighbors):
            return True
        return known > sum(1 for node in neighbors if self.view.interest_of(node) & topic)


class HaveLinks:
    """A fixed target degree: `links` of them, wherever they lead."""

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
