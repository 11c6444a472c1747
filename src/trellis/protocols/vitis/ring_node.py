"""What Vitis and RVR share beyond the overlay: a ring that closes, lookups and relay paths.  [VI §III-A1, §III-B]"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from trellis.protocols.effects import Contact, Effects, NodeId, Send, Topic
from trellis.protocols.ring import RING, identifier
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.messages import Handover, Profile, Relay
from trellis.protocols.vitis.neighbors import Neighbor
from trellis.protocols.vitis.overlay import OverlayNode
from trellis.protocols.vitis.relays import RelayPaths


class RingNode(OverlayNode):
    """A node on the identifier ring that looks up topics and relays events for others."""

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
        self.relays = RelayPaths(node, self.neighbors, self._stops_here, config.linger_rounds)
        self.beside: tuple[NodeId, ...] = ()  # the successor and the predecessor

    def check(self) -> None:
        super().check()
        self.relays.check()

    def _stops_here(self, topic: Topic) -> bool:
        """Return whether lookups of other nodes for a topic end here, even if we are not the rendezvous node."""
        return False

    def _update(self) -> Effects:
        """Update the relay paths, and ask for nodes that belong between us and the next nodes on the ring."""
        self.relays.update(self.round)
        self.relays.told()  # The profiles that are sent now say it.
        return self._close_ring()

    def _on_relay_list(self, neighbor: Neighbor, profile: Profile) -> Effects:
        """Take in the relay paths of a profile."""
        if profile.relays is neighbor.relays_listed:
            return []
        neighbor.relays_listed = profile.relays
        self.relays.on_list(neighbor, profile.relays, self.round)
        return self.relays.ask()

    def _on_relay(self, sender: NodeId, message: Relay) -> Effects:
        """Take in a request for relay paths."""
        neighbor = self.neighbors.get(sender)
        if neighbor is None or not neighbor.spoke:
            return []  # Its next profile says the same again.
        # Set both to None, so that the next profile is examined even if it is the same object as the last one.
        neighbor.profile = neighbor.relays_listed = None
        self.relays.on_relay(neighbor, message.topics)
        return self.relays.ask()

    def _forget(self, neighbor: Neighbor) -> None:
        self.relays.drop(neighbor)

    def _hand_over(self, message: Handover) -> Effects:
        """Send an event towards the rendezvous node (A-VIT-20, A-VIT-22). If we are that node, nobody is subscribed."""
        hop = self.relays.compass.next_hop(identifier(message.topic))
        return [] if hop is None else [Send(hop, message)]

    def _set_beside(self, taken: list[NodeId]) -> None:
        """Set successor and predecessor. The tuple stays the same object if they have not changed."""
        beside = tuple(taken[:2])
        if beside != self.beside:
            self.beside = beside

    def _close_ring(self) -> Effects:
        """Exchange tables with nodes that, as our neighbors on the ring say, are between them and us.

        Deviation: the paper leaves the ring to T-Man. With random exchanges among 15 neighbors the ring closes slowly:
        in a run of 1,000 nodes four successors were still wrong after 50 rounds. Chord's rule costs two names in each
        profile.
        """
        nearer: dict[NodeId, None] = {}
        for side, node in enumerate(self.beside):
            neighbor = self.neighbors.get(node)
            if neighbor is None or neighbor.profile is None:
                continue
            gap = (identifier(node) - self.identifier) % RING
            for peer in neighbor.profile.beside:
                if peer == self.id or peer in self.table:
                    continue
                far = (identifier(peer) - self.identifier) % RING
                if far < gap if side == 0 else far > gap:
                    nearer[peer] = None
        return [effect for node in nearer for effect in self.table.exchange_with(node)]
