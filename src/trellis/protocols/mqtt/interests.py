"""Filters of clients as interests of the node: overlay topics by name, and patterns.  [docs/mqtt.md, Wildcards]

I1  an overlay topic is wanted exactly when a filter names it, or when it is known and some pattern covers it, or when
    the directory needs it. After a pattern that covers very many was dropped, it takes some ticks until that is so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.effects import MqttEffect, Unwant, Want
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.prefixes import Prefixes
from trellis.protocols.mqtt.topics import as_topic, has_wildcard, pattern_of

OURS = "$mqtt/"  # our own topics begin so
ROOT = f"{OURS}all"
WITHIN = f"{OURS}in/"
QUESTIONS = f"{OURS}ask"
SHARES = f"{OURS}share"  # nodes with members of groups of shared subscriptions

TURN_STEPS = 2_000  # Known overlay topics that are looked at between two ticks, because their patterns were dropped.


def bucket_of(pattern: str) -> Topic:
    """The directory in which overlay topics that fit a pattern are announced."""
    level = pattern.split("/", 1)[0]
    return ROOT if has_wildcard(level) else WITHIN + level


def buckets_of(prefix: Topic) -> tuple[Topic, Topic]:
    """Both directories in which an overlay topic can be announced."""
    return ROOT, WITHIN + prefix.split("/", 1)[0]


class Interests:
    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.wanted: Counter[Topic] = Counter()  # for how many reasons
        self.patterns: Counter[str] = Counter()  # with wildcards, of how many filters
        self.numbers: dict[str, int] = {}  # of each pattern: drawn anew whenever it is taken up
        self.number = 0  # Grows whenever a pattern is taken up or dropped, or an overlay topic is forgotten.
        self.known: dict[Topic, int] = {}  # overlay topics that a pattern covers -> heard of when
        self.out: list[MqttEffect] = []
        self._tree: FilterTree[str, None] = FilterTree()  # the patterns
        self._prefixes = Prefixes(depth)  # the same overlay topics as in `known`
        self._dropped: dict[str, None] = {}  # patterns whose overlay topics are still to be looked at, oldest first
        self._walk: Iterator[Topic | None] | None = None  # those of the pattern that is under way
        self._steps = TURN_STEPS  # left until the next tick

    def want(self, topic: Topic) -> None:
        self.wanted[topic] += 1
        if self.wanted[topic] == 1:
            self.out.append(Want(topic))

    def unwant(self, topic: Topic) -> None:
        self.wanted[topic] -= 1
        if not self.wanted[topic]:
            del self.wanted[topic]
            self.out.append(Unwant(topic))

    def add(self, filter_: str) -> str:
        """The pattern. Once for each filter of each client."""
        pattern = pattern_of(filter_, self.depth)
        if not has_wildcard(pattern):
            self.want(pattern)
            return pattern
        self.patterns[pattern] += 1
        if self.patterns[pattern] == 1:
            self.number += 1
            self.numbers[pattern] = self.number
            self._tree.put(pattern, pattern, None)
            self.want(bucket_of(pattern))
        return pattern

    def remove(self, *filters: str) -> None:
        """Give up filters of a client. Only overlay topics that a dropped pattern covers are looked at."""
        dropped: list[str] = []
        for filter_ in filters:
            pattern = pattern_of(filter_, self.depth)
            if not has_wildcard(pattern):
                self.unwant(pattern)
                continue
            self.patterns[pattern] -= 1
            if not self.patterns[pattern]:
                del self.patterns[pattern], self.numbers[pattern]
                self.number += 1
                self._tree.remove(pattern, pattern)
                self.unwant(bucket_of(pattern))
                dropped.append(pattern)
        self._dropped.update(dict.fromkeys(one for one in dropped if not self._has_wider(one)))
        self._forget_more()

    def _forget_more(self) -> None:
        """Forget overlay topics that no pattern covers any more, as far as this turn's share of work goes."""
        while self._steps > 0 and (self._walk is not None or self._dropped):
            if self._walk is None:
                pattern = next(iter(self._dropped))
                del self._dropped[pattern]
                self._walk = self._prefixes.walk(pattern)
            for prefix in self._walk:
                self._steps -= 1
                if prefix is not None and not self.is_covered(prefix):
                    self.forget(prefix)
                if self._steps <= 0:
                    break
            else:
                self._walk = None
                self._steps -= 1

    def tick(self) -> None:
        self._steps = TURN_STEPS
        self._forget_more()

    def _has_wider(self, pattern: str) -> bool:
        """Return whether some pattern covers everything that this one covers."""
        if pattern == "#":
            return False  # nothing is wider
        if pattern.endswith("/#"):
            return any(one == "#" or one.endswith("/#") for one, _ in self._tree.matching(pattern[:-2]))
        return next(self._tree.matching(pattern), None) is not None  # only `+` and `#` match its `+`

    def learn(self, prefix: Topic, now_ms: int) -> bool:
        """Somebody uses this overlay topic. True where it is new here and a pattern covers it."""
        is_new = prefix not in self.known
        if is_new and not self.is_covered(prefix):
            return False
        self.known[prefix] = now_ms
        if is_new:
            self._prefixes.add(prefix)
            self.want(prefix)
        return is_new

    def forget(self, prefix: Topic) -> None:
        self.number += 1
        del self.known[prefix]
        self._prefixes.discard(prefix)
        self.unwant(prefix)

    def is_covered(self, prefix: Topic) -> bool:
        return next(self.covering(prefix), None) is not None

    def covering(self, prefix: Topic) -> Iterator[str]:
        """Yield the patterns that cover an overlay topic."""
        if self._tree.count:
            for pattern, _ in self._tree.matching(as_topic(prefix, self.depth)):
                yield pattern

    def is_named(self, prefix: Topic) -> bool:
        """Return whether the overlay topic is wanted by name, and not only because patterns cover it."""
        return self.wanted[prefix] > (prefix in self.known)

    def check(self) -> None:
        is_settled = self._walk is None and not self._dropped
        for prefix in self.known:
            assert not is_settled or self.is_covered(prefix), f"I1: {prefix} is known without a reason"
            assert self.wanted[prefix], f"I1: {prefix} is known and not wanted"
        for pattern in self.patterns:
            assert self.wanted[bucket_of(pattern)], f"I1: {pattern} has no directory"
        assert self.numbers.keys() == self.patterns.keys()
        assert self._tree.count == len(self.patterns)
        assert len(self._prefixes) == len(self.known)
        assert all(prefix in self._prefixes for prefix in self.known)
