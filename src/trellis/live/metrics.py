"""The formats of /metrics: OpenMetrics 1.0 where it is asked for, else Prometheus' text format 0.0.4.

An `Exposition` is filled family by family, each with its help and type, and printed in one of the two formats. Names
and labels are checked when they are added; label values may be any text and are escaped.  [docs/dashboard.md names
every metric]

The formats differ in four things. OpenMetrics names a family of counters without `_total`, knows the type `info`,
states the unit of a family that has one, and ends with `# EOF`.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
Labels = Mapping[str, str]
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_UNITS = ("seconds", "bytes")
_ACCEPTED_MAX = 32  # entries of an Accept header that are looked at


class Exposition:
    def __init__(self, *, is_open: bool = False) -> None:
        """`is_open`: print OpenMetrics."""
        self.is_open = is_open
        self._lines: list[str] = []
        self._names: set[str] = set()

    def counter(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        assert name.endswith("_total"), name
        self._family(name, about, "counter", value)

    def gauge(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        self._family(name, about, "gauge", value)

    def info(self, name: str, about: str, labels: Labels) -> None:
        """What does not change: one sample, always 1."""
        assert name.endswith("_info"), name
        self._family(name, about, "info" if self.is_open else "gauge", [(labels, 1)])

    def histogram(
        self, name: str, about: str, bounds: tuple[float, ...], found: Iterable[tuple[Labels, list[int], float]]
    ) -> None:
        """For each: its labels, counts between the bounds (one more than there are bounds), and the sum."""
        self._head(name, about, "histogram")
        for labels, buckets, total in found:
            so_far = 0
            for bound, count in zip((*bounds, float("inf")), buckets, strict=True):
                so_far += count
                self._sample(f"{name}_bucket", {**labels, "le": _number(float(bound))}, so_far)
            self._sample(f"{name}_sum", labels, total)
            self._sample(f"{name}_count", labels, so_far)

    def text(self) -> str:
        lines = [*self._lines, "# EOF"] if self.is_open else self._lines
        return "".join(f"{line}\n" for line in lines)

    @property
    def kind(self) -> str:
        return OPENMETRICS if self.is_open else TEXT

    def _family(self, name: str, about: str, kind: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        self._head(name, about, kind)
        for labels, number in [({}, value)] if isinstance(value, int | float) else value:
            self._sample(name, labels, number)

    def _head(self, name: str, about: str, kind: str) -> None:
        assert _NAME.fullmatch(name), f"{name} is no name of a metric"
        bare = name.removesuffix("_total").removesuffix("_info")
        assert bare not in self._names, f"{name} is there already, in OpenMetrics at least"
        self._names.add(bare)
        family = bare if self.is_open else name
        self._lines += [f"# HELP {family} {_escape(about, quotes=self.is_open)}", f"# TYPE {family} {kind}"]
        unit = family.rpartition("_")[2]
        if self.is_open and unit in _UNITS:
            self._lines.append(f"# UNIT {family} {unit}")

    def _sample(self, name: str, labels: Labels, value: float) -> None:
        assert all(_NAME.fullmatch(one) for one in labels), f"{dict(labels)} has no names of labels"
        told = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        self._lines.append(f"{name}{{{told}}} {_number(value)}" if told else f"{name} {_number(value)}")


def accepts_openmetrics(accept: str) -> bool:
    """Return whether a client's Accept header prefers OpenMetrics 1.0 to plain text. Without a header it does not."""
    wishes = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for one in accept.split(",")[:_ACCEPTED_MAX]:
        kind, *rest = (part.strip().lower() for part in one.split(";"))
        given = dict(part.partition("=")[::2] for part in rest)
        try:
            quality = float(given.get("q", "1"))
        except ValueError:
            continue
        if kind == "application/openmetrics-text" and given.get("version", "1.0.0").strip('"') != "1.0.0":
            continue
        if kind in wishes and 0 <= quality <= 1:
            wishes[kind] = max(wishes[kind], quality)
    openmetrics, text = wishes.values()
    return openmetrics > 0 and openmetrics >= text


def slug(text: str) -> str:
    """Make an identifier of a counter's name: small letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _escape(text: str, quotes: bool = True) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # half of a surrogate pair is no UTF-8
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(value)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Of this process now; where the system does not tell that, the most that it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1_024
