"""Filters of clients as interests of the node: overlay topics by name, and patterns.  [docs/mqtt.md, Wildcards]

A filter without wildcards in its first levels names one overlay topic, and the node takes part in it. Other filters
become a pattern. For a pattern the node takes part in its directory, and in every known overlay topic that it covers.

I1  The node takes part in an overlay topic exactly if a filter names it, if it is known and some pattern covers it, or
    if the directory needs it. After a pattern that covers very many was dropped, it takes some ticks until this holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.effects import MqttEffect, Unwant, Want
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.prefixes import Prefixes
from trellis.protocols.mqtt.topics import as_topic, has_wildcard, pattern_of

OURS = "$mqtt/"  # prefix of internal topics for MQTT
ROOT = f"{OURS}all"  # the directory for patterns with a wildcard in their first level
WITHIN = f"{OURS}in/"  # prefix of the directories for one first level each
QUESTIONS = f"{OURS}ask"  # all nodes with a listener or sidecar are on this topic
SHARES = f"{OURS}share"  # nodes with members of shared subscriptions are on this topic

# Most known overlay topics that are looked at between two ticks because their patterns were dropped.
TURN_STEPS = 2_000


def bucket_of(pattern: str) -> Topic:
    """Return the directory in which overlay topics that fit a pattern are announced."""
    level = pattern.split("/", 1)[0]
    return ROOT if has_wildcard(level) else WITHIN + level


def buckets_of(prefix: Topic) -> tuple[Topic, Topic]:
    """Return both directories in which an overlay topic can be announced."""
    return ROOT, WITHIN + prefix.split("/", 1)[0]


class Interests:
    """The overlay topics that this node takes part in because of MQTT."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.wanted: Counter[Topic] = Counter()  # overlay topic -> number of reasons to take part in it
        self.patterns: Counter[str] = Counter()  # pattern -> number of filters with this pattern
        self.numbers: dict[str, int] = {}  # the number of each pattern, drawn whenever it is taken up
        self.number = 0  # Grows whenever a pattern is taken up or dropped, or an overlay topic is forgotten.
        self.known: dict[Topic, int] = {}  # overlay topics that a pattern covers -> when they were last heard of
        self.out: list[MqttEffect] = []
        self._tree: FilterTree[str, None] = FilterTree()  # the patterns
        self._prefixes = Prefixes(depth)  # the same overlay topics as in `known`
        # dropped patterns whose overlay topics are still to be looked at, oldest first
        self._dropped: dict[str, None] = {}
        self._walk: Iterator[Topic | None] | None = None  # the overlay topics of the pattern that is being looked at
        self._steps = TURN_STEPS  # work that is left until the next tick

    def want(self, topic: Topic) -> None:
        """Add a reason to take part in a topic."""
        self.wanted[topic] += 1
        if self.wanted[topic] == 1:
            self.out.append(Want(topic))

    def unwant(self, topic: Topic) -> None:
        """Remove a reason to take part in a topic."""
        self.wanted[topic] -= 1
        if not self.wanted[topic]:
            del self.wanted[topic]
            self.out.append(Unwant(topic))

    def add(self, filter_: str) -> str:
        """Add a filter of a client. Return its pattern. Called once for each filter of each client."""
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
        """Remove filters of a client. Only overlay topics that a dropped pattern covers are looked at."""
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
        self._dropped.update(dict.fromkeys(pattern for pattern in dropped if not self._has_wider(pattern)))
        self._forget_more()

    def _forget_more(self) -> None:
        """Forget overlay topics that no pattern covers any more, within this turn's share of work."""
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
        """Continue with the next share of work."""
        self._steps = TURN_STEPS
        self._forget_more()

    def _has_wider(self, pattern: str) -> bool:
        """Return whether some other pattern covers everything that this one covers."""
        if pattern == "#":
            return False  # nothing is wider
        if pattern.endswith("/#"):
            return any(wider == "#" or wider.endswith("/#") for wider, _ in self._tree.matching(pattern[:-2]))
        return next(self._tree.matching(pattern), None) is not None  # only `+` and `#` match its `+`

    def learn(self, prefix: Topic, now_ms: int) -> bool:
        """Note that an overlay topic is in use. Return whether it is new here and a pattern covers it."""
        is_new = prefix not in self.known
        if is_new and not self.is_covered(prefix):
            return False
        self.known[prefix] = now_ms
        if is_new:
            self._prefixes.add(prefix)
            self.want(prefix)
        return is_new

    def forget(self, prefix: Topic) -> None:
        """Forget that an overlay topic is in use."""
        self.number += 1
        del self.known[prefix]
        self._prefixes.discard(prefix)
        self.unwant(prefix)

    def is_covered(self, prefix: Topic) -> bool:
        """Return whether some pattern covers an overlay topic."""
        return next(self.covering(prefix), None) is not None

    def covering(self, prefix: Topic) -> Iterator[str]:
        """Yield the patterns that cover an overlay topic."""
        if self._tree.count:
            for pattern, _ in self._tree.matching(as_topic(prefix, self.depth)):
                yield pattern

    def is_named(self, prefix: Topic) -> bool:
        """Return whether an overlay topic is wanted by name, and not only because patterns cover it."""
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
