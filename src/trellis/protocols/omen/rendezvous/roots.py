"""The root rendezvous (`homes.py`), as a root that reports and as the home location that takes reports.

`OMenNode` calls `tick` once per period and passes on the three messages. Topics of ours are keyed by their bit index in
the topic table.

Deviation: the paper has no fallback below its repairs.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId, Send, Topic
from trellis.protocols.omen.links.hints import Hints, root_key
from trellis.protocols.omen.membership.suspects import Suspects
from trellis.protocols.omen.messages import RootHeard, RootMeet, RootReport
from trellis.protocols.omen.needs import Basics, Beliefs, Routing, Subscribers
from trellis.protocols.omen.rendezvous.homes import Homes
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.ring import identifier

ALONE_PATIENCE = 5  # Periods that a node without a neighbor on a topic waits for the repair after its subscription.
JOIN_PATIENCE = 40  # The same for a node whose join is not over.
HOMES_MAX = 65_536  # Most topics whose home location is remembered.


class RootsParts(Basics, Beliefs, Routing, Subscribers, Protocol):
    """What the root rendezvous uses of the node."""

    hints: Hints
    suspects: Suspects
    is_joining: bool


class Roots:
    """Reports topics of which this node is the root, and answers the reports of others."""

    def __init__(self, parts: RootsParts, repairs: Repairs) -> None:
        self.parts, self.repairs = parts, repairs
        self._met: dict[int, NodeId] = {}  # topic that no neighbor has -> another root of it that we must link to
        self.homes = Homes(parts.config.root_beat)
        self._home_of: dict[Topic, NodeId] = {}  # The home location that has answered our last report.
        self._due: dict[int, int] = {}  # topic -> the tick of our next report
        self._alone: dict[int, int] = {}  # topic -> the last tick at which we had no neighbor on it
        self._predecessor = parts.ring.predecessor  # At the last tick. Our range of the ring begins behind it.

    def tick(self) -> Outcomes:
        """Report topics of which we have been the root for long enough. Link to roots that we were told of."""
        parts = self.parts
        effects = [*self._cover_met(), *self._hand_on()]
        if not parts.config.net or parts.ticks % parts.config.net_periods:
            return effects
        self.homes.forget_old(parts.ticks)
        me = parts.me
        alone_patience = JOIN_PATIENCE if parts.is_joining else ALONE_PATIENCE
        covered = parts.links.covered()
        since_when = parts.hints.root_since
        self._alone = {index: tick for index, tick in self._alone.items() if index in since_when}
        self._due = {index: tick for index, tick in self._due.items() if index in since_when}
        for index, since in parts.hints.root_since.items():
            alone = not covered >> index & 1
            if alone:
                self._alone[index] = parts.ticks
            elif index in self._alone:  # Until the hints of a new neighbor come, we still seem to be a root.
                since = max(since, self._alone[index])
            patience = alone_patience if alone else parts.config.root_patience
            if parts.ticks - since < patience or me.leaving >> index & 1:
                continue
            topic = me.table.names[index]
            home = self._home_of.get(topic)
            is_lost = home is not None and home in parts.suspects.incarnations
            if parts.ticks < self._due.get(index, 0) and not is_lost:
                continue
            self._due[index] = parts.ticks + parts.config.net_periods
            self._home_of.pop(topic, None)  # If the home does not answer, the next report is routed on the ring.
            report = RootReport(topic, me.id, 0)
            if home is not None and not is_lost:
                effects.append(Send(home, report))
            else:
                effects += parts.route(identifier(topic), report)
        return effects

    def on_report(self, message: RootReport) -> Outcomes:
        """Answer a root's report, and tell the other roots about it. Pass it on if we are not the topic's home."""
        parts, position = self.parts, identifier(message.topic)
        if parts.ring.responsible(position) != parts.me.id:
            if message.hops >= parts.config.hops_max:
                return []
            return parts.route(position, msgspec.structs.replace(message, hops=message.hops + 1))
        topic, root = message.topic, message.root
        others = self.homes.report(topic, root, parts.ticks)
        return [Send(root, RootHeard(topic)), *[Send(other, RootMeet(topic, root)) for other in others]]

    def on_heard(self, sender: NodeId, message: RootHeard) -> Outcomes:
        """Remember the home location of a topic. Our next report is due after `root_beat` periods."""
        me = self.parts.me
        bit = me.table.known(message.topic)
        if bit & me.interest and len(self._home_of) < HOMES_MAX:
            self._home_of[message.topic] = sender
            self._due[bit.bit_length() - 1] = self.parts.ticks + self.parts.config.root_beat
        return []

    def on_meet(self, message: RootMeet) -> Outcomes:
        """Connect our part of a topic with another part, whose root the message names.

        The root of greater key links to the other. If our key is smaller, we tell the other root about us, so that it
        links to us. If we are no longer a root, we pass the message on to our own root, which has a smaller key. We do
        nothing if our root is the one that the message names.
        """
        me = self.parts.me
        index = me.table.known(message.topic).bit_length() - 1  # -1: a topic that our table does not know
        path = self.parts.hints.paths.get(index)
        if path and path[-1] != message.root:
            return [Send(path[-1], message)]
        if index not in self.parts.hints.root_since or me.leaving >> index & 1:
            return []
        if root_key(message.topic, me.id) < root_key(message.topic, message.root):
            return [Send(message.root, RootMeet(message.topic, me.id))]
        if not self.parts.links.covered() >> index & 1:
            self._met[index] = message.root
            return []
        return self.parts.links.open(message.root)

    def _hand_on(self) -> Outcomes:
        """Pass the reports of roots on to the new homes of topics for which we are no longer responsible.

        The roots themselves would report there up to `root_beat` periods later. After a partition has healed, topics
        would stay split until then.
        """
        parts = self.parts
        if parts.ring.predecessor == self._predecessor:
            return []
        self._predecessor = parts.ring.predecessor
        effects: Outcomes = []
        for topic in list(self.homes.roots):
            home = parts.ring.responsible(identifier(topic))
            if home != parts.me.id:
                roots = self.homes.give_up(topic, parts.ticks)
                effects += [Send(home, RootReport(topic, root, 0)) for root in roots if not parts.believes_dead(root)]
        return effects

    def _cover_met(self) -> Outcomes:
        """Link to the roots that we were told of, on topics that no neighbor of ours has.

        One join does this for all of them, every other period, because one link may serve several topics.
        """
        parts = self.parts
        if not self._met or parts.ticks % 2:
            return []
        alone = parts.me.wanted & ~parts.links.covered()
        met = {index: root for index, root in self._met.items() if alone >> index & 1}
        self._met = {}
        if not met:
            return []
        bits = sum(1 << index for index in met)
        known = list(dict.fromkeys([*met.values(), *parts.known_subscribers(bits)]))
        return self.repairs.join(parts.me.id, parts.me.incarnation, parts.me.table.topics(bits), known).start()
