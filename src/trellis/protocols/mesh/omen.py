"""OMen below delivery: topics are connected through their subscribers alone, and the ring has their homes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, NodeId, Topic
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import Connect, ConnectOk, Heartbeat
from trellis.protocols.omen.node import OMenNode
from trellis.protocols.ring import identifier


class OMenOverlay:
    """The adapter of OMen. `DrivenOverlay` and `delivery/seam.py` describe its methods."""

    has_homes, relays, changes = True, False, 0
    telling = frozenset[type]((Heartbeat, Connect, ConnectOk))

    def __init__(self, node: OMenNode) -> None:
        self.node, self.id, self.table = node, node.id, node.me.table

    @property
    def incarnation(self) -> Incarnation:
        """Return the part of OMen's incarnation that grows at restarts, without its count of refuted suspicions."""
        return Incarnation(run_of(self.node.me.incarnation))

    @property
    def interest(self) -> int:
        return self.node.me.interest

    def neighbors(self) -> Mapping[NodeId, int]:
        return {link.peer: link.interest for link in self.node.links.up()}

    def is_gone(self, node: NodeId) -> bool:
        return self.node.believes_dead(node)

    def subscribers(self, topic: Topic) -> int:
        return 0

    def is_home(self, topic: Topic) -> bool:
        return self.node.ring.responsible(identifier(topic)) == self.id

    def home_range(self) -> str:
        return self.node.ring.predecessor

    def heir(self) -> NodeId | None:
        successor = self.node.ring.successor
        return None if successor == self.id else successor

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        return self.node.toward(identifier(topic), message, without)

    def meet(self, names: Sequence[NodeId]) -> Effects:
        if self.node.planned.is_patient or self.node.is_finding_links:
            return []  # Links are about to come up.
        return self.node.link_to_one_of(names)

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        return self.node.subscribe_all(topics)

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        return self.node.subscribe_all(topics)

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        return self.node.unsubscribe_all(topics)

    def leave(self) -> Effects:
        return self.node.leave()
