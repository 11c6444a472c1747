"""Everything that a node is made of, in one place: each side of its behaviour is given all of it."""

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
from trellis.protocols.omen.events import Events
from trellis.protocols.omen.hints import Hints
from trellis.protocols.omen.links import Links
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.records import HeldRecords, OwnRecord
from trellis.protocols.omen.suspects import Suspects
from trellis.protocols.omen.views import Views
from trellis.protocols.omen.watch import Watch
from trellis.protocols.ring import Ring, clockwise, identifier
from trellis.protocols.tman import TManConfig
from trellis.protocols.topics import TopicTable, places

QUIET = 2  # periods: a node that has said nothing for more may hang


class Parts:
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
    ) -> None:
        self.config, self.random, self.seed = config, random, seed
        self.me = me = Me(node, topics, table if table is not None else TopicTable(), incarnation)
        self.ticks = 0
        self.is_joining = False
        known = [contact for contact in contacts if contact != node]
        chance = [Random(random.getrandbits(128)) for _ in range(4)]  # one each: no part shifts another's draws
        period_ms = config.period_ms
        self.sampling = Newscast(me.describe, known, chance[0], NewscastConfig(period_ms=period_ms))
        self.ring = Ring(
            me.describe,
            self.sampling.told,
            chance[1],
            length=config.resilience,
            config=TManConfig(period_ms=period_ms),
        )
        self.views = Views(me, config, self.sampling.told, self._partners, chance[2], seed, everybody)
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
        """What breaks ties, the same for all nodes."""
        return ids.key(self.seed, node)

    def is_dead(self, node: NodeId, incarnation: int) -> bool:
        known = self.suspects.incarnations.get(node)
        return known is not None and known >= incarnation

    def believes_dead(self, node: NodeId) -> bool:
        return node in self.suspects.incarnations

    def is_quiet(self, node: NodeId) -> bool:
        """Return whether a node that we watch has missed two periods or more. It may hang: it is not waited for."""
        watchers = (self.detector.suspicion, self.links.suspicion)
        return self.config.helper_tries > 0 and max(one.silence_of(node) for one in watchers) > QUIET

    def incarnation_of(self, node: NodeId) -> int:
        """As far as anything here knows."""
        found = [0]
        for table in (self.ring.tman.table, self.sampling.table, self.views.tman.table):
            entry = table.entries.get(node)
            if entry is not None:
                found.append(entry[1].incarnation)
        record = self.held.held.get(node)
        if record is not None:
            found.append(record.record.incarnation)
        return max(found)

    def described(self, node: NodeId) -> Descriptor | None:
        """Return what gossip says of a node, as young as we have it."""
        for table in (self.views.tman.table, self.ring.tman.table, self.sampling.table):
            entry = table.entries.get(node)
            if entry is not None:
                return entry[1]
        return None

    def route(self, place: int, message: msgspec.Struct, without: Collection[NodeId] = (), tries: int = 0) -> Effects:
        """One step nearer to the first living node at or after a place; to ourselves where that is us.

        `tries` that got no answer: the nearest may be dead without our knowing, so the next L get their turn.
        """
        dead = self.suspects.incarnations
        known = dict.fromkeys([*self.ring.tman.peers, *self.sampling.peers, *self.links.seen()])
        nodes = [self.me.id, *[node for node in known if node not in without and node not in dead]]

        def away(node: NodeId) -> int:
            return clockwise(place, identifier(node))

        turn = tries % (self.config.resilience + 1)
        nearest = sorted(nodes, key=away)[: turn + 1][-1] if turn else min(nodes, key=away)
        return [Send(nearest, message)]

    def is_in_range(self, node: NodeId) -> bool:
        """Fewer than L living nodes between it and us.  [A-OMN-14]"""
        place = identifier(node)
        mine = clockwise(place, self.ring.identifier)
        between = [peer for peer in self.ring.tman.peers if peer != node and clockwise(place, identifier(peer)) < mine]
        return len(between) < self.config.resilience

    def known_subscribers(self, bits: int, but: NodeId | None = None) -> list[NodeId]:
        """Up to lambda known nodes for each topic, those of lowest degree."""
        known = {one.node: one for one in (*self.sampling.descriptors(), *self.views.known().values())}
        known |= {one.node: one for one in self.ring.tman.descriptors()}
        found: dict[NodeId, None] = {}
        counts: dict[int, int] = {}
        wanted = max(self.config.coverage, 1)
        for one in sorted(known.values(), key=lambda one: (one.numbers or (0,), self.key(one.node))):
            if one.node in (but, self.me.id) or one.node in self.suspects.incarnations:
                continue
            for place in places(self.me.table.bits(one.interest) & bits):
                if counts.get(place, 0) < wanted:
                    counts[place] = counts.get(place, 0) + 1
                    found[one.node] = None
        return list(found)

    def take_part(self, interest: int) -> None:
        self.me.take_part(interest)
        self.hints.refresh()
        self.links.is_changed = True

    def _partners(self) -> list[NodeId]:
        """Whom to gossip about backups with (A-OMN-12)."""
        return list(dict.fromkeys([*self.views.peers, *self.ring.tman.peers, *self.sampling.peers]))
