"""What /metrics says: Prometheus' text format 0.0.4.  [docs/dashboard.md names every metric]

An `Exposition` is filled family by family, each with its help and type, and printed. Names and labels are checked when
they are added; label values may be any text and are escaped.
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

KIND = "text/plain; version=0.0.4; charset=utf-8"
Labels = Mapping[str, str]
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Exposition:
    def __init__(self) -> None:
        self._lines: list[str] = []
        self._names: set[str] = set()

    def counter(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        assert name.endswith("_total"), name
        self._family(name, about, "counter", value)

    def gauge(self, name: str, about: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        self._family(name, about, "gauge", value)

    def histogram(
        self, name: str, about: str, bounds: tuple[float, ...], found: Iterable[tuple[Labels, list[int], float]]
    ) -> None:
        """For each: its labels, counts between the bounds (one more than there are bounds), and the sum."""
        self._head(name, about, "histogram")
        for labels, buckets, total in found:
            so_far = 0
            for bound, count in zip((*bounds, float("inf")), buckets, strict=True):
                so_far += count
                self._sample(f"{name}_bucket", {**labels, "le": _number(bound)}, so_far)
            self._sample(f"{name}_sum", labels, total)
            self._sample(f"{name}_count", labels, so_far)

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _family(self, name: str, about: str, kind: str, value: float | Iterable[tuple[Labels, float]]) -> None:
        self._head(name, about, kind)
        for labels, number in [({}, value)] if isinstance(value, int | float) else value:
            self._sample(name, labels, number)

    def _head(self, name: str, about: str, kind: str) -> None:
        assert _NAME.fullmatch(name), f"{name} is no name of a metric"
        assert name not in self._names, f"{name} is there already"
        self._names.add(name)
        self._lines += [f"# HELP {name} {_escape(about, quotes=False)}", f"# TYPE {name} {kind}"]

    def _sample(self, name: str, labels: Labels, value: float) -> None:
        assert all(_NAME.fullmatch(one) for one in labels), f"{dict(labels)} has no names of labels"
        told = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        self._lines.append(f"{name}{{{told}}} {_number(value)}" if told else f"{name} {_number(value)}")


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
