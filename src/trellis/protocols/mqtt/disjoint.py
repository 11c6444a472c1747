"""Filters of which a topic matches at most one.

A broker may deliver a message once for each filter of a session that matches it [MQTT 3.1.1, 3.3.5]. Such copies have
identifiers of their own and cannot be told from messages. So who must count what comes subscribes to filters that do
not overlap; the price is that they may match more than was asked for.

D1  what matches one of the given filters matches exactly one of the found ones
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest


def disjoint(filters: Iterable[str]) -> tuple[str, ...]:
    """Those that overlap become one that covers them. None may begin with `$`: wildcards do not match that."""
    found: list[str] = []
    for one in filters:
        while (other := next((each for each in found if overlap(one, each)), None)) is not None:
            found.remove(other)
            one = cover(one, other)
        found.append(one)
    return tuple(found)


def overlap(first: str, second: str) -> bool:
    """Is there a topic that both match?"""
    a, b = first.split("/"), second.split("/")
    for x, y in zip(a, b, strict=False):
        if x == "#" or y == "#":
            return True
        if x != y and x != "+" and y != "+":
            return False
    rest = a[len(b) :] or b[len(a) :]
    return not rest or rest == ["#"]  # `a/#` matches `a`


def cover(first: str, second: str) -> str:
    """The narrowest filter that matches what either matches."""
    levels: list[str] = []
    for x, y in zip_longest(first.split("/"), second.split("/")):
        if x in ("#", None) or y in ("#", None):
            levels.append("#")
            break
        levels.append(x if x == y else "+")
    return "/".join(levels)
