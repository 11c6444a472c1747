"""The patterns with wildcards that nodes hold, as their `Ask` messages tell. Publishers' nodes look them up here.

A holder is a node whose clients hold patterns. Each pattern has a number, drawn from its holder's counter when the
pattern was taken up. So a pattern that was dropped and taken up again differs from one that stayed, whatever was lost
or reordered in between.

K1  Of two statements about a pattern, the one with the greater number counts.
K2  However many names a peer invents, at most PATTERNS_ALL_MAX patterns of LETTERS_ALL_MAX letters are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import NEVER, Ask
from trellis.protocols.mqtt.interests import bucket_of
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.topics import as_topic, has_wildcard, is_filter, is_prefix

HOLDERS_MAX = 4_096
PATTERNS_MAX = 65_536  # most patterns of one holder
PATTERNS_ALL_MAX = 262_144  # most patterns of all holders
LETTERS_ALL_MAX = 16 << 20  # most letters in the patterns of all holders


@dataclass
class Told:
    """What a holder has told about one of its patterns."""

    number: int
    heard_ms: int
    turn: int = 0  # the turn in which `Introductions` took it in


@dataclass
class Holder:
    """A node with its patterns."""

    incarnation: Incarnation
    patterns: dict[str, Told] = field(default_factory=dict)


class PatternHolders:
    """The patterns of all nodes, this one included."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.nodes: dict[NodeId, Holder] = {}
        self._tree: FilterTree[NodeId, str] = FilterTree()  # (pattern, holder) -> pattern
        self._letters = 0  # letters of all patterns

    def hear(self, origin: NodeId, said: Ask, now_ms: int) -> tuple[list[str], list[int]] | None:
        """Take in an `Ask`. Return the patterns that are new, and the numbers of all patterns that were accepted.

        Return None if the message is stale, is of an earlier incarnation, or there is no space for another holder.
        """
        holder = self.nodes.get(origin)
        if holder is not None and holder.incarnation > said.incarnation:
            return None
        if holder is not None and holder.incarnation < said.incarnation:
            self.drop(origin)
            holder = None
        if holder is None:
            if len(self.nodes) >= HOLDERS_MAX:
                return None
            holder = self.nodes[origin] = Holder(said.incarnation)
        numbers = said.numbers if len(said.numbers) == len(said.patterns) else (0,) * len(said.patterns)
        new: list[str] = []
        taken: list[int] = []
        for pattern, number in zip(said.patterns, numbers, strict=True):
            known = holder.patterns.get(pattern)
            if known is None:
                if not is_prefix(pattern, self.depth) or not has_wildcard(pattern) or not is_filter(pattern):
                    continue
                if len(holder.patterns) >= PATTERNS_MAX or not self._has_room(pattern):
                    continue
                holder.patterns[pattern] = Told(number, now_ms)
                self._tree.put(pattern, origin, pattern)
                self._letters += len(pattern)
                new.append(pattern)
            elif number >= known.number:
                if number > known.number:
                    new.append(pattern)
                known.number, known.heard_ms = number, now_ms
            taken.append(number)
        gone = list(said.gone)
        # an earlier release always lists all its patterns
        if said.is_whole or (not said.numbers and said.upto == NEVER):
            listed = set(said.patterns)
            gone += [pattern for pattern in holder.patterns if pattern not in listed]
        for pattern in gone:
            known = holder.patterns.get(pattern)
            if known is not None and known.number <= said.upto:  # else it was taken up again since
                self._remove(origin, holder, pattern)
        if not holder.patterns:
            del self.nodes[origin]
        return [pattern for pattern in new if pattern in holder.patterns], taken

    def keep(self, me: NodeId, incarnation: Incarnation, numbers: dict[str, int], upto: int, now_ms: int) -> list[str]:
        """Set the patterns of this node itself, with their numbers. Return those that are new.

        `upto` is this node's counter. With `NEVER` instead, an `Ask` without new patterns would look like one of an
        earlier release, which holds only what it lists.
        """
        known = self.nodes[me].patterns if me in self.nodes else {}
        new = {
            pattern: number
            for pattern, number in numbers.items()
            if pattern not in known or known[pattern].number != number
        }
        gone = tuple(pattern for pattern in known if pattern not in numbers)
        if not new and not gone:
            return []
        heard = self.hear(me, Ask(incarnation, self.depth, tuple(new), tuple(new.values()), upto, gone), now_ms)
        return heard[0] if heard is not None else []

    def drop(self, origin: NodeId) -> None:
        """Forget all patterns of a node."""
        holder = self.nodes.pop(origin, None)
        if holder is not None:
            for pattern in list(holder.patterns):
                self._remove(origin, holder, pattern)

    def expire(self, oldest_ms: int, me: NodeId = "") -> None:
        """Drop patterns that were not repeated since `oldest_ms`. This node does not repeat its own ones (`keep`)."""
        for origin, holder in list(self.nodes.items()):
            if origin == me:
                continue
            for pattern in [pattern for pattern, told in holder.patterns.items() if told.heard_ms < oldest_ms]:
                self._remove(origin, holder, pattern)
            if not holder.patterns:
                del self.nodes[origin]

    def covering(self, prefix: Topic) -> dict[NodeId, int]:
        """Return the holders of patterns that cover an overlay topic, each with the greatest number among these."""
        numbers: dict[NodeId, int] = {}
        for origin, pattern in self._tree.matching(as_topic(prefix, self.depth)):
            numbers[origin] = max(numbers.get(origin, 0), self.nodes[origin].patterns[pattern].number)
        return numbers

    def new_since(self, prefix: Topic, turn: int) -> list[tuple[NodeId, int]]:
        """Return holders and numbers of the patterns that cover an overlay topic and were taken in after `turn`."""
        matching = self._tree.matching(as_topic(prefix, self.depth))
        patterns = [(origin, self.nodes[origin].patterns[pattern]) for origin, pattern in matching]
        return [(origin, told.number) for origin, told in patterns if told.turn > turn]

    def buckets(self, prefix: Topic) -> dict[NodeId, dict[Topic, None]]:
        """Return for each holder the directories over which it gets copies of an overlay topic.

        These are all directories in which it has a pattern that covers the topic. It may have left one of them, and we
        may not have heard of that yet.
        """
        buckets: dict[NodeId, dict[Topic, None]] = {}
        for origin, pattern in self._tree.matching(as_topic(prefix, self.depth)):
            buckets.setdefault(origin, {})[bucket_of(pattern)] = None
        return buckets

    def _has_room(self, pattern: str) -> bool:
        return self._tree.count < PATTERNS_ALL_MAX and self._letters + len(pattern) <= LETTERS_ALL_MAX

    def _remove(self, origin: NodeId, holder: Holder, pattern: str) -> None:
        del holder.patterns[pattern]
        self._tree.remove(pattern, origin)
        self._letters -= len(pattern)

    def check(self) -> None:
        assert len(self.nodes) <= HOLDERS_MAX
        told = sum(len(holder.patterns) for holder in self.nodes.values())
        assert told == self._tree.count <= PATTERNS_ALL_MAX, f"K2: {told} were told, {self._tree.count} are listed"
        letters = sum(len(pattern) for holder in self.nodes.values() for pattern in holder.patterns)
        assert letters == self._letters <= LETTERS_ALL_MAX, "K2"
