"""OMen below delivery: topics are connected through their subscribers alone, and the ring has their homes."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, NodeId, Topic
from trellis.protocols.omen.links.planned import Plan
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import Connect, ConnectOk, Heartbeat
from trellis.protocols.omen.node import OMenNode
from trellis.protocols.overlays import Birth
from trellis.protocols.ring import identifier


def make_omen(birth: Birth) -> OMenOverlay:
    """Return the overlay of a live node. The name of the cluster is the seed that all its nodes share."""
    config = birth.config
    node = OMenNode(
        birth.name,
        birth.topics,
        birth.random,
        config.omen,
        contacts=birth.contacts,
        plan=_plan(birth),
        incarnation=birth.incarnation,
        seed=config.cluster,
    )
    return OMenOverlay(node)


def _plan(birth: Birth) -> Plan:
    """Return the plan for the node's first links.

    Nodes that started at most `wait_s` before this one count as started together with it. Incarnations count tenths of
    a second (`clock.life_now`), hence the factor 10.
    """
    wait_s, neighbours = birth.config.planned.wait_s, birth.config.planned.neighbours
    periods = math.ceil(1_000 * wait_s / birth.config.omen.period_ms)
    return Plan(neighbours=neighbours, periods=periods, oldest=birth.incarnation - round(10 * wait_s))


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
