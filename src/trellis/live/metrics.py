"""Print metrics for /metrics: in OpenMetrics 1.0 if the client asks for it, else in Prometheus' text format 0.0.4.

`series.py` fills an `Exposition` family by family, each with its help text and type. `text` then returns the page.
Names of metrics and labels are asserted when they are added. Label values may be any text, and are escaped.
[docs/dashboard.md names every metric]

The two formats differ in four points. OpenMetrics names a family of counters without `_total`, has the type `info`,
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
_ACCEPTED_MAX = 32  # Further entries of an Accept header are ignored.


class Exposition:
    """A page of metrics in one of the two formats."""

    def __init__(self, *, is_open: bool = False) -> None:
        """`is_open`: print OpenMetrics instead of the text format."""
        self.is_open = is_open
        self._lines: list[str] = []
        self._names: set[str] = set()  # of families that were added, without `_total` and `_info`

    def counter(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        """Add a family of counters. `value` is its only value, or one value for each set of labels."""
        assert name.endswith("_total"), name
        self._family(name, about, "counter", value)

    def gauge(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        """Add a family of gauges. `value` is its only value, or one value for each set of labels."""
        self._family(name, about, "gauge", value)

    def info(self, name: str, about: str, labels: Labels) -> None:
        """Add facts that do not change, as the labels of one sample whose value is always 1."""
        assert name.endswith("_info"), name
        self._family(name, about, "info" if self.is_open else "gauge", [(labels, 1)])

    def histogram(
        self, name: str, about: str, bounds: tuple[float, ...], histograms: Iterable[tuple[Labels, list[int], float]]
    ) -> None:
        """Add a family of histograms.

        `bounds` are the upper bounds of the buckets, without infinity. An item of `histograms` has its labels, the
        number of observations in each bucket (one more than there are bounds), and the sum of all observations.
        """
        self._head(name, about, "histogram")
        for labels, buckets, total in histograms:
            so_far = 0
            for bound, count in zip((*bounds, float("inf")), buckets, strict=True):
                so_far += count
                self._sample(f"{name}_bucket", {**labels, "le": _number(float(bound))}, so_far)
            self._sample(f"{name}_sum", labels, total)
            self._sample(f"{name}_count", labels, so_far)

    def text(self) -> str:
        """Return the whole page."""
        lines = [*self._lines, "# EOF"] if self.is_open else self._lines
        return "".join(f"{line}\n" for line in lines)

    @property
    def kind(self) -> str:
        """The media type of the page, for the Content-Type header."""
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
        assert all(_NAME.fullmatch(label) for label in labels), f"{dict(labels)} has no names of labels"
        listed = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        self._lines.append(f"{name}{{{listed}}} {_number(value)}" if listed else f"{name} {_number(value)}")


def accepts_openmetrics(accept: str) -> bool:
    """Return whether an Accept header prefers OpenMetrics 1.0 to plain text. An empty one does not; a tie does."""
    wishes = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for accepted in accept.split(",")[:_ACCEPTED_MAX]:
        kind, *rest = (part.strip().lower() for part in accepted.split(";"))
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
    """Return the name of a counter as an identifier of small letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")


def _escape(text: str, quotes: bool = True) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()  # A lone surrogate cannot be encoded as UTF-8.
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    return str(value) if isinstance(value, int) else repr(value)


def cpu_seconds() -> float:
    """Return the CPU time that this process has used, in user and system mode."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_bytes() -> int:
    """Return the memory that this process occupies now. Without /proc: the most that it has ever occupied."""
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        return pages * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1_024  # macOS counts bytes, others KiB
