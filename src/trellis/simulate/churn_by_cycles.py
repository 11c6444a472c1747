"""Churn on the cycle engine: which nodes there are, what happens to them and when, and what a run has come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from trellis.cycles.instance import Instance, make_instance
from trellis.cycles.ring import places_of
from trellis.errors import InputError
from trellis.measure.connectivity import connectivity
from trellis.measure.distributions import Distribution
from trellis.model import Interests, Names, Overlay
from trellis.simulate.probes import Series, Snapshot
from trellis.simulate.schedule import Fault, Schedule

# Faults of OMen and SpiderCast. Each names its nodes, so the kinds of crashes do not differ.
KINDS = ("join", "leave", "crash", "crash-uniform", "crash-adjacent", "crash-ring", "crash-hub")
_AGAIN = "\0"  # Stands between a name and the number of its list of topics, where a name joins with several ones.


class Churned(Protocol):
    """A network whose nodes, known by their numbers, may join, leave and crash."""

    @property
    def alive(self) -> Any:
        """Return bool[nodes]: which nodes are there."""
        ...

    @property
    def round(self) -> int: ...

    def join(self, node: int) -> None: ...

    def leave(self, node: int) -> None: ...

    def crash(self, node: int) -> None: ...

    def is_leaving(self, node: int) -> bool:
        """Return whether a node has left or crashed, and others have not come to terms with it yet."""
        ...


def instance_of(
    wanted: Mapping[str, tuple[str, ...]], schedule: Schedule
) -> tuple[Instance, dict[tuple[str, tuple[str, ...]], int]]:
    """Return the arrays of all nodes that are ever there, and the number of each by its name and its topics.

    A name that joins with other topics than before is another node with the same place on the ring.
    """
    lists: dict[str, dict[tuple[str, ...], None]] = {
        name: {tuple(sorted(topics)): None} for name, topics in wanted.items() if topics
    }
    for fault in schedule.faults:
        if fault.kind == "join" and fault.nodes and fault.topics:
            lists.setdefault(fault.nodes[0], {})[tuple(sorted(fault.topics))] = None
    keys = {
        f"{name}{_AGAIN}{number}" if number else name: (name, topics)
        for name, some in lists.items()
        for number, topics in enumerate(some)
    }
    made = make_instance({key: topics for key, (_, topics) in keys.items()})
    names = [keys[key][0] for key in made.nodes]
    instance = replace(made, nodes=names, wants=made.wants._replace(places=places_of(names)))
    return instance, {keys[key]: number for number, key in enumerate(made.nodes)}


class Counted:
    """Joins, departures and publications from outside that have happened."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.skipped = 0
        self.first_ms: int | None = None  # when the first event happened; None: none has yet

    def count(self, fault: Fault, done: bool) -> None:
        """Note that a fault has happened, or that it could not."""
        if not done:
            self.skipped += 1
            return
        self.counts[fault.kind] += 1
        self.first_ms = fault.time_ms if self.first_ms is None else self.first_ms


def events_of(plan: Counted | None, probe: Series) -> dict[str, Any]:
    """Return what the summary of a run says about the events from outside. `plan`: None if there could be none."""
    counts = Counter[str]() if plan is None else plan.counts
    per_event = None
    if plan is not None and plan.first_ms is not None:
        times, values = probe.series("control_messages")
        after = sum(value for time, value in zip(times, values, strict=True) if time > plan.first_ms / 1000)
        per_event = after / counts.total()
    return {
        "events_from_outside": dict(sorted(counts.items())),
        "events_skipped": 0 if plan is None else plan.skipped,
        "control_messages_per_event": per_event,
    }


class ChurnPlan(Counted):
    """What happens in which round: joins, leaves and crashes. What cannot happen is passed over."""

    def __init__(
        self,
        instance: Instance,
        slots: Mapping[tuple[str, tuple[str, ...]], int],
        wanted: Mapping[str, tuple[str, ...]],
        schedule: Schedule,
        period_ms: int,
    ) -> None:
        super().__init__()
        self.instance, self.slots, self.wanted = instance, slots, wanted
        # The number of each name with its topics of the interests.
        self.first = {name: slots[name, tuple(sorted(topics))] for name, topics in wanted.items() if topics}
        self.rounds: dict[int, list[Fault]] = {}
        self._numbers: dict[str, list[int]] = {}
        for (name, _), number in slots.items():
            self._numbers.setdefault(name, []).append(number)
        for fault in schedule.faults:
            for name in fault.nodes:
                if name not in self._numbers:
                    raise InputError("", f'"{name}" has no topics', "name a node of the interests, or topics for it")
            self.rounds.setdefault(fault.time_ms // period_ms, []).append(fault)
        away = {self.first[name] for name in schedule.absent if name in self.first}
        self.absent = sorted(away | (set(slots.values()) - set(self.first.values())))
        self.last = max(self.rounds, default=0)
        self._late: list[Fault] = []  # Joins of nodes that have to leave first.

    def ends_of(self, links: Iterable[tuple[str, str]]) -> Any:
        """Return the links between nodes that are there at the start, as an array of pairs of numbers."""
        pairs = [(self.first[one], self.first[other]) for one, other in links if {one, other} <= self.first.keys()]
        ends = np.array(pairs, np.int64).reshape(-1, 2)
        there = np.ones(len(self.instance.nodes), np.bool_)
        there[self.absent] = False
        return ends[there[ends].all(axis=1)]

    def happen(self, network: Churned) -> None:
        """Let everything happen that belongs to the present round."""
        self.retry(network)
        for fault in self.rounds.get(network.round, ()):
            self.apply(network, fault)

    def retry(self, network: Churned) -> None:
        """Let nodes come back that had to leave first."""
        late, self._late = self._late, []
        for fault in late:
            self.apply(network, fault)

    def apply(self, network: Churned, fault: Fault) -> bool:
        """Let a fault happen. Return whether it did. A node that comes back waits until it has left."""
        done = False
        for name in fault.nodes:
            present = [number for number in self._numbers[name] if network.alive[number]]
            leaving = any(network.is_leaving(number) for number in self._numbers[name])
            if fault.kind == "join":
                if leaving:
                    self._late.append(fault)
                    return True
                number = self.slots.get((name, tuple(sorted(fault.topics))), self.first.get(name, -1))
                if not present and number >= 0:
                    network.join(number)
                    done = True
            elif present and not leaving:
                (network.leave if fault.kind == "leave" else network.crash)(present[0])
                done = True
        self.count(fault, done)
        return done

    @property
    def is_waiting(self) -> bool:
        """Return whether a node waits to come back."""
        return bool(self._late)


class Lens:
    """Takes snapshots of a network whose nodes come and go."""

    def __init__(self, instance: Instance) -> None:
        self._nodes, _ = Names.in_order(sorted(set(instance.nodes)))
        self._topics, topic_of = Names.in_order(instance.topics)
        self._id_of = self._nodes.ids_of(instance.nodes).astype(np.int64)
        self._owners = np.repeat(np.arange(len(instance.nodes)), np.diff(instance.wants.offsets))
        self._wanted = topic_of[instance.wants.topics].astype(np.int64)

    def take(self, alive: Any, ends: tuple[Any, Any]) -> Snapshot:
        """Return who is there, their links, and which topics these connect. ends: both ends of all links."""
        overlay = Overlay.from_ids(self._nodes, *(self._id_of[end] for end in ends))
        there = alive[self._owners]
        wanted = self._id_of[self._owners[there]], self._wanted[there]
        interests = Interests.from_ids(self._nodes, self._topics, *wanted)
        degrees = Distribution.of(overlay.degrees[self._id_of[alive]] if alive.any() else [])
        return Snapshot(interests, overlay, degrees, connectivity(interests, overlay))
