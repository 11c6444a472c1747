"""Gateway election: the nodes of a cluster agree, within d hops, on the one closest to the topic.  [VI Alg. 5]

For each of its topics, a node proposes the closest gateway: itself, or one that a neighbor proposes, at one hop more. A
neighbor's proposal is accepted if the neighbor proposes itself, or if its parent is a node that has not told us a
proposal itself (l. 7). A proposal that the neighbor has from us is not accepted (A-VIT-11). If several neighbors
propose the same gateway over the same number of hops, the present parent stays, else the smaller name wins. So the
result does not depend on the order of the table, and does not change without need.

The proposal for a topic depends only on the proposals of the neighbors for it, and on which neighbors there are. It is
computed again only if one of these has changed since the last round.

H1  `heard` has, for each of our topics, the last proposal of every firm neighbor that is subscribed to it.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.lookup import closeness
from trellis.protocols.ring import RING, identifier
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.vitis.messages import Proposal, Proposals
from trellis.protocols.vitis.neighbors import Neighbor, Neighbors


class Gateways:
    """The proposals of one node, one for each of its topics, and those of its neighbors."""

    def __init__(self, owner: NodeId, topics: tuple[Topic, ...], neighbors: Neighbors, config: VitisConfig) -> None:
        self.owner, self.neighbors = owner, neighbors
        self.hops_max = config.gateway_hops if config.hop_limit == "at-most" else config.gateway_hops - 1  # A-VIT-12
        self.take_back = config.take_back
        self.proposals: dict[Topic, Proposal] = {}
        self.listed: Proposals = ()  # the proposals in the order of the topics, as a profile has them
        self.heard: dict[Topic, dict[NodeId, Proposal]] = {}
        self._mine = Proposal(owner, owner, 0)
        self._touched: set[Topic] = set()
        self.set_topics(topics)

    def set_topics(self, topics: tuple[Topic, ...]) -> None:
        """Change the topics of the node. Proposals for topics that stay are kept until the next `update`."""
        self.proposals = {topic: self.proposals.get(topic, self._mine) for topic in topics}
        self._closeness = {topic: closeness(identifier(self.owner), identifier(topic)) for topic in topics}
        self.heard = {topic: {} for topic in topics}
        self._touched = set(topics)
        for neighbor in self.neighbors.all.values():
            neighbor.shared = None
            if neighbor.firm:
                self.came(neighbor)
        self._list()

    def came(self, neighbor: Neighbor) -> None:
        """Note that a neighbor is firm from now on, with its present topics."""
        listed = neighbor.listed
        for index, topic in self._shared(neighbor):
            self._touched.add(topic)
            if index < len(listed):
                self.heard[topic][neighbor.node] = listed[index]

    def went(self, neighbor: Neighbor) -> None:
        """Note that a neighbor is not firm any more, or that its topics are about to change."""
        for _, topic in self._shared(neighbor):
            self._touched.add(topic)
            self.heard[topic].pop(neighbor.node, None)

    def listen(self, neighbor: Neighbor, listed: Proposals) -> None:
        """Note the proposals of a neighbor, one for each of its topics.  [l. 5-6]"""
        before, neighbor.listed = neighbor.listed, listed
        if not neighbor.firm:
            return
        known, count = len(before), len(listed)
        for index, topic in self._shared(neighbor):
            # Proposals that have not changed are the same objects, unless they came over the wire. Then all look new,
            # and are compared again with the same result.
            if index < count and (index >= known or listed[index] is not before[index]):
                self.heard[topic][neighbor.node] = listed[index]
                self._touched.add(topic)

    def update(self) -> bool:
        """Compute the proposals again where something has changed (UpdateProfile).

        Return whether one is different now.
        """
        changed = False
        for topic in self._touched:  # The order does not matter: no election depends on another.
            proposal = self._elect(topic)
            if proposal is not self.proposals[topic]:
                self.proposals[topic] = proposal
                changed = True
        self._touched = set()
        if changed:
            self._list()
        return changed

    def mine(self) -> list[Topic]:
        """Return the topics for which this node is a gateway."""
        owner = self.owner
        return [topic for topic, proposal in self.proposals.items() if proposal.gateway == owner]

    def check(self) -> None:
        """Assert the invariants H1 and I-18.

        I-18: a proposed gateway is at most d hops away, and only a node that proposes itself has 0 hops and itself as
        parent.
        """
        for topic, proposal in self.proposals.items():
            assert proposal.hops <= self.hops_max, f"I-18: {self.owner} is {proposal.hops} hops from {proposal.gateway}"
            own = (proposal.gateway == self.owner, proposal.parent == self.owner, proposal.hops == 0)
            assert own in ((True,) * 3, (False,) * 3), f"I-18: {self.owner} proposes {proposal} for {topic}"
        listed: dict[Topic, dict[NodeId, Proposal]] = {topic: {} for topic in self.proposals}
        for neighbor in self.neighbors.firm():
            for topic, proposal in zip(neighbor.topics, neighbor.listed, strict=False):
                if topic in listed:
                    listed[topic][neighbor.node] = proposal
        assert listed == self.heard, f"H1: {self.owner} did not listen"

    def _shared(self, neighbor: Neighbor) -> tuple[tuple[int, Topic], ...]:
        """Return the topics that both nodes are subscribed to, each with its index among the topics of the neighbor."""
        shared = neighbor.shared
        if shared is None:
            own = self.proposals
            shared = tuple([(index, topic) for index, topic in enumerate(neighbor.topics) if topic in own])
            neighbor.shared = shared
        return shared

    def _elect(self, topic: Topic) -> Proposal:
        """Return the best proposal for a topic. It is the same object as before if it has not changed."""
        position, owner, hops_max = identifier(topic), self.owner, self.hops_max
        before, heard = self.proposals[topic], self.heard[topic]
        gateway = last = owner  # l. 3
        closest = distance = self._closeness[topic]
        best = (0, False, owner)  # hops, whether the parent is another one than before, parent
        for node, new in heard.items():
            proposed, parent = new.gateway, new.parent
            if new.hops >= hops_max or proposed == owner:
                continue
            if parent == owner:
                if not self.take_back:
                    continue
            elif parent != node and parent in heard:  # l. 7 (A-VIT-15)
                continue
            if proposed != last:
                last, at = proposed, identifier(proposed)
                far = abs(at - position)
                distance = (min(far, RING - far), at)
            if distance > closest:
                continue
            rank = (new.hops + 1, node != before.parent, node)
            if distance < closest or rank < best:  # l. 8-12, l. 13-15
                gateway, closest, best = proposed, distance, rank
        hops, _, parent = best
        if gateway == before.gateway and parent == before.parent and hops == before.hops:
            return before
        return Proposal(gateway, parent, hops)

    def _list(self) -> None:
        self.listed = tuple(self.proposals.values())
