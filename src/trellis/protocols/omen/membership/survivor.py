"""The survivor: reacts to links that this node has lost.

`OMenNode` calls `on_lost` for every lost link. The reaction depends on why the link was lost (`LinkLost.why`):

silent, restarted   The peer seems to have departed. We report to its first living ring successor, the coordinator, that
                    we were a neighbor. A few survivors report at once. The others do so after `REPORT_PAUSE` periods,
                    unless a coordinator has asked them by then. All repeat the report for `report_tries` periods. They
                    stop when they are told that the repair is done and covers them, or that the peer is alive.
stranger            The peer is alive and has no link to us, because it suspected us or was cut off. We open the link
                    again (`relinks`). If it stays down for `relink_periods`, we repair its topics as if a node between
                    the two ends had departed (docs/omen.md, condition 5).
closed, refused     Nothing depends on the link.

A neighbor that was lost by silence and answers again in the same run was cut off from us and has not crashed. Both
sides were repaired without the link, so we open it again (`former`).

With `connectivity` 2 we also open the link again to a neighbor that has restarted. Its topics were repaired without it.
But the restarted node joins with few links, and a plan of two-connected topics has more. With the old links the overlay
comes back to its plan. We learn of a restart from the peer itself, from its answer to our probe, or from gossip.

These are the states of a lost link:

| from      | to        | when                                                                             |
| --------- | --------- | -------------------------------------------------------------------------------- |
| -         | `reports` | the peer is silent or has restarted                                              |
| -         | `former`  | the peer is silent; the link is in `reports` as well                             |
| -         | `relinks` | the peer does not know the link, or has restarted (`connectivity` 2)             |
| `reports` | -         | the departure is repaired, or was reported for `report_tries` periods            |
| `reports` | `relinks` | the coordinator says that the peer is alive                                      |
| `former`  | `relinks` | the peer answers our probe in the same run, or has restarted (`connectivity` 2)  |
| `former`  | -         | the peer has not answered for `try_soon` periods (`connectivity` 1)              |
| `relinks` | -         | the link is up, or has stayed down for `relink_periods`: a repair starts instead |

No repair starts instead of a link to a restarted peer, because nothing depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from trellis import ids
from trellis.protocols.effects import NodeId, Send, Topic
from trellis.protocols.omen.links.link import UP
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.membership.suspects import Suspects
from trellis.protocols.omen.messages import NodeRun, Probe, Report, ReportOk
from trellis.protocols.omen.needs import Basics, Beliefs, Routing
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import LinkLost, Outcomes
from trellis.protocols.ring import identifier

REPORTERS = 3  # Neighbors of a lost node that report at once, on average.
REPORT_PAUSE = 3  # Periods between two reports of a survivor.


class _Reported(msgspec.Struct):
    """A departure that we report until it is repaired."""

    incarnation: int
    topics: tuple[Topic, ...]  # The topics of the lost link.
    successors: tuple[NodeId, ...]  # Ring successors of the departed node, as it told them last.
    since: int  # The tick at which the link was lost.
    due: int  # The tick of the next report.
    tries: int = 0  # Reports so far.


class _Relink(msgspec.Struct):
    """A lost link to a peer that is alive, or that may be alive."""

    since: int  # The tick at which it was lost.
    shared: int  # The topics of the lost link.
    incarnation: int  # The peer's.
    is_new_run: bool = False  # The peer has restarted since, so its topics were repaired without the link.


class SurvivorParts(Basics, Beliefs, Routing, Protocol):
    """What a survivor uses of the node."""

    suspects: Suspects


class Survivor:
    """Reports departed neighbors, and opens links to living ones again."""

    def __init__(self, parts: SurvivorParts, repairs: Repairs) -> None:
        self.parts, self.repairs = parts, repairs
        self.reports: dict[tuple[NodeId, int], _Reported] = {}  # By node and run.
        self.relinks: dict[NodeId, _Relink] = {}  # Links to living peers that we open again.
        self.former: dict[NodeId, _Relink] = {}  # Neighbors that were lost by silence, oldest first.
        self._reopens = parts.config.is_twice  # Links to restarted neighbors are opened again.

    def on_lost(self, lost: LinkLost) -> Outcomes:
        """Begin to report a departed neighbor, or to open a link to a living one again."""
        effects: Outcomes = []
        if lost.why == "restarted" and lost.was_up and self._reopens:
            self.former.pop(lost.peer, None)
            effects += self._relink(lost.peer, lost.interest, lost.incarnation, is_new_run=True)
        if lost.why == "silent" and lost.was_up:
            self.former.pop(lost.peer, None)
            self.former[lost.peer] = _Relink(self.parts.ticks, lost.interest, lost.incarnation)
            if len(self.former) > self.parts.config.suspects_max:
                del self.former[next(iter(self.former))]
        if lost.why in ("silent", "restarted") and lost.incarnation:
            key = (lost.peer, run_of(lost.incarnation))
            if key not in self.reports:
                parts, now = self.parts, self.parts.ticks
                topics = parts.me.table.topics(lost.interest & parts.me.interest)
                self.reports[key] = _Reported(lost.incarnation, topics, lost.successors, now, now + REPORT_PAUSE)
                is_chosen = ids.key(lost.peer, parts.me.id) % max(lost.degree, 1) < REPORTERS
                effects += self._report(*key) if is_chosen else []
        elif lost.why == "stranger" and lost.was_up:
            effects += self._relink(lost.peer, lost.interest, lost.incarnation)
        return effects

    def tick(self) -> Outcomes:
        """Repeat reports that are due, look at links that stay down, and probe former neighbors."""
        effects: Outcomes = []
        for key, report in list(self.reports.items()):
            if self.parts.ticks - report.since > self.parts.config.report_tries:
                del self.reports[key]
            elif self.parts.ticks >= report.due:
                report.due = self.parts.ticks + REPORT_PAUSE
                effects += self._report(*key)
        for peer, relink in list(self.relinks.items()):
            effects += self._relink_due(peer, relink)
        return [*effects, *self._try_former(), *(self._find_restarted() if self._reopens else ())]

    def on_report_ok(self, message: ReportOk) -> Outcomes:
        """Stop reporting a departure that is repaired, or whose node is alive. Report later if its repair goes on."""
        key = (message.node, run_of(message.incarnation))
        if key not in self.reports:
            return []
        if message.state == "open":
            self.asked((NodeRun(message.node, message.incarnation),))
            return []
        del self.reports[key]
        if message.state == "alive" and message.node not in self.parts.links:
            self.parts.suspects.alive(message.node)
            return self._relink(message.node, self.parts.me.interest, message.incarnation)
        return []

    def asked(self, gone: Iterable[NodeRun]) -> None:
        """Report these departures later, because a coordinator handles them and knows that we are a survivor."""
        for one in gone:
            report = self.reports.get((one.node, run_of(one.incarnation)))
            if report is not None:
                report.due = self.parts.ticks + self.parts.config.standby_periods

    def alive(self, peer: NodeId, incarnation: int) -> Outcomes:
        """Open the link again to a former neighbor that has answered: in the same run, or in a later one if we may."""
        former = self.former.pop(peer, None)
        if former is None or peer in self.parts.links:
            return []
        if run_of(former.incarnation) == run_of(incarnation):
            return self._relink(peer, former.shared, incarnation)
        if self._reopens and run_of(former.incarnation) < run_of(incarnation):
            return self._relink(peer, former.shared, incarnation, is_new_run=True)
        return []

    def _find_restarted(self) -> Outcomes:
        """Open links again to former neighbors of which gossip says that they have restarted."""
        effects: Outcomes = []
        for peer, former in list(self.former.items()):
            known = self.parts.incarnation_of(peer)
            if run_of(known) > run_of(former.incarnation):
                effects += self.alive(peer, known)
        return effects

    def _try_former(self) -> Outcomes:
        """Probe former neighbors for `try_soon` periods. Suspects among them are left out: the node probes these.

        Afterwards they are forgotten, unless links to restarted neighbors are opened again.
        """
        parts = self.parts
        old = [one for one, lost in self.former.items() if parts.ticks - lost.since > parts.config.try_soon]
        if not self._reopens:
            for peer in old:
                del self.former[peer]
        fresh = [one for one in self.former if one not in old]
        asked = [one for one in fresh if not parts.believes_dead(one) and one not in parts.links]
        return [Send(one, Probe(self.former[one].incarnation)) for one in asked]

    def _report(self, peer: NodeId, run: int) -> Outcomes:
        """Report a departure to one node: in turn to each successor that the node had named, then by the ring."""
        report = self.reports[peer, run]
        message = Report(peer, report.incarnation, self.parts.me.id, 0, report.topics)
        told = [node for node in report.successors if node not in self.parts.suspects.incarnations]
        choice = report.tries % (len(told) + 1)
        report.tries += 1
        if choice < len(told):
            return [Send(told[choice], message)]
        return self.parts.route(identifier(peer), message, (peer,))

    def _relink(self, peer: NodeId, interest: int, incarnation: int, *, is_new_run: bool = False) -> Outcomes:
        """Open the link to a living peer again if we still share topics."""
        me = self.parts.me
        if me.is_leaving or not interest & me.interest:
            return []
        self.relinks[peer] = _Relink(self.parts.ticks, interest & me.interest, incarnation, is_new_run)
        return self.parts.links.open(peer)

    def _relink_due(self, peer: NodeId, relink: _Relink) -> Outcomes:
        """Start a repair of the topics of a link that has stayed down for `relink_periods`.

        If the peer does not answer, that repair counts it as departed.
        """
        parts = self.parts
        link = parts.links.links.get(peer)
        if link is not None and link.state == UP:
            del self.relinks[peer]
            is_useless = relink.is_new_run and not link.interest & parts.me.interest
            return parts.links.close(peer) if is_useless else []
        if parts.ticks - relink.since <= parts.config.relink_periods:
            return []
        del self.relinks[peer]
        if relink.is_new_run:
            return []
        shared = relink.shared & parts.me.wanted
        if not shared:
            return []
        repair = self.repairs.repair("relink", peer, relink.incarnation, parts.me.table.topics(shared))
        repair.link_ends = (parts.me.id, peer)
        return repair.start()
