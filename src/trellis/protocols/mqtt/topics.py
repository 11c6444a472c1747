"""MQTT topics and filters, and how they become overlay topics.  [MQTT 5, 4.7; docs/mqtt.md, Topics]

The overlay topic of an MQTT topic is its first `depth` levels. A filter is interest in every overlay topic that holds a
topic it matches: one by name where its first levels are plain, else all that fit a pattern.

T1  a filter that matches a topic covers the topic's overlay topic (nothing is missed)
T2  a filter that covers an overlay topic matches some topic in it (nothing foreign is asked for)
"""

from __future__ import annotations

from functools import lru_cache

from trellis.protocols.effects import Topic
from trellis.protocols.wire import is_printable

DEPTH = 2
PREFIX_LETTERS_MAX = 480  # an overlay topic's name has 512; the directory's names are longer by a few
SHARED = "$share/"
SYS_LOG = "$SYS/broker/log"  # where Mosquitto tells its log, and a node tells nothing
SYS = "$SYS"  # the first level of what a node tells about itself, to its own clients only
LEVELS_MAX = 128  # of a topic or a filter: each level of a filter costs memory


def is_topic(text: str) -> bool:
    """May a client publish on it? `$` belongs to the server.  [MQTT-4.7.1-1, 4.7.2-1, 4.7.3-1, 4.7.3-2]"""
    return bool(text) and "+" not in text and "#" not in text and text[0] != "$" and is_printable(text)


def levels_of(text: str) -> int:
    return text.count("/") + 1


def is_carried(topic: str, depth: int) -> bool:
    """Return whether messages on this topic travel through the mesh."""
    if not is_topic(topic) or levels_of(topic) > LEVELS_MAX:
        return False
    return len(overlay_topic(topic, depth)) <= PREFIX_LETTERS_MAX


def carried_prefix(topic: str, depth: int) -> Topic | None:
    """Return the overlay topic of an MQTT topic, or None if its messages do not travel through the mesh."""
    return _known_prefix(topic, depth) if len(topic) <= PREFIX_LETTERS_MAX else _prefix(topic, depth)


def _prefix(topic: str, depth: int) -> Topic | None:
    return overlay_topic(topic, depth) if is_carried(topic, depth) else None


_known_prefix = lru_cache(maxsize=8_192)(_prefix)  # the same topics come again and again


def is_prefix(name: str, depth: int) -> bool:
    """Return whether a name that came from another node can be an overlay topic, or a pattern for some."""
    return name == "/" or levels_of(name) <= depth


def is_filter(text: str) -> bool:
    """[MQTT-4.7.1-1, 4.7.1-2, 4.7.3-1, 4.7.3-2] Control characters may be refused.  [MQTT 5, 1.5.4]"""
    if not is_printable(text):
        return False
    if "+" not in text and "#" not in text:
        return True
    levels = text.split("/")
    if any(("+" in level or "#" in level) and len(level) > 1 for level in levels):
        return False
    return "#" not in levels[:-1]


def is_sys(text: str) -> bool:
    """Return whether a topic or filter is one of `$SYS`. No wildcard stands for this level.  [MQTT-4.7.2-1]"""
    return text.startswith(SYS) and text[len(SYS) : len(SYS) + 1] in ("", "/")


def is_group(key: str) -> bool:
    """Return whether `$share/` and this text are a shared subscription: `GROUP/FILTER`.  [MQTT-4.8.2-1, -2]"""
    name, slash, filter_ = key.partition("/")
    if not name or not slash or not filter_ or has_wildcard(name) or not is_printable(name):
        return False
    return is_filter(filter_) and filter_[0] != "$" and levels_of(filter_) <= LEVELS_MAX


def shared_filter(key: str) -> str:
    """Return FILTER of `GROUP/FILTER`."""
    return key.partition("/")[2]


def unshared(filter_: str) -> str:
    """Return the filter of which a client wants messages: that of its group, if it shares it."""
    return shared_filter(filter_[len(SHARED) :]) if filter_.startswith(SHARED) else filter_


def has_wildcard(text: str) -> bool:
    return "+" in text or "#" in text


def overlay_topic(topic: str, depth: int) -> Topic:
    """Where an MQTT topic travels. Empty only levels are levels: the prefix of `/x` at depth 1 is written `/`."""
    end = -1
    for _ in range(depth):
        end = topic.find("/", end + 1)
        if end < 0:
            return topic
    return topic[:end] or "/"


def pattern_of(filter_: str, depth: int) -> str:
    """What a filter asks of overlay topics: a name, or a pattern that they are to match."""
    levels = filter_.split("/")
    return "/".join(levels[:depth]) or "/"


def covers(pattern: str, prefix: Topic, depth: int) -> bool:
    """Does a pattern ask for this overlay topic?"""
    if not has_wildcard(pattern):
        return pattern == prefix
    return matches(pattern, as_topic(prefix, depth))


def as_topic(prefix: Topic, depth: int) -> str:
    """Return an overlay topic as patterns see it: at depth 1 the only name with a slash is that of the empty level."""
    return "" if depth == 1 and prefix == "/" else prefix


def matches(filter_: str, topic: str) -> bool:
    """[MQTT-4.7.2-1: a wildcard at the beginning matches no `$`]"""
    if topic[:1] == "$" and filter_[:1] in ("+", "#"):
        return False
    wanted, given = filter_.split("/"), topic.split("/")
    for index, level in enumerate(wanted):
        if level == "#":
            return True
        if index == len(given):
            return False
        if level != "+" and level != given[index]:
            return False
    return len(wanted) == len(given) or (len(wanted) == len(given) + 1 and wanted[-1] == "#")
