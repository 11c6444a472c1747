"""The net below all repairs: the roots of a topic's parts meet at its home location.  [docs/omen.md, condition 4]

The home location of a topic is the node responsible for its hash on the ring. A node that has been the root of a topic
for a while (hints must have had time to spread), or that has no neighbor on it, reports to the home location: at once,
again after `net_periods` until the home answers, then every `root_beat` periods. A home that has heard of several roots
tells the others of the one that reports: that one is alive, the others may not be. The one of greater key links to the
other, which passes the word on if it hears first. A node whose range of the ring has become smaller hands on what it
has heard to the new homes.

This repairs what no coordinator saw: twin joins on a new topic, joiners that know no subscriber, more failures than
promised, healed partitions.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.hints import root_key

KEPT = 3  # reports are believed for so many report periods
ROOTS_MAX = 16  # of one topic: those of smallest key


class Homes:
    """What a home location has heard."""

    def __init__(self, beat: int, topics_max: int = 65_536) -> None:
        """`beat`: periods between two reports of a root."""
        self.beat, self.topics_max = beat, topics_max
        self.roots: dict[Topic, dict[NodeId, int]] = {}  # a topic -> its roots, and the tick at which each was heard

    def report(self, topic: Topic, root: NodeId, tick: int) -> list[NodeId]:
        """Return the other roots of the topic, which shall hear of this one."""
        roots = self.roots.get(topic)
        if roots is None:
            if len(self.roots) >= self.topics_max:  # topics that are known stay so: their roots report again
                return []
            roots = self.roots[topic] = {}
        roots[root] = tick
        for name in [name for name, heard in roots.items() if heard <= tick - KEPT * self.beat]:
            del roots[name]
        ranked = sorted(roots, key=lambda name: (root_key(topic, name), name))
        for name in ranked[ROOTS_MAX:]:
            del roots[name]
        return [name for name in ranked[:ROOTS_MAX] if name != root]

    def give_up(self, topic: Topic, tick: int) -> list[NodeId]:
        """Forget a topic. Return its roots, without those that should have reported again since."""
        return [root for root, heard in self.roots.pop(topic).items() if heard > tick - 2 * self.beat]

    def forget_old(self, tick: int) -> None:
        over = tick - KEPT * self.beat
        self.roots = {
            topic: roots for topic, roots in self.roots.items() if any(heard > over for heard in roots.values())
        }
