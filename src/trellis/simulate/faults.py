"""Carry out a schedule on a running engine: choose nodes where the schedule names none, and end faults that last.

The node that a fault hits is chosen when the fault happens, from a random stream of its own: (seed, "fault", index in
the schedule). `happened` is the schedule as it took place, with all names. It replays without any choice, so a shrinker
can drop faults one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import msgspec

from trellis import ids
from trellis.protocols.effects import NodeId, Topic
from trellis.simulate.engine import Engine
from trellis.simulate.network import Condition
from trellis.simulate.schedule import Fault, Schedule

# Kinds that are counted by the messages that they affected, not by the number of faults.
NETWORK_KINDS = ("loss", "asymmetric-loss", "duplicate", "reorder", "partition")
RETURN_MS = 100  # how often a node that is to join looks whether its previous incarnation has left


class Injector:
    """Schedules the faults of a schedule on the engine. `heal` ends all faults that still last."""

    def __init__(self, engine: Engine, schedule: Schedule, *, down_share_max: float = 1.0) -> None:
        self.engine, self.schedule, self.down_share_max = engine, schedule, down_share_max
        self.counts: Counter[str] = Counter()  # faults that happened, by kind
        self.skipped = 0
        self._is_over = False
        self._crashed: Counter[str] = Counter()  # crashed nodes, by kind of fault
        self._formed_before: int | None = None  # `links_formed` of the engine when the first fault happened
        self._happened: list[Fault] = []
        self._down: dict[NodeId, tuple[Topic, ...]] = {}  # crashed nodes that will restart -> their topics
        self._paused: dict[NodeId, None] = {}
        self._leaving: dict[NodeId, object] = {}  # nodes that leave in order -> their actors, which may linger
        self._away: dict[NodeId, dict[Topic, None]] = {}  # topics that a node has left and will subscribe to again
        # nodes that join as soon as they have left -> index of that fault in the schedule
        self._returning: dict[NodeId, int] = {}
        self._apply: dict[str, Callable[[Fault, Random], Fault | None]] = {
            "restart": self._restart,
            "pause": self._pause,
            "leave": self._leave,
            "join": self._join,
            "interest": self._interest,
            "return": self._return,
            "subscribe": self._topics,
            "unsubscribe": self._topics,
            "publish": self._publish,
            "loss": self._condition,
            "asymmetric-loss": self._condition,
            "duplicate": self._condition,
            "reorder": self._condition,
            "partition": self._condition,
            "slow": self._slow,
        }
        for place, fault in enumerate(schedule.faults):
            engine.at(fault.time_ms, self._happen, place, fault)

    @property
    def happened(self) -> Schedule:
        return Schedule(tuple(self._happened), self.schedule.absent)

    @property
    def links_formed_since_first(self) -> int:
        """Return the number of links formed since the first fault, which is the effort of the repairs."""
        return 0 if self._formed_before is None else self.engine.links_formed - self._formed_before

    def heal(self) -> None:
        """End all faults that still last.

        The network loses its conditions, paused nodes resume, nodes of `restart` faults restart, and nodes of `return`
        faults subscribe again.
        """
        self._is_over = True
        self.engine.network.heal()
        for name in sorted(self._paused):
            self.engine.resume(name)
        self._paused.clear()
        for name in sorted(self._down):
            self._back(name)
        for name, topics in sorted(self._away.items()):
            self._take_up(name, tuple(topics))

    def injected(self) -> dict[str, int]:
        """Return how often each kind took effect. Crashes count by node, faults of the network by message."""
        effects = self.engine.network.effects
        return {
            kind: self._crashed[kind] or (effects[kind] if kind in NETWORK_KINDS else count)
            for kind, count in sorted(self.counts.items())
        }

    def _happen(self, place: int, fault: Fault) -> None:
        """Carry out a fault at its time, or later if its node must leave first. Count it if it took effect."""
        if self._formed_before is None:
            self._formed_before = self.engine.links_formed
        if fault.nodes and self._must_go_first(place, fault):
            now_ms = self.engine.world.now_ms + RETURN_MS
            self.engine.at(now_ms, self._happen, place, msgspec.structs.replace(fault, time_ms=now_ms))
            return
        random = Random(ids.stream(self.engine.world.seed, "fault", place))
        done = self._crash(fault, random) if fault.kind.startswith("crash") else self._apply[fault.kind](fault, random)
        if done is None:
            self.skipped += 1
            return
        self._happened.append(done)
        self.counts["interest" if done.kind in ("subscribe", "unsubscribe") else done.kind] += 1
        self._crashed[done.kind] += len(done.nodes) if done.kind.startswith("crash") else 0
        for watcher in self.engine.watchers:
            watcher.on_fault(done.kind, done.nodes, _text(done))

    # Faults of nodes

    def _crash(self, fault: Fault, random: Random) -> Fault | None:
        nodes = fault.nodes or self._victims(fault, random)
        hit = tuple(name for name in nodes if self._may_go(name) and self.engine.crash(name))
        return msgspec.structs.replace(fault, nodes=hit) if hit else None

    def _restart(self, fault: Fault, random: Random) -> Fault | None:
        name = self._one(fault, random)
        if name is None or not self._may_go(name):
            return None
        self._down[name] = self.engine.world.topics_of(name)
        self.engine.crash(name)
        self.engine.at(self._end(fault), self._back, name)
        return msgspec.structs.replace(fault, nodes=(name,))

    def _back(self, name: NodeId) -> None:
        if name in self._down:
            self.engine.join(name, self._down.pop(name))

    def _pause(self, fault: Fault, random: Random) -> Fault | None:
        name = self._one(fault, random)
        if name is None or not self.engine.pause(name):
            return None
        self._paused[name] = None
        self.engine.at(self._end(fault), self._resume, name)
        return msgspec.structs.replace(fault, nodes=(name,))

    def _resume(self, name: NodeId) -> None:
        self._paused.pop(name, None)
        self.engine.resume(name)

    def _leave(self, fault: Fault, random: Random) -> Fault | None:
        name = self._one(fault, random)
        if name is None or not self._may_go(name):
            return None
        actor = self.engine.world.actors[name]
        if not self.engine.leave(name):
            return None
        self._leaving[name] = actor
        return msgspec.structs.replace(fault, nodes=(name,))

    def _must_go_first(self, place: int, fault: Fault) -> bool:
        """Return whether a fault must wait because its node is still leaving.

        A node that leaves in order may linger, and cannot join before it has left. Then its join waits, and with it
        every later fault of that node.
        """
        name = fault.nodes[0]
        if self._returning.get(name, place) != place:
            return True
        lingers = self._leaving.get(name) is not None and self.engine.world.actors.get(name) is self._leaving[name]
        if fault.kind != "join" or not lingers:
            self._returning.pop(name, None)
            return False
        self._returning[name] = place
        return True

    def _join(self, fault: Fault, random: Random) -> Fault | None:
        absent = [name for name in self.engine.interests if not self._is_expected(name)]
        name = fault.nodes[0] if fault.nodes else random.choice(absent) if absent else None
        if name is None or name in self._down or not self.engine.join(name, fault.topics):
            return None
        return msgspec.structs.replace(fault, nodes=(name,), topics=self.engine.world.topics_of(name))

    def _interest(self, fault: Fault, random: Random) -> Fault | None:
        """Toggle one topic of a node. The last topic stays, because a node without topics takes part in nothing."""
        world, name = self.engine.world, self._one(fault, random)
        if name is None:
            return None
        mine = world.topics_of(name)
        others = sorted(set(world.topics.names).difference(mine))
        if len(mine) > 1 and (not others or random.random() < 0.5):
            concrete = Fault(fault.time_ms, "unsubscribe", (name,), topics=(random.choice(mine),))
        elif others:
            concrete = Fault(fault.time_ms, "subscribe", (name,), topics=(random.choice(others),))
        else:
            return None
        return self._topics(concrete, random)

    def _return(self, fault: Fault, random: Random) -> Fault | None:
        """Let a node leave topics and subscribe to them again, `value` times: one of its topics, or all of them."""
        name = self._one(fault, random)
        mine = self.engine.world.topics_of(name) if name is not None else ()
        if name is None or not mine:
            return None
        topics = fault.topics or ((random.choice(mine),) if random.random() < 0.5 else mine)
        for turn in range(max(1, int(fault.value))):
            left_ms = fault.time_ms + 2 * turn * fault.duration_ms
            self.engine.at(max(left_ms, self.engine.world.now_ms), self._go_away, name, topics)
            self.engine.at(left_ms + fault.duration_ms, self._take_up, name, topics)
        return msgspec.structs.replace(fault, nodes=(name,), topics=topics)

    def _go_away(self, name: NodeId, topics: tuple[Topic, ...]) -> None:
        for topic in topics:
            if not self._is_over and self.engine.unsubscribe(name, topic):
                self._away.setdefault(name, {})[topic] = None

    def _take_up(self, name: NodeId, topics: tuple[Topic, ...]) -> None:
        away = self._away.get(name, {})
        for topic in topics:
            if topic in away and self.engine.subscribe(name, topic):
                del away[topic]

    def _topics(self, fault: Fault, random: Random) -> Fault | None:
        change = self.engine.subscribe if fault.kind == "subscribe" else self.engine.unsubscribe
        return fault if change(fault.nodes[0], fault.topics[0]) else None

    def _publish(self, fault: Fault, random: Random) -> Fault | None:
        name = self._one(fault, random)
        if name is None or not (topics := fault.topics or self.engine.world.topics_of(name)):
            return None
        topic = random.choice(topics)
        done = self.engine.publish(name, topic, f"{name}/{fault.time_ms}".encode())
        return msgspec.structs.replace(fault, nodes=(name,), topics=(topic,)) if done else None

    # Faults of the network

    def _condition(self, fault: Fault, random: Random) -> Fault | None:
        senders = frozenset(fault.nodes) if fault.nodes else None
        receivers = frozenset(fault.peers) if fault.peers else None
        self._turn(Condition(fault.kind, fault.value, senders, receivers), fault)
        return fault

    def _slow(self, fault: Fault, random: Random) -> Fault | None:
        name = self._one(fault, random)
        if name is None:
            return None
        self._turn(Condition("slow", fault.value * 1000, frozenset([name])), fault)
        return msgspec.structs.replace(fault, nodes=(name,))

    def _turn(self, condition: Condition, fault: Fault) -> None:
        self.engine.network.add(condition)
        self.engine.at(self._end(fault), self.engine.network.remove, condition)

    # Choice of nodes

    def _one(self, fault: Fault, random: Random) -> NodeId | None:
        """Return the named node, or None if it is down. If the fault names none, return a random one that is awake."""
        if fault.nodes:
            return fault.nodes[0] if self.engine.world.is_living(fault.nodes[0]) else None
        awake = [name for name in self.engine.world.living if name not in self._paused]
        return random.choice(awake) if awake else None

    def _victims(self, fault: Fault, random: Random) -> tuple[NodeId, ...]:
        """Choose the nodes of a crash by its kind."""
        world, count = self.engine.world, max(1, int(fault.value))
        living = world.living
        if not living:
            return ()
        if fault.kind == "crash-adjacent":
            links = world.links()
            if not links:
                return ()
            first = random.choice(random.choice(links))
            near = [v if u == first else u for u, v in links if first in (u, v)]
            return (first, *random.sample(near, min(count, len(near) + 1) - 1))
        if fault.kind == "crash-ring":
            ring = sorted(living, key=lambda name: (self.engine.system.ring_key(name), name))
            start = random.randrange(len(ring))
            return tuple(ring[(start + step) % len(ring)] for step in range(min(count, len(ring))))
        if fault.kind == "crash-hub":
            degrees = Counter(end for link in world.links() for end in link)
            return (max(living, key=lambda name: (degrees[name], name)),)
        return tuple(random.sample(living, min(count, len(living))))

    def _may_go(self, name: NodeId) -> bool:
        """Return whether one more node may go down. Some must stay, or there is nothing left to check."""
        everybody, living = len(self.engine.interests), len(self.engine.world.living)
        return living - 1 >= max(1.0, (1 - self.down_share_max) * everybody)

    def _is_expected(self, name: NodeId) -> bool:
        return self.engine.world.is_living(name) or name in self._down

    @staticmethod
    def _end(fault: Fault) -> int:
        return fault.time_ms + fault.duration_ms


def _text(fault: Fault) -> str:
    parts = [fault.kind, *fault.nodes[:3], *(["..."] if len(fault.nodes) > 3 else []), *fault.topics[:1]]
    return " ".join(parts) + (f" for {fault.duration_ms} ms" if fault.duration_ms else "")
