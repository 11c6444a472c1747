"""Decide whether a client may read or write a topic, and by which rule.  [docs/access.md, How it is decided]

The rules of each section form a tree of levels, so a decision examines only rules that can match. Decisions are
remembered for `KNOWN_MAX` pairs of a client and a topic. `tests/reference/access.py` decides the same, slowly.

A3  A decision never depends on what is remembered.
A4  If a value of %c or %u cannot be one level of a topic, no rule with it allows anything. Such a value is empty,
    begins with $, or has a /, + or #. A rule that denies then holds for everything from that level on.
A5  A subscription is refused only if no topic that it matches may be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from trellis.protocols.access.quotas import Quotas
from trellis.protocols.access.rules import READ, WRITE, Rule, Rules
from trellis.protocols.mqtt.disjoint import overlap
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.topics import SHARED, has_wildcard, matches

KNOWN_MAX = 32_768  # most decisions that are remembered
KNOWN_LETTERS_MAX = 256  # Decisions about longer topics are not remembered.
STEPS_MAX = 10_000  # Most rules that are compared with the wildcards of one SUBSCRIBE.

_VALUES = re.compile("%[cu]")


class Who:
    """A client as the rules see it. Each connection or session has an instance of its own."""

    __slots__ = ("client", "user")

    def __init__(self, user: str | None, client: str) -> None:
        self.user = user  # Proven by a password, a token or a certificate. None: nothing was proven.
        self.client = client  # chosen by the client itself

    def value(self, name: str) -> str:
        """Return the value of %c or %u."""
        return self.client if name == "%c" else self.user or ""


class Decision(msgspec.Struct, frozen=True):
    """A decision, and the rule that made it. Without a rule the default decided."""

    is_allowed: bool
    rule: Rule | None


def expanded(rule: Rule, who: Who) -> str | None:
    """Return the filter of a rule with the client and the user filled in.  [A4]

    None: the rule cannot hold for them.
    """
    if "%" not in rule.filter:
        return rule.filter
    values = _VALUES.findall(rule.filter)
    if not all(_is_level(who.value(one)) for one in values):
        return None if rule.is_allowed else _before_values(rule.filter)
    return _VALUES.sub(lambda found: who.value(found[0]), rule.filter)


def _is_level(value: str) -> bool:
    """Return whether a value of %c or %u can be one level of a topic.  [A4]"""
    return bool(value) and value[0] != "$" and "/" not in value and not has_wildcard(value)


def _before_values(filter_: str) -> str:
    """Return a filter that matches all that a filter with %c or %u can match."""
    levels = filter_.split("/")
    first = next((place for place, one in enumerate(levels) if _VALUES.search(one)), None)
    return filter_ if first is None else "/".join([*levels[:first], "#"])


def overlaps(first: str, second: str) -> bool:
    """Return whether some topic matches both filters. A wildcard at the beginning does not match `$`."""
    for one, other in ((first, second), (second, first)):
        if one[:1] == "$" and other[:1] in ("+", "#"):
            return False
    return overlap(first, second)


def includes(wide: str, narrow: str) -> bool:
    """Return whether `wide` matches every topic that `narrow` matches. In doubt the answer is no."""
    if narrow[:1] == "$" and wide[:1] in ("+", "#"):
        return False
    given = narrow.split("/")
    levels = wide.split("/")
    for place, level in enumerate(levels):
        if level == "#":
            return True
        if place == len(given) or given[place] == "#":
            return False
        if level != "+" and level != given[place]:
            return False
    return len(levels) == len(given)


class Access:
    """The rules in use. `use` replaces them for all that share this object."""

    def __init__(self, rules: Rules) -> None:
        self.quotas = Quotas(rules)
        self.steps = STEPS_MAX  # Rules that may still be compared for this SUBSCRIBE. The caller sets it for each one.
        self.use(rules)

    def use(self, rules: Rules) -> None:
        """Decide by these rules from now on."""
        self.rules = rules
        self.quotas.use(rules)
        self._by_subject: dict[str, list[Rule]] = {}
        self._trees: dict[str, FilterTree[Rule, bool]] = {}  # By subject. True: the filter has %c or %u.
        for rule in rules.rules:
            self._by_subject.setdefault(rule.subject, []).append(rule)
            tree = self._trees.setdefault(rule.subject, FilterTree())
            tree.put(_before_values(rule.filter), rule, _VALUES.search(rule.filter) is not None)
        self._groups: dict[str, list[str]] = {}  # user -> sections of its groups that have rules
        for name, users in rules.groups.items():
            for user in users if f"group {name}" in self._trees else ():
                self._groups.setdefault(user, []).append(f"group {name}")
        self._known: dict[str, dict[Who, int]] = {}
        self._known_count = 0

    def may_read(self, who: Who, topic: str) -> bool:
        """Return whether a client may read a topic."""
        return bool(self.rights(who, topic) & READ)

    def may_write(self, who: Who, topic: str) -> bool:
        """Return whether a client may write a topic."""
        return bool(self.rights(who, topic) & WRITE)

    def rights(self, who: Who, topic: str) -> int:
        """Return what a client may do with a topic: READ, WRITE, both or neither."""
        known = self._known.get(topic)
        if known is not None and (found := known.get(who)) is not None:
            return found
        found = self._decide(who, topic)
        if len(topic) <= KNOWN_LETTERS_MAX:
            if self._known_count >= KNOWN_MAX:
                self._known.clear()
                self._known_count = 0
            self._known.setdefault(topic, {})[who] = found
            self._known_count += 1
        return found

    def _decide(self, who: Who, topic: str) -> int:
        """Return the same without the memory."""
        allowed, denied = READ | WRITE if self.rules.is_open else 0, 0
        for rule in self._matching(who, topic):
            if rule.is_allowed:
                allowed |= rule.actions
            else:
                denied |= rule.actions
        return allowed & ~denied  # A1

    def _matching(self, who: Who, topic: str) -> Iterator[Rule]:
        """Yield the rules that match a topic for a client."""
        for subject in self._subjects(who.user):
            for rule, has_values in self._trees[subject].matching(topic):
                filter_ = expanded(rule, who) if has_values else None
                if not has_values or (filter_ is not None and matches(filter_, topic)):
                    yield rule

    def _subjects(self, user: str | None) -> list[str]:
        """Return the sections with rules that hold for a user. The same as `Rules.subjects_of`, but faster."""
        own = ["everyone", "anonymous"] if user is None else ["everyone", f"user {user}", *self._groups.get(user, ())]
        return [one for one in own if one in self._trees]

    def explain(self, who: Who, action: int, topic: str) -> Decision:
        """Return the decision about a topic without wildcards, and the rule with the lowest line that makes it."""
        found = sorted((rule for rule in self._matching(who, topic) if rule.actions & action), key=_order)
        return Decision(found[0].is_allowed, found[0]) if found else Decision(self.rules.is_open, None)

    def may_subscribe(self, who: Who, filter_: str) -> bool:
        """Return whether a subscription is granted. Its messages are still checked topic by topic.  [A5]

        When `steps` are used up, a wildcard is granted without examining the rules.
        """
        filter_ = _asked(filter_)
        if not has_wildcard(filter_):
            return self.may_read(who, filter_)
        return self.explain_filter(who, filter_).is_allowed

    def explain_filter(self, who: Who, filter_: str) -> Decision:
        """Return whether a subscription with wildcards is granted, and the rule that decides it."""
        filter_ = _asked(filter_)
        granted: Rule | None = None
        for rule in self._readable(who):
            self.steps -= 1
            if self.steps < 0:
                return Decision(True, granted)
            own = expanded(rule, who)
            if own is None:
                continue
            if not rule.is_allowed and includes(own, filter_):
                return Decision(False, rule)
            if rule.is_allowed and granted is None and overlaps(own, filter_):
                granted = rule
        return Decision(granted is not None or self.rules.is_open, granted)

    def _readable(self, who: Who) -> Iterator[Rule]:
        """Yield all rules about reading that hold for a client."""
        for subject in self._subjects(who.user):
            yield from (rule for rule in self._by_subject[subject] if rule.actions & READ)


def _asked(filter_: str) -> str:
    """Return the filter that is asked for. In a shared subscription it is behind the name of the group."""
    return filter_.split("/", 2)[2] if filter_.startswith(SHARED) and filter_.count("/") > 1 else filter_


def _order(rule: Rule) -> tuple[bool, int]:
    """Return a key that sorts rules that deny first, then by line."""
    return rule.is_allowed, rule.line
