"""Measure how long the repairs that this node coordinates take.

Protocols have no clock. OMen announces when a repair begins and ends (`protocols/omen/moments.py`). After every input
the shell calls `RepairClock.look`. It notes the time of each repair that has begun, and keeps the duration of each
repair that has ended, for /metrics, /overlay.json and the log.

A repair is measured at its coordinator, from its first question until the new links are up. The time until the
departure was detected is not included.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.me import REFUTATIONS
from trellis.protocols.omen.moments import Moment, RepairDropped, RepairFinished, RepairStarted

KEPT = 64  # ended repairs that are kept
TOPICS_TOLD = 5  # most topic names that are kept for each repair
CAUSES = ("crash", "leave", "join", "subscribe", "unsubscribe", "relink", "cut")  # `omen.moments.Cause`
BOUNDS_MS = (10, 30, 100, 300, 1_000, 3_000, 10_000)  # upper bounds of the buckets of the histogram


class RepairTime(msgspec.Struct, frozen=True):
    """One repair that this node coordinates or has coordinated."""

    number: int  # counts the repairs of this incarnation from 1
    cause: str  # one of `CAUSES`
    node: NodeId  # the node whose churn event is repaired
    at_ms: int  # when it began, in milliseconds of the wall clock since 1970
    ms: int | None  # its duration in milliseconds. None: it is still running.
    topics: tuple[Topic, ...] = ()  # the first `TOPICS_TOLD` topics that were repaired; empty while it is running
    topic_count: int = 0  # number of topics that were repaired; 0 while it is running


class Watcher(Protocol):
    """The interface of an object that is told when a repair begins or ends."""

    def repair_began(self, repair: RepairTime) -> None: ...

    def repair_ended(self, repair: RepairTime) -> None: ...


class RepairClock:
    """The running repairs of a node, and the durations of those that have ended."""

    def __init__(self, wall_ms: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """`now_ms` must never go back; `wall_ms` may."""
        self._wall_ms, self._now_ms = wall_ms, now_ms
        self._started: list[RepairStarted] = []  # repairs that the present input has begun
        self._finished: list[RepairFinished] = []  # repairs that the present input has ended
        self.watcher: Watcher | None = None
        self.open: dict[int, tuple[RepairTime, int]] = {}  # running repairs by number; when each began, by `now_ms`
        self.latest: deque[RepairTime] = deque(maxlen=KEPT)  # ended repairs, the latest last
        # cause -> number of ended repairs in each bucket of `BOUNDS_MS`; the last bucket has no upper bound
        self.buckets: dict[str, list[int]] = {cause: [0] * (len(BOUNDS_MS) + 1) for cause in CAUSES}
        self.sum_ms: Counter[str] = Counter()  # cause -> sum of the durations of ended repairs

    def note(self, moment: Moment) -> None:
        """Remember what begins and ends until the next `look`. OMen calls this in the course of an input."""
        match moment:
            case RepairStarted():
                self._started.append(moment)
            case RepairFinished():
                self._finished.append(moment)
            case RepairDropped(number=number):
                self._started = [one for one in self._started if one.number != number]
                self.open.pop(number % REFUTATIONS, None)

    def look(self) -> None:
        """Handle the repairs that have begun or ended in an input. Called after every input, so it must be cheap."""
        if not (self._started or self._finished):
            return
        started, finished, now_ms = self._started, self._finished, self._now_ms()
        self._started, self._finished = [], []
        for one in started:
            number = one.number % REFUTATIONS  # the upper bits are the incarnation
            self._begin(RepairTime(number, one.cause, one.node, self._wall_ms(), None), now_ms)
        for end in finished:
            number, topics = end.number % REFUTATIONS, end.topics
            begun, begun_ms = self.open.pop(number)
            ms = now_ms - begun_ms
            self._over(RepairTime(number, end.cause, end.node, begun.at_ms, ms, topics[:TOPICS_TOLD], len(topics)))

    def _begin(self, repair: RepairTime, now_ms: int) -> None:
        self.open[repair.number] = repair, now_ms
        if self.watcher is not None:
            self.watcher.repair_began(repair)

    def _over(self, repair: RepairTime) -> None:
        assert repair.ms is not None
        self.latest.append(repair)
        self.sum_ms[repair.cause] += repair.ms
        self.buckets[repair.cause][sum(bound < repair.ms for bound in BOUNDS_MS)] += 1
        if self.watcher is not None:
            self.watcher.repair_ended(repair)
