"""Topics on which we know nobody, although their homes name subscribers: link to few nodes that have many of them.

Answers of homes come one by one, and a client may subscribe to hundreds of topics at once. One link for each answer
would be far more than needed. So answers are gathered for `MEET_MS`, and nodes are chosen greedily by the number of
open topics that they have. A node that was asked in this tick is not asked again, and its topics wait for it: the next
tick asks the homes once more about whatever is still open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from zlib import crc32

from trellis.protocols.delivery.state import State
from trellis.protocols.effects import NodeId, SetTimer, Topic

MEET_MS = 5
_LINKS_MAX = 64  # that are asked for in one tick


class Meetings:
    def __init__(self, state: State, is_apart: Callable[[Topic, tuple[NodeId, ...]], bool]) -> None:
        """`is_apart` tells whether a topic still needs a link to one of these subscribers."""
        self.state, self.is_apart = state, is_apart
        self._open: dict[Topic, tuple[NodeId, ...]] = {}  # topics that need a link, and who subscribes to them
        self._asked: dict[NodeId, None] = {}  # in this tick

    def note(self, topic: Topic, subscribers: tuple[NodeId, ...]) -> None:
        if not self._open:
            self.state.out.append(SetTimer("delivery/meet", MEET_MS))
        self._open[topic] = subscribers

    def tick(self) -> None:
        self._asked = {}

    def go(self) -> None:
        named, self._open = self._open, {}
        left = {
            topic: names
            for topic, names in named.items()
            if self.is_apart(topic, names) and not any(name in self._asked for name in names)
        }
        while left and len(self._asked) < _LINKS_MAX:
            counts = Counter(name for names in left.values() for name in names)
            most = max(counts.values())
            chosen = min((name for name, count in counts.items() if count == most), key=self._lot)
            self._asked[chosen] = None
            self.state.out += self.state.overlay.meet((chosen,))
            left = {topic: names for topic, names in left.items() if chosen not in names}

    def _lot(self, name: NodeId) -> tuple[int, NodeId]:
        """Nodes choose differently among equals, so that nobody gets all links of a topic."""
        return crc32(f"{self.state.id} {name}".encode("utf-8", "surrogatepass")), name
