"""Which topics a filter matches, by the rules of MQTT 5, section 4.7. Written for the judge alone."""

from __future__ import annotations


def unshared(wanted: str) -> str:
    """Return the filter that the sessions of a group share (`$share/GROUP/FILTER`), or `wanted` if it is not shared."""
    parts = wanted.split("/", 2)
    return parts[2] if parts[0] == "$share" and len(parts) == 3 else wanted


def matches(wanted: str, topic: str) -> bool:
    """Tell whether the filter `wanted` matches `topic`. Wildcards do not match topics that begin with `$`."""
    levels, parts = topic.split("/"), wanted.split("/")
    if topic.startswith("$") and parts[0] in ("#", "+"):
        return False
    for place, part in enumerate(parts):
        if part == "#":
            return True
        if place >= len(levels) or part not in ("+", levels[place]):
            return False
    return len(parts) == len(levels)
