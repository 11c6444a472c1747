"""Read from the trees of the nodes what a publication would do now: which nodes get it, and which only relay it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.magnet import MagnetNode
from trellis.simulate.system import World

if TYPE_CHECKING:
    from trellis.protocols.magnet.tree import Tree


@dataclass
class Reach:
    """The nodes that a publication on a topic would reach."""

    topic: Topic
    home: NodeId | None
    subscribers: list[NodeId]
    # node that gets it -> its parent; the home has None
    parents: dict[NodeId, NodeId | None] = field(default_factory=dict)
    repeated: list[NodeId] = field(default_factory=list)  # nodes that would get it twice

    @property
    def relays(self) -> list[NodeId]:
        """Return the nodes that get it without subscribing, possibly with the home location (A-MAG-21).  [MG §4]"""
        wanted = set(self.subscribers)
        return [node for node in self.parents if node not in wanted]

    @property
    def reached(self) -> int:
        return sum(node in self.parents for node in self.subscribers)

    def path(self, node: NodeId) -> list[NodeId]:
        """Return the path from the home location to a node."""
        path = [node]
        while (before := self.parents[path[-1]]) is not None:
            path.append(before)
        return path[::-1]


def reach(world: World, topic: Topic, home: NodeId | None = None) -> Reach:
    """Follow the topic's tree down from `home`, or from the root that a node claims to be."""
    found = {name: cast(MagnetNode, world.node(name)).trees.forest.get(topic) for name in world.living}
    trees = {name: tree for name, tree in found.items() if tree is not None}
    return _down(topic, trees, [name for name in world.living if topic in world.topics_of(name)], home)


def reach_all(world: World) -> list[Reach]:
    """Return the reach of every topic that has a subscriber, in the order of names, in one pass over all nodes."""
    trees: dict[Topic, dict[NodeId, Tree]] = {}
    subscribers: dict[Topic, list[NodeId]] = {}
    for name in world.living:
        for topic in world.topics_of(name):
            subscribers.setdefault(topic, []).append(name)
        for topic, tree in cast(MagnetNode, world.node(name)).trees.forest.trees.items():
            trees.setdefault(topic, {})[name] = tree
    return [_down(topic, trees.get(topic, {}), subscribers[topic]) for topic in sorted(subscribers)]


def _down(topic: Topic, trees: dict[NodeId, Tree], subscribers: list[NodeId], home: NodeId | None = None) -> Reach:
    """Follow the tree down. `trees` has the part of the topic's tree that each living node holds."""
    if home is None:
        home = next((name for name, tree in trees.items() if tree.is_root), None)
    found = Reach(topic, home, subscribers)
    if home is None:
        return found
    found.parents[home] = None
    waiting = [home]
    while waiting:
        node = waiting.pop()
        tree = trees.get(node)
        for child in tree.children if tree is not None else ():
            if child in found.parents:
                found.repeated.append(child)
            elif child in trees:
                found.parents[child] = node
                waiting.append(child)
    return found
