"""An OMen node: takes inputs, passes them to its parts, and returns effects.  [OM §3-5; docs/omen.md]

A driver (the simulator, or a live node through `protocols/mesh/omen.py`) calls `start`, `on_message`, `on_timer`,
`on_peer_down`, `subscribe`, `unsubscribe` and `leave`. The state is in `Parts` (`parts.py`). These classes act on it:

    Coordinator   handles churn events in our range of the ring and runs their repairs (`coordinator.py`, `repair.py`)
    Survivor      reports neighbors that we have lost, or opens the link again (`survivor.py`)
    Roots         the root rendezvous, the fallback below all repairs (`roots.py`, `homes.py`)
    Planned       opens the links of a plan when the mesh starts (`planned.py`)
    Requests      opens and drops links for an operator (`requests.py`)
    OMenNode      dispatches inputs, acts once per period, changes our interest, and leaves the mesh

A part that finds something out (a lost link, a changed record, a suspected peer) calls none of these classes. It keeps
a note, and `_settle` handles the notes after every input, until none is left. A message that the node sends to itself
is handled there as well and never reaches the driver.

A node joins unless it starts with neighbors or with a plan. It repeats `Join` to its ring successor until a coordinator
has linked it (`JoinDone`). A node that leaves keeps its links until a successor has repaired around it. Similarly, it
goes on relaying a topic that it has unsubscribed from until the other subscribers are linked without it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import or_
from random import Random
from typing import Any

import msgspec

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import Ping, Pong
from trellis.protocols.effects import Contact, Effects, NodeId, Send, SetTimer, Topic
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.interest import Interest
from trellis.protocols.omen.links.planned import Plan, Planned
from trellis.protocols.omen.links.records import RECORD_TIMER
from trellis.protocols.omen.links.requests import REQUEST_TIMER, Requests
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.membership.coordinator import Coordinator
from trellis.protocols.omen.membership.presence import Presence
from trellis.protocols.omen.membership.survivor import Survivor
from trellis.protocols.omen.moments import Moments
from trellis.protocols.omen.parts import Parts
from trellis.protocols.omen.rendezvous.roots import Roots
from trellis.protocols.omen.repair.answers import answers, find_record
from trellis.protocols.omen.repair.asked import Asked
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.procedure import DONE, REPAIR_TIMER, Context, Oracle
from trellis.protocols.omen.repair.repair import Repair
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.shadow import LowEdges, low_edges
from trellis.protocols.omen.views import REGISTER_PERIODS, Wanted
from trellis.protocols.ring import clockwise, identifier
from trellis.protocols.tman import TManReply, TManRequest
from trellis.protocols.topics import TopicTable

PRIMARIES_MAX = 65_536  # Most nodes that we remember as counting on us as their backup.
AGREE_PERIODS = 1  # Periods after our answer during which we agree to drop a link (`requests.py`).
# Periods for which our record may name lost neighbors. New links usually renew the record before that.
SHRINK_PERIODS = 8


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
        neighbours: Iterable[NodeId] = (),
        plan: Plan | None = None,
        table: TopicTable | None = None,
        incarnation: int = 1,
        seed: int | str = "trellis",
        low_edges: LowEdges = low_edges,
        oracle: Oracle | None = None,
        everybody: Callable[[], list[Descriptor]] | None = None,
    ) -> None:
        """Create a node that has not started yet.

        `neighbours`    nodes to link to at the start, because the overlay exists already; without any, the node joins
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
            find=self._find_record,
            held=parts.held.of,
            is_quiet=parts.is_quiet,
            described=parts.described,
            oracle=oracle,
            announce=announce,
        )
        self.repairs = Repairs(context, parts.me.incarnation, parts.events.was_announced)
        self.coordinator = Coordinator(parts, self.repairs)
        self.survivor = Survivor(parts, self.repairs)
        self.roots = Roots(parts, self.repairs)
        self.planned = Planned(parts, plan or Plan())
        self.requests = Requests(parts, self.repairs, self.asked.about)
        self.interest = Interest(parts, self.repairs, self.asked.about)
        self.presence = Presence(parts)
        self.first_neighbours = [peer for peer in neighbours if peer != node]
        parts.is_joining = not self.first_neighbours
        self.unknown = 0  # Messages of types that OMen does not know.
        self._shrunk_periods = 0  # Periods since which our record has named neighbors that we have lost.
        self._inbox: deque[msgspec.Struct] = deque()  # Messages of this node to itself.
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
        effects = [*parts.sampling.start(), *self.ring.start(), *self.views.start(), *parts.detector.start()]
        effects.append(SetTimer("omen/tick", 1 + parts.random.randrange(self.config.period_ms)))
        for peer in self.first_neighbours:
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
            return self._settle(self.parts.detector.on_timer(tag))
        if part == REPAIR_TIMER:
            repair = self.repairs.get(int(rest))
            return self._settle(repair.on_timer() if repair is not None else [])
        if part == RECORD_TIMER:
            return self._settle(self.parts.own.on_timer())
        if part == "standby":
            return self._settle(self.coordinator.overdue(rest))
        if part == "doubt":
            return self._settle(self.coordinator.doubt(rest))
        if part == REQUEST_TIMER:
            return self._settle(self.requests.on_timer(int(rest)))
        return self._settle(self._tick())

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Take a peer for crashed at once, because the driver knows it."""
        return self._settle([*self.links.on_peer_down(peer), *self.parts.detector.on_peer_down(peer)])

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

    def toward(self, place: int, message: msgspec.Struct, without: Collection[NodeId] = ()) -> Effects:
        """Send a message one step nearer to the node that is responsible for a ring position.

        Nodes in `without` are avoided if we know any other node that is nearer than we are. The caller names there
        nodes that did not answer it: they may be dead without being suspects here, because no node near us watches
        them.
        """
        parts = self.parts
        shunned = {*without, *parts.suspects.incarnations}
        known = [self.id, *parts.ring.tman.peers, *parts.sampling.peers, *parts.links.seen()]
        nearest = min((one for one in known if one not in shunned), key=lambda one: clockwise(place, identifier(one)))
        if nearest == self.id and self.ring.responsible(place) != self.id:
            return parts.route(place, message)
        return [Send(nearest, message)]

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

    def _settle(self, effects: Effects) -> Effects:
        """Handle everything that an input has caused inside this node. Return all effects for the driver."""
        effects = self._settle_parts(effects)
        return [*effects, *self.requests.look()] if self.requests.busy else effects

    def _settle_parts(self, effects: Effects) -> Effects:
        """Handle the notes of parts, messages to ourselves and finished repairs, until none is left."""
        links, coordinator, detector = self.links, self.coordinator, self.parts.detector
        noted = links.lost or links.is_changed or links.left_alone or detector.found_out
        if not (noted or self._inbox or self.repairs.under_way):
            for effect in effects:  # Most inputs are gossip and change nothing.
                if type(effect) is Send and effect.to == self.id:
                    break
            else:
                return effects
        out: Effects = []
        while True:
            for effect in effects:
                if type(effect) is Send and effect.to == self.id:
                    self._inbox.append(effect.message)
                else:
                    out.append(effect)
            if links.lost:
                lost, links.lost = links.lost, []
                effects = [effect for one in lost for effect in self.survivor.on_lost(one)]
            elif links.is_changed:
                links.is_changed = links.is_shrunk = False
                self._shrunk_periods = 0
                effects = self.parts.own.renew(self.ring.successors)
            elif news := detector.news():
                effects = [effect for one in news for effect in coordinator.on_news(one)]
            elif self.links.left_alone:
                topics, self.links.left_alone = self.links.left_alone & self.me.wanted, 0
                effects = self.interest.find_link(topics)
            elif self._inbox:
                message = self._inbox.popleft()
                effects = self._handlers[type(message)](self.id, message)
            elif done := [repair for repair in self.repairs.under_way.values() if repair.state == DONE]:
                effects = [effect for repair in done for effect in self._repair_done(repair)]
            else:
                return out

    def _repair_done(self, repair: Repair | Join) -> Effects:
        """End a repair: end its event, and leave the topics that it was to leave."""
        self.repairs.end(repair)
        return [*self.coordinator.repair_done(repair), *self.interest.repair_done(repair)]

    # Once per period

    def _tick(self) -> Effects:
        """Do what is due once per period, and set the timer of the next tick."""
        parts, ring = self.parts, self.ring
        parts.ticks += 1
        tick = parts.hints.tick = parts.ticks
        successors, predecessors = ring.successors, ring.predecessors
        effects = self.links.tick(tuple(successors))
        effects += self.planned.tick()
        parts.watch.tick()
        if self.links.is_shrunk:
            self._shrunk_periods += 1
            self.links.is_changed = self.links.is_changed or self._shrunk_periods > SHRINK_PERIODS
        effects += parts.own.push(successors)
        self.asked.forget_old(tick)
        effects += self.interest.tick()
        effects += self.coordinator.tick()
        effects += self.survivor.tick()
        tried = parts.suspects.due(tick)
        effects += [Send(node, m.Probe(parts.suspects.incarnation_of(node))) for node in tried]
        effects += self.presence.ask_to_join(is_planned=bool(self.planned.awaited))
        effects += self.roots.tick()
        effects += self.presence.tick()
        self._want_views(predecessors)
        new, over = self.views.registrations(tick)
        effects += [Send(node, m.Back(True)) for node in new] + [Send(node, m.Back(False)) for node in over]
        if tick % 16 == 0:
            forgotten = tick - 2 * REGISTER_PERIODS
            self.me.primaries = {node: told for node, told in self.me.primaries.items() if told > forgotten}
            parts.events.forget_old(tick)
            parts.held.forget_old(tick, {*predecessors, *ring.tman.peers})
        return [*effects, SetTimer("omen/tick", self.config.period_ms)]

    def _want_views(self, predecessors: list[NodeId]) -> None:
        """Keep backup sets ready for the L predecessors and for the nodes of open events (A-OMN-8)."""
        parts, bits = self.parts, self.me.table.bits
        wanted: dict[NodeId, Wanted] = {}
        events = list(parts.events.open())
        joining = {event.node: run_of(event.incarnation) for event in events if event.kind == "join"}
        for node in (*predecessors, *[event.node for event in events]):
            held, joins = parts.held.held.get(node), node in joining
            if joins and held is not None and run_of(held.record.incarnation) < joining[node]:
                held = None  # It is the record of an earlier run.
            if held is not None:
                wanted[node] = Wanted(node, bits(held.record.topics), held.neighbours, joins or not held.neighbours)
            elif (entry := self.ring.tman.table.entries.get(node)) is not None:
                wanted[node] = Wanted(node, bits(entry[1].interest), [], True)
        self.views.want(list(wanted.values()))

    # Messages

    def _all_handlers(self) -> dict[type, Callable[[NodeId, Any], Effects]]:
        """Return the handler of each message type, called with the sender and the message."""
        parts, links, coordinator, roots = self.parts, self.links, self.coordinator, self.roots
        return {
            m.Heartbeat: links.on_heartbeat,
            Ping: parts.detector.on_message,
            Pong: parts.detector.on_message,
            NewscastRequest: parts.sampling.on_message,
            NewscastReply: parts.sampling.on_message,
            TManRequest: self._on_tman,
            TManReply: self._on_tman,
            m.Connect: links.on_connect,
            m.ConnectOk: links.on_connect_ok,
            m.LinkReady: lambda sender, message: links.on_ready(sender, message.incarnation),
            m.Stranger: links.on_stranger,
            m.Disconnect: self._on_disconnect,
            m.OpenLink: self._on_open_link,
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
            m.FoundRecord: self._on_found_record,
            m.FindRecord: lambda _, message: [*find_record(parts, message), *coordinator.on_find(message)],
            m.RootReport: lambda _, message: roots.on_report(message),
            m.RootHeard: roots.on_heard,
            m.RootMeet: lambda _, message: roots.on_meet(message),
            m.Probe: self._on_probe,
            m.ProbeOk: self._on_probe_ok,
        }

    def _on_ask(self, sender: NodeId, message: m.Ask) -> Effects:
        """Answer a coordinator, and remember that it may count on us.

        A later question with the same number replaces the entry: one about no topic releases us (`requests.py`).
        """
        self.survivor.asked(message.gone)
        topics = reduce(or_, map(self.me.table.known, message.topics), 0) & self.me.interest
        asker, repair = (sender, message.mend) if message.way is None else (message.way.asker, message.way.mend)
        self.asked.note(asker, repair, self.parts.ticks, topics, sender)
        return answers(self.parts, sender, message)

    def _on_disconnect(self, sender: NodeId, message: m.Disconnect) -> Effects:
        """Close a link. A request to agree (with `version`) is followed only within `AGREE_PERIODS` after our answer.

        The nodes whose answers prove that the link is not needed keep their own links for `ASKED_PERIODS` only. So a
        request that comes later may rest on links that no longer exist.
        """
        if message.version and not self.asked.since(sender, self.parts.ticks - AGREE_PERIODS):
            return []
        return self.links.on_disconnect(sender, message)

    def _on_open_link(self, sender: NodeId, message: m.OpenLink) -> Effects:
        """Open the links that a coordinator has chosen."""
        asker, peers = (sender, message.mend), [m.NodeRun(message.peer, message.incarnation), *message.more]
        return [effect for peer in peers for effect in self.links.open(peer.node, asker, peer.incarnation)]

    def _on_answer(self, sender: NodeId, message: m.Answer) -> Effects:
        """Pass an answer to the repair that asked, or else to the request of an operator that asked."""
        repair = self.repairs.get(message.mend)
        return repair.on_answer(sender, message) if repair is not None else self.requests.on_answer(sender, message)

    def _on_link_opened(self, sender: NodeId, message: m.LinkOpened) -> Effects:
        repair = self.repairs.get(message.mend)
        return repair.on_opened(sender, message) if repair is not None else []

    def _on_found_record(self, sender: NodeId, message: m.FoundRecord) -> Effects:
        repair = self.repairs.get(message.mend)
        return repair.on_found(message) if isinstance(repair, Repair) else []

    def _find_record(self, question: m.FindRecord, departed: Collection[NodeId], tries: int) -> Effects:
        """Send a question for a record toward the first living successor of its node."""
        return self.parts.route(identifier(question.node), question, departed, tries)

    def _on_tman(self, sender: NodeId, message: TManRequest | TManReply) -> Effects:
        if message.layer == "ring":
            return self.ring.on_message(sender, message)
        if message.layer == "backups":
            return self.views.on_message(sender, message)
        self.unknown += 1
        return []

    def _on_report_ok(self, sender: NodeId, message: m.ReportOk) -> Effects:
        """Learn what has become of a departure. If it is our own and its repair is done, leave now."""
        if message.node != self.id:
            is_alive = message.state == "alive"
            effects = self.coordinator.on_alive(message.node, message.incarnation) if is_alive else []
            return [*effects, *self.survivor.on_report_ok(message)]
        return self.presence.on_repaired() if message.state == "done" else []

    def _on_join(self, sender: NodeId, message: m.Join) -> Effects:
        """Learn of a joiner on the ring, and begin its join if we are its coordinator."""
        self.ring.tman.learn([Descriptor(sender, 0, message.incarnation, message.topics)])
        return self.coordinator.on_join(sender, message)

    def _on_back(self, sender: NodeId, message: m.Back) -> Effects:
        """Note whether `sender` counts on us as a backup."""
        self.me.primaries.pop(sender, None)
        if message.on and len(self.me.primaries) < PRIMARIES_MAX:
            self.me.primaries[sender] = self.parts.ticks
        return []

    def _on_probe(self, sender: NodeId, message: m.Probe) -> Effects:
        """Answer that we are alive. If `sender` suspects our present incarnation, refute that by a higher one."""
        if self.me.refute(message.suspected):
            self.links.is_changed = True  # Our record carries the incarnation.
        answer: Effects = [Send(sender, m.ProbeOk(self.me.describe()))]
        if self.parts.believes_dead(sender):  # It is alive: probe it in turn, so that it refutes our suspicion.
            answer.append(Send(sender, m.Probe(self.parts.suspects.incarnations[sender])))
        return answer

    def _on_probe_ok(self, sender: NodeId, message: m.ProbeOk) -> Effects:
        """Stop suspecting `sender`, and tell the parts that it is alive."""
        descriptor = message.descriptor
        if descriptor.node != sender:
            return []
        self.parts.suspects.alive(sender)
        self.ring.tman.learn([descriptor])
        self.parts.sampling.learn([descriptor])
        effects = self.coordinator.alive(sender, descriptor.incarnation)
        return [*effects, *self.survivor.alive(sender, descriptor.incarnation)]
