"""Overlays as the mesh node drives them: the seam of delivery (`delivery/seam.py`), and their own inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import msgspec

from trellis.protocols.delivery.seam import Overlay
from trellis.protocols.effects import Effects, Left, NodeId, Send, Topic
from trellis.protocols.node import ProtocolNode
from trellis.protocols.omen import messages as omen
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.mend import Departed
from trellis.protocols.omen.node import OMenNode
from trellis.protocols.ring import clockwise, identifier
from trellis.protocols.spidercast import messages as spidercast
from trellis.protocols.spidercast.node import SpiderCastNode


class DrivenOverlay(Overlay, Protocol):
    telling: frozenset[type]  # messages by which interests of neighbours may change

    @property
    def node(self) -> ProtocolNode: ...

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these as well, as one change."""
        ...

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        """Take part in these no more. The overlay may keep the node on them until it is mended."""
        ...

    def leave(self) -> Effects:
        """For good; `Left` comes when it is done."""
        ...


class OMenOverlay:
    has_homes = True
    telling = frozenset[type]((omen.Heartbeat, omen.Connect, omen.ConnectOk))

    def __init__(self, node: OMenNode) -> None:
        self.node, self.id, self.table = node, node.id, node.me.table

    @property
    def life(self) -> int:
        return life_of(self.node.me.incarnation)

    @property
    def interest(self) -> int:
        return self.node.me.interest

    def neighbours(self) -> Mapping[NodeId, int]:
        return {link.peer: link.interest for link in self.node.links.up()}

    def is_gone(self, node: NodeId) -> bool:
        return node in self.node.parts.suspects.incarnations

    def subscribers(self, topic: Topic) -> int:
        return 0

    def is_home(self, topic: Topic) -> bool:
        return self.node.ring.responsible(identifier(topic)) == self.id

    def home_range(self) -> str:
        return self.node.ring.predecessor

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """As `Parts.route`, which knows nothing of nodes that are dead and that nobody near us has watched."""
        parts, place = self.node.parts, identifier(topic)
        shunned = {*without, *parts.suspects.incarnations}
        known = [self.id, *parts.ring.tman.peers, *parts.sampling.peers, *parts.links.links]
        nearest = min((one for one in known if one not in shunned), key=lambda one: clockwise(place, identifier(one)))
        if nearest == self.id and not self.is_home(topic):
            return parts.route(place, message)
        return [Send(nearest, message)]

    def meet(self, names: Sequence[NodeId]) -> Effects:
        if self.node.me.is_leaving:
            return []
        chosen = names[self.node.parts.random.randrange(len(names))]
        return self.node.on_message(self.id, omen.OpenLink(0, chosen))

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        """One join for all topics that no neighbour has.  [A-OMN-23]"""
        node, me, parts = self.node, self.node.me, self.node.parts
        if len(topics) == 1:
            return node.subscribe(topics[0])
        bits = self.table.bits(tuple(topics))
        me.leaving &= ~bits
        new = bits & ~me.interest
        if not new:
            return []
        parts.take_part(me.interest | new)
        effects = node.links.interest_changed()
        alone = new & ~node.links.covered()
        known = parts.known_subscribers(alone) if alone else []
        if known:  # nobody known: the net finds somebody, if there is anybody
            mend = node.coordinator.new_mend("join", self.id, me.incarnation)
            mend.topics, mend.backups = self.table.topics(alone), known
            effects += mend.start()
        return node._settle(effects)

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        """One repair around us for all of them.  [A-OMN-23]"""
        node, me = self.node, self.node.me
        if len(topics) == 1:
            return node.unsubscribe(topics[0])
        bits = self.table.bits(tuple(topics)) & me.wanted
        if not bits:
            return []
        me.leaving |= bits
        names = self.table.topics(bits)
        mend = node.coordinator.new_mend("unsubscribe", self.id, me.incarnation)
        mend.topics = names
        neighbours = {link.peer: link.incarnation for link in node.links.up() if link.interest & bits}
        mend.departed[self.id] = Departed(me.incarnation, frozenset(names), neighbours, True)
        mend.backups = node.parts.known_subscribers(bits)
        return node._settle(mend.start())

    def leave(self) -> Effects:
        return self.node.leave()


class SpiderCastOverlay:
    """No ring and no homes: who subscribes is what its view says."""

    has_homes = False
    telling = frozenset[type]((spidercast.Heartbeat, spidercast.Connect, spidercast.ConnectOk))

    def __init__(self, node: SpiderCastNode, life: int) -> None:
        self.node, self.id, self.table, self.life = node, node.id, node.me.table, life

    @property
    def interest(self) -> int:
        return self.node.me.interest

    def neighbours(self) -> Mapping[NodeId, int]:
        found: dict[NodeId, int] = {}
        for task in self.node.tasks.values():
            for peer, record in task.neighbors.items():
                found[peer] = found.get(peer, 0) | record.interest
        return found

    def is_gone(self, node: NodeId) -> bool:
        return False

    def subscribers(self, topic: Topic) -> int:
        return self.node.view.subscribers(self.table.bit(topic))

    def is_home(self, topic: Topic) -> bool:
        return False

    def home_range(self) -> str:
        return ""

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        return []

    def meet(self, names: Sequence[NodeId]) -> Effects:
        return []

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        return [effect for topic in topics for effect in self.node.subscribe(topic)]

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        return [effect for topic in topics for effect in self.node.unsubscribe(topic)]

    def leave(self) -> Effects:
        return [*self.node.leave(), Left()]
