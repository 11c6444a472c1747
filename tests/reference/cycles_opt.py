"""OPT in cycles word for word, for tests: the protocol's own nodes, and messages that arrive at once.

The kernels have the rules of `trellis.protocols.opt` in another form. Here its nodes run themselves, in the passes of
the cycle engine. Their samples are those of the cycle engine, and so are their draws.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from reference.cycles_gossip import Chance
from trellis.cycles.newscast import ages_of, peers_of
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Effects, Send
from trellis.protocols.opt import OptConfig, OptNode
from trellis.protocols.topics import TopicTable


class Drawn:
    """A Random whose draws come from a stream of the cycle engine."""

    def __init__(self, state: int) -> None:
        self.chance = Chance(state)

    def randrange(self, count: int) -> int:
        return self.chance.below(count)


class Node(OptNode):
    """A node whose candidates are its table, its samples and what others tell.

    The protocol also lists those that hold a link to it. It never chooses one of these, unless the link has ended since
    the list was made.
    """

    def _renew_table(self) -> None:
        super()._renew_table()
        self.table.candidates = []


class Mesh:
    """Nodes, and how they act in a cycle."""

    def __init__(self, wanted: dict[str, tuple[str, ...]], config: OptConfig, tables: int, profiles: int) -> None:
        self.names, self.random, self.profiles = sorted(wanted), Drawn(tables), Chance(profiles)
        self.order, table, self.wanted = list(range(len(wanted))), TopicTable(), wanted
        make: Any = Node
        self.nodes: dict[str, Node] = {
            name: make(name, wanted[name], self.random, config, table=table) for name in self.names
        }

    def cycle(self, views: Any, order: list[int]) -> None:
        """Let all swap tables, then all send profiles. `order` is the order that Newscast left."""
        self.order = order
        for place, name in enumerate(self.names):
            sampled = self.nodes[name].sampling.table
            told = zip(peers_of(views, place).tolist(), ages_of(views, place).tolist(), strict=True)
            sampled.entries = {
                self.names[peer]: (sampled.round - age, Descriptor(self.names[peer], age, 1, self._wants(peer)))
                for peer, age in told
            }
        self.random.chance.shuffle(self.order)
        for place in self.order:
            self._carry_out(self.names[place], self.nodes[self.names[place]].on_timer("table/exchange"))
        self.profiles.shuffle(self.order)
        for place in self.order:
            self._carry_out(self.names[place], self.nodes[self.names[place]].on_timer("profile/tick"))

    def _wants(self, place: int) -> tuple[str, ...]:
        return self.wanted[self.names[place]]

    def _carry_out(self, name: str, effects: Effects) -> None:
        """Deliver what a node sends, and what is sent in answer, in the order of sending."""
        waiting = deque([(name, effects)])
        while waiting:
            sender, effects = waiting.popleft()
            self._forget_parted(sender)
            for effect in effects:
                if isinstance(effect, Send):
                    waiting.append((str(effect.to), self._receive(sender, str(effect.to), effect.message)))

    def _receive(self, sender: str, to: str, message: Any) -> Effects:
        effects = self.nodes[to].on_message(sender, message)
        self._forget_parted(to)
        return effects

    def _forget_parted(self, name: str) -> None:
        """Forget links that have ended. OPT's links do not linger, but their records do, without effect."""
        known = self.nodes[name].neighbors.all
        for peer in [peer for peer, one in known.items() if not one.firm]:
            del known[peer]
