"""Opens few links that connect this node on many topics.

If this node has no neighbor on a topic, the topic's home names subscribers (`HomeTells`), and a link to one of them is
needed. Answers of homes arrive one by one, and a client may subscribe to hundreds of topics at once. One link for each
answer would be far too many. So answers are collected for `MEET_MS`. Then nodes are chosen greedily by the number of
unconnected topics that they subscribe to. A node that was asked in this tick is not asked again, and its topics wait
for it. At the next tick the homes are asked about topics that are still unconnected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from zlib import crc32

from trellis.protocols.delivery.state import State
from trellis.protocols.effects import NodeId, SetTimer, Topic

MEET_MS = 5  # how long answers are collected
_LINKS_MAX = 64  # most links that are requested in one tick


class Meetings:
    """Topics that need a link, and the nodes asked for one."""

    def __init__(self, state: State, is_apart: Callable[[Topic, tuple[NodeId, ...]], bool]) -> None:
        """`is_apart` returns whether a topic still needs a link to one of these subscribers."""
        self.state, self.is_apart = state, is_apart
        self._open: dict[Topic, tuple[NodeId, ...]] = {}  # topics that need a link, and some of their subscribers
        self._asked: dict[NodeId, None] = {}  # nodes asked for a link in this tick

    def note(self, topic: Topic, subscribers: tuple[NodeId, ...]) -> None:
        """Note that a topic needs a link to one of these subscribers."""
        if not self._open:
            self.state.out.append(SetTimer("delivery/meet", MEET_MS))
        self._open[topic] = subscribers

    def tick(self) -> None:
        """Allow nodes to be asked again."""
        self._asked = {}

    def go(self) -> None:
        """Ask for links, as few as possible."""
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
        """Return the rank of a candidate among equals. Ranks differ from node to node, so that links are spread."""
        return crc32(f"{self.state.id} {name}".encode("utf-8", "surrogatepass")), name
