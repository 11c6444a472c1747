"""The Magnet node: two rings, the membership service, a position among similar nodes, and trees.  [MG §3]

A node joins in the paper's order: (a) a position on the skewed ring, (b) fingers, (c) one tree join for each topic. A
publication goes to the topic's home location over the control ring, and then down the tree (A-MAG-16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from random import Random

import msgspec

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Contact, Deliver, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.membership import Membership
from trellis.protocols.magnet.messages import (
    Climb,
    Descend,
    Entry,
    Inquire,
    JoinAt,
    Move,
    NoPlace,
    NotInTree,
    Orphan,
    Ping,
    Place,
    Placed,
    Pong,
    Prune,
    Publication,
    Publish,
    SamplesUp,
    SampleUp,
    ToHome,
    View,
)
from trellis.protocols.magnet.placement import Placement
from trellis.protocols.magnet.similarity import Similarity
from trellis.protocols.magnet.trees import Trees
from trellis.protocols.newscast import Newscast, NewscastReply, NewscastRequest
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.messages import Peer
from trellis.protocols.oscar.oscar import Handler, Oscar
from trellis.protocols.topics import TopicTable

_HOPS_MAX = 128
_LIVES = 1 << 32  # Most publications of one incarnation. The incarnation is the upper part of a sequence.


class MagnetNode:
    """A node of Magnet."""

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: MagnetConfig | None = None,
        *,
        contacts: Iterable[Contact] = (),
        table: TopicTable | None = None,
        rates: Mapping[Topic, float] | None = None,
        incarnation: int = 1,
        begin_ms: int = 0,
        trees_ms: int = 0,
    ) -> None:
        """Create a node. It begins to join `begin_ms` after its start, through `contacts`.

        It joins trees `trees_ms` after its start at the earliest.
        """
        self.id, self.random, self.config = node, random, config or MagnetConfig()
        self.topics, self.incarnation = topics, incarnation
        self.begin_ms, self.trees_ms = begin_ms, trees_ms
        self.contacts = [contact for contact in contacts if contact != node]
        self.publishes = True  # False: another part carries publications, and this node ignores them.
        self.likeness = Similarity(topics, table if table is not None else TopicTable(), rates)
        self.newscast = Newscast(self._describe, self.contacts, random, self.config.newscast)
        self.control = Oscar("control", node, self._random_peer, random, self.config.control, incarnation=incarnation)
        self.skewed = Oscar(
            "skewed",
            node,
            self._random_peer,
            random,
            self.config.skewed,
            incarnation=incarnation,
            claims=True,
            interest=lambda: self.topics,
            similarity=self.likeness.of if self.config.placement == "similar" else None,
            in_use=lambda peer: peer in self.trees.forest.by_child or peer in self.trees.forest.by_parent,
        )
        self.membership = Membership(node, self.control, random, self.config)
        self.membership.subscribe(topics)
        self.placement = Placement(node, self.skewed, self.membership, self.likeness, random, self.config)
        self.trees = Trees(node, self.skewed, self.control, self.membership, self._join_request, random, self.config)
        for topic in topics:
            self.trees.subscribe(topic)  # Nothing is sent before there is a position.
        self.published = 0
        self.unknown = 0  # messages of other protocols
        self._seen: dict[tuple[NodeId, int], None] = {}  # publications that were handled
        self._version = 0  # counts the changes of the interest
        self._may_join_trees = trees_ms <= 0
        self._has_begun = False
        self._before: Peer | None = None  # The predecessor on the control ring when it was last examined.
        self._handlers = self._dispatch()

    def start(self) -> Effects:
        """Start to join, now or after `begin_ms`."""
        effects: Effects = [] if self._may_join_trees else [SetTimer("join/trees", self.trees_ms)]
        return [*effects, *(self._begin() if self.begin_ms <= 0 else [SetTimer("join/begin", self.begin_ms)])]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Pass a message to the part that handles it. Before the join begins, messages are ignored."""
        if not self._has_begun:
            return []
        handler = self._handlers.get(type(message))
        if handler is not None:
            return handler(sender, message)
        layer = getattr(message, "layer", None)
        if layer == "skewed":
            effects = self.skewed.on_message(sender, message)
            return self._on_skewed(effects) if self.skewed.relinked else effects
        if layer == "control":
            effects = self.control.on_message(sender, message)
            if self.control.table.predecessor is self._before:
                return effects
            self._before = self.control.table.predecessor
            return [*effects, *self.membership.on_predecessor()]
        self.unknown += 1
        return []

    def _dispatch(self) -> dict[type, Handler]:
        """Return the handler of each type of message, except for those of the rings."""
        trees, membership, placement = self.trees, self.membership, self.placement
        return {
            Ping: lambda sender, ping: trees.on_ping(sender, ping.topics),
            Pong: trees.on_pong,
            SampleUp: membership.on_sample_up,
            SamplesUp: membership.on_samples_up,
            View: lambda _, view: [*membership.on_view(view), *self._answered(view.topic)],
            ToHome: lambda _, message: self._on_to_home(message),
            Climb: lambda _, climb: trees.on_climb(climb),
            Descend: trees.on_descend,
            Publication: self._on_publication,
            Prune: lambda sender, prune: trees.on_prune(sender, prune.topics),
            Orphan: lambda sender, orphan: trees.on_orphan(sender, orphan.topics),
            Move: lambda sender, move: trees.on_move(sender, move.topics),
            NotInTree: lambda _, message: trees.on_not_in_tree(message.topic),
            Place: self._on_place,
            Placed: self._on_placed,
            NoPlace: lambda sender, message: self._placing(partial(placement.on_no_place, sender, message)),
            NewscastRequest: self.newscast.on_message,
            NewscastReply: self.newscast.on_message,
        }

    def on_timer(self, tag: str) -> Effects:
        part, _, what = tag.partition("/")
        match part:
            case "skewed":
                return self._on_skewed(self.skewed.on_timer(tag))
            case "control":
                return self.control.on_timer(tag)
            case "newscast":
                return self.newscast.on_timer(tag)
            case "tree":
                return self.trees.on_timer() if what == "tick" else self.trees.on_retry()
            case "sample":
                return [*self.membership.on_timer(), *self._improve()]
        return self._on_join_timer(what)

    def on_peer_down(self, peer: NodeId) -> Effects:
        effects = [*self.newscast.on_peer_down(peer), *self.control.on_peer_down(peer)]
        return [*effects, *self._on_skewed(self.skewed.on_peer_down(peer))]

    def subscribe(self, topic: Topic) -> Effects:
        return self.subscribe_all((topic,))

    def subscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Add topics to the interest. It counts as one change, so the node moves at most once."""
        new = sorted(set(topics).difference(self.topics))
        effects = [effect for topic in new for effect in self.trees.subscribe(topic)]
        return self._change(tuple(sorted((*self.topics, *new))), effects) if new else []

    def unsubscribe(self, topic: Topic) -> Effects:
        return self.unsubscribe_all((topic,))

    def unsubscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Remove topics from the interest. It counts as one change."""
        gone = set(topics).intersection(self.topics)
        effects = [effect for topic in sorted(gone) for effect in self.trees.unsubscribe(topic)]
        return self._change(tuple(topic for topic in self.topics if topic not in gone), effects) if gone else []

    def publish(self, topic: Topic, payload: bytes = b"") -> Effects:
        """Send a publication towards the topic's home location."""
        self.published += 1
        sequence = self.incarnation * _LIVES + self.published
        return self._on_to_home(ToHome(topic, Publish(self.id, sequence, payload)))

    def leave(self) -> Effects:
        """Leave the trees and both rings."""
        return [*self.trees.leave(), *self.skewed.ring.leave(), *self.control.ring.leave()]

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self.control.check()
        self.skewed.check()
        self.membership.check()
        self.trees.forest.check()
        assert len(self._seen) <= self.config.publications_kept, f"{self.id} remembers {len(self._seen)} publications"

    # Joining

    def _begin(self) -> Effects:
        """Begin to join: enter the control ring through the first contact."""
        self._has_begun = True
        self.placement.stage, self.placement.is_founder = "control", not self.contacts
        first = self.contacts[0] if self.contacts else None
        return [
            *self.newscast.start(),
            *self.control.enter(hashed(self.id), through=first),
            *self.membership.start(),
            *self.trees.start(),
            SetTimer("join/inquire", 1 if first is None else 100),
        ]

    def _on_join_timer(self, what: str) -> Effects:
        """Handle a timer of the join."""
        match what:
            case "begin":
                return self._begin()
            case "inquire":
                return self._inquire()
            case "place":
                return self._placing(self.placement.on_silence)
            case "enter":
                return self._placing(self.placement.on_enter)
            case "again":
                return self.placement.on_again()
            case "open" if self._may_join_trees and self.placement.stage == "placed":
                return self.trees.open()
            case "trees":
                self._may_join_trees = True
                return self.trees.open() if self.placement.stage == "placed" else []
        return []

    def _inquire(self) -> Effects:
        """Ask the homes of all topics for samples, until all have answered or enough rounds have passed (A-MAG-19)."""
        placement = self.placement
        if placement.stage == "control":
            if self.contacts and self.control.table.successor is None:  # The ring has not answered yet.
                through = self.contacts[self.random.randrange(len(self.contacts))]
                return [*self.control.ring.locate(through), SetTimer("join/inquire", 200)]
            placement.ask(self.topics if self.config.placement == "similar" else ())
        elif placement.stage == "asking" and placement.is_patience_over():
            return self._placing(placement.choose)
        if placement.stage != "asking":
            return []
        effects: Effects = [SetTimer("join/inquire", self.config.inquire_ms)]
        for topic in list(placement.unanswered):
            effects += self._on_to_home(ToHome(topic, Inquire(self.id)))
        if not placement.unanswered and placement.stage == "asking":
            effects += self._placing(placement.choose)
        return effects

    def _answered(self, topic: Topic) -> Effects:
        """Note that the home of a topic has answered."""
        if self.placement.stage != "asking":
            return []
        return self._placing(partial(self.placement.on_view, topic))

    def _on_place(self, sender: NodeId, message: Place) -> Effects:
        """Give a position right behind us to a node that asks for one.  [Alg. 1, l. 3]"""
        label, peers, effects = self.skewed.give_place(sender, message.incarnation, message.version)
        if label is None:
            return [Send(sender, NoPlace(later=self.skewed.me is not None)), *effects]
        return [Send(sender, Placed(label, peers)), *self._on_skewed(effects)]

    def _on_placed(self, sender: NodeId, message: Placed) -> Effects:
        """Move to the position that we asked for, and leave the trees at the old one."""
        if not self.placement.is_asked(sender):
            return []  # We do not wait for it any more.
        uproot = self.trees.uproot() if self.skewed.me is not None else []
        return [*uproot, *self._placing(partial(self.placement.on_placed, message))]

    def _placing(self, step: Callable[[], Effects]) -> Effects:
        """Take a step of the placement.

        If it was the last one, announce the node and join trees.  [MG §3, (b) and (c)]
        """
        before = self.placement.stage
        effects = step()
        if before == "placed" or self.placement.stage != "placed":
            return effects
        self.skewed.relinked = False
        effects = [*effects, *self.membership.announce(self._entry())]
        if self.trees.is_open:
            return effects
        return [*effects, SetTimer("join/open", self.config.tree_wait_ms)]

    def _improve(self) -> Effects:
        """Try to improve the position every `improve_rounds` rounds, as view(p) changes.  [MG §3.2]"""
        every = self.config.improve_rounds
        if not every or self.membership.round % every:
            return []
        return self._placing(self.placement.reconsider)

    def _change(self, topics: tuple[Topic, ...], effects: Effects) -> Effects:
        """Set another interest, and choose a new position if it has changed often enough."""
        self.topics = topics
        self._version += 1
        self.likeness.change(topics)
        self.membership.subscribe(topics)
        self.placement.changes += 1
        if self.placement.stage != "placed":
            return effects
        effects = [*effects, *self.membership.announce(self._entry())]
        if self.placement.changes >= self.config.rejoin_changes and self.config.placement == "similar":
            self.placement.changes = 0
            self.placement.ask(topics)
            effects.append(SetTimer("join/inquire", self.config.inquire_ms))
            for topic in topics:
                effects += self._on_to_home(ToHome(topic, Inquire(self.id)))
        return effects

    def _entry(self) -> Entry:
        """Return what the membership service tells about this node."""
        return Entry(self.id, self.topics, self.incarnation, self._version)

    # Home locations and publications

    def _on_to_home(self, message: ToHome) -> Effects:
        """Handle a message at home(t), or forward it by one hop on the control ring."""
        position, table = hashed(message.topic), self.control.table
        if table.owns(position) or (message.arriving and table.predecessor is None):
            return self._at_home(message)
        if message.hops > _HOPS_MAX or table.me is None:
            return []
        hop, arriving = table.next_hop(position), False
        if hop is None and message.arriving:
            hop = table.predecessor  # The sender's list of successors was out of date: the home is before us.
        elif hop is None:
            hop, arriving = table.successor, True
        elif hop == table.successor and message.arriving:
            arriving = False
        if hop is None:
            return []
        return [Send(hop.node, ToHome(message.topic, message.body, message.hops + 1, arriving))]

    def _at_home(self, message: ToHome) -> Effects:
        """Handle the body of a message whose topic's home we are."""
        topic, body = message.topic, message.body
        match body:
            case Inquire():
                effects = self.membership.answer(body.origin, topic)
                return [*effects, *(self._answered(topic) if body.origin == self.id else [])]
            case JoinAt():
                return self.trees.on_join_at(topic, body)
        if not self.publishes:
            return []
        return self._hand_down(None, Publication(topic, body.origin, body.sequence, 0, body.payload))

    def _join_request(self, topic: Topic, request: JoinAt, by_ring: bool) -> Effects:
        """Send a tree join to the home that our view names, or by the control ring."""
        home = None if by_ring else self.membership.home(topic)
        if home is not None and home != self.id:
            return [Send(home, ToHome(topic, request))]
        return self._on_to_home(ToHome(topic, request))

    def _on_publication(self, sender: NodeId, message: Publication) -> Effects:
        """Handle a publication from the parent. A node that is not in the tree tells the sender so."""
        tree = self.trees.forest.get(message.topic)
        if tree is None:
            return [Send(sender, Prune((message.topic,)))]
        return self._hand_down(sender, message)

    def _hand_down(self, sender: NodeId | None, message: Publication) -> Effects:
        """Deliver a publication that was not seen before, and forward it to the children."""
        identity = (message.origin, message.sequence)
        tree = self.trees.forest.get(message.topic)
        if identity in self._seen or tree is None:
            return []
        if len(self._seen) >= self.config.publications_kept:
            del self._seen[next(iter(self._seen))]
        self._seen[identity] = None
        effects: Effects = []
        if tree.subscribed:
            effects.append(Deliver(message.topic, message.origin, message.sequence, message.payload))
        onwards = Publication(message.topic, message.origin, message.sequence, message.hops + 1, message.payload)
        effects += [Send(child, onwards) for child in tree.children if child != sender]
        return effects

    # Helpers

    def _on_skewed(self, effects: Effects) -> Effects:
        """Let the trees follow if links of the skewed ring have changed."""
        if not self.skewed.relinked:
            return effects
        self.skewed.relinked = False
        return [*effects, *self.trees.on_relinked()]

    def _random_peer(self) -> Contact | None:
        """Return a random peer, or a contact if none is known."""
        peers = self.newscast.peers
        if peers:
            return peers[self.random.randrange(len(peers))]
        return self.contacts[self.random.randrange(len(self.contacts))] if self.contacts else None

    def _describe(self) -> Descriptor:
        return Descriptor(self.id, 0, self.incarnation)
