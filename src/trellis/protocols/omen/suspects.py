"""Nodes that are believed dead, and the seeds, are tried again at a falling rate. So two rings become one again.

A node that was suspected at most `soon` periods ago is tried in every period: a network that was cut for no longer
heals as soon as packets pass again.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.effects import Contact, NodeId, Seed

FIRST = 2  # periods


class Suspects:
    def __init__(self, seeds: Iterable[Contact], periods_max: int, entries_max: int, soon: int = 0) -> None:
        self.periods_max, self.entries_max, self.soon = periods_max, entries_max, soon
        self.seeds = list(seeds)
        self._due: dict[Contact, tuple[int, int]] = dict.fromkeys(self.seeds, (FIRST, FIRST))  # tick, pause
        self._since: dict[Contact, int] = {}  # the tick at which each was suspected
        self.incarnations: dict[NodeId, int] = {}

    def add(self, node: NodeId, incarnation: int, tick: int) -> None:
        self._due[node] = (tick + (1 if self.soon else FIRST), FIRST)
        self._since[node] = tick
        self.incarnations[node] = max(incarnation, self.incarnations.get(node, 0))
        if len(self.incarnations) > self.entries_max:  # the one that was suspected longest ago
            oldest = next(iter(self.incarnations))
            del self.incarnations[oldest]
            self._since.pop(oldest, None)
            if oldest not in self.seeds:
                self._due.pop(oldest, None)

    def alive(self, node: NodeId) -> None:
        """It has answered."""
        self._since.pop(node, None)
        if self.incarnations.pop(node, None) is not None and node not in self.seeds:
            self._due.pop(node, None)

    def incarnation_of(self, contact: Contact) -> int:
        """Return the latest incarnation that is thought to be dead; 0 where there is none, as for a seed."""
        return 0 if isinstance(contact, Seed) else self.incarnations.get(contact, 0)

    def due(self, tick: int) -> list[Contact]:
        found = [node for node, (when, _) in self._due.items() if when <= tick]
        for node in found:
            if tick - self._since.get(node, tick - self.soon) < self.soon:
                self._due[node] = (tick + 1, FIRST)
                continue
            pause = min(2 * self._due[node][1], self.periods_max)
            self._due[node] = (tick + pause, pause)
        return found
