"""The state of a node in the multicast tree of one topic, and in all trees together.

A tree link uses a link of the skewed ring, from a node to its successor or to one of its fingers. So it leads
clockwise, and never past the root. Children are always farther from the root than their parents. As long as labels and
root stay the same, no order of joins, losses and repetitions can close a cycle (A-MAG-12).

P1  A node has at most one parent for each topic, is no child of itself, and has no parent if it is a root.
P2  `by_parent` and `by_child` say the same as the trees.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.messages import Peer

TREES_MAX = 16_384  # most trees that a node takes part in because others ask it to


class Tree:
    """The state of a node in the tree of one topic."""

    __slots__ = (
        "attempts",
        "children",
        "count",
        "is_root",
        "moving",
        "parent",
        "place",
        "root",
        "silence",
        "subscribed",
        "topic",
    )

    def __init__(self, topic: Topic) -> None:
        self.topic, self.place = topic, hashed(topic)
        self.subscribed = False  # The node is subscribed to the topic. Otherwise it only forwards.
        self.is_root = False
        self.moving = False  # The parent has asked us to find another one. It stays our parent until then.
        self.parent: NodeId | None = None
        self.root: Peer | None = None  # the root as the parent has told
        self.children: dict[NodeId, int] = {}  # child -> heartbeats since it last called us its parent
        self.count = 0  # The latest count of the root, which grows with every heartbeat of the root.
        self.silence = 0  # heartbeats since the count grew
        self.attempts = 0  # attempts to join in sequence

    @property
    def is_attached(self) -> bool:
        """Return whether the node has a parent, or is the root."""
        return self.is_root or self.parent is not None

    @property
    def is_needed(self) -> bool:
        """Return whether the node has a reason to be in the tree: a subscription, or children."""
        return self.subscribed or bool(self.children)


class Forest:
    """All trees of a node. Parents and children are changed only through these methods."""

    def __init__(self, node: NodeId) -> None:
        self.id = node
        self.trees: dict[Topic, Tree] = {}
        self.by_parent: dict[NodeId, dict[Topic, None]] = {}  # parent -> topics
        self.by_child: dict[NodeId, dict[Topic, None]] = {}  # child -> topics
        self.changes = 0  # counts the changes of trees, parents and children

    def get(self, topic: Topic) -> Tree | None:
        return self.trees.get(topic)

    def has_room(self, topic: Topic) -> bool:
        """Return whether another node may make us take part in the tree of this topic."""
        return topic in self.trees or len(self.trees) < TREES_MAX

    def make(self, topic: Topic) -> Tree:
        """Return the tree of a topic. It is created if it does not exist."""
        tree = self.trees.get(topic)
        if tree is None:
            tree = self.trees[topic] = Tree(topic)
            self.changes += 1
        return tree

    def remove(self, tree: Tree) -> None:
        """Remove a tree with its parent and children."""
        self.set_parent(tree, None)
        for child in list(tree.children):
            self.drop_child(tree, child)
        del self.trees[tree.topic]
        self.changes += 1

    def set_parent(self, tree: Tree, parent: NodeId | None) -> None:
        if tree.parent is not None:
            _remove(self.by_parent, tree.parent, tree.topic)
        tree.parent = parent
        if parent is not None:
            self.by_parent.setdefault(parent, {})[tree.topic] = None
        self.changes += 1

    def add_child(self, tree: Tree, child: NodeId) -> None:
        tree.children[child] = 0
        self.by_child.setdefault(child, {})[tree.topic] = None
        self.changes += 1

    def drop_child(self, tree: Tree, child: NodeId) -> None:
        if tree.children.pop(child, None) is not None:
            _remove(self.by_child, child, tree.topic)
            self.changes += 1

    def check(self) -> None:
        """Assert the invariants P1 and P2."""
        for topic, tree in self.trees.items():
            assert self.id not in tree.children, f"P1: {self.id} is its own child in {topic}"
            assert tree.parent != self.id, f"P1: {self.id} is its own parent in {topic}"
            assert not (tree.is_root and tree.parent), f"P1: {self.id} is root of {topic} and has a parent"
            assert tree.parent is None or topic in self.by_parent[tree.parent], f"P2: {self.id}, {topic}"
            assert all(topic in self.by_child[child] for child in tree.children), f"P2: {self.id}, {topic}"
        parents = sum(tree.parent is not None for tree in self.trees.values())
        assert parents == sum(map(len, self.by_parent.values())), f"P2: {self.id} counts its parents wrongly"
        children = sum(len(tree.children) for tree in self.trees.values())
        assert children == sum(map(len, self.by_child.values())), f"P2: {self.id} counts its children wrongly"


def _remove(index: dict[NodeId, dict[Topic, None]], node: NodeId, topic: Topic) -> None:
    topics = index[node]
    del topics[topic]
    if not topics:
        del index[node]
