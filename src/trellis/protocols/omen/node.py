"""An OMen node: takes inputs, passes them to its parts, and returns effects.  [OM §3-5; docs/omen.md]

A driver (the simulator, or a live node through `protocols/mesh/omen.py`) calls `start`, `on_message`, `on_timer`,
`on_peer_down`, `subscribe`, `unsubscribe` and `leave`. The state is in `Parts` (`parts.py`). These classes act on it:

    Coordinator   handles churn events in our range of the ring (`membership/coordinator.py`)
    Repairs       runs repairs and joins (`repair/repairs.py`)
    Survivor      reports neighbors that we have lost, or opens the link again (`membership/survivor.py`)
    Presence      our own join and leave (`membership/presence.py`)
    Interest      links for topics that we take up, repairs for topics that we leave (`interest.py`)
    Cuts          with `connectivity` 2, looks whether our own loss would split a topic (`cuts.py`)
    Roots         the root rendezvous, the fallback below all repairs (`rendezvous/`)
    Planned       opens the links of a plan when the mesh starts (`links/planned.py`)
    Requests      opens and drops links for an operator (`links/requests.py`)
    Probes        ends suspicions of nodes that answer (`membership/probes.py`)
    Moments       tells observers when repairs begin and end (`moments.py`)

A part that finds something out (a lost link, a changed record, a suspected peer) calls none of these classes. It
returns a signal among its effects (`signals.py`), and `_settle` handles all signals of an input, until none is left. A
message that the node sends to itself is handled there as well and never reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from random import Random
from typing import Any, cast

import msgspec

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import Down, Ping, Pong
from trellis.protocols.effects import Contact, Effect, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.cuts import Cuts
from trellis.protocols.omen.interest import Interest
from trellis.protocols.omen.links.planned import Plan, Planned
from trellis.protocols.omen.links.records import RECORD_TIMER
from trellis.protocols.omen.links.requests import REQUEST_TIMER, Requests
from trellis.protocols.omen.membership.coordinator import Coordinator
from trellis.protocols.omen.membership.presence import Presence
from trellis.protocols.omen.membership.probes import Probes
from trellis.protocols.omen.membership.survivor import Survivor
from trellis.protocols.omen.moments import Moments
from trellis.protocols.omen.parts import Parts
from trellis.protocols.omen.rendezvous.roots import Roots
from trellis.protocols.omen.repair.answers import answers, find_record
from trellis.protocols.omen.repair.asked import Asked
from trellis.protocols.omen.repair.procedure import DONE, REPAIR_TIMER, Context, Oracle
from trellis.protocols.omen.repair.repair import Repair
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.shadow import LowEdges, low_edges
from trellis.protocols.omen.signals import (
    RANKS,
    LinkLost,
    Outcome,
    Outcomes,
    PeerDown,
    PeerRestarted,
    RecordChanged,
    RepairDone,
    Signal,
    SignalQueue,
    TopicsLeftByNeighbor,
    ToSelf,
)
from trellis.protocols.omen.views import REGISTER_PERIODS
from trellis.protocols.tman import TManReply, TManRequest
from trellis.protocols.topics import TopicTable

AGREE_PERIODS = 1  # Periods after our answer during which we agree to drop a link (`requests.py`).


class OMenNode:
    """A node of the OMen overlay, as a state machine: each input returns the effects that a driver carries out."""

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: OMenConfig,
        *,
        contacts: Iterable[Contact] = (),
        neighbors: Iterable[NodeId] = (),
        plan: Plan | None = None,
        table: TopicTable | None = None,
        incarnation: int = 1,
        seed: int | str = "trellis",
        low_edges: LowEdges = low_edges,
        oracle: Oracle | None = None,
        everybody: Callable[[], list[Descriptor]] | None = None,
    ) -> None:
        """Create a node that has not started yet.

        `neighbors`     nodes to link to at the start, because the overlay exists already; without any, the node joins
        `plan`          links to open at the start instead of joining, with nodes that are about to start as well
        `incarnation`   the number of this run of the node; it grows at every restart
        `seed`          breaks ties; it is the same for all nodes of a mesh
        `oracle`, `everybody`   global knowledge, in the simulator only
        """
        self.id, self.config = node, config
        self.moments = Moments()
        announce = self.moments.announce
        parts = Parts(node, topics, random, config, contacts, table, incarnation, seed, everybody, announce)
        self.parts, self.me, self.links, self.ring, self.views = parts, parts.me, parts.links, parts.ring, parts.views
        self.asked = Asked()
        context = Context(
            node,
            config,
            low_edges,
            parts.key,
            find=parts.find_record,
            held=parts.held.of,
            is_quiet=parts.is_quiet,
            described=parts.described,
            oracle=oracle,
            announce=announce,
        )
        self.repairs = Repairs(context, parts.me.incarnation, parts.events.was_announced)
        self.coordinator = Coordinator(parts, self.repairs)
        self.survivor = Survivor(parts, self.repairs)
        self.probes = Probes(parts.me, parts.suspects, parts.ring, parts.sampling, self.coordinator, self.survivor)
        self.roots = Roots(parts, self.repairs)
        self.planned = Planned(parts, plan or Plan())
        self.requests = Requests(parts, self.repairs, self.asked.about)
        self.interest = Interest(parts, self.repairs, self.asked.about)
        self.presence = Presence(parts)
        self.cuts = Cuts(parts, self.repairs)
        self.first_neighbors = [peer for peer in neighbors if peer != node]
        parts.is_joining = not self.first_neighbors
        self.unknown = 0  # Messages of types that OMen does not know.
        self._signals = SignalQueue()
        self._handlers = self._all_handlers()
        self._gossip = {  # Timers after which nothing is left to settle.
            "newscast/exchange": parts.sampling.on_timer,
            "ring/exchange": parts.ring.on_timer,
            "backups/exchange": parts.views.on_timer,
        }

    # Inputs

    def start(self) -> Effects:
        """Start all timers. Open the links of an existing overlay, each from the end whose name is smaller."""
        parts = self.parts
        effects: Outcomes = [*parts.sampling.start(), *self.ring.start(), *self.views.start(), *parts.detector.start()]
        effects.append(SetTimer("omen/tick", 1 + parts.random.randrange(self.config.period_ms)))
        for peer in self.first_neighbors:
            if self.id < peer:
                effects += self.links.open(peer)
        return self._settle(effects)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Handle a message. Count it as `unknown` if OMen has no handler for its type."""
        handler = self._handlers.get(type(message))
        if handler is None:
            self.unknown += 1
            return []
        return self._settle(handler(sender, message))

    def on_timer(self, tag: str) -> Effects:
        """Handle a timer. The first part of its tag names the owner; any unknown tag is the tick of this node."""
        gossip = self._gossip.get(tag)
        if gossip is not None:
            return gossip(tag)
        part, _, rest = tag.partition("/")
        if part == "detector":
            return self._settle(self._with_news(self.parts.detector.on_timer(tag)))
        if part == REPAIR_TIMER:
            repair = self.repairs.get(int(rest))
            return self._settle(repair.on_timer() if repair is not None else [])
        if part == RECORD_TIMER:
            return self._settle(self.parts.own.on_timer())
        if part == "standby":
            return self._settle(self.coordinator.standby.overdue(rest))
        if part == "doubt":
            return self._settle(self.coordinator.doubt(rest))
        if part == REQUEST_TIMER:
            return self._settle(self.requests.on_timer(int(rest)))
        return self._settle(self._tick())

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Take a peer for crashed at once, because the driver knows it."""
        return self._settle([*self.links.on_peer_down(peer), *self._with_news(self.parts.detector.on_peer_down(peer))])

    def subscribe(self, topic: Topic) -> Effects:
        return self.subscribe_all((topic,))

    def subscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Take part in these topics, and look for one link on those that no neighbor has."""
        return self._settle(self.interest.subscribe(topics))

    def unsubscribe(self, topic: Topic) -> Effects:
        return self.unsubscribe_all((topic,))

    def unsubscribe_all(self, topics: Iterable[Topic]) -> Effects:
        """Begin to leave these topics. We relay them until one repair has linked the others."""
        return self._settle(self.interest.unsubscribe(topics))

    def leave(self) -> Effects:
        """Announce that we leave. `Left` follows when we have left."""
        return self._settle(self.presence.leave())

    def check(self) -> None:
        """Assert the invariants of all parts."""
        self.parts.sampling.check()
        self.ring.check()
        self.links.check()
        self.views.check()
        self.parts.hints.check()
        self.requests.check()
        self.asked.check()

    # What an operator asks for

    def open_link(self, peer: NodeId) -> Effects:
        """Open a link to `peer`. `requests.latest` tells what has become of it."""
        return self._settle(self.requests.open(peer))

    def drop_link(self, peer: NodeId, via: Sequence[NodeId] = ()) -> Effects:
        """Drop the link to `peer` if the answers of other nodes prove that no topic needs it.

        `via` names nodes that may connect both ends without the link. They are asked first; naming them proves nothing.
        """
        return self._settle(self.requests.drop(peer, via))

    # What other protocols on this node ask and want

    def believes_dead(self, node: NodeId) -> bool:
        """Return whether we suspect `node` and it has not answered since."""
        return self.parts.believes_dead(node)

    def toward(self, position: int, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """Send a message one step nearer to the node that is responsible for a ring position.

        Nodes in `without` are avoided if we know any other node that is nearer than we are. The caller names there
        nodes that did not answer it: they may be dead without being suspects here, because no node near us watches
        them.
        """
        return self.parts.toward(position, message, without)

    @property
    def is_finding_links(self) -> bool:
        """Return whether a join of ours looks for links on topics that we have taken up."""
        return self.repairs.joins(self.id)

    def link_to_one_of(self, names: Sequence[NodeId]) -> Effects:
        """Open a link to one of these nodes, drawn at random."""
        if self.me.is_leaving:
            return []
        chosen = names[self.parts.random.randrange(len(names))]
        return self.on_message(self.id, m.OpenLink(0, chosen))

    # After every input

    def _settle(self, outcomes: Sequence[Outcome]) -> Effects:
        """Handle all signals that an input has caused, and those that they cause. Return all effects for the driver."""
        effects: Effects = []
        self._sort(outcomes, effects)
        while signals := self._signals.take():
            self._sort([outcome for signal in signals for outcome in self._on_signal(signal)], effects)
        if self.requests.busy:
            self._sort(self.requests.look(), effects)
        return effects

    def _sort(self, outcomes: Iterable[Outcome], effects: Effects) -> None:
        """Add signals and messages to ourselves to the queue, and everything else to `effects`."""
        for outcome in outcomes:
            if type(outcome) is Send:
                if outcome.to == self.id:
                    self._signals.add(ToSelf(outcome.message))
                else:
                    effects.append(outcome)
            elif type(outcome) in RANKS:
                self._signals.add(cast(Signal, outcome))
            else:
                effects.append(cast(Effect, outcome))

    def _on_signal(self, signal: Signal) -> Sequence[Outcome]:
        """Pass a signal to the part that has to react."""
        match signal:
            case LinkLost():
                return self.survivor.on_lost(signal)
            case RecordChanged():
                return self.parts.own.renew(self.ring.successors)
            case PeerDown(peer=peer):
                return self.coordinator.on_peer_down(peer)
            case PeerRestarted(peer=peer):
                return self.coordinator.on_peer_restarted(peer)
            case TopicsLeftByNeighbor(topics=topics):
                return self.interest.find_link(topics & self.me.wanted)
            case ToSelf(message=message):
                return self._handlers[type(message)](self.id, message)
            case RepairDone(number=number):
                return self._on_repair_done(number)

    def _on_repair_done(self, number: int) -> Outcomes:
        """End a repair: end its event, and leave the topics that it was to leave.

        Nothing is to do if it was dropped, or has started again, since it was done.
        """
        repair = self.repairs.get(number)
        if repair is None or repair.state != DONE:
            return []
        self.repairs.end(repair)
        self.cuts.repair_done(repair)
        return [*self.coordinator.repair_done(repair), *self.interest.repair_done(repair)]

    def _with_news(self, effects: Effects) -> Sequence[Outcome]:
        """Add what the failure detector has found out to its effects."""
        detector = self.parts.detector
        if not detector.found_out:
            return effects
        news = detector.news()
        return [*effects, *[PeerDown(one.peer) if isinstance(one, Down) else PeerRestarted(one.peer) for one in news]]

    # Once per period

    def _tick(self) -> Outcomes:
        """Do what is due once per period, and set the timer of the next tick."""
        parts, ring = self.parts, self.ring
        parts.ticks += 1
        tick = parts.hints.tick = parts.ticks
        successors, predecessors = ring.successors, ring.predecessors
        effects = self.links.tick(tuple(successors))
        effects += self.planned.tick()
        parts.watch.tick()
        effects += parts.own.tick(successors)
        self.asked.forget_old(tick)
        effects += self.interest.tick()
        effects += self.coordinator.tick()
        effects += self.survivor.tick()
        effects += self.probes.tick(tick)
        effects += self.presence.ask_to_join(is_planned=bool(self.planned.awaited))
        effects += self.roots.tick()
        effects += self.presence.tick()
        effects += self.cuts.tick()
        self.views.want(parts.wanted_views(predecessors))
        new, over = self.views.registrations(tick)
        effects += [Send(node, m.Back(True)) for node in new] + [Send(node, m.Back(False)) for node in over]
        if tick % 16 == 0:
            self.me.forget_primaries(tick - 2 * REGISTER_PERIODS)
            parts.events.forget_old(tick)
            parts.held.forget_old(tick, {*predecessors, *ring.tman.peers})
        return [*effects, SetTimer("omen/tick", self.config.period_ms)]

    # Messages

    def _all_handlers(self) -> dict[type, Callable[[NodeId, Any], Sequence[Outcome]]]:
        """Return the handler of each message type, called with the sender and the message."""
        parts, links, coordinator, roots = self.parts, self.links, self.coordinator, self.roots
        return {
            m.Heartbeat: links.on_heartbeat,
            Ping: self._on_ping,
            Pong: self._on_ping,
            NewscastRequest: parts.sampling.on_message,
            NewscastReply: parts.sampling.on_message,
            TManRequest: self._on_tman,
            TManReply: self._on_tman,
            m.Connect: links.on_connect,
            m.ConnectOk: links.on_connect_ok,
            m.LinkReady: lambda sender, message: links.on_ready(sender, message.incarnation),
            m.Stranger: links.on_stranger,
            m.Disconnect: self._on_disconnect,
            m.OpenLink: links.on_open_link,
            m.Record: lambda sender, message: parts.held.on_record(sender, message, parts.ticks),
            m.RecordOk: parts.own.on_ok,
            m.Churn: coordinator.on_churn,
            m.Report: lambda _, message: coordinator.on_report(message),
            m.ReportOk: self._on_report_ok,
            m.Finished: coordinator.on_finished,
            m.Join: self._on_join,
            m.JoinDone: lambda _, message: self.presence.on_join_done(message),
            m.Leaving: coordinator.on_leaving,
            m.Back: self._on_back,
            m.Ask: self._on_ask,
            m.Answer: self._on_answer,
            m.LinkOpened: self._on_link_opened,
            m.FoundRecord: self._on_record_answer,
            m.FindRecord: lambda _, message: [*find_record(parts, message), *coordinator.on_find(message)],
            m.RootReport: lambda _, message: roots.on_report(message),
            m.RootHeard: roots.on_heard,
            m.RootMeet: lambda _, message: roots.on_meet(message),
            m.Probe: self.probes.on_probe,
            m.ProbeOk: self.probes.on_probe_ok,
        }

    def _on_ping(self, sender: NodeId, message: Ping | Pong) -> Sequence[Outcome]:
        return self._with_news(self.parts.detector.on_message(sender, message))

    def _on_ask(self, sender: NodeId, message: m.Ask) -> Outcomes:
        """Answer a coordinator, and remember that it may count on us.

        A later question with the same number replaces the entry: one about no topic releases us (`requests.py`).
        """
        self.survivor.asked(message.gone)
        topics = reduce(or_, map(self.me.table.known, message.topics), 0) & self.me.interest
        asker, repair = (sender, message.mend) if message.way is None else (message.way.asker, message.way.mend)
        self.asked.note(asker, repair, self.parts.ticks, topics, sender)
        return answers(self.parts, sender, message)

    def _on_disconnect(self, sender: NodeId, message: m.Disconnect) -> Outcomes:
        """Close a link. A request to agree (with `version`) is followed only within `AGREE_PERIODS` after our answer.

        The nodes whose answers prove that the link is not needed keep their own links for `ASKED_PERIODS` only. So a
        request that comes later may rest on links that no longer exist.
        """
        if message.version and not self.asked.since(sender, self.parts.ticks - AGREE_PERIODS):
            return []
        return self.links.on_disconnect(sender, message)

    def _on_answer(self, sender: NodeId, message: m.Answer) -> Outcomes:
        """Pass an answer to the repair that asked, or else to the request of an operator that asked."""
        repair = self.repairs.get(message.mend)
        return repair.on_answer(sender, message) if repair is not None else self.requests.on_answer(sender, message)

    def _on_link_opened(self, sender: NodeId, message: m.LinkOpened) -> Outcomes:
        repair = self.repairs.get(message.mend)
        return repair.on_opened(sender, message) if repair is not None else []

    def _on_record_answer(self, sender: NodeId, message: m.FoundRecord) -> Outcomes:
        repair = self.repairs.get(message.mend)
        return repair.on_record(message) if isinstance(repair, Repair) else []

    def _on_tman(self, sender: NodeId, message: TManRequest | TManReply) -> Effects:
        if message.layer == "ring":
            return self.ring.on_message(sender, message)
        if message.layer == "backups":
            return self.views.on_message(sender, message)
        self.unknown += 1
        return []

    def _on_report_ok(self, sender: NodeId, message: m.ReportOk) -> Outcomes:
        """Learn what has become of a departure. If it is our own and its repair is done, leave now."""
        if message.node != self.id:
            is_alive = message.state == "alive"
            effects = self.coordinator.on_alive(message.node, message.incarnation) if is_alive else []
            return [*effects, *self.survivor.on_report_ok(message)]
        return self.presence.on_repaired() if message.state == "done" else []

    def _on_join(self, sender: NodeId, message: m.Join) -> Outcomes:
        """Learn of a joiner on the ring, and begin its join if we are its coordinator."""
        self.ring.tman.learn([Descriptor(sender, 0, message.incarnation, message.topics)])
        return self.coordinator.on_join(sender, message)

    def _on_back(self, sender: NodeId, message: m.Back) -> Outcomes:
        self.me.back(sender, message.on, self.parts.ticks)
        return []
