"""SpiderCast below delivery: no ring and no homes. Who subscribes is what a node's view says.

Live nodes build their views by gossip (A-SPC-19), and a view knows nobody yet when a node, or a topic, is new. So the
view is no proof that nobody else subscribes until `SURE_ROUNDS` of gossip after we have begun to take part in a topic:
news are everywhere by then. Until then somebody unknown is reckoned with: a new subscriber waits for links, and a
publication for copies. The same holds after a neighbour on the topic is lost: it may only be cut off from us.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, Left, NodeId, Topic
from trellis.protocols.mesh.driven import REVISIT_ROUNDS
from trellis.protocols.spidercast.messages import Connect, ConnectOk, Heartbeat
from trellis.protocols.spidercast.node import SpiderCastNode
from trellis.protocols.topics import places

SURE_ROUNDS = 10  # news go to all of n nodes in about log2(n) rounds; losses cost a few


class SpiderCastOverlay:
    has_homes, relays, changes = False, False, 0
    telling = frozenset[type]((Heartbeat, Connect, ConnectOk))

    def __init__(self, node: SpiderCastNode, incarnation: int) -> None:
        self.node, self.id, self.table, self.incarnation = node, node.id, node.me.table, Incarnation(incarnation)
        if node.membership is not None:
            node.membership.sampling.contacts.revisit_rounds = REVISIT_ROUNDS
        self._since: dict[Topic, int] = {}  # the round in which we began to take part, or lost a neighbour; 0 at first
        self._linked: dict[NodeId, int] = {}

    @property
    def interest(self) -> int:
        return self.node.me.interest

    def neighbors(self) -> Mapping[NodeId, int]:
        found: dict[NodeId, int] = {}
        for task in self.node.tasks.values():
            for peer, record in task.neighbors.items():
                found[peer] = found.get(peer, 0) | record.interest
        lost = 0
        for peer, interest in self._linked.items():
            if peer not in found:
                lost |= interest
        self._since.update((self.table.names[place], self._round) for place in places(lost & self.interest))
        self._linked = found
        return found

    def is_gone(self, node: NodeId) -> bool:
        return False

    def subscribers(self, topic: Topic) -> int:
        return self.node.view.subscribers(self.table.bit(topic)) + (not self._is_sure(topic))

    def is_home(self, topic: Topic) -> bool:
        return False

    def home_range(self) -> str:
        return ""

    def heir(self) -> NodeId | None:
        return None

    def toward_home(self, topic: Topic, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        return []

    def meet(self, names: Sequence[NodeId]) -> Effects:
        return []

    def subscribe(self, topics: Sequence[Topic]) -> Effects:
        for topic in topics:
            if not self.interest & self.table.bit(topic):
                self._since[topic] = self._round
        return self.node.subscribe_all(topics)

    def publish_on(self, topics: Sequence[Topic]) -> Effects:
        return self.subscribe(topics)

    def unsubscribe(self, topics: Sequence[Topic]) -> Effects:
        for topic in topics:
            self._since.pop(topic, None)
        return self.node.unsubscribe_all(topics)

    def leave(self) -> Effects:
        return [*self.node.leave(), Left()]

    @property
    def _round(self) -> int:
        return self.node.membership.known.round if self.node.membership is not None else 0

    def _is_sure(self, topic: Topic) -> bool:
        """A view that was given (in the simulator) knows everybody at once."""
        return self.node.membership is None or self._round - self._since.get(topic, 0) >= SURE_ROUNDS
