"""A start from a plan: links of an overlay that was made beforehand are opened while the nodes come up.

Nodes that all join at once cover their topics each by itself, which takes three times the links that LowODA needs. With
a plan a node opens its planned links instead, and does not join meanwhile.

Its neighbours start within seconds of it, not at the same instant: each is asked once per period until its link is up,
for at most `periods`. Then the plan is over. Where all links came and cover every topic there is nothing left to join;
else the node joins as any other does, for the topics that are not covered. Topics that are covered and yet split, since
a neighbour is absent or has other interests by now, are found by the net (`net.py`).

A restart is no start from a plan: its links were mended around meanwhile. No node remembers its earlier lives, but it
hears how old the others are: where most of them are older than `oldest`, the mesh stands already, and it just joins.
"""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Effects, NodeId
from trellis.protocols.omen.links import UP
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.parts import Parts


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    neighbours: tuple[NodeId, ...] = ()
    periods: int = 30  # for which neighbours are waited for
    oldest: int = 0  # the first life that has started together with us


class Planned:
    def __init__(self, parts: Parts, plan: Plan) -> None:
        self.parts, self.plan = parts, plan
        self.awaited = dict.fromkeys(peer for peer in plan.neighbours if peer != parts.me.id)
        self._interest = parts.me.interest  # that the plan is about

    @property
    def is_patient(self) -> bool:
        """Neighbours are still to come, and no topic needs any other link."""
        return bool(self.awaited) and not self.parts.me.interest & ~self._interest

    def tick(self) -> Effects:
        if not self.awaited:
            return []
        parts, links = self.parts, self.parts.links
        effects: Effects = []
        for peer in list(self.awaited):
            link = links.links.get(peer)
            if link is None:
                effects += links.hope_for(peer)
            elif link.state == UP:
                del self.awaited[peer]
                if not link.interest & parts.me.interest:  # one of us has other interests by now
                    effects += links.close(peer)
        if not self.awaited:
            parts.is_joining = bool(parts.me.wanted & ~links.covered())
        elif parts.ticks > self.plan.periods or self._is_late():
            self.awaited.clear()
        return effects

    def _is_late(self) -> bool:
        """Not where a few seeds were started first: then all others are young."""
        known = {**self.parts.sampling.table.entries, **self.parts.ring.tman.table.entries}.values()
        old = sum(life_of(one.incarnation) < self.plan.oldest for _, one in known)
        return 2 * old > len(known)
