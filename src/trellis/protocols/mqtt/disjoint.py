"""Makes filters disjoint, so that a topic matches at most one of them.

A broker may deliver a message once for each filter of a session that matches it [MQTT 3.1.1, 3.3.5]. Such duplicates
have different identifiers and look like separate messages. So a sidecar that must count what it receives subscribes
with disjoint filters. They may match more topics than the given ones.

D1  A topic that matches one of the given filters matches exactly one of the returned ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest


def disjoint(filters: Iterable[str]) -> tuple[str, ...]:
    """Return disjoint filters that cover the given ones. A filter that begins with `$` is not allowed."""
    chosen: list[str] = []
    for filter_ in filters:
        while (other := next((each for each in chosen if overlap(filter_, each)), None)) is not None:
            chosen.remove(other)
            filter_ = cover(filter_, other)
        chosen.append(filter_)
    return tuple(chosen)


def overlap(first: str, second: str) -> bool:
    """Return whether some topic matches both filters."""
    a, b = first.split("/"), second.split("/")
    for x, y in zip(a, b, strict=False):
        if x == "#" or y == "#":
            return True
        if x != y and x != "+" and y != "+":
            return False
    rest = a[len(b) :] or b[len(a) :]
    return not rest or rest == ["#"]  # `a/#` matches `a`


def cover(first: str, second: str) -> str:
    """Return the narrowest filter that matches everything that either filter matches."""
    levels: list[str] = []
    for x, y in zip_longest(first.split("/"), second.split("/")):
        if x in ("#", None) or y in ("#", None):
            levels.append("#")
            break
        levels.append(x if x == y else "+")
    return "/".join(levels)
