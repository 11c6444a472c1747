"""The node that Vitis, RVR and OPT share, so that they can be compared: samples, tables, heartbeats, events.

[VI §III, §IV]

    Newscast      peer sampling                                             [VI §IV: Newscast]
    RoutingTable  T-Man with the selection of the protocol                  [VI Alg. 2-3]
    Neighbors     links used by both ends, profiles as heartbeats           [VI Alg. 6-7]
    Events        notify and pull                                           [VI §III-C]

A protocol overrides the hooks: which nodes the table keeps (`_choose`), what else a profile has (`_profile`,
`_on_profile`), what is done in a round (`_update`), and where an event goes (`_targets`).

Neighbors follow the table: `_follow_table` is called after each change of it, and makes links firm or lets them part.
"""

# ruff: noqa: B027  hooks that a system may leave empty

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from random import Random

import msgspec

from trellis.protocols.descriptors import Descriptor, Entry
from trellis.protocols.effects import Contact, Effects, LinkDown, LinkUp, NodeId, Send, SetTimer, Topic
from trellis.protocols.newscast import Newscast, NewscastReply, NewscastRequest
from trellis.protocols.ring import identifier
from trellis.protocols.tman import TManConfig, TManReply, TManRequest
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.events import Events
from trellis.protocols.vitis.messages import Event, Handover, Leave, Notification, Profile, Pull, Relay, Unlink
from trellis.protocols.vitis.neighbors import FIRM, Neighbor, Neighbors, as_set
from trellis.protocols.vitis.table import RoutingTable


class OverlayNode(ABC):
    """A node with a routing table, heartbeats and events. Abstract: a protocol says which nodes the table keeps."""

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
        self.id, self.random, self.config, self.incarnation = node, random, config, incarnation
        self.identifier = identifier(node)
        self.topics = topics  # sorted
        self.interest = as_set(topics)
        self.topic_table = table if table is not None else TopicTable()
        self.round = 0
        self.unknown = 0  # messages of no known type, or from ourselves
        self.neighbors = Neighbors()
        self._in_table = 0  # number of neighbors that are in the table
        self._selections = 0  # The table's count of selections when neighbors last followed it.
        self._me = Descriptor(node, 0, incarnation, topics)
        self.sampling = Newscast(self._describe, contacts, random, config.newscast())
        gossip = TManConfig(period_ms=config.period_ms, age_max=config.age_max)
        self.table = RoutingTable(self._describe, self._choose, self.sampling.table, random, gossip, self._table_size())
        self.events = Events(
            node,
            incarnation,
            self.interest.__contains__,
            self._targets,
            event_rounds=config.event_rounds,
            tries_max=config.silence_max,
        )
        self._tick = SetTimer("profile/tick", config.period_ms)

    # The methods that a driver calls.

    def start(self) -> Effects:
        first = SetTimer(self._tick.tag, self.random.randrange(self.config.period_ms))
        return [*self.sampling.start(), *self.table.start(), first]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Pass a message to the part that handles it."""
        if sender == self.id:
            self.unknown += 1
            return []
        match message:
            case Profile():
                return self._on_heartbeat(sender, message)
            case Notification():
                return self.events.on_notification(sender, message)
            case Pull():
                return self.events.on_pull(sender, message)
            case Event():
                return self.events.on_event(sender, message)
            case TManRequest() | TManReply():
                effects = self.table.on_message(sender, message)
                return [*effects, *self._follow_table()]
            case NewscastRequest() | NewscastReply():
                return self.sampling.on_message(sender, message)
            case Relay():
                return self._on_relay(sender, message)
            case Unlink():
                return self._on_unlink(sender)
            case Leave():
                return self.on_peer_down(sender)
            case Handover():
                return self._on_handover(sender, message)
        self.unknown += 1
        return []

    def on_timer(self, tag: str) -> Effects:
        if tag == "profile/tick":
            return self._exchange_profiles()
        if tag.startswith("newscast/"):
            return self.sampling.on_timer(tag)
        self._renew_table()
        effects = self.table.on_timer(tag)
        return [*effects, *self._follow_table()]

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Remove a peer that has crashed or left, as a broken stream, its silence or the peer itself has shown."""
        self.sampling.on_peer_down(peer)
        self.table.on_peer_down(peer)
        neighbor = self.neighbors.get(peer)
        if neighbor is not None:
            neighbor.links_us = False
        effects = self._follow_table()
        return [*effects, *self._remove(peer)]

    def subscribe(self, topic: Topic) -> Effects:
        return self.subscribe_all((topic,))

    def subscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Add topics to the interest of the node."""
        return self._change((*self.topics, *topics))

    def unsubscribe(self, topic: Topic) -> Effects:
        return self.unsubscribe_all((topic,))

    def unsubscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Remove topics from the interest of the node."""
        return self._change(set(self.topics).difference(topics))

    def publish(self, topic: Topic, payload: bytes) -> Effects:
        """Publish an event. If this node takes no part in the topic, hand the event over to one that does."""
        event, effects = self.events.publish(topic, payload)
        if not self._takes_part(topic):
            handover = Handover(topic, event.origin, event.sequence, 1, payload)
            effects = [*effects, *self._hand_over(handover)]
        return effects

    def leave(self) -> Effects:
        """Tell all neighbors that this node leaves.

        Deviation: a node that leaves says so. In the paper its neighbors notice its silence. One message to each saves
        that time.
        """
        return [Send(node, Leave()) for node in self.neighbors.all]

    def check(self) -> None:
        """Assert the invariants N1 and I-16, and those of the parts."""
        self.sampling.check()
        self.table.check()
        self.events.check()
        in_table = {node for node, neighbor in self.neighbors.all.items() if neighbor.in_table}
        assert in_table == set(self.table.peers), f"N1: {in_table} are not {self.table.peers}"
        for node, neighbor in self.neighbors.all.items():
            assert neighbor.firm == (neighbor.in_table or neighbor.links_us), f"N1: {self.id} and {node}"
        assert self.id not in self.neighbors, f"I-16: {self.id} is its own neighbor"

    # The hooks that a protocol overrides.

    def _table_size(self) -> int | None:
        """Return the most entries that the table may have. None: it has no limit."""
        return self.config.table_size

    @abstractmethod
    def _choose(self, entries: Mapping[NodeId, Entry]) -> list[NodeId]:
        """Return the nodes that the table keeps among these entries."""

    def _profile(self, neighbor: Neighbor) -> Profile:
        """Return the profile for a neighbor in this round. It is the same object as before if nothing has changed."""
        sent, linked = neighbor.sent, neighbor.in_table
        if sent is None or sent.linked != linked or sent.topics is not self.topics:
            sent = neighbor.sent = Profile(self.incarnation, linked, self.topics)
        return sent

    def _on_profile(self, neighbor: Neighbor, profile: Profile) -> Effects:
        """Handle what a profile has besides topics and incarnation."""
        return []

    def _on_relay(self, sender: NodeId, message: Relay) -> Effects:
        """Handle a request for relay paths. Only protocols with relay paths know any."""
        return []

    def _came(self, neighbor: Neighbor) -> None:
        """Handle that a neighbor is firm from now on, with its present topics."""

    def _went(self, neighbor: Neighbor) -> None:
        """Handle that a neighbor is not firm any more, or that its topics are about to change."""

    def _forget(self, neighbor: Neighbor) -> None:
        """Handle that a node is no neighbor any more, or has forgotten us."""

    def _update(self) -> Effects:
        """Do what the protocol does once per round, before profiles are sent."""
        return []

    def _targets(self, topic: Topic) -> list[NodeId]:
        """Return the neighbors that an event on this topic is sent to."""
        return self.neighbors.interested(topic)

    def _takes_part(self, topic: Topic) -> bool:
        """Return whether an event on this topic can be spread from here. Otherwise it is handed over."""
        return True

    def _hand_over(self, message: Handover) -> Effects:
        """Send an event to a node that is closer to the topic."""
        return []

    def _topics_changed(self) -> None:
        """Handle a change of this node's topics."""
        pass

    # Profiles.

    def _exchange_profiles(self) -> Effects:
        """Remove silent neighbors, update, and send a profile to every neighbor (ExchangeProfile).  [VI Alg. 6]"""
        self.round += 1
        effects: Effects = self.events.tick()
        now, silence_max, linger = self.round, self.config.silence_max, self.config.linger_rounds
        for node, neighbor in list(self.neighbors.all.items()):
            if neighbor.parting != FIRM:
                if now - neighbor.parting > linger:
                    effects += self._remove(node)
            elif now - neighbor.heard > silence_max:  # l. 4-5
                if neighbor.in_table:
                    effects += self.on_peer_down(node)
                else:
                    effects += self._remove(node)
        effects += self._update()  # l. 2
        effects += [
            Send(neighbor.node, self._profile(neighbor))
            for neighbor in self.neighbors.all.values()
            if neighbor.parting == FIRM
        ]
        effects.append(self._tick)
        return effects

    def _on_heartbeat(self, sender: NodeId, profile: Profile) -> Effects:
        """Handle a profile (RespondToExchangeProfile). The answer is our own profile of this round.  [VI Alg. 7]"""
        neighbor = self.neighbors.all.get(sender)
        if neighbor is None:
            return self._on_stranger(sender, profile)
        if profile is neighbor.profile:  # The same object again: it only shows that the neighbor is running.
            neighbor.heard = self.round
            return []
        if profile.incarnation != neighbor.incarnation:
            if profile.incarnation < neighbor.incarnation:
                return []
            self._forget(neighbor)
            if neighbor.firm:
                self._went(neighbor)
            neighbor.restarted(profile.incarnation)
        neighbor.heard, neighbor.spoke, neighbor.profile = self.round, True, profile
        effects = self._on_linked(neighbor, profile.linked)
        if profile.topics is not neighbor.topics and profile.topics != neighbor.topics:
            if neighbor.firm:
                self._went(neighbor)
            neighbor.set_topics(profile.topics)
            if neighbor.firm:
                self._came(neighbor)
        effects += self._on_profile(neighbor, profile)
        return effects

    def _on_stranger(self, sender: NodeId, profile: Profile) -> Effects:
        """Handle the profile of a node that is no neighbor: link with it, or refuse."""
        if not profile.linked or len(self.neighbors.all) >= self.config.incoming_max + self.config.table_size:
            return [Send(sender, Unlink())]  # It takes us for a neighbor, or there are too many already.
        neighbor = Neighbor(sender, profile.incarnation, profile.topics, self.round)
        neighbor.links_us = neighbor.spoke = True
        neighbor.profile = profile
        self.neighbors.all[sender] = neighbor
        effects = self._firm(neighbor)
        return [*effects, *self._on_profile(neighbor, profile)]

    def _on_linked(self, neighbor: Neighbor, linked: bool) -> Effects:
        """Handle what a neighbor says about having us in its table."""
        neighbor.links_us = linked
        if linked:
            return self._firm(neighbor)
        if neighbor.in_table:
            return []
        return [Send(neighbor.node, Unlink()), *self._part(neighbor)]

    def _on_unlink(self, sender: NodeId) -> Effects:
        """Handle that a node does not have us in its table any more."""
        neighbor = self.neighbors.get(sender)
        if neighbor is None:
            return []
        neighbor.links_us, neighbor.profile = False, None
        return [] if neighbor.in_table else self._part(neighbor)

    # Links.

    def _follow_table(self) -> Effects:
        """Update the neighbors after a change of the table."""
        entries, known = self.table.table.entries, self.neighbors.all
        effects: Effects = []
        if self._selections == self.table.selections and len(entries) == self._in_table:
            return effects
        self._selections = self.table.selections
        for node, (_, descriptor) in entries.items():
            neighbor = known.get(node)
            if neighbor is None:
                neighbor = known[node] = Neighbor(node, descriptor.incarnation, descriptor.interest, self.round)
            if not neighbor.in_table:
                neighbor.in_table, neighbor.heard = True, self.round
                effects += self._firm(neighbor)
        for neighbor in list(known.values()):
            if neighbor.in_table and neighbor.node not in entries:
                neighbor.in_table = False
                if not neighbor.links_us:
                    effects += [Send(neighbor.node, Unlink()), *self._part(neighbor)]
        self._in_table = len(entries)
        return effects

    def _firm(self, neighbor: Neighbor) -> Effects:
        """Make a link firm, if it is not."""
        if neighbor.firm:
            return []
        neighbor.parting = FIRM
        self.neighbors.version += 1
        self._came(neighbor)
        return [LinkUp(neighbor.node)]

    def _part(self, neighbor: Neighbor) -> Effects:
        """Let a link part, because neither end has the other in its table. It carries events for some more rounds."""
        if not neighbor.firm:
            return []
        neighbor.parting, neighbor.sent = self.round, None
        self.neighbors.version += 1
        self._went(neighbor)
        return [LinkDown(neighbor.node)]

    def _remove(self, node: NodeId) -> Effects:
        """Remove a neighbor and its link at once."""
        neighbor = self.neighbors.all.pop(node, None)
        if neighbor is None:
            return []
        self._forget(neighbor)
        if not neighbor.firm:
            return []
        self._went(neighbor)
        self.neighbors.version += 1
        return [LinkDown(node)]

    def _renew_table(self) -> None:
        """Renew the entries of neighbors in the table, and set the other neighbors as candidates.

        An entry is as old as the neighbor's last profile. Candidates are the neighbors that have us in their tables.

        Deviation: [VI Alg. 2, l. 7-8] selects from the table, samples and the partner's buffer, and not from neighbors
        that hold us. With them more links are held by both ends.
        """
        entries, now = self.table.table.entries, self.round
        incoming = []
        for node, neighbor in self.neighbors.all.items():
            if not neighbor.spoke or neighbor.parting != FIRM:
                continue
            descriptor = neighbor.descriptor
            if descriptor is None:
                descriptor = neighbor.descriptor = Descriptor(node, 0, neighbor.incarnation, neighbor.topics)
            if node in entries:
                self.table.heard(node, now - neighbor.heard, descriptor)
            elif now == neighbor.heard:
                incoming.append(descriptor)
        self.table.candidates = incoming

    # The interest of this node.

    def _describe(self) -> Descriptor:
        return self._me

    def _change(self, topics: Iterable[Topic]) -> Effects:
        """Set the topics of this node, and select the table again."""
        wanted = self.topic_table.normal(topics)
        if wanted == self.topics:
            return []
        self.topics, self.interest = wanted, as_set(wanted)
        self.events.wants = self.interest.__contains__
        self._me = Descriptor(self.id, 0, self.incarnation, wanted)
        self._topics_changed()
        self.table.select_again()
        return self._follow_table()

    def _on_handover(self, sender: NodeId, message: Handover) -> Effects:
        """Spread an event that was handed over, or pass it on."""
        if self._takes_part(message.topic):
            return self.events.on_event(sender, message)
        onwards = Handover(message.topic, message.origin, message.sequence, message.hops + 1, message.payload)
        return self._hand_over(onwards)
