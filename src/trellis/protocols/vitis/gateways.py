"""Gateway election: each cluster of a topic agrees, d hops around, on the node closest to the topic.  [VI Alg. 5]

A node proposes itself, or the closest gateway that a neighbour proposes, one hop further. Accepted is what a neighbour
says of itself, and what it has from somebody that we do not hear ourselves (l. 7); what it has from us is not taken
back (A-VIT-11). Of the same gateway over the same hops the present parent stays, or the one with the smaller name wins:
the outcome does not depend on the order of the table, and nothing changes without need.

The proposal for a topic follows from what the neighbours propose for it and from who they are. So it is computed anew
only where one of these has changed since the last round.

H1  `heard` holds, for each of our topics, the last proposal of every firm neighbour that wants it.
"""

from __future__ import annotations

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.lookup import closeness
from trellis.protocols.ring import RING, identifier
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.vitis.messages import Proposal, Proposals
from trellis.protocols.vitis.neighbors import Neighbor, Neighbors


class Gateways:
    def __init__(self, owner: NodeId, topics: tuple[Topic, ...], neighbors: Neighbors, config: VitisConfig) -> None:
        self.owner, self.neighbors = owner, neighbors
        self.hops_max = config.gateway_hops if config.hop_limit == "at-most" else config.gateway_hops - 1  # A-VIT-12
        self.take_back = config.take_back
        self.proposals: dict[Topic, Proposal] = {}
        self.listed: Proposals = ()  # in the order of the topics: the form in which they travel
        self.heard: dict[Topic, dict[NodeId, Proposal]] = {}
        self._mine = Proposal(owner, owner, 0)
        self._touched: set[Topic] = set()
        self.set_topics(topics)

    def set_topics(self, topics: tuple[Topic, ...]) -> None:
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
        """It is a firm neighbour from now on, with these topics."""
        listed = neighbor.listed
        for place, topic in self._shared(neighbor):
            self._touched.add(topic)
            if place < len(listed):
                self.heard[topic][neighbor.node] = listed[place]

    def went(self, neighbor: Neighbor) -> None:
        """It is no firm neighbour any more, or wants other topics now."""
        for _, topic in self._shared(neighbor):
            self._touched.add(topic)
            self.heard[topic].pop(neighbor.node, None)

    def listen(self, neighbor: Neighbor, listed: Proposals) -> None:
        """The neighbour proposes these, one for each of its topics.  [l. 5-6]"""
        before, neighbor.listed = neighbor.listed, listed
        if not neighbor.firm:
            return
        known, count = len(before), len(listed)
        for place, topic in self._shared(neighbor):
            # Proposals that stay are the very same objects, unless they came over the wire: then all look new, and are
            # compared with those of others once more, to the same effect.
            if place < count and (place >= known or listed[place] is not before[place]):
                self.heard[topic][neighbor.node] = listed[place]
                self._touched.add(topic)

    def update(self) -> bool:
        """UpdateProfile; says whether a proposal has changed."""
        changed = False
        for topic in self._touched:  # in any order: no election depends on another
            proposal = self._elect(topic)
            if proposal is not self.proposals[topic]:
                self.proposals[topic] = proposal
                changed = True
        self._touched = set()
        if changed:
            self._list()
        return changed

    def mine(self) -> list[Topic]:
        """The topics that this node is a gateway of."""
        owner = self.owner
        return [topic for topic, proposal in self.proposals.items() if proposal.gateway == owner]

    def check(self) -> None:
        for topic, proposal in self.proposals.items():
            assert proposal.hops <= self.hops_max, f"I-18: {self.owner} is {proposal.hops} hops from {proposal.gateway}"
            own = (proposal.gateway == self.owner, proposal.parent == self.owner, proposal.hops == 0)
            assert own in ((True,) * 3, (False,) * 3), f"I-18: {self.owner} proposes {proposal} for {topic}"
        told: dict[Topic, dict[NodeId, Proposal]] = {topic: {} for topic in self.proposals}
        for one in self.neighbors.firm():
            for topic, proposal in zip(one.topics, one.listed, strict=False):
                if topic in told:
                    told[topic][one.node] = proposal
        assert told == self.heard, f"H1: {self.owner} did not listen"

    def _shared(self, neighbor: Neighbor) -> tuple[tuple[int, Topic], ...]:
        """The topics that the neighbour and we want, each with its place among those of the neighbour."""
        shared = neighbor.shared
        if shared is None:
            own = self.proposals
            shared = tuple([(place, topic) for place, topic in enumerate(neighbor.topics) if topic in own])
            neighbor.shared = shared
        return shared

    def _elect(self, topic: Topic) -> Proposal:
        place, owner, hops_max = identifier(topic), self.owner, self.hops_max
        before, heard = self.proposals[topic], self.heard[topic]
        gateway = last = owner  # l. 3
        closest = distance = self._closeness[topic]
        best = (0, False, owner)  # hops, is it another parent than before, parent
        for node, new in heard.items():
            told, parent = new.gateway, new.parent
            if new.hops >= hops_max or told == owner:
                continue
            if parent == owner:
                if not self.take_back:
                    continue
            elif parent != node and parent in heard:  # l. 7 (A-VIT-15)
                continue
            if told != last:
                last, at = told, identifier(told)
                far = abs(at - place)
                distance = (min(far, RING - far), at)
            if distance > closest:
                continue
            rank = (new.hops + 1, node != before.parent, node)
            if distance < closest or rank < best:  # l. 8-12, l. 13-15
                gateway, closest, best = told, distance, rank
        hops, _, parent = best
        if gateway == before.gateway and parent == before.parent and hops == before.hops:
            return before
        return Proposal(gateway, parent, hops)

    def _list(self) -> None:
        self.listed = tuple(self.proposals.values())
