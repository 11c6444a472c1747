"""SpiderCast in cycles word for word, for tests: the protocol's own nodes, and messages that all take equally long.

The kernels have the rules of `trellis.protocols.spidercast` in another form. Here its nodes run themselves, in the time
of the cycle engine, and draw from the same stream. So a whole run can be compared, draw by draw.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque

import msgspec

from reference.cycles_gossip import Chance
from trellis.protocols.effects import CancelTimer, Effects, Send, SetTimer
from trellis.protocols.membership import KnownInterests
from trellis.protocols.spidercast import NeighborConfig, SpiderCastNode
from trellis.protocols.spidercast.messages import Heartbeat, State
from trellis.protocols.topics import TopicTable

LATENCY = 10


class Drawn:
    """A Random whose draws come from a stream of the cycle engine."""

    def __init__(self, state: int) -> None:
        self.chance = Chance(state)

    def randrange(self, count: int) -> int:
        return self.chance.below(count)


class Mesh:
    """Nodes, their timers and their messages.

    In each millisecond first those timers run out that only end something, then messages arrive, then tasks have their
    turns. Heartbeats alone are heard at once, of one task after the other.
    """

    def __init__(
        self,
        wanted: dict[str, tuple[str, ...]],
        config: NeighborConfig,
        state: int,
        known: dict[str, list[str]],
        planned: set[tuple[str, str]],
    ) -> None:
        table, self.random, self.tick = TopicTable(), Drawn(state), 0
        interests = {name: table.own_bits(topics) for name, topics in wanted.items()}
        self.due: dict[int, dict[tuple[str, str], None]] = defaultdict(dict)  # turns and heartbeats, in order
        self.when: dict[tuple[str, str], int] = {}  # where each of them stands in `due`
        self.expires: dict[tuple[str, str], int] = {}  # quarantines and unanswered requests
        self.mail: deque[tuple[int, str, str, msgspec.Struct]] = deque()
        self.sent: Counter[str] = Counter()
        self.nodes = {}
        for name in sorted(wanted):
            view = KnownInterests(name, self.random, {peer: interests[peer] for peer in known[name]})
            first = sorted(v if u == name else u for u, v in planned if name in (u, v))
            self.nodes[name] = SpiderCastNode(
                name, wanted[name], self.random, config, view=view, table=table, neighbours=first
            )  # fmt: skip
        for name, node in self.nodes.items():
            self._perform(name, node.start())

    def run(self, ticks: int) -> None:
        for tick in range(self.tick, ticks):
            self.tick = tick
            for (name, tag), due in sorted(self.expires.items()):
                if due <= self.tick:
                    del self.expires[name, tag]
                    self._perform(name, self.nodes[name].on_timer(tag))
            while self.mail and self.mail[0][0] <= self.tick:
                _, sender, receiver, message = self.mail.popleft()
                self._perform(receiver, self.nodes[receiver].on_message(sender, message))
            now = self.due.pop(self.tick, {})
            self.due[self.tick] = now
            while now:
                name, tag = next(iter(now))
                del now[name, tag]
                effects = self.nodes[name].on_timer(tag)
                if tag == "heartbeat/tick":
                    self._beat(name, [one.message for one in effects if isinstance(one, Send)])
                    effects = [one for one in effects if not isinstance(one, Send)]
                self._perform(name, effects)
        self.tick = ticks
        for node in self.nodes.values():
            node.check()

    def _beat(self, name: str, beats: list[Heartbeat]) -> None:
        self.sent["Heartbeat"] += len(beats)
        for kind, task in self.nodes[name].tasks.items():
            for peer in list(task.neighbors):
                beat = Heartbeat(task.me.stamp, **{kind: State(len(task.neighbors), task.target)})
                self._perform(peer, self.nodes[peer].on_message(name, beat))

    def _perform(self, name: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                due = self.tick + effect.delay_ms
                if effect.tag.endswith(("/iterate", "/tick")):
                    self.due[self.when.pop((name, effect.tag), due)].pop((name, effect.tag), None)
                    self.due[due][name, effect.tag] = None
                    self.when[name, effect.tag] = due
                else:
                    self.expires[name, effect.tag] = due
            elif isinstance(effect, CancelTimer):
                self.expires.pop((name, effect.tag), None)
            elif isinstance(effect, Send):
                self.sent[type(effect.message).__name__] += 1
                self.mail.append((self.tick + LATENCY, name, effect.to, effect.message))
