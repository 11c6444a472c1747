"""The Vitis node: clusters of similar nodes, gateways, and relay paths to the rendezvous node.  [VI §III]

`OverlayNode` has the routing table, heartbeats and events, and `RingNode` the ring and the relay paths. This module
adds the selection of friends and the election of gateways. A node that is a gateway of a topic looks it up. An event
goes to the subscribed neighbors and along the relay paths of its topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from trellis.protocols.descriptors import Entry
from trellis.protocols.effects import Contact, Effects, NodeId, Topic
from trellis.protocols.small_world import LongLinks
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import VitisConfig
from trellis.protocols.vitis.gateways import Gateways
from trellis.protocols.vitis.messages import Profile
from trellis.protocols.vitis.neighbors import Neighbor
from trellis.protocols.vitis.ring_node import RingNode
from trellis.protocols.vitis.select import Filter, Utility, around, friends, take_small_world


class VitisNode(RingNode):
    """A node of Vitis."""

    config: VitisConfig

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: VitisConfig,
        *,
        contacts: Iterable[Contact] = (),
        table: TopicTable | None = None,
        incarnation: int = 1,
        rates: Mapping[Topic, float] | None = None,
    ) -> None:
        """Create the node. `rates` says how often topics are published on (A-VIT-5). None: all rates are equal."""
        super().__init__(node, topics, random, config, contacts=contacts, table=table, incarnation=incarnation)
        self.long_links = LongLinks(self.identifier, config.sw_neighbors - 2, random, config.network_size)
        self.utility = Utility(self.topic_table, topics, rates)
        self.gateways = Gateways(node, topics, self.neighbors, config)
        self._filter = self.table.filter = Filter(self.identifier, self.utility, config.table_size)
        self.relays.look_up(self.gateways.mine())

    def check(self) -> None:
        """Assert the invariants of all parts, and that a topic is looked up exactly if this node is its gateway."""
        super().check()
        self.gateways.check()
        assert self.relays.own == set(self.gateways.mine()), f"{self.id} is a gateway without a lookup"

    def _choose(self, entries: Mapping[NodeId, Entry]) -> list[NodeId]:
        """Choose the table: successor, predecessor, long links, friends (selectNeighbors).  [VI Alg. 4]"""
        config = self.config
        taken = take_small_world(around(self.identifier, entries), self.long_links)
        self._set_beside(taken)
        left = config.table_size - max(config.sw_neighbors, len(taken))
        chosen = taken + friends(entries, taken, self.utility.of, left, config.strangers)
        self._filter.remember(chosen, len(taken), entries, self.long_links)
        return chosen

    def _update(self) -> Effects:
        """Elect gateways and update the relay paths (UpdateProfile).  [VI Alg. 5]"""
        if self.gateways.update():
            self.relays.look_up(self.gateways.mine())  # l. 20-21
        return super()._update()

    def _profile(self, neighbor: Neighbor) -> Profile:
        sent, linked, proposals = neighbor.sent, neighbor.in_table, self.gateways.listed
        relays = self.relays.listed_for(neighbor.node)
        if (
            sent is None
            or sent.proposals is not proposals
            or sent.relays is not relays
            or sent.linked != linked
            or sent.topics is not self.topics
            or sent.beside is not self.beside
        ):
            sent = neighbor.sent = Profile(self.incarnation, linked, self.topics, proposals, relays, self.beside)
        return sent

    def _on_profile(self, neighbor: Neighbor, profile: Profile) -> Effects:
        if profile.proposals is not neighbor.listed:
            self.gateways.listen(neighbor, profile.proposals)
        return self._on_relay_list(neighbor, profile)

    def _came(self, neighbor: Neighbor) -> None:
        self.gateways.came(neighbor)

    def _went(self, neighbor: Neighbor) -> None:
        self.gateways.went(neighbor)

    def _targets(self, topic: Topic) -> list[NodeId]:
        """Return the subscribed neighbors and the relay links of a topic.

        A relay that is not subscribed itself uses the relay links only (A-VIT-19).
        """
        links = self.relays.links(topic)
        if topic not in self.interest and not self.config.relays_flood:
            return links
        interested = self.neighbors.interested(topic)
        return [*interested, *(node for node in links if node not in interested)]

    def _takes_part(self, topic: Topic) -> bool:
        return topic in self.interest or self.relays.relays(topic)

    def _stops_here(self, topic: Topic) -> bool:
        return topic in self.interest

    def _topics_changed(self) -> None:
        before = set(self.gateways.proposals)
        self.utility.set(self.topics)
        self._filter.forget()
        self.gateways.set_topics(self.topics)
        self.relays.look_up(self.gateways.mine())
        self.relays.reconsider(sorted(before.symmetric_difference(self.topics)))
