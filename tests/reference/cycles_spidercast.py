"""SpiderCast in cycles word for word, for tests: the protocol's own nodes, and messages that all take equally long.

The kernels have the rules of `trellis.protocols.spidercast` in another form. Here its nodes run themselves, in the time
of the cycle engine, and draw from the same stream. So a whole run can be compared, draw by draw. With views by gossip
nodes have Newscast, and they may join, leave and crash. They may do so as well where all know at once who is there.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from typing import Any

import msgspec

from reference.cycles_gossip import Chance
from trellis.protocols.effects import CancelTimer, Effects, Send, SetTimer
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.membership import KnownInterests
from trellis.protocols.newscast import NewscastReply, NewscastRequest
from trellis.protocols.spidercast import NeighborConfig, SpiderCastNode
from trellis.protocols.spidercast.messages import Heartbeat, State
from trellis.protocols.topics import TopicTable

LATENCY, NOTICE = 10, 50
CONTACTS = 5


class Drawn:
    """A Random whose draws come from a stream of the cycle engine."""

    def __init__(self, state: int) -> None:
        self.chance = Chance(state)

    def randrange(self, count: int) -> int:
        return self.chance.below(count)

    def sample(self, among: list[str], count: int) -> list[str]:
        """The first places of a Fisher-Yates shuffle."""
        return self.chance.first(among, count)

    def getrandbits(self, bits: int) -> int:
        """A seed that nobody uses: it is no draw of the stream."""
        return 0


class Mesh:
    """Nodes, their timers and their messages.

    In each millisecond first those timers run out that only end something, then messages arrive, then tasks have their
    turns. Heartbeats alone are heard at once, of one task after the other, and so are exchanges of gossip. Neighbors of
    a node that has crashed are told before the messages of their millisecond.
    """

    def __init__(
        self,
        wanted: dict[str, tuple[str, ...]],
        config: NeighborConfig,
        state: int,
        known: dict[str, list[str]] | None,
        planned: set[tuple[str, str]],
        gossip: GossipViewConfig | None = None,
        gossip_state: int = 0,
        absent: Any = (),
    ) -> None:
        """known: whom each node knows; None: without gossip, all that are there."""
        self.table, self.random, self.tick = TopicTable(), Drawn(state), 0
        self.wanted, self.config, self.known = wanted, config, known
        self.gossip, self.gossip_random = gossip, Drawn(gossip_state)
        self.interests = {name: self.table.own_bits(topics) for name, topics in wanted.items()}
        self.incarnations: Counter[str] = Counter()
        self.notices: deque[tuple[int, str, str]] = deque()
        self.due: dict[int, dict[tuple[str, str], None]] = defaultdict(dict)  # turns and heartbeats, in order
        self.when: dict[tuple[str, str], int] = {}  # where each of them stands in `due`
        self.expires: dict[tuple[str, str], int] = {}  # quarantines and unanswered requests
        self.mail: deque[tuple[int, str, str, msgspec.Struct]] = deque()
        self.sent: Counter[str] = Counter()
        self.nodes: dict[str, SpiderCastNode] = {}
        starting = [name for name in sorted(wanted) if name not in absent]
        for name in starting:
            first = sorted(v if u == name else u for u, v in planned if name in (u, v))
            self._begin(name, starting, first)
        for name, node in self.nodes.items():
            self._perform(name, node.start())

    def _begin(self, name: str, living: list[str], first: list[str]) -> None:
        view, contacts = None, {}
        self.incarnations[name] += 1
        if self.gossip is None:
            known = living if self.known is None else self.known[name]
            view = KnownInterests(name, self.random, {peer: self.interests[peer] for peer in known})
            if self.known is None:
                for node in self.nodes.values():
                    node.view.learn(name, self.interests[name])
        while self.gossip is not None and len(contacts) < min(CONTACTS, len(living) - 1):
            one = living[self.gossip_random.randrange(len(living))]
            if one != name:
                contacts[one] = None
        node = self.nodes[name] = SpiderCastNode(
            name, self.wanted[name], self.random, self.config, view=view, table=self.table, neighbours=first,
            gossip=self.gossip, contacts=contacts, incarnation=self.incarnations[name],
        )  # fmt: skip
        if node.membership is not None:
            node.membership.random = node.membership.sampling.random = self.gossip_random
            node.membership.view.random = self.random
            first_ms = self.gossip_random.randrange(self.gossip.newscast.period_ms)
            node.membership.start = lambda: [SetTimer("newscast/exchange", first_ms)]

    def join(self, name: str) -> None:
        self._begin(name, sorted({*self.nodes, name}), [])
        self._perform(name, self.nodes[name].start())

    def leave(self, name: str) -> None:
        self._perform(name, [one for one in self.nodes[name].leave() if isinstance(one, Send)])
        self._stop(name)

    def crash(self, name: str) -> None:
        self._stop(name)
        for peer, node in sorted(self.nodes.items()):
            if name in node.links.tasks:
                self.notices.append((self.tick + NOTICE, peer, name))

    def _stop(self, name: str) -> None:
        del self.nodes[name]
        if self.gossip is None:
            for node in self.nodes.values():
                node.view.forget(name)
        for key in [key for key in self.when if key[0] == name]:
            self.due[self.when.pop(key)].pop(key, None)
        for key in [key for key in self.expires if key[0] == name]:
            del self.expires[key]

    def run(self, ticks: int) -> None:
        for tick in range(self.tick, ticks):
            self.tick = tick
            for (name, tag), due in sorted(self.expires.items()):
                if due <= self.tick:
                    del self.expires[name, tag]
                    self._perform(name, self.nodes[name].on_timer(tag))
            while self.notices and self.notices[0][0] <= self.tick:
                _, name, gone = self.notices.popleft()
                if name in self.nodes:
                    self._perform(name, self.nodes[name].on_peer_down(gone))
            while self.mail and self.mail[0][0] <= self.tick:
                _, sender, receiver, message = self.mail.popleft()
                if receiver in self.nodes:
                    self._perform(receiver, self.nodes[receiver].on_message(sender, message))
            now = self.due.pop(self.tick, {})
            self.due[self.tick] = now
            while now:
                name, tag = next(iter(now))
                del now[name, tag]
                told = self._states(name)
                effects = self.nodes[name].on_timer(tag)
                if tag == "heartbeat/tick":
                    beats = [one for one in effects if isinstance(one, Send) and isinstance(one.message, Heartbeat)]
                    self.sent["Heartbeat"] += len(beats)
                    self._beat(name, told)
                    effects = [one for one in effects if one not in beats]
                self._perform(name, effects)
        self.tick = ticks
        for node in self.nodes.values():
            node.check()

    def _states(self, name: str) -> list[tuple[str, Heartbeat]]:
        """The heartbeats of a node at this moment, of one task after the other."""
        return [
            (peer, Heartbeat(task.me.stamp, **{kind: State(len(task.neighbors), task.target)}))
            for kind, task in self.nodes[name].tasks.items()
            for peer in task.neighbors
        ]

    def _beat(self, name: str, told: list[tuple[str, Heartbeat]]) -> None:
        for peer, beat in told:
            if peer in self.nodes:
                self._perform(peer, self.nodes[peer].on_message(name, beat))

    def _perform(self, name: str, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                due = self.tick + effect.delay_ms
                if effect.tag.endswith(("/iterate", "/tick", "/exchange")):
                    self.due[self.when.pop((name, effect.tag), due)].pop((name, effect.tag), None)
                    self.due[due][name, effect.tag] = None
                    self.when[name, effect.tag] = due
                else:
                    self.expires[name, effect.tag] = due
            elif isinstance(effect, CancelTimer):
                self.expires.pop((name, effect.tag), None)
            elif isinstance(effect, Send):
                self.sent[type(effect.message).__name__] += 1
                if isinstance(effect.message, NewscastRequest | NewscastReply):
                    if effect.to in self.nodes:
                        self._perform(effect.to, self.nodes[effect.to].on_message(name, effect.message))
                    continue
                self.mail.append((self.tick + LATENCY, name, effect.to, effect.message))
