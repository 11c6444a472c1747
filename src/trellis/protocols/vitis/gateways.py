"""Gateway election: each cluster of a topic agrees, d hops around, on the node closest to the topic.  [VI Alg. 5]

A node proposes itself, or the closest gateway that a neighbour proposes, one hop further. Accepted is what a neighbour
says of itself, and what it has from somebody that we do not hear ourselves (l. 7); what it has from us is not taken
back (A-VIT-11). Of the same gateway over the same hops the present parent stays, or the one with the smaller name wins:
the outcome does not depend on the order of the table, and nothing changes without need.

The proposal for a topic follows from what the neighbours propose for it and from who they are. So it is computed anew
only where one of these has changed since: `touch` says so.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.lookup import closeness
from trellis.protocols.ring import identifier
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.vitis.messages import Proposal, Proposals
from trellis.protocols.vitis.neighbors import Neighbors


class Gateways:
    def __init__(self, owner: NodeId, topics: tuple[Topic, ...], neighbors: Neighbors, config: VitisConfig) -> None:
        self.owner, self.neighbors = owner, neighbors
        self.hops_max = config.gateway_hops if config.hop_limit == "at-most" else config.gateway_hops - 1  # A-VIT-12
        self.take_back = config.take_back
        self.proposals: dict[Topic, Proposal] = {}
        self.listed: Proposals = ()  # in the order of the topics: the form in which they travel
        self._mine = Proposal(owner, owner, 0)
        self._touched: set[Topic] = set()
        self.set_topics(topics)

    def set_topics(self, topics: tuple[Topic, ...]) -> None:
        self.proposals = {topic: self.proposals.get(topic, self._mine) for topic in topics}
        self._topics = frozenset(topics)
        self._touched = set(topics)
        self._list()

    def touch(self, topics: Iterable[Topic]) -> None:
        """What neighbours propose for these topics, or who they are, has changed."""
        self._touched.update(self._topics.intersection(topics))

    def update(self) -> bool:
        """UpdateProfile; says whether a proposal has changed."""
        if not self._touched:
            return False
        changed = False
        firm, heard = self._heard()
        for topic in self._touched:  # in any order: no election depends on another
            proposal = self._elect(topic, heard.get(topic, ()), firm)
            if proposal is not self.proposals[topic]:
                self.proposals[topic] = proposal
                changed = True
        self._touched = set()
        if changed:
            self._list()
        return changed

    def is_gateway(self, topic: Topic) -> bool:
        proposal = self.proposals.get(topic)
        return proposal is not None and proposal.gateway == self.owner

    def mine(self) -> list[Topic]:
        """The topics that this node is a gateway of."""
        return [topic for topic, proposal in self.proposals.items() if proposal.gateway == self.owner]

    def check(self) -> None:
        for topic, proposal in self.proposals.items():
            assert proposal.hops <= self.hops_max, f"I-18: {self.owner} is {proposal.hops} hops from {proposal.gateway}"
            own = (proposal.gateway == self.owner, proposal.parent == self.owner, proposal.hops == 0)
            assert own in ((True,) * 3, (False,) * 3), f"I-18: {self.owner} proposes {proposal} for {topic}"

    def _heard(self) -> tuple[set[NodeId], dict[Topic, list[tuple[NodeId, Proposal]]]]:
        """Our neighbours, and what they propose for the topics that are to be looked at.  [l. 4-6]"""
        touched = self._touched
        firm: set[NodeId] = set()
        heard: dict[Topic, list[tuple[NodeId, Proposal]]] = {}
        for one in self.neighbors.firm():
            firm.add(one.node)
            for topic in touched.intersection(one.proposals):
                heard.setdefault(topic, []).append((one.node, one.proposals[topic]))
        return firm, heard

    def _elect(self, topic: Topic, heard: Iterable[tuple[NodeId, Proposal]], firm: set[NodeId]) -> Proposal:
        place, owner, hops_max = identifier(topic), self.owner, self.hops_max
        before = self.proposals[topic]
        gateway = last = owner  # l. 3
        closest = distance = closeness(identifier(owner), place)
        best = (0, False, owner)  # hops, is it another parent than before, parent
        for node, new in heard:
            if new.hops >= hops_max or new.gateway == owner:
                continue
            if new.parent == owner:
                if not self.take_back:
                    continue
            elif new.parent != node and new.parent in firm:  # l. 7
                continue
            if new.gateway != last:
                last = new.gateway
                distance = closeness(identifier(last), place)
            if distance > closest:
                continue
            rank = (new.hops + 1, node != before.parent, node)
            if distance < closest or rank < best:  # l. 8-12, l. 13-15
                gateway, closest, best = last, distance, rank
        hops, _, parent = best
        if (gateway, parent, hops) == (before.gateway, before.parent, before.hops):
            return before
        return Proposal(gateway, parent, hops)

    def _list(self) -> None:
        self.listed = tuple([self.proposals[topic] for topic in self.proposals])


_Changes = list[tuple[Topic, Proposal]]
_compared: dict[tuple[int, int], tuple[Proposals, Proposals, _Changes]] = {}
_COMPARED_MAX = 1_000  # all neighbours of a node hear it at about the same time


def changed_proposals(topics: tuple[Topic, ...], before: Proposals, now: Proposals) -> _Changes:
    """What is new in a list of proposals for the same topics.

    All neighbours of a node compare the same two lists, and in a simulation they are the very same objects: so the
    answer is kept, by the identity of the lists, which are held so that no other one can take their place.
    """
    key = (id(before), id(now))
    known = _compared.get(key)
    if known is not None:
        return known[2]
    changed = [(topic, new) for topic, new, old in zip(topics, now, before, strict=False) if new is not old]
    if len(_compared) >= _COMPARED_MAX:
        _compared.clear()
    _compared[key] = (before, now, changed)
    return changed
