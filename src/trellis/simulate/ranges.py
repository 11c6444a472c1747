"""Which numbers the options of a run may have. A number outside is refused before anything is computed.

Upper limits are far above what a run needs. They keep times, counts and tables within the integers of both engines, and
within a number of samples that ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from trellis.errors import InputError

SECONDS_MAX = 10_000_000  # almost four months; traces of machine events span one
ROUNDS_MAX = 10_000_000
PERIOD_MS_MAX = 3_600_000
COVERAGE_MAX = 10_000


class Range(NamedTuple):
    """The numbers from `least` to `most`."""

    least: float
    most: float
    unit: str = ""

    def require(self, value: float, option: str) -> None:
        """Raise InputError if `value` is outside. Not-a-number is outside of every range."""
        if not self.least <= value <= self.most:
            unit = f" {self.unit}" if self.unit else ""
            remedy = f"give {_shown(self.least)} to {_shown(self.most)}{unit}"
            raise InputError(f"{option} {value}", "is not in the range of this option", remedy)


_SHARE = Range(0, 1)
_PERIOD = Range(1, PERIOD_MS_MAX, "milliseconds")
_MOMENT = Range(0, 1000 * SECONDS_MAX, "milliseconds")

# Arguments of `trellis.simulate` and fields of `NetworkConfig`, which all systems have.
RUN = {
    "duration_s": Range(0.001, SECONDS_MAX, "seconds"),
    "broken_stream_s": Range(0, SECONDS_MAX, "seconds"),
    "rounds_per_event": Range(1, ROUNDS_MAX, "rounds"),
    "warmup_rounds": Range(0, ROUNDS_MAX, "rounds"),
    "view_share": _SHARE,
    "loss": _SHARE,
    "duplicate": _SHARE,
    "reorder": _SHARE,
}
# Options of single systems. A name means the same in all of them, with the exceptions below.
SYSTEM = {
    "coverage": Range(0, COVERAGE_MAX),
    "connectivity": Range(1, 2),
    "resilience": Range(1, 1_000),
    "rho": Range(1, 1e9),
    "kg": Range(0, COVERAGE_MAX),
    "kr": Range(0, COVERAGE_MAX),
    "x": Range(0, COVERAGE_MAX),
    "y": Range(0, COVERAGE_MAX),
    "table_size": Range(2, 1_000),
    "sw_neighbors": Range(2, 1_000),
    "gateway_hops": Range(1, 100),
    "silence_max": Range(1, 10_000),
    "linger_rounds": Range(0, 1_000),
    "publications": Range(0, 1_000_000_000),
    "links": Range(4, 1_000),
    "samples": Range(2, 100),
    "rejoin_changes": Range(1, 1_000_000),
    "improve_rounds": Range(0, ROUNDS_MAX),
    "join_gap_ms": Range(0, PERIOD_MS_MAX, "milliseconds"),
    "first_gap_ms": Range(0, PERIOD_MS_MAX, "milliseconds"),
    "trees_ms": _MOMENT,
    "period_ms": _PERIOD,
    "sample_ms": _PERIOD,
    "estimate_ms": _PERIOD,
    "copies": Range(1, 1_000),
    "window": Range(0.001, 1_000_000, "seconds"),
    "every_ms": Range(0, PERIOD_MS_MAX, "milliseconds"),
    "first_ms": _MOMENT,
    "foreign": _SHARE,
    "repair_ms": _MOMENT,
}
_EXCEPTIONS = {("opt", "coverage"): Range(1, COVERAGE_MAX)}


def require_run(values: Mapping[str, float | None], shown: Callable[[str], str] = str) -> None:
    """Raise InputError if an argument of a run is out of its range. `shown` returns how the caller names it."""
    for name, value in values.items():
        if value is not None:
            RUN[name].require(value, shown(name))


def require_options(protocol: str, options: Mapping[str, Any], shown: Callable[[str], str] = str) -> None:
    """Raise InputError if an option of a system is out of its range. Options without a range are left to the system."""
    for name, value in options.items():
        known = _EXCEPTIONS.get((protocol, name)) or SYSTEM.get(name)
        if known is not None and isinstance(value, int | float) and not isinstance(value, bool):
            known.require(value, shown(name))


def require_times(last_ms: int) -> None:
    """Raise InputError if the last event of a schedule or a trace is later than a run may take."""
    if last_ms > 1000 * SECONDS_MAX:
        what = f"the last event would happen at {last_ms / 1000:g} s"
        remedy = f"let it happen within {SECONDS_MAX:,} s: give fewer events, or fewer rounds between them"
        raise InputError("", what, remedy)


def _shown(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"
