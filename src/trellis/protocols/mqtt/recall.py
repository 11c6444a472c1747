"""Retained messages across the mesh.  [docs/mqtt.md, Retained messages]

The node through which a retained message was published takes part in its overlay topic for as long as the message is
retained. A node that joins an overlay topic asks there which messages are retained (`Recall`). Each node answers at
once with the messages published through it. A moment later it adds the other ones that nobody has told, because their
nodes may be gone (`Kept`). Answers are merged by their stamps, so it does not matter which nodes answer, or how often.
A node that leaves an overlay topic forgets what others published there.

A question or an answer that the mesh refuses, for want of room, is given to it again a second later.

R1  Of two messages on a topic, the one with the later stamp stays. So the nodes of an overlay topic come to hold the
    same messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import KEPT_MAX, Kept, Recall, wrap
from trellis.protocols.mqtt.interests import Interests
from trellis.protocols.mqtt.prefixes import Prefixes
from trellis.protocols.mqtt.retained import Before, Retained, RetainedMessages
from trellis.protocols.mqtt.topics import overlay_topic

_OTHERS_MS = 600  # wait before we answer for other nodes: their own answers come first
_SPREAD_MS = 600  # nodes spread their answers over this time
_KEPT_BYTES = 128 << 10  # most bytes of one answer
QUESTIONS_MAX = 10_000  # most overlay topics with an open question
_AGAIN_MS = 1_000  # least time between two answers about an overlay topic, however often somebody asks
HEARD_MAX = 10 * KEPT_MAX  # most answers of others that are noted for a question


@dataclass
class Question:
    """A question on an overlay topic: we shall answer for nodes that do not."""

    due_ms: int
    # what others have answered: topic and stamp
    heard: set[tuple[str, tuple[int, NodeId, int]]] = field(default_factory=set)
    has_mine: bool = False  # Then we also answer with what was published here.


class Recaller:
    """The retained messages of this node, and its questions and answers about them."""

    def __init__(self, node: NodeId, config: MqttConfig, interests: Interests) -> None:
        self.node, self.config, self.interests = node, config, interests
        self.now_ms = 0
        self.retained = RetainedMessages(config.retained_max, config.retained_bytes)
        self.counters: Counter[str] = Counter()
        self.emits: list[tuple[Topic, bytes, str]] = []
        self._topics: dict[Topic, dict[str, None]] = {}  # overlay topic -> topics with a retained message
        # overlay topic -> topics with a retained message that was published here; this node takes part in these
        self._mine: dict[Topic, dict[str, None]] = {}
        self.adopted: dict[Topic, None] = {}  # overlay topics whose retained messages we keep for others (`keepers.py`)
        # the overlay topics of `_mine` and `adopted`: they are introduced to holders of patterns
        self.prefixes = Prefixes(config.depth)
        self._told_ms: dict[Topic, int] = {}  # when we last answered with what was published here
        self._questions: dict[Topic, Question] = {}
        self._given: dict[int, tuple[Topic, str]] = {}  # questions and answers without an outcome, by their number
        self._ask_again_ms: dict[Topic, int] = {}  # overlay topic -> when to ask again: the mesh refused the question

    def put(self, origin: NodeId, kept: Retained) -> bool:
        """Retain a message, or remove one (empty payload). Return False if there is no space."""
        message = kept.message
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
        """Forget the retained message of a topic."""
        self.retained.remove(topic)
        self._index(topic)

    def _index(self, topic: str) -> None:
        """Update the indexes after the retained message of a topic has changed."""
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
                self._hold(prefix)
            self._mine[prefix][topic] = None
        elif topic in self._mine.get(prefix, ()):
            del self._mine[prefix][topic]
            if not self._mine[prefix]:
                del self._mine[prefix]
                self._let_go(prefix)

    def _hold(self, prefix: Topic) -> None:
        """Take part in an overlay topic, for one more reason."""
        if (prefix in self._mine) + (prefix in self.adopted) == 1:
            self.prefixes.add(prefix)
        self.interests.want(prefix)

    def _let_go(self, prefix: Topic) -> None:
        """Take part in an overlay topic for one reason less."""
        if prefix not in self._mine and prefix not in self.adopted:
            self.prefixes.discard(prefix)
        self.interests.unwant(prefix)

    def adopt(self, prefix: Topic) -> None:
        """Keep what is retained in an overlay topic, although nobody here subscribes to it."""
        if prefix not in self.adopted:
            self.adopted[prefix] = None
            self._hold(prefix)

    def release(self, prefix: Topic) -> None:
        """Keep it no more."""
        del self.adopted[prefix]
        self._let_go(prefix)

    def held(self) -> Iterator[Topic]:
        """Yield the overlay topics for whose retained messages this node cares, if there are any."""
        yield from self._mine
        yield from (prefix for prefix in self.adopted if prefix not in self._mine and prefix in self._topics)

    def has_any(self, prefix: Topic) -> bool:
        """Return whether anything is retained in an overlay topic."""
        return prefix in self._topics

    def _of(self, prefix: Topic) -> list[Retained]:
        """Return the retained messages of an overlay topic."""
        return [self.retained[topic] for topic in self._topics.get(prefix, ())]

    # Joining and leaving

    def joined(self, prefix: Topic) -> None:
        """This node takes part in an overlay topic now: ask which messages are retained."""
        self.emits.append((prefix, wrap(Recall()), "recall"))

    def left(self, prefix: Topic) -> None:
        """This node has left an overlay topic: forget what others published there, since it may change without us."""
        for kept in self._of(prefix):
            if kept.origin != self.node:
                self.remove(kept.message.topic)
        self._questions.pop(prefix, None)
        self._ask_again_ms.pop(prefix, None)

    # What the mesh does with questions and answers

    def given(self, number: int, prefix: Topic, which: str) -> None:
        """A question (`recall`) or an answer (`kept`) was given to the mesh under this number."""
        self._given[number] = prefix, which

    def taken(self, number: int) -> None:
        """The mesh has accepted it."""
        self._given.pop(number, None)

    def refused(self, number: int) -> None:
        """The mesh has refused it at once. Say it again when there may be room, if we still take part."""
        prefix, which = self._given.pop(number, ("", ""))
        due_ms = self.now_ms + _AGAIN_MS
        if which == "recall" and self.interests.wanted[prefix]:
            self._ask_again_ms[prefix] = due_ms
        elif which == "kept" and prefix in self._questions:
            self._questions[prefix].has_mine = True
        elif which == "kept" and len(self._questions) < QUESTIONS_MAX:
            self._questions[prefix] = Question(due_ms, has_mine=True)

    # Questions and answers

    def on_recall(self, prefix: Topic, origin: NodeId) -> None:
        """A node asks which messages are retained."""
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
        """Answer with what was published here."""
        mine = [self.retained[topic] for topic in self._mine.get(prefix, ())]
        if mine:
            self._told_ms[prefix] = self.now_ms
            self._answer(prefix, mine)

    def on_kept(self, prefix: Topic, said: Kept) -> list[Retained]:
        """Take in an answer. Return the messages that are new here."""
        new: list[Retained] = []
        question = self._questions.get(prefix)
        for origin, message in zip(said.origins, said.messages, strict=False):
            kept = Retained(origin, message)
            if not message.payload or not message.retain or not message.is_of(prefix, self.config.depth):
                continue
            if question is not None and len(question.heard) < HEARD_MAX:
                question.heard.add((message.topic, kept.stamp))
            if self.retained.stamp_of(message.topic) < kept.stamp and self.put(origin, kept):
                new.append(kept)
        return new

    def tick(self) -> None:
        """Answer the questions that are due, and ask again what the mesh has refused."""
        for prefix in [prefix for prefix, due_ms in self._ask_again_ms.items() if due_ms <= self.now_ms]:
            del self._ask_again_ms[prefix]
            self.joined(prefix)
        if self._told_ms:
            self._told_ms = {prefix: ms for prefix, ms in self._told_ms.items() if self.now_ms - ms < _AGAIN_MS}
        for prefix, question in [each for each in self._questions.items() if each[1].due_ms <= self.now_ms]:
            del self._questions[prefix]
            if question.has_mine:
                self._tell_mine(prefix)
            others = [kept for kept in self._of(prefix) if kept.origin != self.node]
            self._answer(prefix, [kept for kept in others if (kept.message.topic, kept.stamp) not in question.heard])

    def _answer(self, prefix: Topic, several: list[Retained]) -> None:
        """Publish retained messages, in several answers if needed."""
        part: list[Retained] = []
        size = 0
        for kept in several:
            if part and (size + kept.size > _KEPT_BYTES or len(part) >= KEPT_MAX):
                self._tell(prefix, part)
                part, size = [], 0
            part.append(kept)
            size += kept.size
        if part:
            self._tell(prefix, part)

    def _tell(self, prefix: Topic, part: list[Retained]) -> None:
        said = Kept(tuple(kept.origin for kept in part), tuple(kept.message for kept in part))
        self.emits.append((prefix, wrap(said), "kept"))

    def check(self) -> None:
        self.retained.check()
        assert sum(len(topics) for topics in self._topics.values()) == len(self.retained)
        assert all(self.interests.wanted[prefix] and prefix in self.prefixes for prefix in self._mine)
        assert len(self.prefixes) == len(self._mine.keys() | self.adopted.keys())
        assert all(self.interests.wanted[prefix] for prefix in self.adopted)
        mine = {topic for topics in self._mine.values() for topic in topics}
        assert mine == {
            topic for topics in self._topics.values() for topic in topics if self.retained[topic].origin == self.node
        }
