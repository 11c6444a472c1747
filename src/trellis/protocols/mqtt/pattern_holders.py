"""Patterns with wildcards that nodes have told (`Ask`), as a publisher's node looks them up.

Each pattern bears a number, drawn from a counter of its holder when the pattern was taken up. So a pattern that was
dropped and taken up again is told apart from one that stayed, whatever was lost or reordered in between.

K1  of two statements about a pattern the one with the greater number counts
K2  however many names a peer invents, at most PATTERNS_ALL_MAX patterns of LETTERS_ALL_MAX letters are kept
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import NEVER, Ask
from trellis.protocols.mqtt.interests import bucket_of
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.topics import as_topic, has_wildcard, is_filter, is_prefix

HOLDERS_MAX = 4_096
PATTERNS_MAX = 65_536  # of one holder
PATTERNS_ALL_MAX = 262_144  # of all holders
LETTERS_ALL_MAX = 16 << 20  # of these


@dataclass
class Told:
    number: int
    heard_ms: int
    turn: int = 0  # when `Introductions` took it in


@dataclass
class Holder:
    """One holder of patterns."""

    incarnation: Incarnation
    patterns: dict[str, Told] = field(default_factory=dict)


class PatternHolders:
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.nodes: dict[NodeId, Holder] = {}
        self._tree: FilterTree[NodeId, str] = FilterTree()  # (pattern, holder) -> pattern
        self._letters = 0  # of all patterns

    def hear(self, origin: NodeId, said: Ask, now_ms: int) -> tuple[list[str], list[int]] | None:
        """Take in what a holder tells. Return the patterns that are new, and the numbers of all that were taken in.

        Return None where it is stale, of another incarnation than the last one, or there is no room for another holder.
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
        if said.is_whole or (not said.numbers and said.upto == NEVER):  # an earlier release always tells all
            listed = set(said.patterns)
            gone += [one for one in holder.patterns if one not in listed]
        for pattern in gone:
            known = holder.patterns.get(pattern)
            if known is not None and known.number <= said.upto:  # else it was taken up again since
                self._remove(origin, holder, pattern)
        if not holder.patterns:
            del self.nodes[origin]
        return [one for one in new if one in holder.patterns], taken

    def keep(self, me: NodeId, incarnation: Incarnation, numbers: dict[str, int], upto: int, now_ms: int) -> list[str]:
        """Take in the patterns of this node itself, exactly these, with their numbers. Return those that are new.

        `upto` is this node's counter. With `NEVER` instead, an `Ask` without new patterns would read as one of an
        earlier release, which holds nothing but what it lists.
        """
        known = self.nodes[me].patterns if me in self.nodes else {}
        new = {one: number for one, number in numbers.items() if one not in known or known[one].number != number}
        gone = tuple(one for one in known if one not in numbers)
        if not new and not gone:
            return []
        heard = self.hear(me, Ask(incarnation, self.depth, tuple(new), tuple(new.values()), upto, gone), now_ms)
        return heard[0] if heard is not None else []

    def drop(self, origin: NodeId) -> None:
        holder = self.nodes.pop(origin, None)
        if holder is not None:
            for pattern in list(holder.patterns):
                self._remove(origin, holder, pattern)

    def expire(self, oldest_ms: int, me: NodeId = "") -> None:
        """Drop what was not repeated since `oldest_ms`. What this node holds itself is not repeated (`keep`)."""
        for origin, holder in list(self.nodes.items()):
            if origin == me:
                continue
            for pattern in [one for one, told in holder.patterns.items() if told.heard_ms < oldest_ms]:
                self._remove(origin, holder, pattern)
            if not holder.patterns:
                del self.nodes[origin]

    def covering(self, prefix: Topic) -> dict[NodeId, int]:
        """Return the holders of patterns that cover an overlay topic, each with the greatest number of these."""
        found: dict[NodeId, int] = {}
        for origin, pattern in self._tree.matching(as_topic(prefix, self.depth)):
            found[origin] = max(found.get(origin, 0), self.nodes[origin].patterns[pattern].number)
        return found

    def new_since(self, prefix: Topic, turn: int) -> list[tuple[NodeId, int]]:
        """Return the holders, with numbers, of patterns that cover an overlay topic and were taken in after `turn`."""
        found = self._tree.matching(as_topic(prefix, self.depth))
        told = [(origin, self.nodes[origin].patterns[pattern]) for origin, pattern in found]
        return [(origin, one.number) for origin, one in told if one.turn > turn]

    def buckets(self, prefix: Topic) -> dict[NodeId, dict[Topic, None]]:
        """Return for each holder the directories over which it gets copies of an overlay topic.

        All in which it has a pattern that covers it: it may have left one of them, and we have not heard of that yet.
        """
        found: dict[NodeId, dict[Topic, None]] = {}
        for origin, pattern in self._tree.matching(as_topic(prefix, self.depth)):
            found.setdefault(origin, {})[bucket_of(pattern)] = None
        return found

    def _has_room(self, pattern: str) -> bool:
        return self._tree.count < PATTERNS_ALL_MAX and self._letters + len(pattern) <= LETTERS_ALL_MAX

    def _remove(self, origin: NodeId, holder: Holder, pattern: str) -> None:
        del holder.patterns[pattern]
        self._tree.remove(pattern, origin)
        self._letters -= len(pattern)

    def check(self) -> None:
        assert len(self.nodes) <= HOLDERS_MAX
        told = sum(len(one.patterns) for one in self.nodes.values())
        assert told == self._tree.count <= PATTERNS_ALL_MAX, f"K2: {told} were told, {self._tree.count} are listed"
        letters = sum(len(pattern) for one in self.nodes.values() for pattern in one.patterns)
        assert letters == self._letters <= LETTERS_ALL_MAX, "K2"
