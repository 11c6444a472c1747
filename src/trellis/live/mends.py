"""How long repairs take. Protocols have no clock, so the shell looks after every input what has begun and what is over.

A repair is timed where it is coordinated: from its first question to links that stand. What comes before, until
somebody notices a death, is not in it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.churn import Coordinator
from trellis.protocols.omen.me import REFUTATIONS

KEPT = 64
TOPICS_TOLD = 5  # names kept of each repair
CAUSES = ("crash", "leave", "join", "subscribe", "unsubscribe", "relink")  # as `Coordinator.cause_of` tells them
BOUNDS_MS = (10, 30, 100, 300, 1_000, 3_000, 10_000)  # of the histogram


class MendTime(msgspec.Struct, frozen=True):
    """One repair; `ms` is None while it goes on."""

    number: int
    cause: str
    node: NodeId  # whom it is about
    at_ms: int  # its beginning, in the machine's time
    ms: int | None
    topics: tuple[Topic, ...] = ()  # the first few that were repaired; known when it is over
    topic_count: int = 0


class Watcher(Protocol):
    """Is told of repairs as they begin and end."""

    def repair_began(self, repair: MendTime) -> None: ...

    def repair_ended(self, repair: MendTime) -> None: ...


class MendClock:
    def __init__(self, coordinator: Coordinator | None, wall_ms: Callable[[], int], now_ms: Callable[[], int]) -> None:
        """`coordinator` is None where an overlay does not mend in this sense. `now_ms` must never go back."""
        self._coordinator, self._wall_ms, self._now_ms = coordinator, wall_ms, now_ms
        self.watcher: Watcher | None = None
        self.open: dict[int, tuple[MendTime, int]] = {}  # with its beginning by `now_ms`
        self.latest: deque[MendTime] = deque(maxlen=KEPT)
        # cause -> repairs by BOUNDS_MS, the last one without a bound
        self.buckets: dict[str, list[int]] = {cause: [0] * (len(BOUNDS_MS) + 1) for cause in CAUSES}
        self.sum_ms: Counter[str] = Counter()

    def look(self) -> None:
        """After every input; nearly always there is nothing to see."""
        coordinator = self._coordinator
        if coordinator is None or not (coordinator.mends or coordinator.ended):
            return
        now_ms = self._now_ms()
        for name, mend in coordinator.mends.items():
            number = name % REFUTATIONS  # people count repairs of one incarnation from 1
            if number not in self.open:
                began = MendTime(number, coordinator.cause_of(mend), mend.node, self._wall_ms(), None)
                self._begin(began, now_ms)
        while coordinator.ended:
            name, cause, node, topics = coordinator.ended.popleft()
            number = name % REFUTATIONS
            if number not in self.open:  # it has ended in the input that began it
                self._begin(MendTime(number, cause, node, self._wall_ms(), None), now_ms)
            begun, begun_ms = self.open.pop(number)
            ms = now_ms - begun_ms
            self._over(MendTime(number, cause, node, begun.at_ms, ms, topics[:TOPICS_TOLD], len(topics)))

    def _begin(self, mend: MendTime, now_ms: int) -> None:
        self.open[mend.number] = mend, now_ms
        if self.watcher is not None:
            self.watcher.repair_began(mend)

    def _over(self, mend: MendTime) -> None:
        assert mend.ms is not None
        self.latest.append(mend)
        self.sum_ms[mend.cause] += mend.ms
        self.buckets[mend.cause][sum(bound < mend.ms for bound in BOUNDS_MS)] += 1
        if self.watcher is not None:
            self.watcher.repair_ended(mend)
