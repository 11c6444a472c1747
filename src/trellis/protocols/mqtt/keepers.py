"""Retained messages that survive their node: other nodes take part in their overlay topics.  [docs/mqtt.md]

For each overlay topic, a hash of the topic and of the names of nodes ranks all nodes. The first `copies` of them are
its *keepers*. A node that holds retained messages of an overlay topic, because they were published through it or
because it is a keeper, asks the keepers to take part (`Keep`). A keeper joins the overlay topic, asks there which
messages are retained (`Recall`), and gets each later one. It leaves when nothing has been retained there for
`EMPTY_MS`.

K1  A node asks each living keeper once, and again when the keeper has restarted. A keeper that says nothing for a while
    counts as dead, and the next node in the ranking takes its place.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import Keep, parts_of, wrap
from trellis.protocols.mqtt.interests import QUESTIONS
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import is_carried

EMPTY_MS = 60_000
LOOK_MS = 1_500  # interval at which a node looks whether keepers have changed
TURN_TOPICS = 500  # most overlay topics whose keepers are computed at a time


class Keepers:
    """Asks other nodes to keep retained messages, and keeps those of others."""

    def __init__(self, state: BrokerState, is_silent: Callable[[NodeId, int], bool]) -> None:
        """`is_silent` returns whether a node has said nothing since it should have, which is given by `awake_ms`."""
        self.state, self.recaller, self.is_silent = state, state.recaller, is_silent
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._living: tuple[tuple[NodeId, Incarnation], ...] = ()  # the nodes for which `_settled` holds
        self._settled: dict[Topic, None] = {}  # overlay topics whose keepers were asked
        # node -> its incarnation when it was asked, since when it should speak, and for which overlay topics
        self._asked: dict[NodeId, tuple[Incarnation, int, set[Topic]]] = {}
        self._looked_ms = 0
        self._empty_ms: dict[Topic, int] = {}  # since when an overlay topic that we keep has had no retained message

    @property
    def is_busy(self) -> bool:
        """Whether other nodes rely on this one, or it on others: then it says from time to time that it is there."""
        return bool(self._asked or self.recaller.adopted)

    def tick(self) -> None:
        """Ask keepers, and leave overlay topics where nothing is retained."""
        awake_ms = self.state.awake_ms
        if awake_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = awake_ms
            self._look()
        held = [topic for topic in self.recaller.held() if topic not in self._settled][:TURN_TOPICS]
        wanted: dict[NodeId, list[Topic]] = {}
        for topic in held:
            self._settled[topic] = None
            for node, incarnation in self._keepers(topic):
                asked = self._asked.get(node)
                if node != self.state.node and (asked is None or asked[0] != incarnation or topic not in asked[2]):
                    wanted.setdefault(node, []).append(topic)
        for node, topics in wanted.items():
            self._ask(node, topics)

    def _look(self) -> None:
        """Find out which nodes live, and which overlay topics we need not keep any more."""
        nodes = self.state.directory.members.nodes
        living: list[tuple[NodeId, Incarnation]] = [(self.state.node, self.state.incarnation)]
        for node, member in sorted(nodes.items()):
            asked = self._asked.get(node)
            if member.incarnation and not (asked is not None and self.is_silent(node, asked[1])):
                living.append((node, member.incarnation))
        if tuple(living) != self._living:
            self._living = tuple(living)
            self._settled.clear()
            self._asked = {node: asked for node, asked in self._asked.items() if node in nodes}
        for topic in list(self.recaller.adopted):
            if self.recaller.has_any(topic):
                self._empty_ms.pop(topic, None)
            elif self.state.awake_ms - self._empty_ms.setdefault(topic, self.state.awake_ms) >= EMPTY_MS:
                del self._empty_ms[topic]
                self.recaller.release(topic)
        held = set(self.recaller.held())
        self._settled = {topic: None for topic in self._settled if topic in held}
        for node, (incarnation, since_ms, topics) in list(self._asked.items()):
            topics &= held
            if topics:
                self._asked[node] = (incarnation, since_ms, topics)
            else:
                del self._asked[node]

    def _keepers(self, topic: Topic) -> list[tuple[NodeId, Incarnation]]:
        """Return the keepers of an overlay topic among the living nodes. With one copy there are none."""
        ranked = sorted(
            self._living, key=lambda each: blake2b(f"{topic}\n{each[0]}".encode("utf-8", "replace")).digest()
        )
        return ranked[: self.state.copies] if self.state.copies > 1 else []

    def _ask(self, node: NodeId, topics: list[Topic]) -> None:
        member = self.state.directory.members.nodes.get(node)
        if member is None:
            return
        known = self._asked.get(node)
        before = known[2] if known is not None and known[0] == member.incarnation else set()
        since_ms = known[1] if before and known is not None else self.state.awake_ms
        self._asked[node] = (member.incarnation, since_ms, before | set(topics))
        for part in parts_of(topics):
            self.emits.append((QUESTIONS, wrap(Keep(self.state.incarnation, node, tuple(part))), "keep"))

    def on_keep(self, origin: NodeId, said: Keep) -> None:
        """Another node asks a node to keep the retained messages of overlay topics."""
        if origin == self.state.node or said.keeper != self.state.node or not self.state.config.has_clients:
            return
        for topic in said.prefixes:
            if not is_carried(topic, self.state.config.depth) or self.state.refusal(topic) is not None:
                self.state.counters["retained not kept"] += 1
            else:
                self.recaller.adopt(topic)
