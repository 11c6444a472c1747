"""SpiderCast below delivery: there are no ring and no homes. A node's view says which nodes subscribe.

Live nodes build their views by gossip (A-SPC-19), and a view knows nobody when a node, or a topic, is new. So a view is
no proof that nobody else subscribes, until `SURE_ROUNDS` of gossip after we began to take part in a topic. News has
reached all nodes by then. Until then one unknown subscriber is counted: a new subscriber waits for links, and a
publication for copies. The same holds after the loss of a neighbor on the topic, because it may only be cut off from
us.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from trellis.protocols.effects import Effects, Incarnation, Left, NodeId, Topic
from trellis.protocols.mesh.driven import REVISIT_ROUNDS
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.overlays import Birth
from trellis.protocols.spidercast.messages import Connect, ConnectOk, Heartbeat, SpiderCastMessage
from trellis.protocols.spidercast.node import SpiderCastNode
from trellis.protocols.topics import places

MESSAGES = SpiderCastMessage | NewscastRequest | NewscastReply
SURE_ROUNDS = 10  # News reaches all of n nodes in about log2(n) rounds. Losses cost a few more.


def make_spidercast(birth: Birth) -> SpiderCastOverlay:
    """Return the overlay of a live node, which builds its view by gossip."""
    node = SpiderCastNode(
        birth.name,
        birth.topics,
        birth.random,
        birth.config.spidercast,
        contacts=birth.contacts,
        gossip=birth.config.gossip,
        incarnation=birth.incarnation,
    )
    return SpiderCastOverlay(node)


class SpiderCastOverlay:
    """The adapter of SpiderCast. `DrivenOverlay` and `delivery/seam.py` describe its methods."""

    has_homes, relays, changes = False, False, 0
    telling = frozenset[type]((Heartbeat, Connect, ConnectOk))

    def __init__(self, node: SpiderCastNode) -> None:
        self.node, self.id, self.table = node, node.id, node.me.table
        self.incarnation = Incarnation(node.me.stamp.incarnation)
        if node.membership is not None:
            node.membership.sampling.contacts.revisit_rounds = REVISIT_ROUNDS
        # The round in which we began to take part in a topic, or lost a neighbor on it. 0 at first.
        self._since: dict[Topic, int] = {}
        self._linked: dict[NodeId, int] = {}  # the neighbors when they were last asked for

    @property
    def interest(self) -> int:
        return self.node.me.interest

    def neighbors(self) -> Mapping[NodeId, int]:
        shared: dict[NodeId, int] = {}
        for task in self.node.tasks.values():
            for peer, record in task.neighbors.items():
                shared[peer] = shared.get(peer, 0) | record.interest
        lost = 0
        for peer, interest in self._linked.items():
            if peer not in shared:
                lost |= interest
        self._since.update((self.table.names[index], self._round) for index in places(lost & self.interest))
        self._linked = shared
        return shared

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
        """Return the present round of gossip."""
        return self.node.membership.known.round if self.node.membership is not None else 0

    def _is_sure(self, topic: Topic) -> bool:
        """Return whether the view knows the subscribers of a topic.

        A view from the simulator knows all nodes at once.
        """
        return self.node.membership is None or self._round - self._since.get(topic, 0) >= SURE_ROUNDS
