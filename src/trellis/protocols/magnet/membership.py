"""The interest-aware membership service: keep for every topic a random sample of its subscribers.  [MG §3.4]

Each topic has a membership tree on the control ring with the root home(t). The parent of a node is its next hop towards
the topic's position, as in Scribe. The next hop is looked up in every round, so the tree follows changes of the ring.
In each round a node merges the last samples of its children with its own interest, keeps k entries at random, and sends
them to its parent. home(t) sends its sample down the tree, and each node forwards it at once. These messages are the
heartbeats: a child that is silent for `_SILENT_ROUNDS` rounds is dropped. A node that a message makes part of a tree
sends to its parent at once, so new subscribers are soon known.

view(p) is the samples of all topics of p. Once a round has passed, it names another subscriber of each topic that has
one.

S1  A sample has at most k entries, and no node twice.
"""

from __future__ import annotations

from random import Random

from trellis.protocols.effects import Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.messages import PARTS_MAX, Entry, SamplesUp, SampleUp, View
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.oscar import Oscar
from trellis.protocols.wire import COUNT_MAX, counted

TREES_MAX = 16_384  # most topics whose membership trees one node takes part in
CHILDREN_MAX = 1_024  # most children of one node in the tree of one topic
_SILENT_ROUNDS = 3
# A child's sample, the number of subscribers in its subtree, and the round in which it came.
Told = tuple[tuple[Entry, ...], int, int]


class TopicMembers:
    """The membership tree of one topic at one node."""

    __slots__ = ("children", "seen")

    def __init__(self) -> None:
        self.children: dict[NodeId, Told] = {}
        self.seen = 0  # The latest round of which a view came down, here or at a node below.


class Membership:
    """The membership service of one node."""

    def __init__(self, node: NodeId, control: Oscar, random: Random, config: MagnetConfig) -> None:
        self.id, self.control, self.random, self.config = node, control, random, config
        # What we tell about ourselves. None until we have a position on the skewed ring.
        self.entry: Entry | None = None
        self.mine: dict[Topic, None] = {}  # our topics
        self.trees: dict[Topic, TopicMembers] = {}
        self.views: dict[Topic, View] = {}  # the latest views of our topics
        self.homes: dict[Topic, None] = {}  # The topics for which we are home(t), as far as we know.
        self.round = 0

    def start(self) -> Effects:
        """Set the timer of the first round, at a random time within one period."""
        return [SetTimer("sample/tick", 1 + self.random.randrange(self.config.sample_ms))]

    def announce(self, entry: Entry) -> Effects:
        """Set what is told about this node, because it has got a position or its interest has changed.

        Topics that are new in it are announced at once.
        """
        fresh = [topic for topic in entry.interest if self.entry is None or topic not in self.entry.interest]
        self.entry = entry
        effects: Effects = []
        for topic in fresh:
            effects += self._up(topic, self._tree(topic))
        return effects

    def subscribe(self, topics: tuple[Topic, ...]) -> None:
        """Set the topics of this node."""
        self.mine = dict.fromkeys(topics)
        self.views = {topic: view for topic, view in self.views.items() if topic in self.mine}

    def on_timer(self) -> Effects:
        """Run a round: drop silent children, send samples to the parents, and send views down from home(t)."""
        self.round += 1
        effects: Effects = [SetTimer("sample/tick", self.config.sample_ms)]
        oldest = self.round - _SILENT_ROUNDS
        empty: list[Topic] = []
        upwards: dict[NodeId, list[SampleUp]] = {}
        for topic, tree in self.trees.items():
            silent = [child for child, report in tree.children.items() if report[2] < oldest]
            for child in silent:
                del tree.children[child]
            if not tree.children and topic not in self.mine:
                empty.append(topic)
                continue
            if self._is_home(topic):
                effects += self._down(View(topic, self.id, self._merged(topic, tree)[0], counted(tree.seen)), tree)
            else:
                up = self._upwards(topic, tree)
                if up is not None:
                    upwards.setdefault(up[0], []).append(up[1])
        for topic in empty:
            del self.trees[topic]
            self.homes.pop(topic, None)
        for parent, parts in upwards.items():
            for first in range(0, len(parts), PARTS_MAX):
                effects.append(Send(parent, SamplesUp(tuple(parts[first : first + PARTS_MAX]))))
        return effects

    def on_samples_up(self, sender: NodeId, message: SamplesUp) -> Effects:
        """Take in samples of a child, for several topics."""
        return [effect for part in message.parts for effect in self.on_sample_up(sender, part)]

    def on_sample_up(self, sender: NodeId, message: SampleUp) -> Effects:
        """Take in a child's sample. If this makes us part of the topic's tree, forward it at once."""
        tree = self.trees.get(message.topic)
        is_new = tree is None
        if tree is None:
            if len(self.trees) >= TREES_MAX:
                return []
            tree = self._tree(message.topic)
        if len(tree.children) >= CHILDREN_MAX and sender not in tree.children:
            return []
        tree.children[sender] = (self._admitted(message.sample), message.count, self.round)
        tree.seen = max(tree.seen, message.seen)  # So a new home goes on counting where the old one was.
        return self._up(message.topic, tree) if is_new else []

    def on_view(self, message: View) -> Effects:
        """Take in a view from above, or the answer to our question. Forward a view that is new."""
        tree = self.trees.get(message.topic)
        sample = self._admitted(message.sample)
        if sample is not message.sample:
            message = View(message.topic, message.home, sample, message.round)
        if message.round == 0 or tree is None:  # It is the answer to an `Inquire`.
            if message.topic in self.mine:
                self.views[message.topic] = message
            return []
        if message.round <= tree.seen:
            return []  # It came late, or in a cycle while the ring changes.
        return self._down(message, tree)

    def answer(self, origin: NodeId, topic: Topic) -> Effects:
        """Answer a question for the sample of a topic, as home(t)."""
        tree = self.trees.get(topic)
        sample = () if tree is None else self._merged(topic, tree)[0]
        view = View(topic, self.id, sample, 0)
        return self.on_view(view) if origin == self.id else [Send(origin, view)]

    def others(self, topic: Topic) -> list[Entry]:
        """Return the other subscribers of a topic that we know of."""
        view = self.views.get(topic)
        return [] if view is None else [entry for entry in view.sample if entry.node != self.id]

    def home(self, topic: Topic) -> NodeId | None:
        """Return the home location of one of our topics, if we know it."""
        view = self.views.get(topic)
        return None if view is None else view.home

    def check(self) -> None:
        """Assert the invariant S1."""
        for topic, view in self.views.items():
            names = [entry.node for entry in view.sample]
            assert len(set(names)) == len(names) <= self.config.sample_size, f"S1: {self.id}, {topic}: {names}"

    def on_predecessor(self) -> Effects:
        """Handle a new predecessor on the control ring.

        If we are not home(t) of a topic any more because of it, send our sample towards the new home at once.
        """
        effects: Effects = []
        for topic in list(self.homes):
            tree = self.trees.get(topic)
            if not self._is_home(topic) and tree is not None:
                effects += self._up(topic, tree)
        return effects

    def _admitted(self, sample: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return a sample that satisfies S1. A sample from another node may be longer, or name a node twice."""
        if len(sample) <= self.config.sample_size and len({entry.node for entry in sample}) == len(sample):
            return sample
        return tuple({entry.node: entry for entry in sample}.values())[: self.config.sample_size]

    def _is_home(self, topic: Topic) -> bool:
        """Return whether we are home(t) of the topic, and note it in `homes`."""
        if self.control.owns(hashed(topic)):
            self.homes[topic] = None
            return True
        self.homes.pop(topic, None)
        return False

    def _tree(self, topic: Topic) -> TopicMembers:
        tree = self.trees.get(topic)
        if tree is None:
            tree = self.trees[topic] = TopicMembers()
        return tree

    def _up(self, topic: Topic, tree: TopicMembers) -> Effects:
        """Return the message to the parent in the tree of a topic."""
        up = self._upwards(topic, tree)
        return [] if up is None else [Send(*up)]

    def _upwards(self, topic: Topic, tree: TopicMembers) -> tuple[NodeId, SampleUp] | None:
        """Return the next hop towards home(t) and the sample for it, or None if we are home(t) or know nothing."""
        if self._is_home(topic):
            return None
        hop = self.control.next_hop(hashed(topic)) or self.control.table.successor
        sample, count = self._merged(topic, tree)
        return (hop.node, SampleUp(topic, sample, count, tree.seen)) if hop is not None and sample else None

    def _down(self, view: View, tree: TopicMembers) -> Effects:
        """Take in a view, and forward it to the children."""
        tree.seen = view.round
        if view.topic in self.mine:
            self.views[view.topic] = view
        return [Send(child, view) for child in tree.children]

    def _merged(self, topic: Topic, tree: TopicMembers) -> tuple[tuple[Entry, ...], int]:
        """Return at most k of the children's entries and our own, and the number of subscribers.  [MG §3.4]"""
        own = (self.entry,) if self.entry is not None and topic in self.mine else ()
        if not tree.children:
            return own, len(own)
        newest: dict[NodeId, Entry] = {entry.node: entry for entry in own}
        count = len(own)
        for sample, below, _ in tree.children.values():
            count += below
            for entry in sample:
                known = newest.get(entry.node)
                if known is None or (entry.incarnation, entry.version) > (known.incarnation, known.version):
                    newest[entry.node] = entry
        k = self.config.sample_size
        entries = list(newest.values())
        if len(entries) > k:
            entries = self._uniform(newest, own, tree) if self.config.sampling == "uniform" else []
            entries = entries or self.random.sample(list(newest.values()), k)
        return tuple(entries), min(count, COUNT_MAX)

    def _uniform(self, newest: dict[NodeId, Entry], own: tuple[Entry, ...], tree: TopicMembers) -> list[Entry]:
        """Return k entries, each drawn from a subtree in proportion to the number of its subscribers (A-MAG-17)."""
        pools = [([entry.node for entry in own], len(own))]
        pools += [([entry.node for entry in sample], below) for sample, below, _ in tree.children.values()]
        for names, _ in pools:
            self.random.shuffle(names)
        chosen: dict[NodeId, None] = {}
        for _ in range(4 * self.config.sample_size):
            total = sum(below for names, below in pools if names)
            if not total or len(chosen) == self.config.sample_size:
                break
            draw = self.random.randrange(total)
            for names, below in pools:
                if names:
                    draw -= below
                    if draw < 0:
                        chosen[names.pop()] = None
                        break
        return [newest[node] for node in chosen]
