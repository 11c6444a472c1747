"""MQTT's rules of matching, as the standard words them, and nothing clever.  [MQTT 5, 4.7]"""

from __future__ import annotations


def matches(filter_: str, topic: str) -> bool:
    # 4.7.2: The Server MUST NOT match Topic Filters starting with a wildcard character (# or +) with Topic Names
    # beginning with a $ character.
    if topic.startswith("$") and (filter_.startswith("#") or filter_.startswith("+")):
        return False
    return _match(filter_.split("/"), topic.split("/"))


def _match(filter_levels: list[str], topic_levels: list[str]) -> bool:
    if not filter_levels:
        return not topic_levels
    first, *rest = filter_levels
    # 4.7.1.2: The multi-level wildcard represents the parent and any number of child levels.
    if first == "#":
        return True
    if not topic_levels:
        return False
    # 4.7.1.3: The single-level wildcard matches only one topic level, and may match an empty one.
    if first == "+" or first == topic_levels[0]:
        if rest == ["#"] and len(topic_levels) == 1:  # "sport/#" also matches the singular "sport"
            return True
        return _match(rest, topic_levels[1:])
    return False


def is_filter(text: str) -> bool:
    if text == "" or "\0" in text:
        return False
    levels = text.split("/")
    for index, level in enumerate(levels):
        if "#" in level and (level != "#" or index != len(levels) - 1):
            return False  # 4.7.1-1: last character, alone or after a separator
        if "+" in level and level != "+":
            return False  # 4.7.1-2: an entire level
    return True


def prefix(topic: str, depth: int) -> list[str]:
    return topic.split("/")[:depth]
