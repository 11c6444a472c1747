"""Suspected nodes, and the times at which they and the seeds are probed again.

A suspected node may be alive behind a partition. So suspects and seeds are probed for ever, with growing pauses. When
one answers, both sides of a healed partition meet, and their rings become one again.

A node that was suspected at most `soon` periods ago is probed in every period. So a short partition is healed as soon
as packets pass again.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.effects import Contact, NodeId, Seed

FIRST = 2  # Periods until the first probe. Each later pause is twice as long, up to `periods_max`.


class Suspects:
    """The nodes that this node suspects, at most `entries_max`."""

    def __init__(self, seeds: Iterable[Contact], periods_max: int, entries_max: int, soon: int = 0) -> None:
        self.periods_max, self.entries_max, self.soon = periods_max, entries_max, soon
        self.seeds = list(seeds)
        # suspect or seed -> tick of the next probe, and the pause before it in periods
        self._due: dict[Contact, tuple[int, int]] = dict.fromkeys(self.seeds, (FIRST, FIRST))
        self._since: dict[Contact, int] = {}  # suspect -> the tick at which it was last suspected
        self.incarnations: dict[NodeId, int] = {}  # suspect -> its latest incarnation that we suspect

    def add(self, node: NodeId, incarnation: int, tick: int) -> None:
        """Suspect a node. If there are too many suspects, forget the oldest."""
        self._due[node] = (tick + (1 if self.soon else FIRST), FIRST)
        self._since[node] = tick
        self.incarnations[node] = max(incarnation, self.incarnations.get(node, 0))
        if len(self.incarnations) > self.entries_max:
            oldest = next(iter(self.incarnations))
            del self.incarnations[oldest]
            self._since.pop(oldest, None)
            if oldest not in self.seeds:
                self._due.pop(oldest, None)

    def alive(self, node: NodeId) -> None:
        """Stop suspecting a node that has answered. A seed is still probed."""
        self._since.pop(node, None)
        if self.incarnations.pop(node, None) is not None and node not in self.seeds:
            self._due.pop(node, None)

    def incarnation_of(self, contact: Contact) -> int:
        """Return the latest incarnation of a contact that we suspect. 0: none, or the contact is a seed's address."""
        return 0 if isinstance(contact, Seed) else self.incarnations.get(contact, 0)

    def due(self, tick: int) -> list[Contact]:
        """Return the suspects and seeds to probe now, and plan the next probe of each."""
        due = [node for node, (when, _) in self._due.items() if when <= tick]
        for node in due:
            if tick - self._since.get(node, tick - self.soon) < self.soon:
                self._due[node] = (tick + 1, FIRST)
                continue
            pause = min(2 * self._due[node][1], self.periods_max)
            self._due[node] = (tick + pause, pause)
        return due
