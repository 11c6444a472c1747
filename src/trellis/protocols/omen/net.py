"""The net below all repairs: the roots of a topic's parts meet at its home location.  [docs/omen.md, condition 4]

The home location of a topic is the node responsible for its hash on the ring. A node that has been the root of a topic
for a while (hints must have had time to spread), or that has no neighbour on it, reports to the home location once in
`net_periods`. A home that hears two roots tells the one of greater key to link to the other. This mends what no repair
saw: twin joins on a new topic, joiners that know no subscriber, more failures than promised, healed partitions.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.hints import root_key

KEPT = 3  # reports are believed for so many report periods
ROOTS_MAX = 16  # of one topic: those of smallest key, one of which every other one is told to link to


class Homes:
    """What a home location has heard."""

    def __init__(self, net_periods: int, topics_max: int = 65_536) -> None:
        self.net_periods, self.topics_max = net_periods, topics_max
        self.roots: dict[Topic, dict[NodeId, int]] = {}  # a topic -> its roots, and the tick at which each was heard

    def report(self, topic: Topic, root: NodeId, tick: int) -> NodeId | None:
        """Whom that root shall link to, if it is not the only one."""
        roots = self.roots.get(topic)
        if roots is None:
            if len(self.roots) >= self.topics_max:  # topics that are known stay so: their roots report again
                return None
            roots = self.roots[topic] = {}
        roots[root] = tick
        for name in [name for name, heard in roots.items() if heard <= tick - KEPT * self.net_periods]:
            del roots[name]
        ranked = sorted(roots, key=lambda name: (root_key(topic, name), name))
        for name in ranked[ROOTS_MAX:]:
            del roots[name]
        return ranked[0] if ranked[0] != root else None

    def forget_old(self, tick: int) -> None:
        over = tick - KEPT * self.net_periods
        self.roots = {
            topic: roots for topic, roots in self.roots.items() if any(heard > over for heard in roots.values())
        }
