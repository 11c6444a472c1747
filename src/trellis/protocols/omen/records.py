"""Records: whom a node is linked to, held ready by its L ring successors.  [OM Alg. 4, l. 2; A-OMN-9]

New neighbors and topics are pushed to them at once, but no holder is sent a version before it has answered the last
one. What they do not have is repeated once per period. A neighbor that is lost is left in the record for a while, since
a record may name too many: whoever reads it asks one node more (docs/omen.md, condition 1). A holder keeps the records
of those who name it; of a node that is gone it keeps the last one for `record_periods` after the repair.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trellis.protocols.effects import Effects, NodeId, Send, SetTimer
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.links import ASKED, Links
from trellis.protocols.omen.me import Me, life_of
from trellis.protocols.omen.messages import Life, Record, RecordOk

RECORD_TIMER = "record"
LIVES_MAX = 4  # earlier lives of one node whose records are kept: repairs of more than these are long over


class OwnRecord:
    """What we tell our successors about ourselves."""

    def __init__(
        self,
        me: Me,
        links: Links,
        life_heard: Callable[[NodeId], int],
        config: OMenConfig,
        is_quiet: Callable[[NodeId], bool],
    ) -> None:
        """`life_heard`: in which a successor was heard last; 0 where it has not been."""
        self.me, self.links, self.life_heard, self.config, self.is_quiet = me, links, life_heard, config, is_quiet
        self._tries: dict[NodeId, int] = {}  # successor -> times that it was given a record and did not answer
        self._is_waiting = False  # the timer is set
        self._unanswered: set[NodeId] = set()  # successors that were sent a record and have not answered since
        self.record = Record(me.incarnation, 1, me.topics, ())
        self._known: dict[NodeId, tuple[int, int]] = {}  # successor -> its life, the version that it has

    def renew(self, successors: list[NodeId]) -> Effects:
        neighbours = tuple(
            Life(link.peer, link.incarnation or link.expected)
            for link in self.links.links.values()
            if link.state != ASKED or link.expected
        )
        before, now = self.record, (self.me.incarnation, self.me.topics, neighbours)
        if (before.incarnation, before.topics, before.neighbours) != now:
            self.record = Record(self.me.incarnation, before.version + 1, self.me.topics, neighbours)
        version = self.record.version
        for link in self.links.links.values():
            if link.needs == -1:
                link.needs = version
        return self.push(successors, repeat=False)

    def push(self, successors: list[NodeId], *, repeat: bool = True) -> Effects:
        """To those who do not have it. `repeat`: also to those who have not answered yet."""
        self._known = {node: self._known.get(node, (0, 0)) for node in successors}
        self._tries = {node: tries for node, tries in self._tries.items() if node in self._known}
        self._unanswered &= self._known.keys()
        record = self.record
        missing = self._missing()
        effects: Effects = [Send(node, record) for node in missing if repeat or node not in self._unanswered]
        self._unanswered.update(missing)
        if self.config.helper_tries and missing and not self._is_waiting:
            self._is_waiting = True
            effects.append(SetTimer(RECORD_TIMER, self.config.ask_ms))
        return [*effects, *self._ready()]

    def on_timer(self) -> Effects:
        """Ask holders again that have not answered. After `helper_tries` links no longer wait for them.

        Such a holder may hang. It counts as one of the L nodes that may fail at once, as if it had crashed. It is still
        given the record once per period, and waited for again when it has answered.
        """
        self._is_waiting = False
        effects: Effects = []
        for node in self._missing():
            self._tries[node] = self._tries.get(node, 0) + 1
            if not self._is_skipped(node):
                effects.append(Send(node, self.record))
                self._is_waiting = True
        if self._is_waiting:
            effects.append(SetTimer(RECORD_TIMER, self.config.ask_ms))
        return [*effects, *self._ready()]

    def on_ok(self, sender: NodeId, ok: RecordOk) -> Effects:
        if sender in self._known and life_of(ok.incarnation) == life_of(self.me.incarnation):
            self._known[sender] = max(self._known[sender], (ok.life, ok.version))
            self._tries.pop(sender, None)
            self._unanswered.discard(sender)
            if self._version(sender) < self.record.version:  # what has changed meanwhile
                self._unanswered.add(sender)
                return [Send(sender, self.record), *self._ready()]
        return self._ready()

    def _version(self, holder: NodeId) -> int:
        """None, if it has started anew since."""
        life, version = self._known[holder]
        return version if life >= self.life_heard(holder) else 0

    def _ready(self) -> Effects:
        """What all holders have, without those that are not waited for."""
        waited_for = [node for node in self._known if not self._is_skipped(node)]
        version = min(map(self._version, waited_for), default=self.record.version)
        return self.links.on_record_known(version)

    def _missing(self) -> list[NodeId]:
        return [node for node in self._known if self._version(node) < self.record.version]

    def _is_skipped(self, holder: NodeId) -> bool:
        tries = self.config.helper_tries
        return tries > 0 and (self._tries.get(holder, 0) >= tries or self.is_quiet(holder))


@dataclass(eq=False)
class Held:
    record: Record
    gone_since: int | None = None  # the tick at which its repair was done
    neighbours: list[NodeId] = field(init=False)  # that it names

    def __post_init__(self) -> None:
        self.neighbours = [one.node for one in self.record.neighbours]


class HeldRecords:
    """What others have told us about themselves."""

    def __init__(self, life: int, keep_periods: int, entries_max: int = 1024) -> None:
        self.life, self.keep_periods, self.entries_max = life, keep_periods, entries_max
        self.held: dict[NodeId, Held] = {}
        self.old: dict[tuple[NodeId, int], Held] = {}  # of earlier lives

    def on_record(self, sender: NodeId, record: Record, tick: int) -> Effects:
        known = self.held.get(sender)
        if known is not None:
            if life_of(known.record.incarnation) < life_of(record.incarnation):
                known.gone_since = tick
                self._keep_old(sender, known)
            elif (known.record.incarnation, known.record.version) > (record.incarnation, record.version):
                return [self._ok(sender, record)]
        self.held[sender] = Held(record)
        if len(self.held) > self.entries_max:
            del self.held[next(iter(self.held))]
        return [self._ok(sender, record)]

    def _ok(self, owner: NodeId, record: Record) -> Send:
        return Send(owner, RecordOk(record.version, record.incarnation, self.life))

    def _keep_old(self, node: NodeId, held: Held) -> None:
        self.old[node, life_of(held.record.incarnation)] = held
        lives = [key for key in self.old if key[0] == node]  # in the order in which they ended
        for key in lives[:-LIVES_MAX]:
            del self.old[key]
        if len(self.old) > self.entries_max:
            del self.old[next(iter(self.old))]

    def of(self, node: NodeId, life: int) -> Record | None:
        """Of this life; 0: of the last one that we know."""
        found = self.held.get(node)
        if found is None or (life and life_of(found.record.incarnation) != life):
            found = self.old.get((node, life))
        return found.record if found is not None else None

    def before(self, node: NodeId, life: int) -> int | None:
        """The incarnation in which we knew a node before this life of it."""
        known = [held.record.incarnation for (name, _), held in self.old.items() if name == node]
        if node in self.held:
            known.append(self.held[node].record.incarnation)
        return max((incarnation for incarnation in known if life_of(incarnation) < life), default=None)

    def done(self, node: NodeId, life: int, tick: int) -> None:
        """It is mended: the record is kept for a while, for those who died beside it."""
        found = self.held.get(node)
        if found is not None and life_of(found.record.incarnation) == life and found.gone_since is None:
            found.gone_since = tick

    def forget_old(self, tick: int, near: set[NodeId]) -> None:
        """Those long gone, and those who are not `near` us any more and are alive elsewhere."""
        over = tick - self.keep_periods
        self.held = {node: one for node, one in self.held.items() if one.gone_since is None or one.gone_since > over}
        self.old = {key: one for key, one in self.old.items() if one.gone_since is None or one.gone_since > over}
        for node in [node for node, one in self.held.items() if one.gone_since is None and node not in near]:
            self.held[node].gone_since = tick  # out of range: its new holders have it by the time this one goes
