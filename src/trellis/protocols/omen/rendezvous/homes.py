"""The root rendezvous: the roots of a topic's parts meet at its home location.  [docs/omen.md, condition 4]

This is the fallback below all repairs. Each connected part of a topic has one root (`hints.py`), so a topic with two
lasting roots is split. The home location of a topic is the node responsible for the topic's hash on the ring.

A node reports to the home location when it has been the root of a topic for a while, because hints take time to spread.
A node without a neighbor on the topic reports sooner. The report is repeated every `net_periods` until the home
answers, then every `root_beat` periods. A home that has heard of several roots tells the other roots about the one that
reports: that one is alive, while the others may have crashed. The root of greater key opens a link to the other. If the
root of smaller key hears first, it tells the other. A home whose range of the ring has shrunk passes on what it has
heard to the new homes.

This repairs splits that no coordinator has seen: two nodes that take up a new topic at once, joiners that know no
subscriber, more crashes at once than promised, and healed partitions.

`Homes` is the memory of a home location. `Roots` (roots.py) sends and handles the messages.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.links.hints import root_key

KEPT = 3  # A report counts for so many times `beat`.
ROOTS_MAX = 16  # Most roots of one topic that are kept: those of smallest key.


class Homes:
    """The roots that have reported to this node as a home location."""

    def __init__(self, beat: int, topics_max: int = 65_536) -> None:
        """Create an empty memory. `beat` is the number of periods between two reports of a root."""
        self.beat, self.topics_max = beat, topics_max
        self.roots: dict[Topic, dict[NodeId, int]] = {}  # topic -> its roots, each with the tick of its last report

    def report(self, topic: Topic, root: NodeId, tick: int) -> list[NodeId]:
        """Note the report of a root. Return the other roots of the topic, which must be told about this one."""
        roots = self.roots.get(topic)
        if roots is None:
            if len(self.roots) >= self.topics_max:  # Topics that we have keep their places. A new one may report again.
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
        """Forget a topic. Return its roots, without those that have not reported for two beats."""
        return [root for root, heard in self.roots.pop(topic).items() if heard > tick - 2 * self.beat]

    def forget_old(self, tick: int) -> None:
        """Forget topics none of whose roots has reported for a while."""
        over = tick - KEPT * self.beat
        self.roots = {
            topic: roots for topic, roots in self.roots.items() if any(heard > over for heard in roots.values())
        }
