"""Giving links up: a node with many links closes those that nothing needs, or hands them over.  [ours; docs/omen.md]

OMen never closes a link between two nodes that stay, so what repairs and joins add to a hub stays for good. With
`prune` a node of high degree asks the other ends of its links, one at a time:

    Spare ->                  our end counts on the link no more: no answer names it, no subscription rests on it
    <- SpareOk (or SpareNo)   nor does the other end, until we are through or `AGREED_PERIODS` have passed
    proof                     a repair as after a loss of this link (`mend.py`): each shared topic must connect both
                              ends by answers that are younger than both promises. One new link of the other end to a
                              node of lower degree may be part of it, and stands before anything is closed
    SpareNow ->               the other end closes the link, if its promise has held all the time
    <- Disconnect (or SpareNo)

Whatever goes wrong calls it off, which is safe: if the other end has closed it already, the link is opened again, as
any that was lost. Losing a link in this way is an event like a death, with proofs made of answers after it; so two
links of one cycle cannot both count on each other.

P1  we ask about one link at a time, and have promised one other node at most.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.protocols.effects import Effects, NodeId, Send
from trellis.protocols.omen.churn import Coordinator
from trellis.protocols.omen.links import UP, Link
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.mend import Mend
from trellis.protocols.omen.messages import Spare, SpareNo, SpareNow, SpareOk
from trellis.protocols.omen.parts import Parts

PAUSE = 2  # periods between two attempts
ASK_PERIODS = 4  # for which the other end is asked again
PROOF_PERIODS = 12
AGREED_PERIODS = 20  # more than all of these together
REST, REST_MAX = 16, 512  # periods until a link that is needed is tried again: twice as long each time
TAKERS = 5  # nodes that are asked to take a link over


@dataclass(eq=False)
class _Attempt:
    peer: NodeId
    number: int
    since: int  # the tick of its present state
    state: str = "asked"  # asked, proving, closing
    mend: int = 0


class Prune:
    def __init__(self, parts: Parts, coordinator: Coordinator) -> None:
        self.parts, self.coordinator = parts, coordinator
        self.attempt: _Attempt | None = None
        self.promise: tuple[NodeId, int, int] | None = None  # to whom, its number, the tick
        self.tried = self.closed = self.handed_over = 0
        self._rests: dict[NodeId, tuple[int, int]] = {}  # peer -> tick until which its link is left alone, pause
        self._numbers = 0

    # Our own attempts

    def tick(self) -> Effects:
        if not self.parts.config.prune:
            return []
        if self.promise is not None and self.parts.ticks - self.promise[2] > AGREED_PERIODS:
            self._break_promise()
        if self.attempt is not None:
            return self._go_on(self.attempt)
        if self.parts.ticks % PAUSE or not self._is_high():
            return []
        return self._begin()

    def _is_high(self) -> bool:
        parts, me = self.parts, self.parts.me
        degrees = [link.degree for link in parts.links.up()]
        if parts.is_joining or me.leaving or len(degrees) < 2:
            return False
        return me.degree > parts.config.prune * sum(degrees) / len(degrees)

    def _begin(self) -> Effects:
        """The link over which the fewest paths to roots lead, of those that we do not need ourselves."""
        parts = self.parts
        links = [link for link in parts.links.up() if not link.giving_up and link.interest & parts.me.interest]
        self._rests = {link.peer: self._rests[link.peer] for link in links if link.peer in self._rests}
        needed, used = parts.hints.needed(), parts.hints.used_by()
        free = [
            link for link in links if not needed.get(link.peer) and self._rests.get(link.peer, (0, 0))[0] <= parts.ticks
        ]
        if not free:
            return []
        link = min(free, key=lambda link: (used.get(link.peer, 0).bit_count(), parts.key(link.peer)))
        self._numbers += 1
        self.tried += 1
        self.attempt = _Attempt(link.peer, self._numbers, parts.ticks)
        link.giving_up = self._numbers
        return self._say(link.peer, Spare(self._numbers, parts.me.incarnation))

    def _go_on(self, attempt: _Attempt) -> Effects:
        link, late = self._link_of(attempt), self.parts.ticks - attempt.since
        if link is None:
            return self._over(attempt)
        if late > (PROOF_PERIODS if attempt.state == "proving" else ASK_PERIODS):
            return self.call_off()
        if attempt.state == "asked":
            return self._say(attempt.peer, Spare(attempt.number, self.parts.me.incarnation))
        if attempt.state == "closing":
            return self._say(attempt.peer, SpareNow(attempt.number, self.parts.me.incarnation))
        return []

    def on_ok(self, sender: NodeId, message: SpareOk) -> Effects:
        attempt, link = self.attempt, self.parts.links.links.get(sender)
        if attempt is None or link is None or (attempt.peer, attempt.number) != (sender, message.number):
            return []
        if attempt.state != "asked" or self._link_of(attempt) is None:
            return []
        me, hints = self.parts.me, self.parts.hints
        hints.avoid(sender)
        shared = me.interest & me.table.bits(message.topics)
        needs = shared & me.table.bits(message.needs)
        takers = self._takers(needs, sender) if needs else []
        if not shared or hints.needed().get(sender) or (needs and not takers):
            return self.call_off()
        mend = self.coordinator.new_mend("prune", sender, message.incarnation)
        mend.topics, mend.backups = me.table.topics(shared), takers
        mend.required_only = {me.id: None, sender: None}
        attempt.state, attempt.since, attempt.mend = "proving", self.parts.ticks, mend.number
        return mend.start()

    def _takers(self, topics: int, but: NodeId) -> list[NodeId]:
        """Nodes that have all these topics, and links to spare: neighbours, and others that are known."""
        parts, bits = self.parts, self.parts.me.table.bits
        degrees = {
            one.node: one.numbers[0] if one.numbers else 0
            for one in (*parts.sampling.descriptors(), *parts.views.known().values())
            if not topics & ~bits(one.interest)
        }
        degrees |= {link.peer: link.degree for link in parts.links.up() if not topics & ~link.interest}
        fit = [
            node
            for node, degree in degrees.items()
            if degree + 1 < parts.me.degree and node not in (but, parts.me.id) and not parts.believes_dead(node)
        ]
        return sorted(fit, key=lambda node: (degrees[node], parts.key(node)))[:TAKERS]

    def proven(self, mend: Mend) -> Effects:
        """The repair is over: it has shown that both ends are connected without their link, or it has not."""
        attempt = self.attempt
        if attempt is None or attempt.state != "proving" or attempt.mend != mend.number:
            return []
        link = self._link_of(attempt)
        if mend.gave_up or link is None:
            return self.call_off()
        link.told_to_close = True
        self.handed_over += bool(mend.opened)
        attempt.state, attempt.since = "closing", self.parts.ticks
        return self._say(attempt.peer, SpareNow(attempt.number, self.parts.me.incarnation))

    def call_off(self) -> Effects:
        """The link stays, and is named again."""
        attempt = self.attempt
        if attempt is None:
            return []
        link, self.attempt = self._link_of(attempt), None
        self._abandon(attempt)
        _, pause = self._rests.get(attempt.peer, (0, REST // 2))
        pause = min(2 * pause, REST_MAX)
        self._rests[attempt.peer] = (self.parts.ticks + pause, pause)
        if link is None:
            return []
        self.parts.links.give_up(link, 0)
        return self._say(attempt.peer, SpareNo(attempt.number, self.parts.me.incarnation))

    def _over(self, attempt: _Attempt) -> Effects:
        """The link is gone, or is another one: closed as agreed, or lost."""
        self.closed += attempt.state == "closing" and attempt.peer not in self.parts.links
        self.attempt = None
        self._abandon(attempt)
        return []

    def _abandon(self, attempt: _Attempt) -> None:
        mend = self.coordinator.mends.get(attempt.mend)
        if mend is not None:
            mend.abandon()

    # What others ask

    def on_spare(self, sender: NodeId, message: Spare) -> Effects:
        parts, me = self.parts, self.parts.me
        link = self._link_to(sender, message.incarnation)
        if link is None or not parts.config.prune or parts.is_joining or me.leaving or self._is_bound(sender):
            return self._say(sender, SpareNo(message.number, me.incarnation))
        if message.number <= link.kept:
            return self._say(sender, SpareNo(message.number, me.incarnation))
        parts.links.give_up(link, message.number)
        self.promise = (sender, message.number, parts.ticks)
        needs = me.table.topics(parts.hints.needed().get(sender, 0))
        return self._say(sender, SpareOk(message.number, me.incarnation, me.topics, needs))

    def on_now(self, sender: NodeId, message: SpareNow) -> Effects:
        link, promise = self._link_to(sender, message.incarnation), self.promise
        promised = promise is not None and promise[:2] == (sender, message.number)
        if link is None or not promised or link.giving_up != message.number:
            return self._say(sender, SpareNo(message.number, self.parts.me.incarnation))
        self.promise = None
        return self.parts.links.close(sender)

    def on_no(self, sender: NodeId, message: SpareNo) -> Effects:
        if self.promise is not None and self.promise[:2] == (sender, message.number):
            self._break_promise()
        attempt = self.attempt
        if attempt is not None and (attempt.peer, attempt.number) == (sender, message.number):
            return self.call_off()
        return []

    def interest_changed(self) -> Effects:
        """Nothing is given up on the strength of what we wanted before."""
        if self.promise is not None:
            self._break_promise()
        return self.call_off()

    def check(self) -> None:
        bound = {link.peer for link in self.parts.links.links.values() if link.giving_up}
        known = {self.attempt.peer} if self.attempt is not None else set()
        if self.promise is not None:
            known.add(self.promise[0])
        assert bound <= known, f"P1: {self.parts.me.id} gives up {sorted(bound - known)} without knowing"

    def _is_bound(self, sender: NodeId) -> bool:
        """To another node; or we ask about the same link, and whoever comes second says no."""
        asking = self.attempt is not None and self.attempt.peer == sender
        if self.promise is None or self.promise[0] == sender:
            return asking
        return asking or self._link_of_promise() is not None

    def _break_promise(self) -> None:
        link = self._link_of_promise()
        if link is not None:
            link.kept = link.giving_up
            self.parts.links.give_up(link, 0)
        self.promise = None

    def _link_of_promise(self) -> Link | None:
        if self.promise is None:
            return None
        link = self.parts.links.links.get(self.promise[0])
        return link if link is not None and link.giving_up == self.promise[1] else None

    def _link_of(self, attempt: _Attempt) -> Link | None:
        """The link that this attempt is about, if it still is the same one."""
        link = self.parts.links.links.get(attempt.peer)
        return link if link is not None and link.state == UP and link.giving_up == attempt.number else None

    def _link_to(self, peer: NodeId, incarnation: int) -> Link | None:
        link = self.parts.links.links.get(peer)
        same = link is not None and link.state == UP and life_of(link.incarnation) == life_of(incarnation)
        return link if same else None

    def _say(self, peer: NodeId, message: Spare | SpareOk | SpareNo | SpareNow) -> Effects:
        return [Send(peer, message)]
