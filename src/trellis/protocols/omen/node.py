"""An OMen node: its parts, and what they have to do with each other.  [OM §3-5; docs/papers.md]

    sampling    Newscast: random peers
    ring        T-Man: L predecessors and successors, and a few more
    detector    asks both whether they live
    links       the overlay; heartbeats; hints in them
    record      told to the L successors; `held`: what predecessors told us
    views       backup sets for the predecessors, by gossip
    events      churn in our range; `mends`: the repairs that we coordinate
    homes       roots of topics that report to us; `suspects`: whom we try again

A node reaches nothing but its inputs. What a part finds out is handled after every input (`_settle`), and what a node
says to itself goes round there, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import msgspec

from trellis import ids
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import Again, DetectorConfig, Down, HeartbeatDetector, Ping, Pong
from trellis.protocols.effects import Effects, Left, NodeId, Send, SetTimer, Topic
from trellis.protocols.newscast import Newscast, NewscastConfig, NewscastReply, NewscastRequest
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.events import DONE, DOUBT, EXE, MENDING, STANDBY, Event, Events
from trellis.protocols.omen.hints import Hints
from trellis.protocols.omen.links import UP, Links, Lost
from trellis.protocols.omen.me import Me, life_of
from trellis.protocols.omen.mend import Departed, LowEdges, Mend, Oracle
from trellis.protocols.omen.messages import (
    Answer,
    Ask,
    Churn,
    Connect,
    ConnectOk,
    Disconnect,
    FindRecord,
    Finished,
    FoundRecord,
    Heartbeat,
    Hint,
    Join,
    JoinDone,
    Leaving,
    Life,
    LinkOpened,
    LinkReady,
    Neighbour,
    OpenLink,
    Probe,
    ProbeOk,
    Record,
    RecordOk,
    Report,
    ReportOk,
    RootHeard,
    RootMeet,
    RootReport,
    Stranger,
    pack,
)
from trellis.protocols.omen.net import Homes
from trellis.protocols.omen.records import HeldRecords, OwnRecord
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.omen.suspects import Suspects
from trellis.protocols.omen.views import Views
from trellis.protocols.ring import Ring, clockwise, identifier
from trellis.protocols.tman import TManConfig, TManReply, TManRequest
from trellis.protocols.topics import TopicTable, places

ALONE_PATIENCE = 5  # periods that a node without a neighbour on a topic waits for its join


class _Reported(msgspec.Struct):
    incarnation: int
    successors: tuple[NodeId, ...]
    tries: int = 0


class OMenNode:
    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: OMenConfig,
        *,
        contacts: Iterable[NodeId] = (),
        neighbours: Iterable[NodeId] = (),
        table: TopicTable | None = None,
        incarnation: int = 1,
        seed: int | str = "trellis",
        low_edges: LowEdges = low_edges,
        oracle: Oracle | None = None,
        everybody: Callable[[], list[Descriptor]] | None = None,
    ) -> None:
        """`neighbours`: links of an overlay that was planned before; without any, the node joins.

        `seed` breaks ties, the same for all nodes of a mesh. `oracle` and `everybody` are what global knowledge is, in
        the simulator.
        """
        self.id, self.config, self.random, self.seed = node, config, random, seed
        self.me = me = Me(node, topics, table if table is not None else TopicTable(), incarnation)
        self.low_edges, self.oracle = low_edges, oracle
        known = [contact for contact in contacts if contact != node]
        chance = [Random(random.getrandbits(128)) for _ in range(4)]
        gossip = NewscastConfig(period_ms=config.period_ms)
        self.sampling = Newscast(me.describe, known, chance[0], gossip)
        self.ring = Ring(
            me.describe,
            self.sampling.descriptors,
            chance[1],
            length=config.resilience,
            config=TManConfig(period_ms=config.period_ms),
        )
        self.views = Views(me, config, self.sampling.descriptors, self._partners, chance[2], seed, everybody)
        detector = DetectorConfig(period_ms=config.period_ms, silence_max=config.silence_max)
        self.detector = HeartbeatDetector(incarnation, chance[3], detector)
        self.hints = Hints(me)
        self.links = Links(me, self.hints, config.silence_max)
        self.own = OwnRecord(me, self.links)
        self.held = HeldRecords(config.record_periods)
        self.events = Events(config.record_periods)
        self.suspects = Suspects(known, config.try_periods_max, config.suspects_max)
        self.homes = Homes(config.net_periods)
        self.mends: dict[int, Mend] = {}
        self.reports: dict[tuple[NodeId, int], _Reported] = {}
        self.relinks: dict[NodeId, tuple[int, int]] = {}  # a living peer -> (tick, topics) of the link that was lost
        self.first_neighbours = [peer for peer in neighbours if peer != node]
        self.is_joining = not self.first_neighbours
        self.ticks = 0
        self.leaving_since: int | None = None
        self.closures = 0  # repairs over more than one departed node
        self.unknown = 0
        self._numbers = 0
        self._inbox: deque[msgspec.Struct] = deque()
        self._homes_known: dict[Topic, NodeId] = {}
        self.hints.refresh()

    # Inputs

    def start(self) -> Effects:
        effects: Effects = [*self.sampling.start(), *self.ring.start(), *self.views.start(), *self.detector.start()]
        effects.append(SetTimer("omen/tick", 1 + self.random.randrange(self.config.period_ms)))
        for peer in self.first_neighbours:
            if self.id < peer:
                effects += self.links.open(peer)
        return self._settle(effects)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        return self._settle(self._on_message(sender, message))

    def on_timer(self, tag: str) -> Effects:
        part, _, rest = tag.partition("/")
        if part == "newscast":
            return self.sampling.on_timer(tag)
        if part == "ring":
            return self.ring.on_timer(tag)
        if part == "backups":
            return self.views.on_timer(tag)
        if part == "detector":
            return self._settle(self.detector.on_timer(tag))
        if part == "mend":
            mend = self.mends.get(int(rest))
            return self._settle(mend.on_timer() if mend is not None else [])
        if part == "doubt":
            return self._settle(self._doubt(rest))
        return self._settle(self._tick())

    def on_peer_down(self, peer: NodeId) -> Effects:
        return self._settle([*self.links.on_peer_down(peer), *self.detector.on_peer_down(peer)])

    def subscribe(self, topic: Topic) -> Effects:
        bit = self.me.table.bit(topic)
        self.me.leaving &= ~bit
        if self.me.interest & bit:
            return []
        self._take_part(self.me.interest | bit)
        effects = self.links.interest_changed()
        if not self.links.covered() & bit:
            effects += self._cover((topic,))
        return self._settle(effects)

    def unsubscribe(self, topic: Topic) -> Effects:
        """We coordinate this ourselves, and relay the topic until others are linked.  [A-OMN-23]"""
        bit = self.me.table.bit(topic)
        if not self.me.wanted & bit:
            return []
        self.me.leaving |= bit
        mend = self._new_mend("unsubscribe", self.id, self.me.incarnation)
        mend.topics = (topic,)
        neighbours = {link.peer: link.incarnation for link in self.links.up() if link.interest & bit}
        mend.departed[self.id] = Departed(self.me.incarnation, frozenset((topic,)), neighbours, True)
        mend.backups = self._known_subscribers(bit)
        return self._settle(mend.start())

    def leave(self) -> Effects:
        if self.leaving_since is not None:
            return []
        self.leaving_since = self.ticks
        self.me.is_leaving = True
        self.me.leaving = self.me.interest
        if not self.links.up() or not self.ring.successors:
            return self._settle(self._go())
        return self._settle(self._say_leaving())

    def check(self) -> None:
        for part in (self.sampling, self.ring, self.links, self.views, self.hints):
            part.check()

    # After every input

    def _settle(self, effects: Effects) -> Effects:
        out: Effects = []
        while True:
            for effect in effects:
                if type(effect) is Send and effect.to == self.id:
                    self._inbox.append(effect.message)
                else:
                    out.append(effect)
            if self.links.lost:
                lost, self.links.lost = self.links.lost, []
                effects = [effect for one in lost for effect in self._lost(one)]
            elif self.links.is_changed:
                self.links.is_changed = False
                effects = self.own.renew(self.ring.successors)
            elif news := self.detector.news():
                effects = [effect for one in news for effect in self._news(one)]
            elif self._inbox:
                effects = self._on_message(self.id, self._inbox.popleft())
            elif done := [mend for mend in self.mends.values() if mend.state == "done"]:
                effects = [effect for mend in done for effect in self._mended(mend)]
            else:
                return out

    def _on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        kind = type(message)
        if kind is Heartbeat:
            return self.links.on_heartbeat(sender, message)  # type: ignore[arg-type]
        if kind is Ping or kind is Pong:
            return self.detector.on_message(sender, message)
        if kind is NewscastRequest or kind is NewscastReply:
            return self.sampling.on_message(sender, message)
        if kind is TManRequest or kind is TManReply:
            layer = message.layer  # type: ignore[attr-defined]
            if layer == "ring":
                return self.ring.on_message(sender, message)
            if layer == "backups":
                return self.views.on_message(sender, message)
            self.unknown += 1
            return []
        handler = _HANDLERS.get(kind)
        if handler is None:
            self.unknown += 1
            return []
        return handler(self, sender, message)

    # Once per period

    def _tick(self) -> Effects:
        self.ticks += 1
        tick = self.hints.tick = self.ticks
        ring = self.ring
        successors, predecessors = ring.successors, ring.predecessors
        effects = self.links.tick(tuple(successors))
        near = {*successors, *predecessors}
        for peer in self.detector.suspicion.watched:
            if peer not in near:
                self.detector.unwatch(peer)
        for peer in (*predecessors, *successors):
            self.detector.watch(peer)
        effects += self.own.push(successors)
        effects += self._events_due()
        effects += self._repeat_reports()
        effects += self._relink_due()
        effects += [Send(node, Probe(self.suspects.incarnations.get(node, 0))) for node in self.suspects.due(tick)]
        if self.is_joining and tick > 2 and ring.successor != self.id and self.leaving_since is None:
            effects.append(Send(ring.successor, Join(self.me.incarnation, self.me.topics)))
        if self.config.net and tick % self.config.net_periods == 0:
            effects += self._report_roots()
        if self.leaving_since is not None:
            late = tick - self.leaving_since > self.config.leave_periods_max
            effects += self._go() if late else self._say_leaving()
        self._want_views(predecessors)
        if tick % 16 == 0:
            self.events.forget_old(tick)
            self.homes.forget_old(tick)
            self.held.forget_old(tick, {*predecessors, *ring.tman.peers})
        return [*effects, SetTimer("omen/tick", self.config.period_ms)]

    def _want_views(self, predecessors: list[NodeId]) -> None:
        wanted: dict[NodeId, tuple[NodeId, int, list[NodeId]]] = {}
        for node in (*predecessors, *[event.node for event in self.events.open()]):
            record = self.held.held.get(node)
            if record is not None:
                names = [one.node for one in record.record.neighbours]
                wanted[node] = (node, self.me.table.bits(record.record.topics), names)
            elif (entry := self.ring.tman.table.entries.get(node)) is not None:
                wanted[node] = (node, self.me.table.bits(entry[1].interest), [])
        self.views.want(list(wanted.values()))

    # Churn events  [OM Alg. 5-6]

    def _events_due(self) -> Effects:
        effects: Effects = []
        for event in self.events.open():
            if event.kind == "join" and self._is_dead(event.node, event.incarnation):
                self.events.drop(event)
            elif event.state == STANDBY:
                effects += self._standby(event)
            elif event.state == EXE:
                effects += self._execute(event)
        return effects

    def _standby(self, event: Event) -> Effects:
        """processStandbyL, and the fail-over of a coordinator."""
        if self.ring.is_coordinator(event.node):
            return self._take_over(event)
        if self.ticks - event.since <= self.config.standby_periods:
            return []
        if self._is_in_range(event.node):
            return self._take_over(event)
        event.move(STANDBY, self.ticks)  # A-OMN-15: looked at again, and dropped after several time-outs
        event.waited += 1
        if event.waited > 3:
            self.events.drop(event)
        return []

    def _take_over(self, event: Event) -> Effects:
        if event.kind == "leave" and not self._is_dead(event.node, event.incarnation):
            return self._begin_doubt(event)
        event.move(EXE, self.ticks)
        return self._execute(event)

    def _execute(self, event: Event) -> Effects:
        """processExeQ: waits for a ready view, but not for ever: a repair needs no backups to be right."""
        view = self.views.views.get(event.node)
        is_ready = view is not None and view.ready
        if not is_ready and self.ticks - event.since < self.config.ready_wait:
            return []
        event.move(MENDING, self.ticks)
        mend = self._new_mend(event.kind, event.node, event.incarnation)
        event.mend = mend.number
        if view is not None:
            mend.backups = [node for node in view.backups if node not in self.suspects.incarnations]
        if event.kind == "join":
            interest = view.interest if view is not None else 0
            mend.topics = self.me.table.topics(interest)
            if not mend.backups:
                mend.backups = self._known_subscribers(interest, but=event.node)
        else:
            mend.survivors = dict(event.reporters)
            mend.departed[event.node] = Departed(event.incarnation, frozenset(), {}, False)
        return mend.start()

    def _churn(self, node: NodeId, incarnation: int, state: str) -> tuple[Event, bool]:
        """handleChurnEvent for a departure; tells whether it is new."""
        event = self.events.get("leave", node, incarnation)
        if event is not None:
            return event, False
        return self.events.add("leave", node, incarnation, self.ticks, state), True

    def _departure(self, node: NodeId, incarnation: int, *, certain: bool, reporter: NodeId | None = None) -> Effects:
        """Somebody, or our detector, says that a node in our range is gone."""
        event, is_new = self._churn(node, incarnation, STANDBY)
        effects: Effects = []
        if reporter is not None:
            effects += self._survivor(event, reporter)
        if not is_new:
            return effects
        if not self.ring.is_coordinator(node):
            return effects
        effects += [Send(peer, Churn("leave", node, incarnation)) for peer in self.ring.successors]
        if certain or self._is_dead(node, incarnation):
            return [*effects, *self._confirmed(event)]
        return [*effects, *self._begin_doubt(event)]

    def _survivor(self, event: Event, reporter: NodeId) -> Effects:
        if event.state == DONE and reporter not in event.counted:
            event.move(STANDBY, self.ticks)  # a neighbour that the repair did not know: once more
        event.reporters[reporter] = None
        if event.state == MENDING and event.mend in self.mends:
            return self.mends[event.mend].reopen(reporter)
        if event.state == DONE:
            return [Send(reporter, ReportOk(event.node, event.incarnation, "done"))]
        return [Send(reporter, ReportOk(event.node, event.incarnation, "open"))]

    def _begin_doubt(self, event: Event) -> Effects:
        event.move(DOUBT, self.ticks)
        event.pings = 0
        return self._doubt(event.node)

    def _doubt(self, node: NodeId) -> Effects:
        """Ask it directly, a few times, before it is mended away."""
        doubted = [event for event in self.events.open() if event.node == node and event.state == DOUBT]
        if not doubted:
            return []
        effects: Effects = []
        for event in doubted:
            event.pings += 1
            if event.pings > self.config.ask_tries or self._is_dead(node, event.incarnation):
                effects += self._dead(node, event.incarnation)
                effects += self._confirmed(event)
        if any(event.state == DOUBT for event in doubted):
            effects += [Send(node, Probe(0)), SetTimer(f"doubt/{node}", self.config.ask_ms)]
        return effects

    def _confirmed(self, event: Event) -> Effects:
        event.move(EXE, self.ticks)
        return self._execute(event)

    def _alive(self, node: NodeId, incarnation: int) -> Effects:
        """A node whose death was reported has answered."""
        effects: Effects = []
        for event in list(self.events.open()):
            if event.kind != "leave" or event.node != node or event.state not in (DOUBT, STANDBY):
                continue
            if life_of(incarnation) > life_of(event.incarnation):
                effects += self._confirmed(event) if event.state == DOUBT else []
            elif self._leaves_in_order(node):
                continue
            else:
                self.events.drop(event)
                effects += [Send(reporter, ReportOk(node, event.incarnation, "alive")) for reporter in event.reporters]
        return effects

    def _leaves_in_order(self, node: NodeId) -> bool:
        return node in self._leavers

    @property
    def _leavers(self) -> set[NodeId]:
        found: set[NodeId] = self.__dict__.setdefault("leavers", set())
        return found

    def _dead(self, node: NodeId, incarnation: int) -> Effects:
        """We believe it: nothing counts on this node any more."""
        self.suspects.add(node, incarnation, self.ticks)
        self.detector.unwatch(node)
        self.homes.dead(node)
        effects: Effects = [
            *self.ring.on_peer_down(node),
            *self.sampling.on_peer_down(node),
            *self.views.on_peer_down(node),
            *self.links.on_peer_down(node),
        ]
        for mend in list(self.mends.values()):
            effects += mend.on_dead(node)
        return effects

    def _is_dead(self, node: NodeId, incarnation: int) -> bool:
        known = self.suspects.incarnations.get(node)
        return known is not None and known >= incarnation

    def _is_in_range(self, node: NodeId) -> bool:
        """Fewer than L living nodes between it and us.  [A-OMN-14]"""
        place = identifier(node)
        mine = clockwise(place, self.ring.identifier)
        between = [peer for peer in self.ring.tman.peers if peer != node and clockwise(place, identifier(peer)) < mine]
        return len(between) < self.config.resilience

    def _news(self, news: Down | Again) -> Effects:
        """Of our neighbours on the ring."""
        incarnation = self._incarnation_of(news.peer)
        if isinstance(news, Again):
            record = self.held.held.get(news.peer)
            if record is None:
                return []
            return self._departure(news.peer, record.record.incarnation, certain=True)
        effects = self._dead(news.peer, incarnation)
        if self._is_in_range(news.peer):
            effects += self._departure(news.peer, incarnation, certain=True)
        return effects

    def _incarnation_of(self, node: NodeId) -> int:
        found = [0]
        for table in (self.ring.tman.table, self.sampling.table, self.views.tman.table):
            entry = table.entries.get(node)
            if entry is not None:
                found.append(entry[1].incarnation)
        record = self.held.held.get(node)
        if record is not None:
            found.append(record.record.incarnation)
        return max(found)

    def _mended(self, mend: Mend) -> Effects:
        del self.mends[mend.number]
        if len(mend.departed) > 1:
            self.closures += 1
        if mend.kind == "unsubscribe":
            return self._unsubscribed(mend)
        event = self.events.get(mend.kind, mend.node, mend.incarnation)
        if event is None:
            return []
        if event.kind == "join":
            self.events.drop(event)
            return [Send(mend.node, JoinDone(mend.incarnation))] if not mend.gave_up else []
        event.counted = frozenset(mend.answers.told)
        self.events.finish(event, self.ticks)
        life = life_of(event.incarnation)
        self.held.done(event.node, life, self.ticks)
        done = Finished((Life(event.node, event.incarnation),))
        effects: Effects = [Send(peer, done) for peer in self.ring.successors]
        effects += [
            Send(reporter, ReportOk(event.node, event.incarnation, "done"))
            for reporter in event.reporters
            if reporter in event.counted
        ]
        if event.node in self._leavers:
            self._leavers.discard(event.node)
            effects.append(Send(event.node, ReportOk(event.node, event.incarnation, "done")))
        return effects

    def _new_mend(self, kind: str, node: NodeId, incarnation: int) -> Mend:
        self._numbers += 1
        mend = self.mends[self._numbers] = Mend(
            self._numbers,
            kind,
            node,
            incarnation,
            self.config,
            send=lambda to, message: [Send(to, message)],  # type: ignore[arg-type]
            find=self._find_record,
            held=self.held.of,
            low_edges=self.low_edges,
            key=self._key,
            me=self.id,
            oracle=self.oracle,
        )
        return mend

    def _key(self, node: NodeId) -> int:
        return ids.key(self.seed, node)

    # Links

    def _lost(self, lost: Lost) -> Effects:
        if lost.why in ("silent", "restarted") and lost.incarnation:
            key = (lost.peer, life_of(lost.incarnation))
            if key not in self.reports:
                self.reports[key] = _Reported(lost.incarnation, lost.successors)
                return self._report(*key)
        elif lost.why == "stranger" and lost.was_up:
            return self._relink(lost.peer, lost.interest)
        return []

    def _relink(self, peer: NodeId, interest: int) -> Effects:
        """The peer lives, the link does not: open it again."""
        if self.me.is_leaving or not interest & self.me.interest:
            return []
        self.relinks[peer] = (self.ticks, interest & self.me.interest)
        return self.links.open(peer)

    def _relink_due(self) -> Effects:
        effects: Effects = []
        for peer, (since, shared) in list(self.relinks.items()):
            link = self.links.links.get(peer)
            if link is not None and link.state == UP:
                del self.relinks[peer]
            elif self.ticks - since > self.config.relink_periods:
                del self.relinks[peer]
                shared &= self.me.wanted
                if shared:
                    mend = self._new_mend("relink", peer, 0)
                    mend.topics = self.me.table.topics(shared)
                    mend.required_only = {self.id: None, peer: None}
                    effects += mend.start()
        return effects

    def _report(self, peer: NodeId, life: int) -> Effects:
        report = self.reports[peer, life]
        message = Report(peer, report.incarnation, self.id)
        told = [node for node in report.successors if node not in self.suspects.incarnations]
        choice = report.tries % (len(told) + 1)
        report.tries += 1
        if choice < len(told):
            return [Send(told[choice], message)]
        return self._route(identifier(peer), message, without=peer)

    def _repeat_reports(self) -> Effects:
        effects: Effects = []
        for key, report in list(self.reports.items()):
            if report.tries > self.config.report_tries:
                del self.reports[key]
            else:
                effects += self._report(*key)
        return effects

    # Interests

    def _take_part(self, interest: int) -> None:
        self.me.take_part(interest)
        self.hints.refresh()
        self.links.is_changed = True

    def _cover(self, topics: tuple[Topic, ...]) -> Effects:
        """One link on topics that no neighbour has: a join limited to them.  [A-OMN-23]"""
        bits = self.me.table.bits(topics)
        backups = self._known_subscribers(bits)
        if not backups:
            return []  # the net finds somebody, if there is anybody
        mend = self._new_mend("join", self.id, self.me.incarnation)
        mend.topics, mend.backups = topics, backups
        return mend.start()

    def _unsubscribed(self, mend: Mend) -> Effects:
        gone = self.me.table.bits(mend.topics) & self.me.leaving
        if not gone or self.me.is_leaving:
            return []
        self.me.leaving &= ~gone
        self._take_part(self.me.interest & ~gone)
        return self.links.interest_changed()

    def _known_subscribers(self, bits: int, but: NodeId | None = None) -> list[NodeId]:
        """Up to lambda known nodes for each topic, those of lowest degree."""
        known = {one.node: one for one in (*self.sampling.descriptors(), *self.views.known().values())}
        known |= {one.node: one for one in self.ring.tman.descriptors()}
        found: dict[NodeId, None] = {}
        counts: dict[int, int] = {}
        wanted = max(self.config.coverage, 1)
        for one in sorted(known.values(), key=lambda one: (one.numbers or (0,), self._key(one.node))):
            if one.node in (but, self.id) or one.node in self.suspects.incarnations:
                continue
            for place in places(self.me.table.bits(one.interest) & bits):
                if counts.get(place, 0) < wanted:
                    counts[place] = counts.get(place, 0) + 1
                    found[one.node] = None
        return list(found)

    # Leaving

    def _say_leaving(self) -> Effects:
        return [Send(peer, Leaving(self.own.record)) for peer in self.ring.successors]

    def _go(self) -> Effects:
        effects: Effects = []
        for peer in list(self.links.links):
            effects += self.links.close(peer)
        return [*effects, Left()]

    # On the ring

    def _known_nodes(self) -> list[NodeId]:
        return [*self.ring.tman.peers, *self.sampling.peers, *self.links.links]

    def _route(self, place: int, message: msgspec.Struct, without: NodeId | None = None) -> Effects:
        """One step nearer to the first living node at or after a place; to ourselves where that is us."""
        nodes = [node for node in self._known_nodes() if node != without and node not in self.suspects.incarnations]
        nearest = min([self.id, *nodes], key=lambda node: clockwise(place, identifier(node)))
        return [Send(nearest, message)]

    def _find_record(self, question: FindRecord) -> Effects:
        return self._route(identifier(question.node), question, without=question.node)

    def _report_roots(self) -> Effects:
        effects: Effects = []
        covered = self.links.covered()
        for place, since in self.hints.root_since.items():
            alone = not covered >> place & 1
            patience = ALONE_PATIENCE if alone else self.config.root_patience
            if self.ticks - since < patience or self.me.leaving >> place & 1:
                continue
            topic = self.me.table.names[place]
            report = RootReport(topic, self.id, self.me.incarnation, alone, 0)
            home = self._homes_known.pop(topic, None)  # asked anew if it does not answer
            if home is not None and home not in self.suspects.incarnations:
                effects.append(Send(home, report))
            else:
                effects += self._route(identifier(topic), report)
        return effects

    def _partners(self) -> list[NodeId]:
        """Whom to gossip about backups with (A-OMN-12)."""
        return list(dict.fromkeys([*self.views.tman.peers, *self.ring.tman.peers, *self.sampling.peers]))

    # Handlers

    def _on_connect(self, sender: NodeId, message: Connect) -> Effects:
        return self.links.on_connect(sender, message)

    def _on_connect_ok(self, sender: NodeId, message: ConnectOk) -> Effects:
        return self.links.on_connect_ok(sender, message)

    def _on_ready(self, sender: NodeId, message: LinkReady) -> Effects:
        return self.links.on_ready(sender, message.incarnation)

    def _on_stranger(self, sender: NodeId, message: Stranger) -> Effects:
        return self.links.on_stranger(sender, message)

    def _on_disconnect(self, sender: NodeId, message: Disconnect) -> Effects:
        return self.links.on_disconnect(sender, message)

    def _on_record(self, sender: NodeId, message: Record) -> Effects:
        return self.held.on_record(sender, message, self.ticks)

    def _on_record_ok(self, sender: NodeId, message: RecordOk) -> Effects:
        return self.own.on_ok(sender, message.version)

    def _on_churn(self, sender: NodeId, message: Churn) -> Effects:
        if message.kind == "join":
            if self.events.get("join", message.node, message.incarnation) is None:
                self.events.add("join", message.node, message.incarnation, self.ticks, STANDBY)
            return []
        if message.node == self.id:
            return []
        return self._departure(message.node, message.incarnation, certain=False)

    def _on_report(self, sender: NodeId, message: Report) -> Effects:
        if message.node == self.id:
            state = "alive" if life_of(message.incarnation) == life_of(self.me.incarnation) else "open"
            return [Send(message.reporter, ReportOk(message.node, message.incarnation, state))]  # type: ignore[arg-type]
        known = self.events.get("leave", message.node, message.incarnation)
        if known is None and not self.ring.is_coordinator(message.node):
            if message.hops >= self.config.hops_max:
                return []
            on = Report(message.node, message.incarnation, message.reporter, message.hops + 1)
            return self._route(identifier(message.node), on, without=message.node)
        return self._departure(message.node, message.incarnation, certain=False, reporter=message.reporter)

    def _on_report_ok(self, sender: NodeId, message: ReportOk) -> Effects:
        if message.node == self.id:
            if self.leaving_since is not None and message.state == "done":
                return self._go()
            return []
        key = (message.node, life_of(message.incarnation))
        if key not in self.reports or message.state == "open":
            return []
        del self.reports[key]
        if message.state == "alive" and message.node not in self.links:
            self.suspects.alive(message.node)
            return self._relink(message.node, self.me.interest)
        return []

    def _on_finished(self, sender: NodeId, message: Finished) -> Effects:
        for one in message.nodes:
            event = self.events.get("leave", one.node, one.incarnation)
            if event is None:
                event = self.events.add("leave", one.node, one.incarnation, self.ticks, DONE)
            if event.state != MENDING:
                self.events.finish(event, self.ticks)
            self.held.done(one.node, life_of(one.incarnation), self.ticks)
            self._leavers.discard(one.node)
        return []

    def _on_join(self, sender: NodeId, message: Join) -> Effects:
        described = Descriptor(sender, 0, message.incarnation, message.topics)
        self.ring.tman.learn([described])
        if self.events.get("join", sender, message.incarnation) is not None:
            return []
        self.events.add("join", sender, message.incarnation, self.ticks, EXE)
        return [Send(peer, Churn("join", sender, message.incarnation)) for peer in self.ring.successors]

    def _on_join_done(self, sender: NodeId, message: JoinDone) -> Effects:
        if message.incarnation == self.me.incarnation:
            self.is_joining = False
        return []

    def _on_leaving(self, sender: NodeId, message: Leaving) -> Effects:
        effects = self.held.on_record(sender, message.record, self.ticks)[1:]  # nobody waits for this one
        event = self.events.get("leave", sender, message.record.incarnation)
        if event is not None:
            if event.state == DONE:
                return [Send(sender, ReportOk(sender, event.incarnation, "done"))]
            return effects
        self._leavers.add(sender)
        is_ours = self.ring.is_coordinator(sender)
        self.events.add("leave", sender, message.record.incarnation, self.ticks, EXE if is_ours else STANDBY)
        return effects

    def _on_ask(self, sender: NodeId, message: Ask) -> Effects:
        table, me = self.me.table, self.me
        index = {table.bit(topic).bit_length() - 1: number for number, topic in enumerate(message.topics)}
        bits = table.bits(message.topics)

        def mask(interest: int) -> bytes:
            return pack(sum(1 << index[place] for place in places(interest & bits)))

        neighbours = tuple(Neighbour(link.peer, link.incarnation, mask(link.interest)) for link in self.links.up())
        hints: tuple[Hint, ...] = ()
        if self.config.knowledge == "hints":
            paths = self.hints.paths
            hints = tuple(
                Hint(table.names[place], paths[place]) for place in places(me.interest & bits) if paths.get(place)
            )
        answer = Answer(
            message.mend,
            message.attempt,
            me.incarnation,
            me.degree,
            mask(me.interest),
            mask(me.leaving & me.interest),
            neighbours,
            hints,
        )
        return [Send(sender, answer)]

    def _on_answer(self, sender: NodeId, message: Answer) -> Effects:
        mend = self.mends.get(message.mend)
        return mend.on_answer(sender, message) if mend is not None else []

    def _on_open_link(self, sender: NodeId, message: OpenLink) -> Effects:
        return self.links.open(message.peer, (sender, message.mend))

    def _on_opened(self, sender: NodeId, message: LinkOpened) -> Effects:
        mend = self.mends.get(message.mend)
        return mend.on_opened(sender, message.peer) if mend is not None else []

    def _on_find_record(self, sender: NodeId, message: FindRecord) -> Effects:
        record = self.held.of(message.node, life_of(message.incarnation))
        if record is None and message.hops < self.config.hops_max:
            if not self.ring.is_coordinator(message.node) and message.left >= self.config.resilience - 1:
                on = msgspec.structs.replace(message, hops=message.hops + 1)
                return self._route(identifier(message.node), on, without=message.node)
            following = [node for node in self.ring.successors if node != message.asker]
            if message.left and following:
                on = msgspec.structs.replace(message, hops=message.hops + 1, left=message.left - 1)
                return [Send(following[0], on)]
        found = FoundRecord(message.node, message.incarnation, message.mend, True, record)
        return [Send(message.asker, found)]

    def _on_found_record(self, sender: NodeId, message: FoundRecord) -> Effects:
        mend = self.mends.get(message.mend)
        return mend.on_found(message) if mend is not None else []

    def _on_root_report(self, sender: NodeId, message: RootReport) -> Effects:
        place = identifier(message.topic)
        if self.ring.responsible(place) != self.id:
            if message.hops >= self.config.hops_max:
                return []
            return self._route(place, msgspec.structs.replace(message, hops=message.hops + 1))
        other = self.homes.report(message.topic, message.root, message.incarnation, self.ticks)
        effects: Effects = [Send(message.root, RootHeard(message.topic))]
        if other is not None:
            effects.append(Send(message.root, RootMeet(message.topic, other)))
        return effects

    def _on_root_heard(self, sender: NodeId, message: RootHeard) -> Effects:
        if len(self._homes_known) < 65_536:
            self._homes_known[message.topic] = sender
        return []

    def _on_root_meet(self, sender: NodeId, message: RootMeet) -> Effects:
        """There is another part of this topic, with that root."""
        place = self.me.table.bit(message.topic).bit_length() - 1
        if place not in self.hints.root_since or self.me.leaving >> place & 1:
            return []
        return self.links.open(message.root)

    def _on_probe(self, sender: NodeId, message: Probe) -> Effects:
        if self.me.refute(message.suspected):
            self.links.is_changed = True  # the record carries the incarnation
        return [Send(sender, ProbeOk(self.me.describe()))]

    def _on_probe_ok(self, sender: NodeId, message: ProbeOk) -> Effects:
        descriptor = message.descriptor
        if descriptor.node != sender:
            return []
        self.suspects.alive(sender)
        self.ring.tman.learn([descriptor])
        self.sampling.table.merge([descriptor])
        self.sampling._keep_the_freshest()
        return self._alive(sender, descriptor.incarnation)


_Handler = Callable[[OMenNode, NodeId, Any], Effects]
_HANDLERS: dict[type, _Handler] = {
    Connect: OMenNode._on_connect,
    ConnectOk: OMenNode._on_connect_ok,
    LinkReady: OMenNode._on_ready,
    Stranger: OMenNode._on_stranger,
    Disconnect: OMenNode._on_disconnect,
    Record: OMenNode._on_record,
    RecordOk: OMenNode._on_record_ok,
    Churn: OMenNode._on_churn,
    Report: OMenNode._on_report,
    ReportOk: OMenNode._on_report_ok,
    Finished: OMenNode._on_finished,
    Join: OMenNode._on_join,
    JoinDone: OMenNode._on_join_done,
    Leaving: OMenNode._on_leaving,
    Ask: OMenNode._on_ask,
    Answer: OMenNode._on_answer,
    OpenLink: OMenNode._on_open_link,
    LinkOpened: OMenNode._on_opened,
    FindRecord: OMenNode._on_find_record,
    FoundRecord: OMenNode._on_found_record,
    RootReport: OMenNode._on_root_report,
    RootHeard: OMenNode._on_root_heard,
    RootMeet: OMenNode._on_root_meet,
    Probe: OMenNode._on_probe,
    ProbeOk: OMenNode._on_probe_ok,
}
