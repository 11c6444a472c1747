"""The start of a mesh from a plan: each node opens the links of an overlay that was computed beforehand.

If all nodes of a mesh join at once, each covers its topics by itself. That takes three times the links that LowODA
needs. With a plan, a node opens its planned links instead, and does not join meanwhile.

The neighbors start within seconds of the node, not at the same instant. So each is asked once per period until its link
is up, for at most `periods`. Then the plan is over. If all links are up and cover every topic, the node need not join.
Otherwise it joins like any other node, for the topics that are not covered. A topic may be covered and still be split,
because a neighbor is absent or has other topics by now. The root rendezvous finds that (`homes.py`).

A node that restarts must not follow its plan, because its links were repaired around meanwhile. A node does not
remember its earlier runs, but gossip tells when others were started. If most of them were started before `oldest`, the
mesh exists already, and the node just joins.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId
from trellis.protocols.newscast import Newscast
from trellis.protocols.omen.links.link import UP
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.needs import Basics, Routing
from trellis.protocols.omen.signals import Outcomes


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The planned links of one node."""

    neighbours: tuple[NodeId, ...] = ()
    periods: int = 30  # Periods for which neighbors are waited for.
    oldest: int = 0  # The smallest run number of a node that was started together with us. Run numbers grow with time.


class PlannedParts(Basics, Routing, Protocol):
    """What planned links use of the node."""

    sampling: Newscast
    is_joining: bool


class Planned:
    """Opens planned links. Without a plan it does nothing."""

    def __init__(self, parts: PlannedParts, plan: Plan) -> None:
        self.parts, self.plan = parts, plan
        self.awaited = dict.fromkeys(peer for peer in plan.neighbours if peer != parts.me.id)  # Links that are not up.
        self._interest = parts.me.interest  # The topics for which the plan was made.

    @property
    def is_patient(self) -> bool:
        """Whether planned links are still awaited, and all our topics were known to the plan."""
        return bool(self.awaited) and not self.parts.me.interest & ~self._interest

    def tick(self) -> Outcomes:
        """Ask for planned links that are not up. End the plan when all are up, or when it is too late for it."""
        if not self.awaited:
            return []
        parts, links = self.parts, self.parts.links
        effects: Outcomes = []
        for peer in list(self.awaited):
            link = links.links.get(peer)
            if link is None:
                effects += links.hope_for(peer)
            elif link.state == UP:
                del self.awaited[peer]
                if not link.interest & parts.me.interest:  # One of us has other topics by now.
                    effects += links.close(peer)
        if not self.awaited:
            parts.is_joining = bool(parts.me.wanted & ~links.covered())
        elif parts.ticks > self.plan.periods or self._is_late():
            self.awaited.clear()
        return effects

    def _is_late(self) -> bool:
        """Return whether most nodes that we know were started before `oldest`, so that the mesh exists already.

        A few seeds that were started first do not make it late.
        """
        known = {**self.parts.sampling.table.entries, **self.parts.ring.tman.table.entries}.values()
        old = sum(run_of(one.incarnation) < self.plan.oldest for _, one in known)
        return 2 * old > len(known)
