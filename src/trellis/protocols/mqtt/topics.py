"""MQTT topics and filters, and how they become overlay topics.  [MQTT 5, 4.7; docs/mqtt.md, Topics]

The overlay topic of an MQTT topic is its first `depth` levels. A filter is interest in every overlay topic that
contains a topic it matches. If its first levels have no wildcard, that is one overlay topic by name. Otherwise these
levels are a pattern, and all overlay topics that fit it are meant.

T1  A filter that matches a topic covers the topic's overlay topic. So nothing is missed.
T2  A filter that covers an overlay topic matches some topic in it. So nothing useless is subscribed to.
"""

from __future__ import annotations

from functools import lru_cache

from trellis.protocols.effects import Topic
from trellis.protocols.wire import is_printable

DEPTH = 2
# A topic of the mesh has at most 512 letters, and names of directories are a few letters longer.
PREFIX_LETTERS_MAX = 480
SHARED = "$share/"
SYS_LOG = "$SYS/broker/log"  # Mosquitto publishes its log here. Our nodes publish nothing.
SYS = "$SYS"  # first level of what a node tells its own clients about itself
LEVELS_MAX = 201  # most levels of a topic or a filter, as at Mosquitto: each level of a filter costs memory


def is_topic(text: str) -> bool:
    """Return whether a client may publish on it; `$` is the server's. [MQTT-4.7.1-1, 4.7.2-1, 4.7.3-1, 4.7.3-2]"""
    return bool(text) and "+" not in text and "#" not in text and text[0] != "$" and is_printable(text)


def levels_of(text: str) -> int:
    """Return the number of levels."""
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
    """Return whether a name from another node can be an overlay topic, or a pattern for some."""
    return name == "/" or levels_of(name) <= depth


def is_filter(text: str) -> bool:
    """Return whether a text is a valid filter.  [MQTT-4.7.1-1, 4.7.1-2, 4.7.3-1, 4.7.3-2]

    Control characters are refused, as the standard allows.  [MQTT 5, 1.5.4]
    """
    if not is_printable(text):
        return False
    if "+" not in text and "#" not in text:
        return True
    levels = text.split("/")
    if any(("+" in level or "#" in level) and len(level) > 1 for level in levels):
        return False
    return "#" not in levels[:-1]


def is_sys(text: str) -> bool:
    """Return whether a topic or filter belongs to `$SYS`. No wildcard stands for this level.  [MQTT-4.7.2-1]"""
    return text.startswith(SYS) and text[len(SYS) : len(SYS) + 1] in ("", "/")


def is_group(key: str) -> bool:
    """Return whether `$share/` followed by this text is a shared subscription: `GROUP/FILTER`.  [MQTT-4.8.2-1, -2]"""
    name, slash, filter_ = key.partition("/")
    if not name or not slash or not filter_ or has_wildcard(name) or not is_printable(name):
        return False
    return is_filter(filter_) and filter_[0] != "$" and levels_of(filter_) <= LEVELS_MAX


def shared_filter(key: str) -> str:
    """Return FILTER of `GROUP/FILTER`."""
    return key.partition("/")[2]


def unshared(filter_: str) -> str:
    """Return the filter of a shared subscription, or the filter itself."""
    return shared_filter(filter_[len(SHARED) :]) if filter_.startswith(SHARED) else filter_


def has_wildcard(text: str) -> bool:
    """Return whether a filter, or a level of it, has a wildcard."""
    return "+" in text or "#" in text


def overlay_topic(topic: str, depth: int) -> Topic:
    """Return the overlay topic of an MQTT topic. At depth 1, that of `/x` (an empty level) is written `/`."""
    end = -1
    for _ in range(depth):
        end = topic.find("/", end + 1)
        if end < 0:
            return topic
    return topic[:end] or "/"


def pattern_of(filter_: str, depth: int) -> str:
    """Return what a filter asks of overlay topics: a name, or a pattern that they must match."""
    levels = filter_.split("/")
    return "/".join(levels[:depth]) or "/"


def covers(pattern: str, prefix: Topic, depth: int) -> bool:
    """Return whether a pattern covers this overlay topic."""
    if not has_wildcard(pattern):
        return pattern == prefix
    return matches(pattern, as_topic(prefix, depth))


def as_topic(prefix: Topic, depth: int) -> str:
    """Return an overlay topic as patterns see it: at depth 1, `/` stands for an empty level."""
    return "" if depth == 1 and prefix == "/" else prefix


def matches(filter_: str, topic: str) -> bool:
    """Return whether a topic matches a filter. [MQTT-4.7.2-1: a wildcard in the first level matches no `$`]"""
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
