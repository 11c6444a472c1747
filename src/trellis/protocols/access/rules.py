"""The access list: its text, and the rules in it.  [docs/access.md, The file]

    default deny

    [everyone]
    allow read public/#
    limit client messages 100

    [group operators]
    member ann
    allow readwrite plant/#
    deny write plant/+/setpoint

Each line is a rule, a limit, a section, a member or the default, so every decision can name its line.

A1  The order of the rules has no meaning: a rule that denies wins over all that allow.
A2  A text is accepted as a whole or refused as a whole, with the line and the reason.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trellis.errors import InputError
from trellis.protocols.mqtt.topics import LEVELS_MAX, is_filter, levels_of
from trellis.protocols.wire import is_printable

READ, WRITE = 1, 2
ACTIONS = {"read": READ, "write": WRITE, "readwrite": READ | WRITE}

LIMITS = (
    "client messages", "client bytes", "client subscriptions",
    "user messages", "user bytes", "user subscriptions", "user connections",
)  # fmt: skip
LIMIT_MAX = 10**12

FILE_BYTES_MAX = 1 << 20
RULES_MAX = 10_000
FILTER_LETTERS_MAX = 4_096
USER_LETTERS_MAX = 512

EVERYONE, ANONYMOUS = "everyone", "anonymous"  # Two subjects. The others are "user NAME" and "group NAME".

_FORM = "write allow or deny, then read, write or readwrite, then a topic filter"
_SECTIONS = "write [everyone], [anonymous], [user NAME] or [group NAME]"


class Rule(msgspec.Struct, frozen=True):
    """A line that allows or denies."""

    line: int
    subject: str  # the section in which it is
    is_allowed: bool
    actions: int  # READ, WRITE or both
    filter: str  # A topic filter in which %c is the client and %u the user.

    def __str__(self) -> str:
        word = next(name for name, actions in ACTIONS.items() if actions == self.actions)
        return f"[{self.subject}] {'allow' if self.is_allowed else 'deny'} {word} {self.filter}"


class Rules(msgspec.Struct, frozen=True):
    """A whole access list."""

    rules: tuple[Rule, ...] = ()
    groups: Mapping[str, frozenset[str]] = {}  # group -> its users
    is_open: bool = False  # Whether to allow what no rule decides.
    default_line: int = 0  # The line of the default. 0: there is none, and the default is to deny.
    limits: Mapping[str, Mapping[str, int]] = {}  # section -> name of the limit -> value

    def subjects_of(self, user: str | None) -> list[str]:
        """Return the sections of the file that hold for a user, or for a client without one."""
        if user is None:
            return [EVERYONE, ANONYMOUS]
        return [EVERYONE, f"user {user}", *(f"group {name}" for name, users in self.groups.items() if user in users)]

    def limits_of(self, user: str | None) -> dict[str, int]:
        """Return the limits of a user.

        A user's own limits replace those of its groups, and these replace those of everyone. Of several groups the
        largest limit counts.
        """
        everyone, *others = self.subjects_of(user)
        found = dict(self.limits.get(everyone, {}))
        own, *groups = [self.limits.get(one, {}) for one in others]
        for name in LIMITS:
            given = [one[name] for one in groups if name in one]
            if given:
                found[name] = max(given)
        return found | dict(own)


class _Reader:
    """Reads an access list line by line."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.rules: list[Rule] = []
        self.groups: dict[str, set[str]] = {}
        self.subject = ""  # the section of the present line
        self.is_open, self.default_line = False, 0
        self.limits: dict[str, dict[str, int]] = {}

    def read(self, number: int, line: str) -> None:
        """Read one line. Raise InputError if it is wrong."""
        word, _, rest = line.partition(" ")
        rest = rest.strip()
        if line.startswith("["):
            self._section(number, line)
        elif word == "default":
            self._default(number, rest)
        elif word == "member":
            self._member(number, rest)
        elif word == "limit":
            self._limit(number, rest)
        elif word in ("allow", "deny"):
            self._rule(number, word == "allow", rest)
        else:
            raise self._fault(
                number, f'"{_short(word)}" begins no line', f"{_FORM}; or default, member, limit, or a section"
            )

    def _section(self, number: int, line: str) -> None:
        if not line.endswith("]"):
            raise self._fault(number, "the section does not end with ]", _SECTIONS)
        kind, _, name = line[1:-1].strip().partition(" ")
        name = name.strip()
        if kind in (EVERYONE, ANONYMOUS) and not name:
            self.subject = kind
        elif kind in ("user", "group") and name:
            self._check_name(number, name)
            self.subject = f"{kind} {name}"
            if kind == "group":
                self.groups.setdefault(name, set())
        else:
            raise self._fault(number, "there is no such section", _SECTIONS)

    def _default(self, number: int, rest: str) -> None:
        if rest not in ("allow", "deny"):
            raise self._fault(number, "the default is neither allow nor deny", "write default allow or default deny")
        if self.default_line:
            raise self._fault(number, f"line {self.default_line} gives a default already", "leave one of them out")
        self.is_open, self.default_line = rest == "allow", number

    def _member(self, number: int, user: str) -> None:
        kind, _, group = self.subject.partition(" ")
        if kind != "group":
            raise self._fault(number, "a member stands outside a group", "write it below [group NAME]")
        self._check_name(number, user)
        self.groups[group].add(user)

    def _rule(self, number: int, is_allowed: bool, rest: str) -> None:
        word, _, filter_ = rest.partition(" ")
        filter_ = filter_.strip()
        if not self.subject:
            raise self._fault(number, "a rule stands before the first section", _SECTIONS)
        if word not in ACTIONS or not filter_:
            raise self._fault(number, "the rule is not complete", _FORM)
        if len(filter_) > FILTER_LETTERS_MAX or levels_of(filter_) > LEVELS_MAX:
            limit = f"{FILTER_LETTERS_MAX} letters and {LEVELS_MAX} levels"
            raise self._fault(number, "the topic filter is too long", f"give at most {limit}")
        if not is_filter(filter_):
            remedy = "+ and # stand alone in a level, and # in the last one"
            raise self._fault(number, f'"{_short(filter_)}" is no topic filter', remedy)
        if len(self.rules) >= RULES_MAX:
            raise self._fault(number, f"there are more than {RULES_MAX} rules", "use groups, %u and wildcards")
        self.rules.append(Rule(number, self.subject, is_allowed, ACTIONS[word], filter_))

    def _limit(self, number: int, rest: str) -> None:
        name, _, value = rest.rpartition(" ")
        name = " ".join(name.split())
        if not self.subject:
            raise self._fault(number, "a limit stands before the first section", _SECTIONS)
        if name not in LIMITS:
            raise self._fault(number, "there is no such limit", f"write limit, then one of: {', '.join(LIMITS)}")
        if not (value.isascii() and value.isdigit() and len(value) <= 13 and 0 < int(value) <= LIMIT_MAX):
            raise self._fault(number, "the limit is no number above 0", f"end the line with 1 to {LIMIT_MAX}")
        mine = self.limits.setdefault(self.subject, {})
        if name in mine:
            raise self._fault(number, f"[{self.subject}] has this limit already", "leave one of them out")
        mine[name] = int(value)

    def _check_name(self, number: int, name: str) -> None:
        if not is_printable(name) or len(name) > USER_LETTERS_MAX:
            remedy = f"give 1 to {USER_LETTERS_MAX} letters without control characters"
            raise self._fault(number, "this cannot be a name", remedy)

    def _fault(self, number: int, what: str, remedy: str) -> InputError:
        """Return the error for a line."""
        return InputError(f"{self.where}:{number}", what, remedy)


def parse_rules(data: bytes, where: str) -> Rules:
    """Return the rules of a file. Raise InputError, which names the line. `where` is the name of the file."""
    if len(data) > FILE_BYTES_MAX:
        raise InputError(where, f"it has {len(data)} bytes", f"give {FILE_BYTES_MAX} or fewer")
    reader = _Reader(where)
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode("utf-8").strip(" \t\r")
        except UnicodeDecodeError:
            raise InputError(f"{where}:{number}", "the line is not UTF-8", "save the file as UTF-8") from None
        if line and not line.startswith("#"):
            reader.read(number, " ".join(line.split("\t")))
    groups = {name: frozenset(users) for name, users in reader.groups.items()}
    return Rules(tuple(reader.rules), groups, reader.is_open, reader.default_line, reader.limits)


def _short(text: str) -> str:
    """Return a part of the file as an error shows it."""
    return ascii(text[:64])[1:-1]
