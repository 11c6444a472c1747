"""Changes of our own topics: links for topics that we take up, and repairs around us for topics that we leave.

A topic that a neighbor has costs nothing when we take it up. All others are linked by one join, limited to them. With
`connectivity` 2, two neighbors must have it.

A topic that we leave stays ours until one repair has connected the other subscribers without us: we relay it meanwhile.
In that repair we ourselves count as departed on the topic. These are the states of a topic that we leave:

| from      | to        | when                                                                                        |
| --------- | --------- | ------------------------------------------------------------------------------------------- |
| wanted    | leaving   | `unsubscribe`: the repair starts                                                            |
| leaving   | leaving   | the repair gave up, or a repair of another node has linked us on the topic: we repair again |
| leaving   | postponed | the repair is over, but a coordinator may count on us for the topic                         |
| postponed | leaving   | no coordinator counts on us any more: we repair again                                       |
| leaving   | left      | the repair is over, and no coordinator counts on us, or that was so too often               |
| any       | wanted    | `subscribe`                                                                                 |

`Me.leaving` has the topics that are leaving or postponed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from trellis.protocols.effects import Topic
from trellis.protocols.omen.needs import Basics, Routing, Subscribers
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.repair import Departed, Repair
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import Outcomes

POSTPONEMENTS_MAX = 8  # After so many postponements in a row, topics are left even if coordinators count on us.


class InterestParts(Basics, Routing, Subscribers, Protocol):
    """What changes of our topics use of the node."""

    def take_part(self, interest: int) -> Outcomes:
        """Change the topics that this node takes part in, to exactly these."""
        ...


class Interest:
    """The changes of our topics that are under way."""

    def __init__(self, parts: InterestParts, repairs: Repairs, was_asked: Callable[[int], bool]) -> None:
        """Create it without changes. `was_asked` returns whether a coordinator may count on us for these topics."""
        self.parts, self.me, self.links, self.repairs, self.was_asked = parts, parts.me, parts.links, repairs, was_asked
        self._leaving_by: dict[int, int] = {}  # number of a repair -> topics that we leave when it is over
        self._postponed = 0  # Topics that we leave once no coordinator counts on us for them.
        self._postponements = 0  # Postponements since topics were last left.

    def subscribe(self, topics: Iterable[Topic]) -> Outcomes:
        """Take part in these topics, and look for one link on those that no neighbor has.  [A-OMN-23]"""
        me, bits = self.me, self.me.table.own_bits(topics)
        me.leaving &= ~bits
        for number in self._leaving_by:
            self._leaving_by[number] &= ~bits
        new = bits & ~me.interest
        if not new:
            return []
        changed = self.parts.take_part(me.interest | new)
        return [*changed, *self.links.interest_changed(tuple(self.parts.ring.successors)), *self.find_link(new)]

    def find_link(self, topics: int) -> Outcomes:
        """Start a join that links us on those of these topics that no neighbor has, or just one (`connectivity` 2)."""
        alone = topics & ~self.links.covered(self.parts.config.connectivity)
        known = self.parts.known_subscribers(alone) if alone else []
        if not known:  # The root rendezvous finds another subscriber, if there is one.
            return []
        return self.repairs.join(self.me.id, self.me.incarnation, self.me.table.topics(alone), known).start()

    def unsubscribe(self, topics: Iterable[Topic]) -> Outcomes:
        """Begin to leave these topics. We relay them until one repair has linked the others.  [A-OMN-23]"""
        bits = self.me.table.bits(tuple(topics)) & self.me.wanted
        if not bits:
            return []
        self.me.leaving |= bits
        return self._leave(bits)

    def _leave(self, bits: int) -> Outcomes:
        """Start a repair in which we ourselves count as departed on these topics. `repair_done` leaves them."""
        me = self.me
        repair = self.repairs.repair("unsubscribe", me.id, me.incarnation, me.table.topics(bits))
        repair.departed[me.id] = Departed(me.incarnation, frozenset(repair.topics), self.links.on(bits), True)
        repair.backups = self.parts.known_subscribers(bits)
        self._leaving_by[repair.number] = bits
        return repair.start()

    def repair_done(self, repair: Repair | Join) -> Outcomes:
        """Leave the topics of a repair that is over, unless a coordinator may count on us.

        We repair again if the repair gave up, or if a repair of another node has linked us on these topics meanwhile:
        then our new neighbor there must be linked to the others as well.
        """
        left = self._leaving_by.pop(repair.number, 0) & self.me.leaving
        if not left or self.me.is_leaving or not isinstance(repair, Repair):
            return []
        if repair.gave_up or self.links.on(left).keys() - repair.departed[self.me.id].neighbors.keys():
            return self._leave(left)
        if self.was_asked(left) and self._postponements < POSTPONEMENTS_MAX:
            self._postponements += 1
            self._postponed |= left
            return []
        self._postponements = 0
        self.me.leaving &= ~left
        changed = self.parts.take_part(self.me.interest & ~left)
        return [*changed, *self.links.interest_changed(tuple(self.parts.ring.successors))]

    def tick(self) -> Outcomes:
        """Leave postponed topics if no coordinator counts on us for them any more. Called once per period."""
        postponed = self._postponed & self.me.leaving
        if not postponed or self.was_asked(postponed):
            return []
        self._postponed = 0
        return self._leave(postponed)
