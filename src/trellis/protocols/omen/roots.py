"""The two ends of the net: roots that report, and the home location that they report to (`net.py`)."""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Effects, NodeId, Send, Topic
from trellis.protocols.omen.messages import RootHeard, RootMeet, RootReport
from trellis.protocols.omen.net import Homes
from trellis.protocols.omen.parts import Parts
from trellis.protocols.ring import identifier

ALONE_PATIENCE = 5  # periods that a node without a neighbour on a topic waits for its join
HOMES_MAX = 65_536


class Roots:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.homes = Homes(parts.config.net_periods)
        self._home_of: dict[Topic, NodeId] = {}

    def tick(self) -> Effects:
        parts = self.parts
        if not parts.config.net or parts.ticks % parts.config.net_periods:
            return []
        self.homes.forget_old(parts.ticks)
        me = parts.me
        effects: Effects = []
        covered = parts.links.covered()
        for place, since in parts.hints.root_since.items():
            alone = not covered >> place & 1
            patience = ALONE_PATIENCE if alone else parts.config.root_patience
            if parts.ticks - since < patience or me.leaving >> place & 1:
                continue
            topic = me.table.names[place]
            report = RootReport(topic, me.id, me.incarnation, alone, 0)
            home = self._home_of.pop(topic, None)  # looked for anew if it does not answer
            if home is not None and home not in parts.suspects.incarnations:
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
        other = self.homes.report(message.topic, message.root, message.incarnation, parts.ticks)
        effects: Effects = [Send(message.root, RootHeard(message.topic))]
        if other is not None:
            effects.append(Send(message.root, RootMeet(message.topic, other)))
        return effects

    def on_heard(self, sender: NodeId, message: RootHeard) -> Effects:
        if len(self._home_of) < HOMES_MAX:
            self._home_of[message.topic] = sender
        return []

    def on_meet(self, message: RootMeet) -> Effects:
        """There is another part of this topic, with that root."""
        me = self.parts.me
        place = me.table.bit(message.topic).bit_length() - 1
        if place not in self.parts.hints.root_since or me.leaving >> place & 1:
            return []
        return self.parts.links.open(message.root)
