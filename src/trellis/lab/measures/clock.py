"""Processor time of repairs.  [OM Fig. 10]"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from trellis.protocols.effects import Effects
from trellis.protocols.node import ProtocolNode
from trellis.simulate.system import System


class Clock:
    """Processor time of repairs: of each coordinator's computation, or of all selections that an event causes.

    SpiderCast has no coordinator: every node that the event leaves under-covered selects neighbors for itself, so the
    time of an event is that of all their selections.
    """

    def __init__(self, made: System) -> None:
        self._repairs: list[float] | None = getattr(made, "repair_seconds", None)
        self._done, self._seconds = 0, 0.0
        self._by_kind: dict[str, list[float]] = {"join": [], "leave": []}
        if self._repairs is None:
            self._wrap(made)

    def _wrap(self, made: System) -> None:
        make_node = made.make_node

        def timed_node(*arguments: Any) -> ProtocolNode:
            node = make_node(*arguments)
            for task in cast(Any, node).tasks.values():
                task.iterate = self._timed(task.iterate)
            return node

        made.make_node = timed_node  # type: ignore[assignment, method-assign]

    def _timed(self, iterate: Callable[[], Effects]) -> Callable[[], Effects]:
        def timed() -> Effects:
            start = time.process_time()
            effects = iterate()
            self._seconds += time.process_time() - start
            return effects

        return timed

    def start(self) -> None:
        self._done, self._seconds = len(self._repairs or ()), 0.0

    def stop(self, kind: str) -> None:
        found = [self._seconds] if self._repairs is None else self._repairs[self._done :]
        self._by_kind[kind] += found

    def found(self) -> dict[str, list[float]]:
        every = [seconds for values in self._by_kind.values() for seconds in values]
        return {f"{kind} seconds": values for kind, values in self._by_kind.items() if values} | (
            {"repair seconds": every} if every else {}
        )
