"""The formats that can be read, by name. `sniff_format` tells the format of a file from its first lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trellis.errors import InputError
from trellis.pipeline.sources import availability, edits, graphs, machines, mosquitto, pairs, telemetry
from trellis.pipeline.sources.parsing import Source

SOURCES: dict[str, Source] = {
    source.name: source
    for module in (graphs, edits, pairs, machines, availability, telemetry, mosquitto)
    for source in module.SOURCES
}


def source_named(name: str, allowed: Iterable[str] | None = None) -> Source:
    """Return the source of a name. Raise an InputError that lists the names that the job allows."""
    names = list(SOURCES if allowed is None else allowed)
    if name not in names:
        raise InputError("", f'format "{name}" is not read here', f"choose one of {', '.join(names)}")
    return SOURCES[name]


def sniff_format(first: Sequence[str], allowed: Iterable[str] | None = None, where: str = "") -> Source:
    """Return the source whose format the first lines of a file most likely have."""
    names = list(SOURCES if allowed is None else allowed)
    scores = {name: SOURCES[name].sniff(first) for name in names}
    best = max(names, key=lambda name: scores[name])
    if scores[best] < 0.15:
        raise InputError(where, "looks like none of the formats that are read", f"name one: {', '.join(names)}")
    return SOURCES[best]
