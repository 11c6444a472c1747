"""Joining multicast trees, keeping them, and leaving them.  [MG §3.3, Alg. 2]

There are two ways to join, by the setting `tree`:

- graft: Alg. 2 as written. The join begins at a subscriber in the view, p_s, climbs the tree to the grafting point p_g,
  and descends the greedy route to the joiner.
- greedy-path: the join begins at home(t) and descends the greedy route. Each node on it becomes a child of the hop
  before it, so the tree path is the greedy route at the time of joining (A-MAG-13).

Nodes on the route that are not in the tree become forwarders. If the route of a graft meets a node of the tree, the
join goes on from there, and the node keeps its parent (A-MAG-12). A forwarder without children prunes itself
(A-MAG-14). A tree link ends with the link of the ring that it uses. A node that loses its parent joins again at once.
If a finger is replaced, the child finds another parent first (`Move`) and keeps the old one until then.

Heartbeats go from child to parent and bring back the root's count, which grows with every heartbeat of the root. A node
tells its children at once when its count has grown, so the whole tree has nearly the same count. If the count of a node
does not grow for `root_silence_max` heartbeats, the node is cut off from the root, and joins again. So a cycle, or a
part of a tree without a root, lasts no longer than that.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from trellis.protocols.effects import Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.membership import Membership
from trellis.protocols.magnet.messages import Climb, Descend, JoinAt, Move, NotInTree, Orphan, Ping, Pong, Prune
from trellis.protocols.magnet.tree import Forest, Tree
from trellis.protocols.oscar.labels import between, inside
from trellis.protocols.oscar.messages import Peer
from trellis.protocols.oscar.oscar import Oscar
from trellis.protocols.wire import counted

_HOPS_MAX = 512
ToHome = Callable[[Topic, JoinAt, bool], Effects]  # Brings a request to home(t). True: by the control ring alone.


class Trees:
    """The trees of one node. `forest` has their state."""

    def __init__(
        self,
        node: NodeId,
        skewed: Oscar,
        control: Oscar,
        membership: Membership,
        to_home: ToHome,
        random: Random,
        config: MagnetConfig,
    ) -> None:
        self.id, self.skewed, self.control, self.membership = node, skewed, control, membership
        self.to_home, self.random, self.config = to_home, random, config
        self.forest = Forest(node)
        self.is_open = False  # False: our own joins wait, and those of others may pass.
        self.joining: dict[Topic, int] = {}  # topic -> rounds of retries that it has waited
        self._retrying = False
        self._parted: set[NodeId] = set()  # Children that were told to move since the last heartbeat.

    # Joining

    def start(self) -> Effects:
        """Set the timer of the first heartbeat, at a random time within one period."""
        return [SetTimer("tree/tick", 1 + self.random.randrange(self.config.tree_ms))]

    def open(self) -> Effects:
        """Allow our own joins, because the node has a position now, and join all needed trees."""
        self.is_open = True
        return [effect for tree in list(self.forest.trees.values()) for effect in self._join_if_needed(tree)]

    def subscribe(self, topic: Topic) -> Effects:
        """Join the tree of a topic as a subscriber."""
        tree = self.forest.make(topic)
        tree.subscribed = True
        return self._join_if_needed(tree)

    def unsubscribe(self, topic: Topic) -> Effects:
        """End the subscription. The node leaves the tree if it has no children there."""
        tree = self.forest.get(topic)
        if tree is None:
            return []
        tree.subscribed = False
        return self._prune(tree)

    def join(self, tree: Tree) -> Effects:
        """Begin to join a tree: choose where, and send the request (phase 1).  [Alg. 2, l. 1-6]"""
        me = self.skewed.me
        if me is None or not self.is_open:
            return []
        if self.control.owns(tree.place):
            return self._become_root(tree)
        self.joining[tree.topic] = 0
        retry: Effects = []
        if not self._retrying:
            self._retrying = True
            retry = [SetTimer("tree/retry", self.config.join_ms)]
        if self.config.tree == "graft" and tree.attempts == 0:
            others = self.membership.others(tree.topic)
            if others:
                start = others[self.random.randrange(len(others))].node  # l. 3
                return [Send(start, Climb(tree.topic, me)), *retry]
        request = JoinAt(me, tree.count)
        return [*self.to_home(tree.topic, request, tree.attempts > 1), *retry]  # l. 5

    def on_retry(self) -> Effects:
        """Repeat the joins that have waited for long enough."""
        self._retrying = False
        effects: Effects = []
        for topic, waited in list(self.joining.items()):
            tree = self.forest.get(topic)
            if tree is None or (tree.is_attached and not tree.moving) or not tree.is_needed:
                del self.joining[topic]
            elif waited == 0 and tree.attempts < 2:
                self.joining[topic] = 1  # It was sent less than a period ago, perhaps.
            else:
                tree.attempts += 1
                effects += self.join(tree)
        if self.joining and not self._retrying:
            self._retrying = True
            effects.append(SetTimer("tree/retry", self.config.join_ms))
        return effects

    def on_climb(self, climb: Climb) -> Effects:
        """Forward a join up the tree to p_g, or begin the descent if we are p_g (phase 2).  [Alg. 2, l. 7-11]"""
        tree, joiner, me = self.forest.get(climb.topic), climb.joiner, self.skewed.me
        if tree is None or me is None or not tree.is_attached or joiner.node == self.id or climb.hops > _HOPS_MAX:
            if joiner.node == self.id:
                return self.on_not_in_tree(climb.topic)
            return [Send(joiner.node, NotInTree(climb.topic))]
        if tree.is_root or self._is_grafting_point(tree, me, joiner):
            return self._descend(tree, joiner, 0)
        assert tree.parent is not None
        return [Send(tree.parent, Climb(climb.topic, joiner, climb.hops + 1))]

    def _is_grafting_point(self, tree: Tree, me: Peer, joiner: Peer) -> bool:
        """Return whether the next hop towards the joiner is a child of ours.  [l. 9-11]

        Deviation: a node beyond the joiner is no grafting point, although Alg. 2 does not exclude it. It is on no
        greedy route from the root to the joiner. Without this test, an order of joins could close a cycle.
        """
        if tree.root is None or not inside(me.label, tree.root.label, joiner.label):
            return False
        hop = self._hop(joiner)
        return hop is not None and hop in tree.children

    def on_not_in_tree(self, topic: Topic) -> Effects:
        """Begin at the home location, because the subscriber in our view is not in the tree any more."""
        tree = self.forest.get(topic)
        if tree is None or topic not in self.joining or tree.is_attached:
            return []
        tree.attempts = max(1, tree.attempts)
        return self.join(tree)

    def on_join_at(self, topic: Topic, request: JoinAt) -> Effects:
        """Begin a join at home(t), which we are."""
        if self.skewed.me is None or not self.forest.has_room(topic):
            return []
        tree = self.forest.make(topic)
        effects = [] if tree.is_root else self._become_root(tree)
        tree.count = max(tree.count, counted(request.count))
        if request.joiner.node == self.id:
            return effects
        return [*effects, *self._descend(tree, request.joiner, 0)]

    def _hop(self, joiner: Peer) -> NodeId | None:
        """Return the next hop to the joiner: itself if it is in RT, else the closest link before it.  [l. 12-13]"""
        if self.skewed.table.is_down(joiner.node):
            return joiner.node
        hop = self.skewed.next_hop(joiner.label)
        return None if hop is None else hop.node

    def _descend(self, tree: Tree, joiner: Peer, hops: int) -> Effects:
        """Make the next hop a child, and send it the join (phase 3).  [l. 12-14]"""
        me, hop = self.skewed.me, self._hop(joiner)
        root = me if tree.is_root else tree.root
        if hop is None or root is None or hops > _HOPS_MAX or hop == tree.parent:
            return self._prune(tree)
        self.forest.add_child(tree, hop)
        return [Send(hop, Descend(tree.topic, joiner, root, tree.count, hops + 1))]

    def on_descend(self, sender: NodeId, message: Descend) -> Effects:
        """Become a child of the sender if that is allowed, and send the join on to the joiner."""
        me, joiner, root = self.skewed.me, message.joiner, message.root
        tree = self.forest.get(message.topic)
        if (
            me is None
            or not self.forest.has_room(message.topic)
            or not self.skewed.table.is_up(sender)
            or (tree is not None and tree.is_root)
            or not (joiner.node == self.id or between(me.label, root.label, joiner.label))
        ):
            is_parent = tree is not None and tree.parent == sender
            return [] if is_parent else [Send(sender, Prune((message.topic,)))]
        tree = tree or self.forest.make(message.topic)
        is_found = tree.moving and joiner.node == self.id
        if tree.parent is None or tree.parent == sender or is_found or self._reparents(tree, root):
            effects = self._attach(tree, sender, root, message.count)
        else:  # It is in the tree already, and keeps its parent.
            effects = [Send(sender, Prune((message.topic,)))]
        if joiner.node == self.id:
            return effects
        return [*effects, *self._descend(tree, joiner, message.hops)]

    def _reparents(self, tree: Tree, root: Peer) -> bool:
        """Return whether a node that has a parent takes a new one."""
        return self.config.tree == "greedy-path" or tree.root is None or not _is_same(tree.root, root)

    def _attach(self, tree: Tree, parent: NodeId, root: Peer, count: int) -> Effects:
        """Set the parent. Children are dropped if the root has changed."""
        effects: Effects = []
        if tree.parent is not None and tree.parent != parent:
            effects.append(Send(tree.parent, Prune((tree.topic,))))
        if tree.root is not None and not _is_same(tree.root, root):
            effects += self._orphan(tree)  # Their order was that seen from another root.
        self.forest.set_parent(tree, parent)
        tree.moving = False
        tree.root, tree.silence, tree.attempts, tree.count = root, 0, 0, count
        self.joining.pop(tree.topic, None)
        return effects

    def _become_root(self, tree: Tree) -> Effects:
        """Become the root of a tree, because we are home(t)."""
        effects: Effects = self._orphan(tree)
        if tree.parent is not None:
            effects.append(Send(tree.parent, Prune((tree.topic,))))
            self.forest.set_parent(tree, None)
        tree.is_root, tree.root, tree.silence, tree.attempts = True, None, 0, 0
        tree.moving = False
        tree.count = counted(tree.count)
        self.joining.pop(tree.topic, None)
        return effects

    # Leaving

    def on_prune(self, sender: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """Drop a child that has left these trees."""
        effects: Effects = []
        for topic in topics:
            tree = self.forest.get(topic)
            if tree is not None and sender in tree.children:
                self.forest.drop_child(tree, sender)
                effects += self._prune(tree)
        return effects

    def on_orphan(self, sender: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """Lose a parent that has dropped us from these trees."""
        effects: Effects = []
        for topic in topics:
            tree = self.forest.get(topic)
            if tree is not None and tree.parent == sender:
                effects += self._lose_parent(tree)
        return effects

    def on_relinked(self) -> Effects:
        """End the tree links whose ring links do not exist any more, after a change of the ring."""
        table, effects = self.skewed.table, []
        for parent in [node for node in self.forest.by_parent if not table.is_up(node)]:
            for topic in list(self.forest.by_parent.get(parent, ())):
                effects += self._lose_parent(self.forest.trees[topic])
        for child in [node for node in self.forest.by_child if not table.carries(node)]:
            for topic in list(self.forest.by_child.get(child, ())):
                tree = self.forest.trees[topic]
                self.forest.drop_child(tree, child)
                effects += self._prune(tree)
        return [*effects, *self._part()]

    def _part(self) -> Effects:
        """Tell children over links that will be given up to move. It is repeated in every heartbeat."""
        by_child, parted = self.forest.by_child, self._parted
        parting = [node for node in self.skewed.table.parting if node in by_child and node not in parted]
        parted.update(parting)
        return [Send(node, Move(tuple(by_child[node]))) for node in parting]

    def on_move(self, sender: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """Join again because the parent gives up the link. It stays our parent until that is done."""
        effects: Effects = []
        for topic in topics:
            tree = self.forest.get(topic)
            if tree is not None and tree.parent == sender and not tree.moving and self.is_open:
                # Join at the home location. A subscriber in our view may be below us.
                tree.moving, tree.attempts = True, 1
                effects += self.join(tree)
        return effects

    def uproot(self) -> Effects:
        """Leave all parents and children, because the node moves to another position, and tell them (A-MAG-15)."""
        self.is_open = False
        effects: Effects = []
        for tree in list(self.forest.trees.values()):
            effects += self._orphan(tree)
            if tree.parent is not None:
                effects.append(Send(tree.parent, Prune((tree.topic,))))
                self.forest.set_parent(tree, None)
            tree.root, tree.moving = None, False
            if not tree.subscribed and not tree.is_root:
                self.forest.remove(tree)
        self.joining.clear()
        return effects

    def leave(self) -> Effects:
        """Tell all parents and children that this node leaves."""
        parents: Effects = [Send(node, Prune(tuple(topics))) for node, topics in self.forest.by_parent.items()]
        return [*parents, *(Send(node, Orphan(tuple(topics))) for node, topics in self.forest.by_child.items())]

    def _lose_parent(self, tree: Tree) -> Effects:
        """Handle the loss of a parent: join again, or leave the tree if nobody needs us there."""
        self.forest.set_parent(tree, None)
        tree.moving = False
        if not tree.is_needed:
            return self._prune(tree)
        return self.join(tree)

    def _orphan(self, tree: Tree) -> Effects:
        """Drop all children of a tree, and tell them."""
        effects: Effects = [Send(child, Orphan((tree.topic,))) for child in tree.children]
        for child in list(tree.children):
            self.forest.drop_child(tree, child)
        return effects

    def _prune(self, tree: Tree) -> Effects:
        """Leave a tree in which nobody needs us. The root stays while it is the topic's home."""
        if tree.is_needed or tree.is_root:
            return []
        effects: Effects = []
        if tree.parent is not None:
            effects.append(Send(tree.parent, Prune((tree.topic,))))
        if self.forest.get(tree.topic) is tree:
            self.forest.remove(tree)
        self.joining.pop(tree.topic, None)
        return effects

    def _join_if_needed(self, tree: Tree) -> Effects:
        """Join a tree that needs a parent."""
        if tree.is_attached or not tree.is_needed:
            return []
        tree.attempts = 0
        return self.join(tree)

    # Heartbeats

    def on_timer(self) -> Effects:
        """Run a heartbeat: drop silent children, join again where we are cut off, and send pings."""
        effects: Effects = [SetTimer("tree/tick", self.config.tree_ms)]
        stale_max = self.config.stale_max
        for tree in list(self.forest.trees.values()):
            for child in list(tree.children):
                silent = tree.children[child] = tree.children[child] + 1
                if silent > stale_max:
                    self.forest.drop_child(tree, child)
            if tree.is_root:
                tree.count = counted(tree.count)
                if not self.control.owns(tree.place):
                    effects += self._abdicate(tree)
                    continue
            elif tree.parent is not None:
                tree.silence += 1
                if tree.silence > self.config.root_silence_max:
                    effects.append(Send(tree.parent, Prune((tree.topic,))))
                    tree.attempts = 1  # Join at the home location. A subscriber in our view may be below us.
                    effects += self._lose_parent(tree)
                    continue
            elif self.is_open and tree.is_needed and tree.topic not in self.joining:
                effects += self._join_if_needed(tree)
            if not tree.is_needed:
                effects += self._prune(tree)
        effects += [Send(parent, Ping(tuple(topics))) for parent, topics in self.forest.by_parent.items()]
        effects += self._tell_children([tree for tree in self.forest.trees.values() if tree.is_root])
        self._parted.clear()
        return [*effects, *self._part()]

    def on_ping(self, sender: NodeId, topics: tuple[Topic, ...]) -> Effects:
        """Answer a child with the counts of its trees."""
        counts = []
        trees = self.forest.trees
        for topic in topics:
            tree = trees.get(topic)
            if tree is not None and sender in tree.children:
                tree.children[sender] = 0
                counts.append(tree.count or 1)
            else:
                counts.append(0)
        return [Send(sender, Pong(topics, tuple(counts)))]

    def on_pong(self, sender: NodeId, pong: Pong) -> Effects:
        """Take in the root's counts, and forward those that have grown."""
        effects: Effects = []
        trees, grown = self.forest.trees, []
        for topic, count in zip(pong.topics, pong.counts, strict=False):
            tree = trees.get(topic)
            if tree is None or tree.parent != sender:
                continue
            if count == 0:
                effects += self._lose_parent(tree)
            elif count > tree.count:
                tree.count, tree.silence = count, 0
                grown.append(tree)
        return [*effects, *self._tell_children(grown)]

    def _tell_children(self, grown: list[Tree]) -> Effects:
        """Send the counts of these trees to the children at once, in one message for each child.

        The count only grows, so no order of messages sends it around a cycle for ever.
        """
        trees_by_child: dict[NodeId, list[Tree]] = {}
        for tree in grown:
            for child in tree.children:
                trees_by_child.setdefault(child, []).append(tree)
        return [
            Send(child, Pong(tuple(tree.topic for tree in trees), tuple(tree.count for tree in trees)))
            for child, trees in trees_by_child.items()
        ]

    def _abdicate(self, tree: Tree) -> Effects:
        """Stop being the root, because another node is the topic's home now."""
        effects = self._orphan(tree)
        tree.is_root = False
        return [*effects, *(self._join_if_needed(tree) if tree.is_needed else self._prune(tree))]


def _is_same(first: Peer, second: Peer) -> bool:
    """Return whether both are the same root at the same position. The order of a tree depends on that."""
    return (first.node, first.incarnation, first.version) == (second.node, second.incarnation, second.version)
