"""The RVR node: every subscriber looks up its topics, and the paths of the lookups are the multicast tree.  [VI §IV]

The table has the successor, the predecessor and RT-SIZE - 2 long links. Both ends use a link, as in Vitis (A-VIT-23). A
publisher that is in the tree sends an event along all its tree links. Any other publisher sends it towards the
rendezvous node, until it comes to a node of the tree (A-VIT-22).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from trellis.protocols.descriptors import Entry
from trellis.protocols.effects import Contact, Effects, NodeId, Topic
from trellis.protocols.small_world import LongLinks
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.messages import Profile
from trellis.protocols.vitis.neighbors import Neighbor
from trellis.protocols.vitis.ring_node import RingNode
from trellis.protocols.vitis.select import around, take_small_world


class RvrNode(RingNode):
    """A node of RVR."""

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: TableConfig,
        *,
        contacts: Iterable[Contact] = (),
        table: TopicTable | None = None,
        incarnation: int = 1,
    ) -> None:
        super().__init__(node, topics, random, config, contacts=contacts, table=table, incarnation=incarnation)
        self.long_links = LongLinks(self.identifier, config.table_size - 2, random, config.network_size)
        self.relays.look_up(topics)

    def _choose(self, entries: Mapping[NodeId, Entry]) -> list[NodeId]:
        taken = take_small_world(around(self.identifier, entries), self.long_links)
        self._set_beside(taken)
        return taken

    def _profile(self, neighbor: Neighbor) -> Profile:
        sent, linked, relays = neighbor.sent, neighbor.in_table, self.relays.listed_for(neighbor.node)
        if (
            sent is None
            or sent.relays is not relays
            or sent.linked != linked
            or sent.topics is not self.topics
            or sent.beside is not self.beside
        ):
            sent = neighbor.sent = Profile(self.incarnation, linked, self.topics, (), relays, self.beside)
        return sent

    def _on_profile(self, neighbor: Neighbor, profile: Profile) -> Effects:
        return self._on_relay_list(neighbor, profile)

    def _targets(self, topic: Topic) -> list[NodeId]:
        return self.relays.links(topic)

    def _takes_part(self, topic: Topic) -> bool:
        return self.relays.relays(topic)

    def _topics_changed(self) -> None:
        self.relays.look_up(self.topics)
