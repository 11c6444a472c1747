"""Tell which topics a filter matches, by the rules of MQTT 5, section 4.7. Written for the judge alone.

Native clients and MQTT clients share topics in part.  [docs/mqtt.md, Clients of `trellis.connect`]
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Asked(NamedTuple):
    """A filter, and the kind of client that subscribes to it: "native", "mqtt", or empty if that is unknown."""

    speaks: str
    filter: str


class Said(NamedTuple):
    """A topic, and the kind of client that publishes on it."""

    speaks: str
    topic: str


def unshared(wanted: str) -> str:
    """Return the filter that the sessions of a group share (`$share/GROUP/FILTER`), or `wanted` if it is not shared."""
    parts = wanted.split("/", 2)
    return parts[2] if parts[0] == "$share" and len(parts) == 3 else wanted


def matches(wanted: str, topic: str) -> bool:
    """Tell whether the filter `wanted` matches `topic`. Wildcards do not match topics that begin with `$`."""
    levels, parts = topic.split("/"), wanted.split("/")
    if topic.startswith("$") and parts[0] in ("#", "+"):
        return False
    for index, part in enumerate(parts):
        if part == "#":
            return True
        if index >= len(levels) or part not in ("+", levels[index]):
            return False
    return len(parts) == len(levels)


def has_wildcard(wanted: str) -> bool:
    """Tell whether an MQTT filter has a wildcard."""
    return "+" in wanted or "#" in wanted


def first_levels(wanted: str, depth: int) -> tuple[str, ...]:
    """Return the levels before the first wildcard, `depth` at most: every topic for the filter begins with them."""
    levels = unshared(wanted).split("/")[:depth]
    return tuple(levels[: next((index for index, level in enumerate(levels) if has_wildcard(level)), depth)])


def overlay_topic(said: Said, depth: int) -> str:
    """Return the topic on which a publication travels between nodes: of MQTT topics, the first `depth` levels."""
    if said.speaks != "mqtt":
        return said.topic
    return "/".join(said.topic.split("/")[:depth]) or "/"


@lru_cache(maxsize=100_000)
def reaches(said: Said, asked: Asked, depth: int) -> bool:
    """Tell whether a publication is for a subscription. Where a client's kind is unknown, the rules of MQTT count."""
    if asked.speaks == "native" and said.speaks:
        return overlay_topic(said, depth) == asked.filter  # names with wildcards are ordinary names
    if asked.speaks == "mqtt" and said.speaks == "native":
        is_shared = not has_wildcard(said.topic) and said.topic.count("/") < depth  # others are topics of their own
        return is_shared and matches(unshared(asked.filter), said.topic)
    return matches(unshared(asked.filter), said.topic)


def may_miss(said: Said, asked: Asked, depth: int) -> bool:
    """Tell whether a wildcard may miss the publication: a native one, where the first levels do not name the topic."""
    if (asked.speaks, said.speaks) != ("mqtt", "native"):
        return False
    return has_wildcard("/".join(unshared(asked.filter).split("/")[:depth]))


@lru_cache(maxsize=100_000)
def stands_on(said: Said, asked: Asked, depth: int) -> bool:
    """Tell whether a subscription makes its node one that may hold the publication: it is of the same overlay topic."""
    if asked.speaks != "mqtt" or not said.speaks:
        return reaches(said, asked, depth)
    return matches("/".join(unshared(asked.filter).split("/")[:depth]) or "/", overlay_topic(said, depth))


def is_sure_of(said: Said, asked: Asked, depth: int) -> bool:
    """Tell whether a subscription makes its node one that must count as a subscriber of the publication's topic.

    A node with a wildcard in the first levels joins a topic when it hears of it, which takes a while.
    """
    if asked.speaks == "mqtt" and said.speaks:
        first = "/".join(unshared(asked.filter).split("/")[:depth]) or "/"
        return not has_wildcard(first) and first == overlay_topic(said, depth)
    return reaches(said, asked, depth)
