"""The sidecar's publications, which are repeated until the mesh has acknowledged them.

The mesh does not acknowledge a publication for one of two reasons. It refused the publication at once, for want of
room. Or it took the publication and emits too few holders in time: then nodes may have it, in its place.

R1  Publications on one overlay topic are given to the mesh in the order in which the broker sent them. So while one
    that was refused at once waits, later ones on its topic wait behind it.
R2  A publication that was taken does not hold up others: its repetition has the same identity, and nodes that have it
    ignore the repetition. If the window has dropped it, nodes that did not have it may get it after later ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.effects import Emit

AGAIN_MS = 1_000  # pause before a publication is repeated


class Repeats:
    """Keeps what has to be given to the mesh again."""

    def __init__(self) -> None:
        self._given: dict[int, Emit] = {}  # by number: given to the mesh, which has not answered
        self._taken: deque[tuple[int, Emit]] = deque()  # to be repeated (R2), with the time when
        self._refused: dict[Topic, deque[Emit]] = {}  # by overlay topic: the first was refused, the others wait (R1)
        self._due_ms: dict[Topic, int] = {}  # when the publications of a topic in `_refused` are given again

    def give(self, emits: Iterable[Emit]) -> None:
        """Note publications of the sidecar that are about to be given to the mesh."""
        self._given.update({emit.number: emit for emit in emits})

    def holds_back(self, emit: Emit) -> bool:
        """Return whether the publication must not be given to the mesh now. It is given later (`due`)."""
        if emit.topic not in self._refused or self._given.pop(emit.number, None) is None:
            return False
        self._refused[emit.topic].append(emit)
        return True

    def answered(self, number: int) -> Emit | None:
        """The mesh has answered. Return the publication if it is one of the sidecar."""
        return self._given.pop(number, None)

    def again(self, emit: Emit, now_ms: int, *, is_taken: bool) -> None:
        """Repeat a publication later. `is_taken`: the mesh did not refuse it at once."""
        if is_taken:
            self._taken.append((now_ms + AGAIN_MS, emit))
        else:
            self._refused.setdefault(emit.topic, deque()).append(emit)
            self._due_ms.setdefault(emit.topic, now_ms + AGAIN_MS)

    def due(self, now_ms: int, is_awaited: Callable[[int], bool]) -> list[Emit]:
        """Return what is to be given to the mesh now. `is_awaited` tells whether somebody still waits for a number."""
        emits: list[Emit] = []
        while self._taken and self._taken[0][0] <= now_ms:
            emits.append(self._taken.popleft()[1])
        for topic in [topic for topic, due_ms in self._due_ms.items() if due_ms <= now_ms]:
            del self._due_ms[topic]
            emits += self._refused.pop(topic)
        emits = [emit for emit in emits if is_awaited(emit.number)]
        self.give(emits)
        return emits

    @property
    def is_idle(self) -> bool:
        """Return whether the mesh has acknowledged everything."""
        return not (self._given or self._taken or self._refused)

    def check(self) -> None:
        assert self._refused.keys() == self._due_ms.keys()
        assert all(self._refused.values())
