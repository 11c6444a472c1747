"""The parts of an OMen node, and questions that several of them answer together.

`OMenNode` creates one `Parts` and passes it to `Coordinator`, `Survivor`, `Roots`, `Planned` and others. Each of them
names what it uses of it (`needs.py`). These are the parts:

    me                    our name, incarnation and topics (`me.py`)
    sampling, ring        gossip: random nodes of the mesh (Newscast), and our surroundings on the ring (T-Man)
    views                 backup sets for our predecessors (`views.py`)
    detector, watch       the failure detector on the ring, and which nodes it watches (`watch.py`)
    hints, links          for each topic a path to its root (`hints.py`), and all overlay links (`links.py`)
    own, held             our record, and the records that we hold for others (`records.py`)
    events                churn events that we know of (`events.py`)
    suspects              nodes that we believe to be dead (`suspects.py`)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from random import Random

import msgspec

from trellis import ids
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import DetectorConfig, HeartbeatDetector
from trellis.protocols.effects import Contact, Effects, NodeId, Send, Topic
from trellis.protocols.newscast import Newscast, NewscastConfig
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.links.hints import Hints
from trellis.protocols.omen.links.links import Links
from trellis.protocols.omen.links.records import HeldRecords, OwnRecord
from trellis.protocols.omen.me import Me, run_of
from trellis.protocols.omen.membership.events import Events
from trellis.protocols.omen.membership.suspects import Suspects
from trellis.protocols.omen.membership.watch import Watch
from trellis.protocols.omen.messages import FindRecord
from trellis.protocols.omen.moments import Announce
from trellis.protocols.omen.signals import Outcomes, RecordChanged
from trellis.protocols.omen.views import Views, Wanted
from trellis.protocols.ring import Ring, clockwise, identifier
from trellis.protocols.tman import TManConfig
from trellis.protocols.topics import TopicTable, places

QUIET = 2  # Periods. A watched node that was silent for more may hang.


class Parts:
    """All state of a node, apart from repairs and what a few classes keep for themselves."""

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: OMenConfig,
        contacts: Iterable[Contact],
        table: TopicTable | None,
        incarnation: int,
        seed: int | str,
        everybody: Callable[[], list[Descriptor]] | None,
        announce: Announce,
    ) -> None:
        self.config, self.random, self.seed = config, random, seed
        self.me = me = Me(node, topics, table if table is not None else TopicTable(), incarnation)
        self.ticks = 0  # Periods since the start.
        self.is_joining = False  # Our own join is not over yet.
        known = [contact for contact in contacts if contact != node]
        chance = [Random(random.getrandbits(128)) for _ in range(4)]  # One per part: no part shifts another's draws.
        period_ms = config.period_ms
        self.sampling = Newscast(me.describe, known, chance[0], NewscastConfig(period_ms=period_ms))
        self.ring = Ring(
            me.describe,
            self.sampling.told,
            chance[1],
            length=config.resilience,
            config=TManConfig(period_ms=period_ms),
        )
        self.views = Views(me, config, self.sampling.told, self._partners, chance[2], seed, everybody, announce)
        watch = DetectorConfig(period_ms=period_ms, silence_max=config.silence_max)
        self.detector = HeartbeatDetector(incarnation, chance[3], watch)
        self.watch = Watch(self.ring, self.detector, unheard=config.watch_unheard)
        self.hints = Hints(me)
        self.links = Links(me, self.hints, config.silence_max)
        self.own = OwnRecord(me, self.links, self.detector.suspicion.incarnation_of, config, self.is_quiet)
        self.held = HeldRecords(incarnation, config.record_periods)
        self.events = Events(config.record_periods)
        self.suspects = Suspects(known, config.try_periods_max, config.suspects_max, config.try_soon)
        self.hints.refresh()

    def key(self, node: NodeId) -> int:
        """Return the key by which ties between nodes are broken. It is the same at all nodes of a mesh."""
        return ids.key(self.seed, node)

    def is_dead(self, node: NodeId, incarnation: int) -> bool:
        """Return whether we suspect this incarnation of a node, or a later one."""
        known = self.suspects.incarnations.get(node)
        return known is not None and known >= incarnation

    def believes_dead(self, node: NodeId) -> bool:
        """Return whether we suspect a node in any incarnation."""
        return node in self.suspects.incarnations

    def is_quiet(self, node: NodeId) -> bool:
        """Return whether a node that we watch has missed two periods or more. It may hang, so nothing waits for it.

        Always False without `helper_tries`.
        """
        watchers = (self.detector.suspicion, self.links.suspicion)
        return self.config.helper_tries > 0 and max(one.silence_of(node) for one in watchers) > QUIET

    def incarnation_of(self, node: NodeId) -> int:
        """Return the latest incarnation of a node that gossip or its record tells. 0: nothing is known of it."""
        incarnations = [0]
        for table in (self.ring.tman.table, self.sampling.table, self.views.tman.table):
            entry = table.entries.get(node)
            if entry is not None:
                incarnations.append(entry[1].incarnation)
        record = self.held.held.get(node)
        if record is not None:
            incarnations.append(record.record.incarnation)
        return max(incarnations)

    def described(self, node: NodeId) -> Descriptor | None:
        """Return what gossip says about a node: by the backup gossip, else by the ring, else by sampling."""
        for table in (self.views.tman.table, self.ring.tman.table, self.sampling.table):
            entry = table.entries.get(node)
            if entry is not None:
                return entry[1]
        return None

    def route(
        self, position: int, message: msgspec.Struct, without: Collection[NodeId] = (), tries: int = 0
    ) -> Outcomes:
        """Send a message one step nearer to the first living node at or after a ring position. That may be ourselves.

        `tries` is the number of earlier tries without an answer.
        """
        return [Send(self._next_hop(position, without, tries), message)]

    def _next_hop(self, position: int, without: Collection[NodeId] = (), tries: int = 0) -> NodeId:
        """Return the known node that is nearest to a ring position.

        The nearest node may have crashed without our knowing, so each try goes to the next of the L + 1 nearest nodes
        in turn.
        """
        dead = self.suspects.incarnations
        known = dict.fromkeys([*self.ring.tman.peers, *self.sampling.peers, *self.links.seen()])
        nodes = [self.me.id, *[node for node in known if node not in without and node not in dead]]

        def away(node: NodeId) -> int:
            return clockwise(position, identifier(node))

        turn = tries % (self.config.resilience + 1)
        return sorted(nodes, key=away)[: turn + 1][-1] if turn else min(nodes, key=away)

    def find_record(self, question: FindRecord, avoided: Collection[NodeId], tries: int) -> Outcomes:
        """Send a question for a record toward the first living successor of its node."""
        return self.route(identifier(question.node), question, avoided, tries)

    def toward(self, position: int, message: msgspec.Struct, without: Collection[NodeId]) -> Effects:
        """Send a message one step nearer to the node responsible for a ring position. See `OMenNode.toward`."""
        shunned = {*without, *self.suspects.incarnations}
        known = [self.me.id, *self.ring.tman.peers, *self.sampling.peers, *self.links.seen()]
        nearest = min(
            (node for node in known if node not in shunned), key=lambda node: clockwise(position, identifier(node))
        )
        if nearest == self.me.id and self.ring.responsible(position) != self.me.id:
            nearest = self._next_hop(position)
        return [Send(nearest, message)]

    def is_in_range(self, node: NodeId) -> bool:
        """Return whether fewer than L living nodes are between a node and us on the ring.  [A-OMN-14]"""
        position = identifier(node)
        mine = clockwise(position, self.ring.identifier)
        between = [
            peer for peer in self.ring.tman.peers if peer != node and clockwise(position, identifier(peer)) < mine
        ]
        return len(between) < self.config.resilience

    def known_subscribers(self, bits: int, but: NodeId | None = None) -> list[NodeId]:
        """Return up to lambda known subscribers of each of these topics, those with the lowest weight first."""
        known = {one.node: one for one in (*self.sampling.descriptors(), *self.views.known().values())}
        known |= {one.node: one for one in self.ring.tman.descriptors()}
        subscribers: dict[NodeId, None] = {}
        counts: dict[int, int] = {}
        wanted = max(self.config.coverage, 1)
        for one in sorted(known.values(), key=lambda one: (one.numbers or (0,), self.key(one.node))):
            if one.node in (but, self.me.id) or one.node in self.suspects.incarnations:
                continue
            for index in places(self.me.table.bits(one.interest) & bits):
                if counts.get(index, 0) < wanted:
                    counts[index] = counts.get(index, 0) + 1
                    subscribers[one.node] = None
        return list(subscribers)

    def wanted_views(self, predecessors: list[NodeId]) -> list[Wanted]:
        """Return the views to keep: those of the L predecessors and of the nodes of open events (A-OMN-8)."""
        bits = self.me.table.bits
        wanted: dict[NodeId, Wanted] = {}
        events = list(self.events.open())
        joining = {event.node: run_of(event.incarnation) for event in events if event.kind == "join"}
        for node in (*predecessors, *[event.node for event in events]):
            held, joins = self.held.held.get(node), node in joining
            if joins and held is not None and run_of(held.record.incarnation) < joining[node]:
                held = None  # It is the record of an earlier run.
            if held is not None:
                wanted[node] = Wanted(node, bits(held.record.topics), held.neighbors, joins or not held.neighbors)
            elif (entry := self.ring.tman.table.entries.get(node)) is not None:
                wanted[node] = Wanted(node, bits(entry[1].interest), [], True)
        return list(wanted.values())

    def take_part(self, interest: int) -> Outcomes:
        """Change the topics that this node takes part in, to exactly these."""
        self.me.take_part(interest)
        self.hints.refresh()
        return [RecordChanged()]

    def _partners(self) -> list[NodeId]:
        """Return the nodes with which we may gossip about backups (A-OMN-12)."""
        return list(dict.fromkeys([*self.views.peers, *self.ring.tman.peers, *self.sampling.peers]))
