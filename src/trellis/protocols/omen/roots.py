"""The two ends of the net: roots that report, and the home location that they report to (`net.py`).

Deviation: the paper has no fallback below its repairs.
"""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Effects, NodeId, Send, Topic
from trellis.protocols.omen.churn import Coordinator
from trellis.protocols.omen.hints import root_key
from trellis.protocols.omen.messages import RootHeard, RootMeet, RootReport
from trellis.protocols.omen.net import Homes
from trellis.protocols.omen.parts import Parts
from trellis.protocols.ring import identifier

ALONE_PATIENCE = 5  # periods that a node without a neighbour on a topic waits for its subscription to be served
JOIN_PATIENCE = 40  # and for its join
HOMES_MAX = 65_536


class Roots:
    def __init__(self, parts: Parts, coordinator: Coordinator) -> None:
        self.parts, self.coordinator = parts, coordinator
        self._met: dict[int, NodeId] = {}  # place of a topic that no neighbour has -> a root of it
        self.homes = Homes(parts.config.root_beat)
        self._home_of: dict[Topic, NodeId] = {}
        self._due: dict[int, int] = {}  # place of a topic -> the tick of our next report
        self._alone: dict[int, int] = {}  # place of a topic -> when we were last seen to have no neighbour on it
        self._predecessor = parts.ring.predecessor  # at the last tick: our range of the ring begins behind it

    def tick(self) -> Effects:
        parts = self.parts
        effects = [*self._cover_met(), *self._hand_on()]
        if not parts.config.net or parts.ticks % parts.config.net_periods:
            return effects
        self.homes.forget_old(parts.ticks)
        me = parts.me
        alone_patience = JOIN_PATIENCE if parts.is_joining else ALONE_PATIENCE
        covered = parts.links.covered()
        since_when = parts.hints.root_since
        self._alone = {place: tick for place, tick in self._alone.items() if place in since_when}
        self._due = {place: tick for place, tick in self._due.items() if place in since_when}
        for place, since in parts.hints.root_since.items():
            alone = not covered >> place & 1
            if alone:
                self._alone[place] = parts.ticks
            elif place in self._alone:  # hints of a new neighbour take their time: before, a joiner is always a root
                since = max(since, self._alone[place])
            patience = alone_patience if alone else parts.config.root_patience
            if parts.ticks - since < patience or me.leaving >> place & 1:
                continue
            topic = me.table.names[place]
            home = self._home_of.get(topic)
            is_lost = home is not None and home in parts.suspects.incarnations
            if parts.ticks < self._due.get(place, 0) and not is_lost:
                continue
            self._due[place] = parts.ticks + parts.config.net_periods
            self._home_of.pop(topic, None)  # looked for anew if it does not answer
            report = RootReport(topic, me.id, 0)
            if home is not None and not is_lost:
                effects.append(Send(home, report))
            else:
                effects += parts.route(identifier(topic), report)
        return effects

    def on_report(self, message: RootReport) -> Effects:
        parts, place = self.parts, identifier(message.topic)
        if parts.ring.responsible(place) != parts.me.id:
            if message.hops >= parts.config.hops_max:
                return []
            return parts.route(place, msgspec.structs.replace(message, hops=message.hops + 1))
        topic, root = message.topic, message.root
        others = self.homes.report(topic, root, parts.ticks)
        return [Send(root, RootHeard(topic)), *[Send(other, RootMeet(topic, root)) for other in others]]

    def on_heard(self, sender: NodeId, message: RootHeard) -> Effects:
        me = self.parts.me
        bit = me.table.known(message.topic)
        if bit & me.interest and len(self._home_of) < HOMES_MAX:
            self._home_of[message.topic] = sender
            self._due[bit.bit_length() - 1] = self.parts.ticks + self.parts.config.root_beat
        return []

    def on_meet(self, message: RootMeet) -> Effects:
        """There is another part of this topic, with that root. The root of greater key links to the other.

        The one of smaller key passes the word on: the other may be no root any more. A node that is no root any more
        passes it on to its own root, whose key is smaller, unless that is the root which it has heard of.
        """
        me = self.parts.me
        place = me.table.known(message.topic).bit_length() - 1  # -1: of no topic that we have heard of
        path = self.parts.hints.paths.get(place)
        if path and path[-1] != message.root:
            return [Send(path[-1], message)]
        if place not in self.parts.hints.root_since or me.leaving >> place & 1:
            return []
        if root_key(message.topic, me.id) < root_key(message.topic, message.root):
            return [Send(message.root, RootMeet(message.topic, me.id))]
        if not self.parts.links.covered() >> place & 1:
            self._met[place] = message.root
            return []
        return self.parts.links.open(message.root)

    def _hand_on(self) -> Effects:
        """Tell the new homes of topics that are not ours any more which roots have reported to us.

        The roots themselves would tell them up to `root_beat` periods later. Two parts of a mesh that was cut would
        be linked, and their topics still split.
        """
        parts = self.parts
        if parts.ring.predecessor == self._predecessor:
            return []
        self._predecessor = parts.ring.predecessor
        effects: Effects = []
        for topic in list(self.homes.roots):
            home = parts.ring.responsible(identifier(topic))
            if home != parts.me.id:
                roots = self.homes.give_up(topic, parts.ticks)
                effects += [Send(home, RootReport(topic, root, 0)) for root in roots if not parts.believes_dead(root)]
        return effects

    def _cover_met(self) -> Effects:
        """Roots of topics that no neighbour of ours has: looked at together, since one link may serve several."""
        parts = self.parts
        if not self._met or parts.ticks % 2:
            return []
        alone = parts.me.wanted & ~parts.links.covered()
        met = {place: root for place, root in self._met.items() if alone >> place & 1}
        self._met = {}
        if not met:
            return []
        bits = sum(1 << place for place in met)
        mend = self.coordinator.new_mend("join", parts.me.id, parts.me.incarnation)
        mend.topics = parts.me.table.topics(bits)
        mend.backups = list(dict.fromkeys([*met.values(), *parts.known_subscribers(bits)]))
        return mend.start()
