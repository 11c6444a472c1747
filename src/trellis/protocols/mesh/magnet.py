"""Magnet below delivery: a topic is connected through its multicast tree.

A node in a topic's tree takes part in the topic, as a subscriber, a forwarder or the root. It stores what it forwards
for one window, and compares and resends like every other node. The links of a topic are those to its parent and its
children, so a message crosses each tree link once.

Deviation: a publication enters the tree at its publisher and spreads from there, up and down. Magnet brings it to the
root first (A-MAG-16). A publisher that does not subscribe joins the tree for a while, as a leaf. Its interest, and so
its position on the skewed ring, stay as they are.

The home location of a topic is the one on the control ring. Nothing is promised beyond what trees carry. A tree that is
broken carries nothing until its parts have joined it again. Then they compare.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, Left, NodeId, Send, Topic
from trellis.protocols.magnet.messages import MagnetControl
from trellis.protocols.magnet.node import MagnetNode
from trellis.protocols.mesh.driven import REVISIT_ROUNDS
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.messages import OscarMessage
from trellis.protocols.overlays import Birth

MESSAGES = MagnetControl | OscarMessage | NewscastRequest | NewscastReply


def make_magnet(birth: Birth) -> MagnetOverlay:
    """Return the overlay of a live node."""
    node = MagnetNode(
        birth.name,
        birth.topics,
        birth.random,
        birth.config.magnet,
        contacts=birth.contacts,
        incarnation=birth.incarnation,
    )
    return MagnetOverlay(node)


class MagnetOverlay:
    """The adapter of Magnet. `DrivenOverlay` and `delivery/seam.py` describe its methods."""

    has_homes = relays = True
    telling = frozenset[type]()  # All changes that matter are counted by the forest.

    def __init__(self, node: MagnetNode) -> None:
        self.node, self.id, self.incarnation = node, node.id, Incarnation(node.incarnation)
        self.table, self.forest = node.likeness.table, node.trees.forest
        node.publishes = False
        node.newscast.contacts.revisit_rounds = REVISIT_ROUNDS
        self._known, self._interest = -1, 0

    @property
    def changes(self) -> int:
        return self.forest.changes

    @property
    def interest(self) -> int:
        if self._known != self.forest.changes:
            self._known, self._interest = self.forest.changes, self._bits(self.forest.trees)
        return self._interest

    def neighbors(self) -> Mapping[NodeId, int]:
        shared = {peer: self._bits(topics) for peer, topics in self.forest.by_parent.items()}
        for peer, topics in self.forest.by_child.items():
            shared[peer] = shared.get(peer, 0) | self._bits(topics)
        return shared

    def is_gone(self, node: NodeId) -> bool:
        return False

    def subscribers(self, topic: Topic) -> int:
        return 0

    def is_home(self, topic: Topic) -> bool:
        return self.node.control.owns(hashed(topic))

    def home_range(self) -> str:
        before = self.node.control.table.predecessor
        return before.node if before is not None else ""

    def heir(self) -> NodeId | None:
        return None

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """Send a message towards the home of a topic, to the known node that comes first at or after its position.

        Each step ends nearer behind the position, so no message goes around in a cycle while the ring is repaired. With
        routes from below, a node right behind the position that is not the home would send the message around the whole
        ring. If messages are also duplicated on the way, very many of them would circle.
        """
        position, table = hashed(topic), self.node.control.table
        if table.owns(position):
            return [Send(self.id, message)]
        if table.me is None:
            return []  # We are not on the ring yet. Delivery sends the message again later.
        peers = {peer.node: peer for peer in (*table.successors, *table.around)}
        for shunned in (without, ()):
            known = [peer for node, peer in peers.items() if node not in shunned]
            nearest = min([table.me, *known], key=lambda peer: (peer.label < position, peer.label))
            if nearest is not table.me:
                return [Send(nearest.node, message)]
        return []  # We know no node that is nearer. The ring will soon tell us of one.

    def meet(self, names: Sequence[NodeId]) -> Effects:
        return []  # The tree finds them.

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        return self.node.subscribe_all(topics)

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        return [effect for topic in topics for effect in self.node.trees.subscribe(topic)]

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        only_published_on = [topic for topic in topics if topic not in self.node.topics]
        effects = self.node.unsubscribe_all(topics)
        return [*effects, *(effect for topic in only_published_on for effect in self.node.trees.unsubscribe(topic))]

    def leave(self) -> Effects:
        return [*self.node.leave(), Left()]

    def _bits(self, topics: Iterable[Topic]) -> int:
        """Return the bitset of these topics."""
        bits = 0
        for topic in topics:
            bits |= self.table.bit(topic)
        return bits
