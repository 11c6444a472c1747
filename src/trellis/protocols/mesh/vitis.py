"""Vitis below delivery: a topic is connected through its clusters of subscribers and the relay paths between them.

A node on a relay path of a topic takes part in the topic. It stores what it relays for one window, and compares,
announces and resends like every other node. A topic uses a link if Vitis would notify over it [VI §III-C]: both ends
subscribe to the topic, or a relay path uses the link. A relay that does not subscribe uses relay links only (A-VIT-19).

Deviation: Vitis notifies all of these neighbors and is pulled from. Delivery pushes along a tree of the same links and
announces over the others. That is the same notify and pull, but once the tree has formed most messages need no pull. A
publisher that does not subscribe counts as a subscriber for a while, where Vitis hands the event over (A-VIT-20).

The rendezvous node of a topic is its home location. Nothing is promised beyond what the paths carry. When a path moves,
the copies at its former relays may be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, Left, NodeId, Send, Topic
from trellis.protocols.lookup import closeness
from trellis.protocols.mesh.driven import REVISIT_ROUNDS
from trellis.protocols.overlays import Birth
from trellis.protocols.ring import identifier
from trellis.protocols.vitis.messages import Gossip, Leave, Profile, Relay, Unlink
from trellis.protocols.vitis.node import VitisNode

MESSAGES = Gossip | Profile | Unlink | Relay | Leave


def make_vitis(birth: Birth) -> VitisOverlay:
    """Return the overlay of a live node."""
    node = VitisNode(
        birth.name,
        birth.topics,
        birth.random,
        birth.config.vitis,
        contacts=birth.contacts,
        incarnation=birth.incarnation,
    )
    return VitisOverlay(node)


class VitisOverlay:
    """The adapter of Vitis. `DrivenOverlay` and `delivery/seam.py` describe its methods."""

    has_homes = relays = True
    telling = frozenset[type]((Profile, Relay, Unlink))

    def __init__(self, node: VitisNode) -> None:
        self.node, self.id, self.table = node, node.id, node.topic_table
        self.incarnation = Incarnation(node.incarnation)
        node.sampling.contacts.revisit_rounds = REVISIT_ROUNDS
        self._known: tuple[int, tuple[Topic, ...]] = (-1, ())  # the values from which `_interest` was computed
        self._interest = 0

    @property
    def changes(self) -> int:
        return self.node.relays.changes

    @property
    def interest(self) -> int:
        """Return the node's own topics, and those that it relays."""
        now = (self.node.relays.changes, self.node.topics)
        if now[0] != self._known[0] or now[1] is not self._known[1]:
            self._known, self._interest = now, self.table.own_bits(now[1]) | self._bits(self.node.relays.relayed())
        return self._interest

    def neighbors(self) -> Mapping[NodeId, int]:
        mine, relays = self.table.own_bits(self.node.topics), self.node.relays
        linked: dict[NodeId, int] = {}
        for neighbor in self.node.neighbors.firm():
            shared = mine & self.table.bits(neighbor.topics) | self._bits(relays.shared_with(neighbor))
            if shared:
                linked[neighbor.node] = shared
        return linked

    def is_gone(self, node: NodeId) -> bool:
        return False

    def subscribers(self, topic: Topic) -> int:
        return 0

    def is_home(self, topic: Topic) -> bool:
        return self.node.relays.compass.next_hop(identifier(topic)) is None

    def home_range(self) -> str:
        return "\n".join(self.node.beside)

    def heir(self) -> NodeId | None:
        return None

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        position = identifier(topic)
        hop = self.node.relays.compass.next_hop(position)
        if hop is not None and hop in without:
            mine = closeness(self.node.identifier, position)
            others = [neighbor.node for neighbor in self.node.neighbors.firm() if neighbor.node not in without]
            closer = [node for node in others if closeness(identifier(node), position) < mine]
            hop = min(closer, key=lambda node: closeness(identifier(node), position), default=hop)
        return [Send(self.id if hop is None else hop, message)]

    def meet(self, names: Sequence[NodeId]) -> Effects:
        return []  # Gateways and relay paths find them.

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        return self.node.subscribe_all(topics)

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        return self.node.subscribe_all(topics)

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        return self.node.unsubscribe_all(topics)

    def leave(self) -> Effects:
        return [*self.node.leave(), Left()]

    def _bits(self, topics: Collection[Topic]) -> int:
        """Return the bitset of these topics."""
        bits = 0
        for topic in topics:
            bits |= self.table.bit(topic)
        return bits
