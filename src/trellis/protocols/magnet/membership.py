"""The interest-aware membership service: for every topic a random sample of its subscribers.  [MG §3.4]

Per topic a tree over the control ring, rooted at home(t): the parent of a node is its next hop towards the topic's
place (Scribe's technique), asked anew in every round, so that the tree follows the ring by itself. In each round a node
merges what its children last sent with its own interest, keeps k of it at random, and sends it up; home(t) sends what
it has down, and it is handed on at once. The messages of the rounds are the heartbeats: a child that is silent for some
rounds is forgotten. A node that gets into a tree by a message passes it on at once: new subscribers are soon known.

view(p) is the samples of p's topics. It names another subscriber of each topic that has one, once a round has passed.

S1  samples hold at most k entries, one per node.
"""

from __future__ import annotations

from random import Random

from trellis.protocols.effects import Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.messages import PARTS_MAX, Entry, SamplesUp, SampleUp, View
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.oscar import Oscar
from trellis.protocols.wire import COUNT_MAX, counted

TREES_MAX = 16_384  # topics whose members pass through one node
CHILDREN_MAX = 1_024  # of one topic at one node
_SILENT_ROUNDS = 3
Told = tuple[tuple[Entry, ...], int, int]  # a child's sample, the subscribers below it, the round it came in


class TopicMembers:
    """One topic's part of the membership tree at a node."""

    __slots__ = ("children", "seen")

    def __init__(self) -> None:
        self.children: dict[NodeId, Told] = {}
        self.seen = 0  # the round of the newest view that came down, or that somebody below has seen


class Membership:
    def __init__(self, node: NodeId, control: Oscar, random: Random, config: MagnetConfig) -> None:
        self.id, self.control, self.random, self.config = node, control, random, config
        self.entry: Entry | None = None  # what we tell of ourselves; None until we have a place to be found at
        self.mine: dict[Topic, None] = {}  # the topics that we subscribe to
        self.trees: dict[Topic, TopicMembers] = {}
        self.views: dict[Topic, View] = {}  # of our own topics
        self.homes: dict[Topic, None] = {}  # the topics whose home we are, as far as we know
        self.round = 0

    def start(self) -> Effects:
        return [SetTimer("sample/tick", 1 + self.random.randrange(self.config.sample_ms))]

    def announce(self, entry: Entry) -> Effects:
        """We have a place, or another interest: whoever samples our topics will know."""
        fresh = [topic for topic in entry.interest if self.entry is None or topic not in self.entry.interest]
        self.entry = entry
        effects: Effects = []
        for topic in fresh:
            effects += self._up(topic, self._tree(topic))
        return effects

    def subscribe(self, topics: tuple[Topic, ...]) -> None:
        self.mine = dict.fromkeys(topics)
        self.views = {topic: view for topic, view in self.views.items() if topic in self.mine}

    def on_timer(self) -> Effects:
        """A round: everything that we know goes one step up, and down from the homes that we are."""
        self.round += 1
        effects: Effects = [SetTimer("sample/tick", self.config.sample_ms)]
        oldest = self.round - _SILENT_ROUNDS
        empty: list[Topic] = []
        upwards: dict[NodeId, list[SampleUp]] = {}
        for topic, tree in self.trees.items():
            silent = [child for child, told in tree.children.items() if told[2] < oldest]
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
        return [effect for part in message.parts for effect in self.on_sample_up(sender, part)]

    def on_sample_up(self, sender: NodeId, message: SampleUp) -> Effects:
        tree = self.trees.get(message.topic)
        is_new = tree is None
        if tree is None:
            if len(self.trees) >= TREES_MAX:
                return []
            tree = self._tree(message.topic)
        if len(tree.children) >= CHILDREN_MAX and sender not in tree.children:
            return []
        tree.children[sender] = (self._admitted(message.sample), message.count, self.round)
        tree.seen = max(tree.seen, message.seen)  # a new home goes on where the old one was
        return self._up(message.topic, tree) if is_new else []

    def on_view(self, message: View) -> Effects:
        tree = self.trees.get(message.topic)
        sample = self._admitted(message.sample)
        if sample is not message.sample:
            message = View(message.topic, message.home, sample, message.round)
        if message.round == 0 or tree is None:  # the answer to an Inquire
            if message.topic in self.mine:
                self.views[message.topic] = message
            return []
        if message.round <= tree.seen:
            return []  # late, or in a circle while the ring changes
        return self._down(message, tree)

    def answer(self, origin: NodeId, topic: Topic) -> Effects:
        """home(t) is asked for its sample."""
        tree = self.trees.get(topic)
        sample = () if tree is None else self._merged(topic, tree)[0]
        view = View(topic, self.id, sample, 0)
        return self.on_view(view) if origin == self.id else [Send(origin, view)]

    def others(self, topic: Topic) -> list[Entry]:
        """Subscribers of a topic that we know of."""
        view = self.views.get(topic)
        return [] if view is None else [entry for entry in view.sample if entry.node != self.id]

    def home(self, topic: Topic) -> NodeId | None:
        view = self.views.get(topic)
        return None if view is None else view.home

    def check(self) -> None:
        for topic, view in self.views.items():
            names = [entry.node for entry in view.sample]
            assert len(set(names)) == len(names) <= self.config.sample_size, f"S1: {self.id}, {topic}: {names}"

    def on_predecessor(self) -> Effects:
        """Somebody came between us and the one before: where it is home to a topic now it gets our sample at once."""
        effects: Effects = []
        for topic in list(self.homes):
            tree = self.trees.get(topic)
            if not self._is_home(topic) and tree is not None:
                effects += self._up(topic, tree)
        return effects

    def _admitted(self, sample: tuple[Entry, ...]) -> tuple[Entry, ...]:
        """Return a sample as S1 wants it: what comes from others may be longer, and name a node twice."""
        if len(sample) <= self.config.sample_size and len({entry.node for entry in sample}) == len(sample):
            return sample
        return tuple({entry.node: entry for entry in sample}.values())[: self.config.sample_size]

    def _is_home(self, topic: Topic) -> bool:
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
        up = self._upwards(topic, tree)
        return [] if up is None else [Send(*up)]

    def _upwards(self, topic: Topic, tree: TopicMembers) -> tuple[NodeId, SampleUp] | None:
        """The next hop towards home(t), and what it is told; None at home."""
        if self._is_home(topic):
            return None
        hop = self.control.next_hop(hashed(topic)) or self.control.table.successor
        sample, count = self._merged(topic, tree)
        return (hop.node, SampleUp(topic, sample, count, tree.seen)) if hop is not None and sample else None

    def _down(self, view: View, tree: TopicMembers) -> Effects:
        tree.seen = view.round
        if view.topic in self.mine:
            self.views[view.topic] = view
        return [Send(child, view) for child in tree.children]

    def _merged(self, topic: Topic, tree: TopicMembers) -> tuple[tuple[Entry, ...], int]:
        """At most k of the children's entries and our own.  [MG §3.4]"""
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
        """k entries, each drawn from a subtree by the number of its subscribers (A-MAG-17)."""
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
