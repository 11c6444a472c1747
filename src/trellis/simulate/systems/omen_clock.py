"""Measure the repairs of OMen nodes from outside, because nodes have no clock."""

from __future__ import annotations

import time
from collections.abc import Callable

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.moments import (
    ChoiceEnded,
    ChoiceStarted,
    Moment,
    RepairDropped,
    RepairFinished,
    RepairStarted,
    ViewsBuilt,
    ViewsStarted,
)


class RepairTimes:
    """What the clocks of all nodes have measured."""

    def __init__(self) -> None:
        # Processor time that a coordinator spent on each repair: its view, the parts of topics, Alg. 1.
        self.seconds: list[float] = []
        # Virtual time of each repair after a departure, from its start until its links stand.
        self.ms: list[int] = []
        self.view_seconds: dict[NodeId, float] = {}  # node -> processor time in which its view was last built


class RepairClock:
    """Observes the moments of one node.

    The processor time of a view counts for the repair, although the view is built before it, in the background.
    """

    def __init__(self, times: RepairTimes, now_ms: Callable[[], int]) -> None:
        self.times, self.now_ms = times, now_ms
        self._began: dict[int, int] = {}  # repair -> virtual time
        self._spent: dict[int, float] = {}  # repair -> processor time so far
        self._since = 0.0  # Processor time when the present computation began.

    def __call__(self, moment: Moment) -> None:
        match moment:
            case RepairStarted(number=number):
                self._began[number], self._spent[number] = self.now_ms(), 0.0
            case RepairDropped(number=number):
                del self._began[number], self._spent[number]
            case RepairFinished(number=number, cause=cause, node=node):
                began_ms, seconds = self._began.pop(number), self._spent.pop(number)
                if cause in ("crash", "leave", "join"):
                    self.times.seconds.append(seconds + self.times.view_seconds.get(node, 0.0))
                if cause in ("crash", "leave"):
                    self.times.ms.append(self.now_ms() - began_ms)
            case ChoiceStarted() | ViewsStarted():
                self._since = time.process_time()
            case ChoiceEnded(number=number):
                self._spent[number] += time.process_time() - self._since
            case ViewsBuilt(nodes=nodes):
                seconds = (time.process_time() - self._since) / len(nodes)
                self.times.view_seconds |= dict.fromkeys(nodes, seconds)
