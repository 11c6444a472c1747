"""Retained messages across the mesh.  [docs/mqtt.md, Retained messages]

The node through which a retained message was published stays on its overlay topic as long as it is retained. A node
that joins an overlay topic asks there what is retained (`Recall`); nodes answer with what was published through them
at once, and with the rest, whose nodes may be gone, a moment later if nobody else did (`Kept`). Answers are merged by
their stamps, so it does not matter who answers, or how often. Who leaves a topic forgets what others put there.

R1  of two messages on a topic the later stays, by stamp: nodes of an overlay topic come to hold the same
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import KEPT_MAX, Kept, Recall, wrap
from trellis.protocols.mqtt.interests import Interests
from trellis.protocols.mqtt.prefixes import Prefixes
from trellis.protocols.mqtt.retained import Before, Retained, RetainedMessages
from trellis.protocols.mqtt.topics import overlay_topic

_OTHERS_MS = 600  # answers of those that publish come first
_SPREAD_MS = 600  # the rest answer one after the other
_KEPT_BYTES = 128 << 10  # of one answer
QUESTIONS_MAX = 10_000
_AGAIN_MS = 1_000  # an overlay topic is told again after so long at the earliest, however often somebody asks
HEARD_MAX = 10 * KEPT_MAX  # answers of others that are noted for a question


@dataclass
class Question:
    """Somebody asked on an overlay topic, and we shall answer for those who do not."""

    due_ms: int
    heard: set[tuple[str, tuple[int, NodeId, int]]] = field(default_factory=set)  # told by others: topic and stamp
    has_mine: bool = False  # what was published here is to be told then as well


class Recaller:
    def __init__(self, node: NodeId, config: MqttConfig, interests: Interests) -> None:
        self.node, self.config, self.interests = node, config, interests
        self.now_ms = 0
        self.retained = RetainedMessages(config.retained_max, config.retained_bytes)
        self.counters: Counter[str] = Counter()
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._topics: dict[Topic, dict[str, None]] = {}  # overlay topic -> topics retained in it
        self._mine: dict[Topic, dict[str, None]] = {}  # overlay topics that we stay on -> topics published here
        self.prefixes = Prefixes(config.depth)  # those of `_mine`: holders of wildcards are to know of them
        self._told_ms: dict[Topic, int] = {}  # when what was published here was told last
        self._questions: dict[Topic, Question] = {}

    def put(self, origin: NodeId, one: Retained) -> bool:
        """False where there is no room."""
        message = one.message
        if not self.retained.put(origin, message):
            self.counters["refused"] += 1
            return False
        self._index(message.topic)
        return True

    def restore(self, one: Retained, before: Before) -> None:
        """Undo that `one` was put: the mesh has not taken it."""
        self.retained.restore(one, before)
        self._index(one.message.topic)

    def remove(self, topic: str) -> None:
        self.retained.remove(topic)
        self._index(topic)

    def _index(self, topic: str) -> None:
        prefix = overlay_topic(topic, self.config.depth)
        if topic in self.retained:
            self._topics.setdefault(prefix, {})[topic] = None
        elif prefix in self._topics:
            self._topics[prefix].pop(topic, None)
            if not self._topics[prefix]:
                del self._topics[prefix]
        kept = self.retained.get(topic)
        if kept is not None and kept.origin == self.node:
            if prefix not in self._mine:
                self._mine[prefix] = {}
                self.prefixes.add(prefix)
                self.interests.want(prefix)
            self._mine[prefix][topic] = None
        elif topic in self._mine.get(prefix, ()):
            del self._mine[prefix][topic]
            if not self._mine[prefix]:
                del self._mine[prefix]
                self.prefixes.discard(prefix)
                self.interests.unwant(prefix)

    def _of(self, prefix: Topic) -> list[Retained]:
        return [self.retained[topic] for topic in self._topics.get(prefix, ())]

    # Joining and leaving

    def joined(self, prefix: Topic) -> None:
        self.emits.append((prefix, wrap(Recall()), "recall"))

    def left(self, prefix: Topic) -> None:
        """What others published may change without us from now on."""
        for one in self._of(prefix):
            if one.origin != self.node:
                self.remove(one.message.topic)
        self._questions.pop(prefix, None)

    # Questions and answers

    def on_recall(self, prefix: Topic, origin: NodeId) -> None:
        held = self._of(prefix)
        if origin == self.node or not held:
            return
        is_early = self.now_ms - self._told_ms.get(prefix, -_AGAIN_MS) < _AGAIN_MS
        if not is_early:
            self._tell_mine(prefix)
        if prefix in self._questions:
            self._questions[prefix].has_mine |= is_early
        elif len(self._questions) < QUESTIONS_MAX:
            delay_ms = _OTHERS_MS + sum(self.node.encode()) * 37 % _SPREAD_MS
            self._questions[prefix] = Question(self.now_ms + delay_ms, has_mine=is_early)

    def _tell_mine(self, prefix: Topic) -> None:
        mine = [self.retained[topic] for topic in self._mine.get(prefix, ())]
        if mine:
            self._told_ms[prefix] = self.now_ms
            self._answer(prefix, mine)

    def on_kept(self, prefix: Topic, said: Kept) -> list[Retained]:
        """Those that are new here."""
        new: list[Retained] = []
        question = self._questions.get(prefix)
        for origin, message in zip(said.origins, said.messages, strict=False):
            one = Retained(origin, message)
            if not message.payload or not message.retain or not message.is_of(prefix, self.config.depth):
                continue
            if question is not None and len(question.heard) < HEARD_MAX:
                question.heard.add((message.topic, one.stamp))
            known = self.retained.get(message.topic)
            if (known is None or known.stamp < one.stamp) and self.put(origin, one):
                new.append(one)
        return new

    def tick(self) -> None:
        if self._told_ms:
            self._told_ms = {prefix: ms for prefix, ms in self._told_ms.items() if self.now_ms - ms < _AGAIN_MS}
        for prefix, question in [each for each in self._questions.items() if each[1].due_ms <= self.now_ms]:
            del self._questions[prefix]
            if question.has_mine:
                self._tell_mine(prefix)
            others = [one for one in self._of(prefix) if one.origin != self.node]
            self._answer(prefix, [one for one in others if (one.message.topic, one.stamp) not in question.heard])

    def _answer(self, prefix: Topic, several: list[Retained]) -> None:
        part: list[Retained] = []
        size = 0
        for one in several:
            if part and (size + one.size > _KEPT_BYTES or len(part) >= KEPT_MAX):
                self._tell(prefix, part)
                part, size = [], 0
            part.append(one)
            size += one.size
        if part:
            self._tell(prefix, part)

    def _tell(self, prefix: Topic, part: list[Retained]) -> None:
        said = Kept(tuple(one.origin for one in part), tuple(one.message for one in part))
        self.emits.append((prefix, wrap(said), "kept"))

    def check(self) -> None:
        self.retained.check()
        assert sum(len(topics) for topics in self._topics.values()) == len(self.retained)
        assert all(self.interests.wanted[prefix] and prefix in self.prefixes for prefix in self._mine)
        assert len(self.prefixes) == len(self._mine)
        mine = {topic for topics in self._mine.values() for topic in topics}
        assert mine == {
            topic for topics in self._topics.values() for topic in topics if self.retained[topic].origin == self.node
        }
