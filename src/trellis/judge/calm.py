"""The times when the mesh was disturbed, and the time by which it owes a message.

A crash, a start, an orderly departure or any other fault disturbs the mesh. The mesh may need `settle_s` after the last
of them. A message of a calm time is owed after `grace_s`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

from trellis.judge.faults import HARMLESS, joined
from trellis.judge.story import Story


class Calm:
    """The times in which faults disturbed the mesh, joined where they are less than `settle_s` apart."""

    def __init__(self, story: Story, settle_s: float, grace_s: float) -> None:
        self.settle_s, self.grace_s = settle_s, grace_s
        self._settled = story.settled
        spans = [(event.t, event.t) for event in (*story.downs, *story.ups)]
        spans += [(fault.t, fault.until) for fault in story.disturbances if fault.kind not in HARMLESS]
        self._spans = joined(spans, settle_s)  # apart from each other by more than `settle_s`
        self._begins = [begin for begin, _ in self._spans]
        self._ends = [end for _, end in self._spans]

    def due(self, began: float, answered: float) -> float:
        """Return by when a message that was published at `began` and answered at `answered` must have arrived.

        A driver that says `Settled` has waited long enough, whatever the times of this judge are. That does not count
        for a publication that is answered at the very time of `Settled`.
        """
        if answered == inf:
            return inf
        index = bisect_right(self._settled, answered)
        settled = self._settled[index] if index < len(self._settled) else inf
        return min(settled, self._due(began, answered))

    def _due(self, began: float, answered: float) -> float:
        index = bisect_left(self._ends, began - self.settle_s)  # the first disturbance that may hold it up
        if index < len(self._spans) and self._begins[index] <= answered + self.grace_s:
            return max(answered, self._ends[index]) + self.settle_s
        return answered + self.grace_s

    def is_calm(self, begin: float, end: float) -> bool:
        """Tell whether nothing disturbed the mesh from `begin` to `end`, nor within `settle_s` before."""
        index = bisect_left(self._begins, end)
        return index == 0 or self._ends[index - 1] + self.settle_s < begin
