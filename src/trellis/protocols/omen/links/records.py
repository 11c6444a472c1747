"""Records: lists of a node's neighbors and topics, held by its L ring successors.  [OM Alg. 4, l. 2; A-OMN-9]

A repair reads the record of a crashed node to learn which nodes it has to connect. `OwnRecord` is our own record and
what its holders have acknowledged. `HeldRecords` are the records of other nodes that we hold.

A new neighbor or topic makes a new version of the record. It is sent to all holders at once, but a holder gets no
further version before it has acknowledged the last one. What a holder lacks is sent again once per period. A link is up
only when all holders have the version that names it (`links.py`).

A lost neighbor stays in the record for a while. A record may name too many nodes, because that costs a repair one
question each (docs/omen.md, condition 1). It must never name too few.

A holder keeps a record while its node is near on the ring, and for `record_periods` after its repair. It also keeps
records of earlier runs of a node, because a run that ended by a restart must be repaired as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId, Send, SetTimer
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.links.link import ASKED
from trellis.protocols.omen.links.links import Links
from trellis.protocols.omen.me import Me, run_of
from trellis.protocols.omen.messages import NodeRun, Record, RecordOk
from trellis.protocols.omen.signals import Outcomes, RecordChanged

RECORD_TIMER = "record"
# Periods for which our record may name lost neighbors. New links usually renew the record before that.
SHRINK_PERIODS = 8
RUNS_MAX = 4  # Most earlier runs of one node whose records are kept. Repairs of still earlier ones are long over.


class OwnRecord:
    """Our own record, and which version of it each of our successors has acknowledged."""

    def __init__(
        self,
        me: Me,
        links: Links,
        run_heard: Callable[[NodeId], int],
        config: OMenConfig,
        is_quiet: Callable[[NodeId], bool],
    ) -> None:
        """Create an empty record.

        `run_heard`   returns the run in which a successor was last heard; 0 if it was not heard yet
        `is_quiet`     returns whether a node has missed periods and may hang
        """
        self.me, self.links, self.run_heard, self.config, self.is_quiet = me, links, run_heard, config, is_quiet
        self._tries: dict[NodeId, int] = {}  # successor -> time-outs since its last acknowledgement
        self._is_waiting = False  # The timer is set.
        self._unanswered: set[NodeId] = set()  # Successors that were sent a record and have not acknowledged it.
        self._shrunk_periods = 0  # Periods since which the record has named neighbors that we have lost.
        self.record = Record(me.incarnation, 1, me.topics, ())
        self._known: dict[NodeId, tuple[int, int]] = {}  # successor -> its run, and the version that it has

    def renew(self, successors: list[NodeId]) -> Outcomes:
        """Make a new version of the record if anything has changed, and send it to the successors."""
        self.links.is_shrunk, self._shrunk_periods = False, 0
        neighbors = tuple(
            NodeRun(link.peer, link.incarnation or link.expected)
            for link in self.links.links.values()
            if link.state != ASKED or link.expected
        )
        before, now = self.record, (self.me.incarnation, self.me.topics, neighbors)
        if (before.incarnation, before.topics, before.neighbours) != now:
            self.record = Record(self.me.incarnation, before.version + 1, self.me.topics, neighbors)
        version = self.record.version
        for link in self.links.links.values():
            if link.needs == -1:
                link.needs = version
        return self.push(successors, repeat=False)

    def tick(self, successors: list[NodeId]) -> Outcomes:
        """Send the record to successors that lack it. Have it renewed if it names lost neighbors for long."""
        effects = self.push(successors)
        if self.links.is_shrunk:
            self._shrunk_periods += 1
            if self._shrunk_periods > SHRINK_PERIODS:
                effects.append(RecordChanged())
        return effects

    def push(self, successors: list[NodeId], *, repeat: bool = True) -> Outcomes:
        """Send the record to successors that lack it. `repeat`: also to those that have yet to answer the last one."""
        self._known = {node: self._known.get(node, (0, 0)) for node in successors}
        self._tries = {node: tries for node, tries in self._tries.items() if node in self._known}
        self._unanswered &= self._known.keys()
        record = self.record
        missing = self._missing()
        effects: Outcomes = [Send(node, record) for node in missing if repeat or node not in self._unanswered]
        self._unanswered.update(missing)
        if self.config.helper_tries and missing and not self._is_waiting:
            self._is_waiting = True
            effects.append(SetTimer(RECORD_TIMER, self.config.ask_ms))
        return [*effects, *self._ready()]

    def on_timer(self) -> Outcomes:
        """Send the record again to holders that have not acknowledged it.

        After `helper_tries` time-outs, links no longer wait for such a holder. It may hang, and counts as one of the L
        nodes that may fail at once, as if it had crashed. It still gets the record once per period. Links wait for it
        again after it has acknowledged one.
        """
        self._is_waiting = False
        effects: Outcomes = []
        for node in self._missing():
            self._tries[node] = self._tries.get(node, 0) + 1
            if not self._is_skipped(node):
                effects.append(Send(node, self.record))
                self._is_waiting = True
        if self._is_waiting:
            effects.append(SetTimer(RECORD_TIMER, self.config.ask_ms))
        return [*effects, *self._ready()]

    def on_ok(self, sender: NodeId, ok: RecordOk) -> Outcomes:
        """Note which version a holder has acknowledged. Send it the present one if that is newer."""
        if sender in self._known and run_of(ok.incarnation) == run_of(self.me.incarnation):
            self._known[sender] = max(self._known[sender], (ok.life, ok.version))
            self._tries.pop(sender, None)
            self._unanswered.discard(sender)
            if self._version(sender) < self.record.version:  # The record has changed meanwhile.
                self._unanswered.add(sender)
                return [Send(sender, self.record), *self._ready()]
        return self._ready()

    def _version(self, holder: NodeId) -> int:
        """Return the version that `holder` has acknowledged, or 0 if it has restarted since."""
        run, version = self._known[holder]
        return version if run >= self.run_heard(holder) else 0

    def _ready(self) -> Outcomes:
        """Tell the links which version all holders have, except those that we do not wait for."""
        waited_for = [node for node in self._known if not self._is_skipped(node)]
        version = min(map(self._version, waited_for), default=self.record.version)
        return self.links.on_record_known(version)

    def _missing(self) -> list[NodeId]:
        """Return the successors that lack the present version."""
        return [node for node in self._known if self._version(node) < self.record.version]

    def _is_skipped(self, holder: NodeId) -> bool:
        """Return whether links do not wait for this holder, because it may hang."""
        tries = self.config.helper_tries
        return tries > 0 and (self._tries.get(holder, 0) >= tries or self.is_quiet(holder))


@dataclass(eq=False)
class Held:
    """A record of another node."""

    record: Record
    # The tick at which its repair was done, the node restarted, or it was no longer near us. None: none of these.
    gone_since: int | None = None
    neighbors: list[NodeId] = field(init=False)  # The names of the neighbors in the record.

    def __post_init__(self) -> None:
        self.neighbors = [one.node for one in self.record.neighbours]


class HeldRecords:
    """The records of other nodes that we hold."""

    def __init__(self, run: int, keep_periods: int, entries_max: int = 1024) -> None:
        """Create an empty store. `run` is the number of our own run, which acknowledgements carry."""
        self.run, self.keep_periods, self.entries_max = run, keep_periods, entries_max
        self.held: dict[NodeId, Held] = {}  # The record of each node's latest run.
        self.old: dict[tuple[NodeId, int], Held] = {}  # Records of earlier runs, by node and run.

    def on_record(self, sender: NodeId, record: Record, tick: int) -> Outcomes:
        """Keep a record unless we have a newer one, and acknowledge it in any case."""
        known = self.held.get(sender)
        if known is not None:
            if run_of(known.record.incarnation) < run_of(record.incarnation):
                known.gone_since = tick
                self._keep_old(sender, known)
            elif (known.record.incarnation, known.record.version) > (record.incarnation, record.version):
                return [self._ok(sender, record)]
        self.held[sender] = Held(record)
        if len(self.held) > self.entries_max:
            del self.held[next(iter(self.held))]
        return [self._ok(sender, record)]

    def _ok(self, owner: NodeId, record: Record) -> Send:
        return Send(owner, RecordOk(record.version, record.incarnation, self.run))

    def _keep_old(self, node: NodeId, held: Held) -> None:
        """Keep the record of a run that has ended by a restart."""
        self.old[node, run_of(held.record.incarnation)] = held
        runs = [key for key in self.old if key[0] == node]  # In the order in which they ended.
        for key in runs[:-RUNS_MAX]:
            del self.old[key]
        if len(self.old) > self.entries_max:
            del self.old[next(iter(self.old))]

    def of(self, node: NodeId, run: int) -> Record | None:
        """Return the record of this run of a node; 0 means its latest run that we know. None: we do not have it."""
        held = self.held.get(node)
        if held is None or (run and run_of(held.record.incarnation) != run):
            held = self.old.get((node, run))
        return held.record if held is not None else None

    def before(self, node: NodeId, run: int) -> int | None:
        """Return the latest incarnation before this run in which we have a record of the node. None: there is none."""
        known = [held.record.incarnation for (name, _), held in self.old.items() if name == node]
        if node in self.held:
            known.append(self.held[node].record.incarnation)
        return max((incarnation for incarnation in known if run_of(incarnation) < run), default=None)

    def done(self, node: NodeId, run: int, tick: int) -> None:
        """Note that a departure is repaired. Its record is kept for a while, for nodes that crashed about then too."""
        held = self.held.get(node)
        if held is not None and run_of(held.record.incarnation) == run and held.gone_since is None:
            held.gone_since = tick

    def forget_old(self, tick: int, near: set[NodeId]) -> None:
        """Forget records `keep_periods` after `gone_since`.

        That time begins now for nodes that are not `near` any more. They are alive and have other holders, which have
        their records before ours are forgotten.
        """
        over = tick - self.keep_periods
        self.held = {node: one for node, one in self.held.items() if one.gone_since is None or one.gone_since > over}
        self.old = {key: one for key, one in self.old.items() if one.gone_since is None or one.gone_since > over}
        for node in [node for node, one in self.held.items() if one.gone_since is None and node not in near]:
            self.held[node].gone_since = tick
