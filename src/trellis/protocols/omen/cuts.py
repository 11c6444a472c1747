"""Cuts: a node looks whether its own loss would split a topic, and has the neighbors linked that would be apart.

Used with `connectivity` 2 only. Repairs and joins keep a topic two-connected if it was so before. It was not if two
nodes took up a topic at once, if the root rendezvous has linked two parts of it, if several repairs gave up, or if the
mesh started from links of another plan. All of these leave a topic with a node that cuts it. A topic is two-connected
exactly if none of its nodes cuts it, so it is enough that each node looks after itself.

A node looks at a topic when its neighbors on it have not changed for `cut_periods`, and for a few periods more, so that
linked nodes do not look at once. It starts a repair of kind `cut`, in which it counts itself as departed. So the repair
connects the neighbors without it. New links change the neighbors of other nodes, which then look in turn. The repair
gives up if it meets a node that has not joined yet: when a mesh starts from a plan, links are still to come.

| from    | to      | when                                                                             |
| ------- | ------- | -------------------------------------------------------------------------------- |
| -       | due     | our neighbors on a topic have changed, or the repair has given up                |
| due     | due     | they have changed again, or another repair runs here, or we join                 |
| due     | looking | `cut_periods` have passed: the repair starts                                     |
| due     | -       | we have fewer than two neighbors on the topic, or leave it: we cannot cut it     |
| looking | -       | the repair is done                                                               |
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.needs import Basics, Subscribers
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.repair import Departed, Repair
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.topics import places


class CutParts(Basics, Subscribers, Protocol):
    """What the look at cuts uses of the node."""

    random: Random
    is_joining: bool


class Cuts:
    """The topics that this node has to look at, and the repairs that do so."""

    def __init__(self, parts: CutParts, repairs: Repairs) -> None:
        self.parts, self.repairs = parts, repairs
        self._is_on = parts.config.is_twice and parts.config.cut_periods > 0
        self._near: dict[tuple[NodeId, int], int] = {}  # neighbor and its run -> the topics of ours that it has
        self._due: dict[int, int] = {}  # topic, by its index -> the tick at which we look

    @property
    def is_waiting(self) -> bool:
        """Whether a topic is due."""
        return bool(self._due)

    def tick(self) -> Outcomes:
        """Note which neighbors have changed, and look at the topics that are due. Called once per period."""
        if not self._is_on or self.parts.me.is_leaving:
            return []
        self._note(self._changed())
        ticks = self.parts.ticks
        bits = sum(1 << index for index, tick in self._due.items() if tick <= ticks)
        if not bits or self.parts.is_joining or self.repairs.running:
            return []
        self._due = {index: tick for index, tick in self._due.items() if tick > ticks}
        return self._look(bits & self.parts.me.wanted & self._shared_twice())

    def repair_done(self, repair: Repair | Join) -> None:
        """Look at the topics again later if the repair gave up."""
        if repair.kind == "cut" and repair.gave_up:
            self._note(self.parts.me.table.bits(repair.topics) & self.parts.me.interest)

    def _changed(self) -> int:
        """Return the topics on which our neighbors are others than in the last period."""
        me, links, near = self.parts.me, self.parts.links, dict[tuple[NodeId, int], int]()
        for link in links.up():
            if not link.is_closing:
                near[link.peer, run_of(link.incarnation)] = link.interest & me.interest
        changed = 0
        for peer in near.keys() | self._near.keys():
            changed |= near.get(peer, 0) ^ self._near.get(peer, 0)
        self._near = near
        return changed & me.interest

    def _note(self, topics: int) -> None:
        """Look at these topics after `cut_periods`, and up to as many periods more."""
        if topics:
            periods = self.parts.config.cut_periods
            tick = self.parts.ticks + periods + self.parts.random.randrange(periods)
            self._due |= dict.fromkeys(places(topics), tick)

    def _shared_twice(self) -> int:
        """Return the topics on which we have two neighbors or more: a node with one cannot cut a topic."""
        once = twice = 0
        for topics in self._near.values():
            twice |= once & topics
            once |= topics
        return twice

    def _look(self, bits: int) -> Outcomes:
        """Start a repair in which we ourselves count as departed on these topics."""
        if not bits:
            return []
        me, links = self.parts.me, self.parts.links
        repair = self.repairs.repair("cut", me.id, me.incarnation, me.table.topics(bits))
        repair.departed[me.id] = Departed(me.incarnation, frozenset(repair.topics), links.on(bits), True)
        return repair.start()
