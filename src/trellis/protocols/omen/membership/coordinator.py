"""The coordinator: decides which churn events this node handles, and starts their repairs.  [OM Alg. 5-6]

The closest living ring successor of a node coordinates the repair after its departure, and its join. The next
successors keep the same event on standby, and take over if the coordinator does not finish it. `events.py` has the
states of an event. These are the procedures of the paper:

handleChurnEvent   `departure`, `on_join`: execute the event if we are the coordinator, else put it on standby
processExeQ        `_execute`: start a repair, in the order of localtime, once the view has enough backups. The wait is
                   limited, because a repair is correct without backups
processStandbyL    `Standby`: take over on time-out, or when we have become the coordinator (fail-over)
notifySuccRange    send `Finished` to our L successors
gcChurnEvent       `on_finished`: end an event that another node has handled

Before a repair, the coordinator makes sure that the node has departed. It is certain if its own detector suspects the
node, if the node has restarted, or if the node has announced that it leaves. Otherwise it probes the node (`doubt`).
If the node answers, nothing is repaired, and all nodes that were told of its departure are told that it is alive.

If neighbors crash together, each of them has a coordinator, and each repair would cover the whole group. So only one
coordinator repairs: the first that finds another member of the group. If two find each other at once, the one of lower
id repairs (`on_find`). The others stand by until it has finished, or until a time-out.

`OMenNode` passes messages, timers and the news of the detector to the methods below, and calls `tick` once per period.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trellis.protocols.detector import HeartbeatDetector
from trellis.protocols.effects import CancelTimer, NodeId, Send, SetTimer
from trellis.protocols.newscast import Newscast
from trellis.protocols.omen import messages
from trellis.protocols.omen.links.records import HeldRecords
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.membership.events import DONE, DOUBT, EXE, REPAIRING, STANDBY, Event
from trellis.protocols.omen.membership.standby import Standby, StandbyParts
from trellis.protocols.omen.membership.suspects import Suspects
from trellis.protocols.omen.messages import (
    LINKS_MAX,
    Churn,
    FindRecord,
    Finished,
    JoinDone,
    Leaving,
    Probe,
    Report,
    ReportOk,
)
from trellis.protocols.omen.needs import Subscribers
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.procedure import LINKS, REPAIR_TIMER
from trellis.protocols.omen.repair.repair import Departed, Repair
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.omen.views import Views
from trellis.protocols.ring import identifier

TRIES_MAX = 2  # Further repairs of a departure after one gave up because nodes that it needed kept crashing.


class CoordinatorParts(StandbyParts, Subscribers, Protocol):
    """What the coordinator uses of the node."""

    detector: HeartbeatDetector
    sampling: Newscast
    views: Views
    held: HeldRecords
    suspects: Suspects


class Coordinator:
    """Handles churn events."""

    def __init__(self, parts: CoordinatorParts, repairs: Repairs) -> None:
        self.parts, self.repairs = parts, repairs
        self.standby = Standby(parts, self._begin_doubt, self._confirmed)

    # Inputs

    def departure(self, node: NodeId, incarnation: int, *, certain: bool, report: Report | None = None) -> Outcomes:
        """Handle the news that a node in our range has departed (handleChurnEvent).

        `certain`   our own detector says so, or the node has restarted; otherwise another node says so
        `report`    the survivor's report, if one brought the news
        """
        parts = self.parts
        event = self.parts.events.departure(node, incarnation)
        is_new = event is None
        if event is None:
            event = parts.events.add("leave", node, incarnation, parts.ticks, STANDBY)
        effects = self._survivor(event, report) if report is not None else []
        if certain and event.state == DOUBT:  # A survivor was quicker than our own detector.
            return [*effects, *self._confirmed(event)]
        if not is_new:
            return effects
        if not parts.ring.is_coordinator(node):
            return [*effects, *self.standby.begin(event)] if certain else effects
        effects += [Send(peer, Churn("leave", node, incarnation)) for peer in parts.ring.successors]
        if certain or parts.is_dead(node, incarnation):
            return [*effects, *self._confirmed(event)]
        return [*effects, *self._begin_doubt(event)]

    def on_report(self, message: Report) -> Outcomes:
        """Handle a survivor's report, or pass it on toward the coordinator of the departed node."""
        parts, node = self.parts, message.node
        if node == parts.me.id:
            is_us = run_of(message.incarnation) == run_of(parts.me.incarnation)
            return [Send(message.reporter, ReportOk(node, message.incarnation, "alive" if is_us else "open"))]
        if self.parts.events.departure(node, message.incarnation) is None and not parts.ring.is_coordinator(node):
            if message.hops >= parts.config.hops_max:
                return []
            on = msgspec.structs.replace(message, hops=message.hops + 1)
            return parts.route(identifier(node), on, (node,))
        return self.departure(node, message.incarnation, certain=False, report=message)

    def on_churn(self, sender: NodeId, message: Churn) -> Outcomes:
        """Note an event that another successor of the node has told us of.

        For a departure with `helper_tries`: a sender that is nearer to the node handles the event, so we do not take it
        over early. A sender that is farther asks by this message whether we handle it (`Standby.begin`). It is answered
        by the same message if we do.
        """
        parts = self.parts
        if message.node == parts.me.id:
            return []
        if message.kind == "leave":
            effects = self.departure(message.node, message.incarnation, certain=False)
            event = parts.events.get("leave", message.node, message.incarnation)
            if event is None or not parts.config.helper_tries:
                return effects
            if self.standby.is_nearer(sender, message.node):
                event.is_handled = True
            elif event.state != STANDBY and not any(type(one) is Send and one.to == sender for one in effects):
                effects.append(Send(sender, Churn("leave", message.node, message.incarnation)))
            return effects
        if parts.events.get("join", message.node, message.incarnation) is None:
            parts.events.add("join", message.node, message.incarnation, parts.ticks, STANDBY)
        return []

    def on_join(self, sender: NodeId, message: messages.Join) -> Outcomes:
        """Begin the join of `sender` if we are its coordinator.

        A joiner asks the node that it takes for its successor. At first that may be any node. If two nodes linked a
        joiner at the same time, it would get twice the links that it needs.
        """
        parts = self.parts
        if parts.events.get("join", sender, message.incarnation) is not None or not parts.ring.is_coordinator(sender):
            return []  # The joiner asks again, as soon as it knows a nearer successor.
        parts.events.add("join", sender, message.incarnation, parts.ticks, EXE)
        return [Send(peer, Churn("join", sender, message.incarnation)) for peer in parts.ring.successors]

    def on_leaving(self, sender: NodeId, message: Leaving) -> Outcomes:
        """Handle the announcement of a node that leaves. It brings its record, and repeats this in every period."""
        parts, incarnation = self.parts, message.record.incarnation
        parts.held.on_record(sender, message.record, parts.ticks)
        event = self.parts.events.departure(sender, incarnation)
        if event is None:
            ours = parts.ring.is_coordinator(sender)
            event = parts.events.add("leave", sender, incarnation, parts.ticks, EXE if ours else STANDBY)
        elif event.state == DONE:
            return [Send(sender, ReportOk(sender, incarnation, "done"))]
        event.is_announced = True
        return self._confirmed(event) if event.state == DOUBT else []

    def on_finished(self, sender: NodeId, message: Finished) -> Outcomes:
        """End an event that another coordinator has handled (gcChurnEvent).

        If we had left the event to the coordinator of a group, our own successors are told as well. If the sender is
        the departed node itself, it says farewell, and we remove it from all tables.
        """
        parts, node, incarnation = self.parts, message.node, message.incarnation
        if message.kind == "join":
            joined = parts.events.get("join", node, incarnation)
            if joined is not None and joined.state != REPAIRING:
                parts.events.drop(joined)
            return []
        event = self.parts.events.departure(node, incarnation)
        if event is None:
            event = parts.events.add("leave", node, incarnation, parts.ticks, DONE)
        was_yielded = event.state == STANDBY and event.is_yielded
        if event.state != REPAIRING:
            parts.events.finish(event, parts.ticks)
        parts.held.done(node, run_of(incarnation), parts.ticks)
        effects = self.dead(node, incarnation) if sender == node else []
        return [*effects, *[Send(peer, message) for peer in parts.ring.successors if was_yielded and peer != node]]

    def on_find(self, question: FindRecord) -> Outcomes:
        """Leave a departure to another coordinator that asks for the record of the departed node.

        Its repair covers the whole group of departed neighbors, so ours is not needed. We go on with our own repair in
        two cases: it opens links already, or it too has found another member of the group and our id is lower.
        """
        parts, node = self.parts, question.node
        event = parts.events.get("leave", node, question.incarnation)
        if event is None or event.state not in (EXE, REPAIRING) or question.asker == parts.me.id:
            return []
        repair = self._repair_of(event)
        if repair is None:
            return self._yield(event)
        if repair.state == LINKS or (len(repair.departed) > 1 and parts.me.id < question.asker):
            return []
        self.repairs.drop(repair)
        return [CancelTimer(f"{REPAIR_TIMER}/{repair.number}"), *self._yield(event)]

    def _repair_of(self, event: Event) -> Repair | None:
        """Return the repair of a departure, if it is under way."""
        repair = self.repairs.get(event.repair) if event.repair is not None else None
        return repair if isinstance(repair, Repair) else None

    def _yield(self, event: Event) -> Outcomes:
        """Stand by until the repair of the group is over, and take over if that takes too long.

        Deviation: [OM 3.3] handles concurrent events independently, which can leave a topic split (docs/omen.md).
        """
        event.move(STANDBY, self.parts.ticks)
        event.repair, event.is_yielded, event.is_handled = None, True, False
        config = self.parts.config
        if not config.helper_tries:
            return []
        return [SetTimer(f"standby/{event.node}", 2 * config.helper_tries * config.ask_ms)]

    def on_peer_restarted(self, peer: NodeId) -> Outcomes:
        """Handle that a node which we watch on the ring has restarted: its earlier run has departed."""
        ended = self.parts.held.before(peer, self.parts.detector.suspicion.incarnation_of(peer))
        return self.departure(peer, ended, certain=True) if ended is not None else []

    def on_peer_down(self, peer: NodeId) -> Outcomes:
        """Handle that a node which we watch on the ring is silent."""
        parts, incarnation = self.parts, self.parts.incarnation_of(peer)
        effects = self.dead(peer, incarnation)
        if parts.is_in_range(peer):
            effects += self.departure(peer, incarnation, certain=True)
        return effects

    def alive(self, node: NodeId, incarnation: int) -> Outcomes:
        """End the departure of a node that has answered our probe.

        If it answered from a later run, the reported run has indeed ended: the event stays, and is no longer in doubt.
        Otherwise the reporters and the successors that we told of the departure are told that the node is alive.
        Without that, a successor out of range would stand by for several time-outs.
        """
        effects: Outcomes = []
        for event in self.parts.events.open():
            if event.kind != "leave" or event.node != node or event.state not in (DOUBT, STANDBY):
                continue
            if run_of(incarnation) > run_of(event.incarnation):
                if event.state == DOUBT:
                    effects += self._confirmed(event)
            elif not event.is_announced:
                self.parts.events.drop(event)
                told = self.parts.ring.successors if event.state == DOUBT else []
                alive = ReportOk(node, event.incarnation, "alive")
                effects += [Send(peer, alive) for peer in dict.fromkeys([*event.reporters, *told]) if peer != node]
        return effects

    def on_alive(self, node: NodeId, incarnation: int) -> Outcomes:
        """End the departure of a node that has answered another node's probe.

        Because this is second-hand, it ends only an event for which we are on standby.
        """
        event = self.parts.events.get("leave", node, incarnation)
        if event is None or event.state != STANDBY or event.is_announced or self.parts.is_dead(node, incarnation):
            return []
        self.parts.events.drop(event)
        return [Send(reporter, ReportOk(node, incarnation, "alive")) for reporter in event.reporters]

    def dead(self, node: NodeId, incarnation: int) -> Outcomes:
        """Suspect a node: remove it from all tables, close its link, and tell all repairs.

        A message that says this about ourselves has no effect.
        """
        parts = self.parts
        if node == parts.me.id:
            return []
        parts.suspects.add(node, incarnation, parts.ticks)
        parts.detector.unwatch(node)
        effects: Outcomes = [
            *parts.ring.on_peer_down(node),
            *parts.sampling.on_peer_down(node),
            *parts.views.on_peer_down(node),
            *parts.links.on_peer_down(node),
            *self.repairs.on_dead(node),
        ]
        return effects

    # Handling events

    def tick(self) -> Outcomes:
        """Look once per period at all open events: start those that are ours, take over those that are late."""
        effects: Outcomes = []
        for event in self.parts.events.open():
            if event.kind == "join" and self.parts.is_dead(event.node, event.incarnation):
                self.parts.events.drop(event)
            elif event.state == STANDBY:
                effects += self.standby.look(event)
            elif event.state == EXE:
                effects += self._execute(event)
        return effects

    def doubt(self, node: NodeId) -> Outcomes:
        """Probe a node whose departure is in doubt. After `ask_tries` probes without an answer it counts as departed.

        Called when the doubt begins, and then every `ask_ms` by a timer.

        Deviation: [OM Alg. 5, handleChurnEvent] handles every event that it is told of. A departure that only others
        have noticed is in doubt until the node has not answered.
        """
        config = self.parts.config
        doubted = [event for event in self.parts.events.open() if event.node == node and event.state == DOUBT]
        effects: Outcomes = []
        for event in doubted:
            event.pings += 1
            if event.pings > config.ask_tries or self.parts.is_dead(node, event.incarnation):
                effects += self.dead(node, event.incarnation)
                effects += self._confirmed(event)
        if any(event.state == DOUBT for event in doubted):
            effects += [Send(node, Probe(0)), SetTimer(f"doubt/{node}", config.ask_ms)]
        return effects

    def _begin_doubt(self, event: Event) -> Outcomes:
        """Begin to probe the node of a departure."""
        event.move(DOUBT, self.parts.ticks)
        event.pings = 0
        return self.doubt(event.node)

    def _confirmed(self, event: Event) -> Outcomes:
        """Execute an event that is certain."""
        event.move(EXE, self.parts.ticks)
        return self._execute(event)

    def _execute(self, event: Event) -> Outcomes:
        """Start the repair of an event as soon as its view is ready or the wait is over (processExeQ)."""
        parts = self.parts
        if event.kind == "join" and not event.is_late and not parts.ring.is_coordinator(event.node):
            event.move(STANDBY, parts.ticks)  # A node has joined between the joiner and us.
            return []
        if self.repairs.covers(event.node):
            # A repair of ours covers a departure already. A node that has restarted is linked after that repair.
            return self._yield(event) if event.kind == "leave" else []
        # Deviation: [OM Alg. 5, processExeQ, l. 3, 8] puts an event on standby whose node is no longer in the range of
        # the L predecessors. Nearer successors that joined later do not know of a departure, so we finish it ourselves.
        # Joins are handed over, because the joiner asks its new successor itself.
        view = parts.views.views.get(event.node)
        is_ready = view is not None and view.ready
        patience = parts.config.ready_wait if event.kind == "join" else parts.config.repair_wait
        if not is_ready and parts.ticks - event.since < patience:
            return []
        event.move(REPAIRING, parts.ticks)
        backups = [node for node in view.backups if node not in parts.suspects.incarnations] if view is not None else []
        if event.kind == "join":
            interest = view.interest if view is not None else 0
            backups = backups or parts.known_subscribers(interest, but=event.node)
            join = self.repairs.join(event.node, event.incarnation, parts.me.table.topics(interest), backups)
            event.repair = join.number
            return join.start()
        repair = self.repairs.repair("leave", event.node, event.incarnation)
        event.repair = repair.number
        repair.backups, repair.survivors = backups, dict(event.reporters)
        repair.departed[event.node] = Departed(event.incarnation, frozenset(), {}, False)
        return repair.start()

    def repair_done(self, repair: Repair | Join) -> Outcomes:
        """End the event of a repair that is done, if it has one, and tell all nodes that wait for the end of the event.

        A departure whose repair gave up is repaired again, up to `TRIES_MAX` times. A joiner whose join gave up asks
        again itself.
        """
        parts = self.parts
        event = parts.events.get(repair.kind, repair.node, repair.incarnation)
        if event is None:
            return []
        if isinstance(repair, Join):
            parts.events.drop(event)
            return self._join_over(repair)
        if repair.gave_up and event.tries < TRIES_MAX:
            event.tries += 1
            event.move(EXE, parts.ticks)
            return []
        event.counted = frozenset(repair.questions.answers.told)
        parts.events.finish(event, parts.ticks)
        parts.held.done(event.node, run_of(event.incarnation), parts.ticks)
        return self._departure_over(event, repair)

    def _join_over(self, join: Join) -> Outcomes:
        """Tell the joiner and our successors that a join is over. If it gave up, tell none: the joiner asks again."""
        if join.gave_up:
            return []
        over = Finished(join.node, join.incarnation, "join")
        told = [Send(peer, over) for peer in self.parts.ring.successors if peer != join.node]
        return [Send(join.node, JoinDone(join.incarnation)), *told]

    def _departure_over(self, event: Event, repair: Repair) -> Outcomes:
        """Tell our successors and the survivors that a departure is repaired. A node that leaves is told as well."""
        finished = Finished(event.node, event.incarnation, "leave")
        done = ReportOk(event.node, event.incarnation, "done")
        # Deviation: [OM Alg. 6, notifySuccRange] names the L successors of the churned node. Ours are those of its
        # coordinator: the same nodes, and one more behind them.
        effects: Outcomes = [Send(peer, finished) for peer in self.parts.ring.successors]
        effects += self._group_over(repair)
        survivors = dict.fromkeys(event.reporters)
        if not event.is_announced:  # A node that leaves closes its links itself, so its neighbors wait for nothing.
            survivors |= dict.fromkeys(repair.departed[event.node].neighbors)
        effects += [Send(survivor, done) for survivor in survivors if survivor in event.counted]
        if event.is_announced:
            effects.append(Send(event.node, done))
        return effects

    def _group_over(self, repair: Repair) -> Outcomes:
        """Tell the coordinators and the survivors of the other members of a group that the repair covers them too."""
        effects: Outcomes = []
        for name, one in repair.departed.items():
            if name == repair.node or not one.neighbors or repair.gave_up:
                continue
            finished, done = Finished(name, one.incarnation, "leave"), ReportOk(name, one.incarnation, "done")
            effects += self.parts.route(identifier(name), finished, repair.departed)
            told = repair.questions.answers.told
            effects += [Send(survivor, done) for survivor in one.neighbors if survivor in told]
        return effects

    def _survivor(self, event: Event, report: Report) -> Outcomes:
        """Take in the report of a neighbor of the departed node. The repair is not done before it covers that neighbor.

        If a finished repair did not cover it, the event is opened again.
        """
        reporter = report.reporter
        if reporter not in event.reporters and len(event.reporters) >= LINKS_MAX:
            return []  # No node has so many neighbors.
        if event.state == DONE and reporter not in event.counted:
            event.move(STANDBY, self.parts.ticks)
        is_known = reporter in event.reporters
        event.reporters[reporter] = report.topics
        repair = self._repair_of(event) if event.state == REPAIRING else None
        if repair is not None:
            return repair.reopen(reporter, report.topics)
        if event.state == DONE:
            return [Send(reporter, ReportOk(event.node, event.incarnation, "done"))]
        # A first report is answered by the question of the repair.
        return [Send(reporter, ReportOk(event.node, event.incarnation, "open"))] if is_known else []
