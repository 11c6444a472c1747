"""What a node does about links that it has lost.

answers again       a neighbor that was lost by silence and answers in the same life was cut off, not dead: the link is
                    opened again, since both sides of a cut have been repaired without it
silent, restarted   a few neighbors tell the peer's first living ring successor at once "I was its neighbor". The
                    others do so after `REPORT_PAUSE` periods, unless a coordinator has asked them by then. All repeat
                    it until they hear that the repair is done and that they were counted in, or that the peer lives
stranger            the peer lives and holds no link to us (it suspected us, or was cut off): the link is opened
                    again; if it stays closed for `relink_periods`, its two ends are mended as if a node between
                    them had gone (docs/omen.md, condition 5)
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from trellis import ids
from trellis.protocols.effects import Effects, NodeId, Send, Topic
from trellis.protocols.omen.churn import Coordinator
from trellis.protocols.omen.links import UP, Lost
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.messages import Life, Probe, Report, ReportOk
from trellis.protocols.omen.parts import Parts
from trellis.protocols.ring import identifier

REPORTERS = 3  # neighbors of a lost node that report at once, on average
REPORT_PAUSE = 3  # periods until a report is repeated


class _Reported(msgspec.Struct):
    incarnation: int
    topics: tuple[Topic, ...]
    successors: tuple[NodeId, ...]
    since: int  # tick
    due: int  # the tick of the next report
    tries: int = 0


class _Relink(msgspec.Struct):
    since: int  # tick
    shared: int  # topics of the link that was lost
    incarnation: int


class Survivor:
    def __init__(self, parts: Parts, coordinator: Coordinator) -> None:
        self.parts, self.coordinator = parts, coordinator
        self.reports: dict[tuple[NodeId, int], _Reported] = {}  # node and life
        self.relinks: dict[NodeId, _Relink] = {}  # living peers
        self.former: dict[NodeId, _Relink] = {}  # neighbors that were lost by silence, oldest first

    def on_lost(self, lost: Lost) -> Effects:
        if lost.why == "silent" and lost.was_up:
            self.former.pop(lost.peer, None)
            self.former[lost.peer] = _Relink(self.parts.ticks, lost.interest, lost.incarnation)
            if len(self.former) > self.parts.config.suspects_max:
                del self.former[next(iter(self.former))]
        if lost.why in ("silent", "restarted") and lost.incarnation:
            key = (lost.peer, life_of(lost.incarnation))
            if key not in self.reports:
                parts, now = self.parts, self.parts.ticks
                topics = parts.me.table.topics(lost.interest & parts.me.interest)
                self.reports[key] = _Reported(lost.incarnation, topics, lost.successors, now, now + REPORT_PAUSE)
                is_chosen = ids.key(lost.peer, parts.me.id) % max(lost.degree, 1) < REPORTERS
                return self._report(*key) if is_chosen else []
        elif lost.why == "stranger" and lost.was_up:
            return self._relink(lost.peer, lost.interest, lost.incarnation)
        return []

    def tick(self) -> Effects:
        effects: Effects = []
        for key, report in list(self.reports.items()):
            if self.parts.ticks - report.since > self.parts.config.report_tries:
                del self.reports[key]
            elif self.parts.ticks >= report.due:
                report.due = self.parts.ticks + REPORT_PAUSE
                effects += self._report(*key)
        for peer, relink in list(self.relinks.items()):
            effects += self._relink_due(peer, relink)
        return [*effects, *self._try_former()]

    def on_report_ok(self, message: ReportOk) -> Effects:
        key = (message.node, life_of(message.incarnation))
        if key not in self.reports:
            return []
        if message.state == "open":
            self.asked((Life(message.node, message.incarnation),))
            return []
        del self.reports[key]
        if message.state == "alive" and message.node not in self.parts.links:
            self.parts.suspects.alive(message.node)
            return self._relink(message.node, self.parts.me.interest, message.incarnation)
        return []

    def asked(self, gone: Iterable[Life]) -> None:
        """A coordinator is at work on these departures and knows that we are a survivor: report later, if at all."""
        for one in gone:
            report = self.reports.get((one.node, life_of(one.incarnation)))
            if report is not None:
                report.due = self.parts.ticks + self.parts.config.standby_periods

    def alive(self, peer: NodeId, incarnation: int) -> Effects:
        """A peer that we believed dead has answered."""
        former = self.former.pop(peer, None)
        if former is None or life_of(former.incarnation) != life_of(incarnation) or peer in self.parts.links:
            return []
        return self._relink(peer, former.shared, incarnation)

    def _try_former(self) -> Effects:
        """Ask former neighbors whether they live, unless they are suspects, who are asked anyway."""
        parts = self.parts
        for peer in [one for one, lost in self.former.items() if parts.ticks - lost.since > parts.config.try_soon]:
            del self.former[peer]
        asked = [one for one in self.former if not parts.believes_dead(one) and one not in parts.links]
        return [Send(one, Probe(self.former[one].incarnation)) for one in asked]

    def _report(self, peer: NodeId, life: int) -> Effects:
        """To its successors as it told them last, then to whoever is found on the ring, in turn."""
        report = self.reports[peer, life]
        message = Report(peer, report.incarnation, self.parts.me.id, 0, report.topics)
        told = [node for node in report.successors if node not in self.parts.suspects.incarnations]
        choice = report.tries % (len(told) + 1)
        report.tries += 1
        if choice < len(told):
            return [Send(told[choice], message)]
        return self.parts.route(identifier(peer), message, (peer,))

    def _relink(self, peer: NodeId, interest: int, incarnation: int) -> Effects:
        me = self.parts.me
        if me.is_leaving or not interest & me.interest:
            return []
        self.relinks[peer] = _Relink(self.parts.ticks, interest & me.interest, incarnation)
        return self.parts.links.open(peer)

    def _relink_due(self, peer: NodeId, relink: _Relink) -> Effects:
        """If it stays closed its topics are repaired; a peer that does not answer then counts as gone."""
        parts = self.parts
        link = parts.links.links.get(peer)
        if link is not None and link.state == UP:
            del self.relinks[peer]
            return []
        if parts.ticks - relink.since <= parts.config.relink_periods:
            return []
        del self.relinks[peer]
        shared = relink.shared & parts.me.wanted
        if not shared:
            return []
        mend = self.coordinator.new_mend("relink", peer, relink.incarnation)
        mend.topics = parts.me.table.topics(shared)
        mend.required_only = {parts.me.id: None, peer: None}
        return mend.start()
