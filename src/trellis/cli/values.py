"""Values that a shell offers for an option or an argument.

A shell asks at every press of Tab, so nothing here imports numpy, numba or pyspark. Names of modules that do are
repeated here, and a test holds the two equal. If nothing is offered, the shell completes names of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from trellis.protocols.overlays import OVERLAYS

Offer = Callable[[str], list[tuple[str, str]]]
Values = Iterable[str] | Mapping[str, str]

PLAN_ALGORITHMS = {
    "lowoda": "few links and a low maximum degree",
    "gm": "the fewest links",
    "minmax": "the lowest maximum degree",
    "ring": "a baseline",
    "ringpt": "the same as ring",
    "random": "a baseline",
    "star": "a baseline",
}
CANDIDATES = {
    "auto": "all, and sampled above 20,000 nodes where that takes long",
    "all": "every pair of nodes that shares a topic",
    "sampled": "a few for each node",
}
GREEDY_ALGORITHMS = ("lowoda", "gm", "minmax")
FORMATS = {  # of raw files, by the job of `trellis pipeline` that reads them
    "social": ("edges", "facebook", "twitter"),
    "edits": ("wikipedia",),
    "pairs": ("pairs", "telemetry", "mosquitto"),
    "churn": ("google2011", "google2019", "avt", "fta", "sessions", "telemetry", "mosquitto"),
    "rates": ("publications", "mosquitto"),
    "events": ("events", "mosquitto"),
    "watch": ("events", "mosquitto"),
    "profile": ("interests", "edges", "facebook", "twitter"),
}
SYSTEM_OPTIONS = {  # options of `trellis simulate PROTOCOL` that take one of a few words
    "knowledge": ("hints", "neighbours", "global"),
    "backups": ("primal-dual-carry", "primal-dual", "primal-dual-uncovered", "greedy"),
    "tree": ("graft", "greedy-path"),
    "sampling": ("as-written", "uniform"),
    "hop_limit": ("at-most", "below"),
    "overlay": tuple(OVERLAYS),
}
LOG_LEVELS = ("debug", "info", "warning", "error")
SPARK_LOG_LEVELS = ("off", "fatal", "error", "warn", "info", "debug")
SCALES = ("smoke", "medium", "paper", "beyond")
_PATHS_MAX = 200


def among(values: Values | Callable[[], Values], *, or_file: bool = False) -> Offer:
    """Offer these values. A mapping also gives their meanings. `or_file`: offer matching files as well."""

    def offer(incomplete: str) -> list[tuple[str, str]]:
        choices = values() if callable(values) else values
        about = choices if isinstance(choices, Mapping) else dict.fromkeys(choices, "")
        offered = [(value, text) for value, text in about.items() if value.startswith(incomplete)]
        return [*offered, *((path, "") for path in _paths(incomplete))] if or_file and offered else offered

    return offer


def _paths(incomplete: str) -> list[str]:
    folder, _, start = incomplete.rpartition("/")
    try:
        inside = sorted(Path(f"{folder}/" if folder or incomplete.startswith("/") else ".").iterdir())
    except OSError:
        return []
    before = incomplete[: len(incomplete) - len(start)]
    chosen = [path for path in inside if path.name.startswith(start) and (start or not path.name.startswith("."))]
    return [f"{before}{path.name}{'/' if path.is_dir() else ''}" for path in chosen[:_PATHS_MAX]]


def workloads() -> dict[str, str]:
    """Return the generators, their short names and presets."""
    from trellis.workloads.configs import GENERATORS
    from trellis.workloads.presets import ALIASES

    generators = {name: " ".join((kind.__doc__ or "").split()) for name, kind in GENERATORS.items()}
    return {**generators, **dict.fromkeys(ALIASES, ""), **presets()}


def presets() -> dict[str, str]:
    from trellis.workloads.presets import PRESETS

    return {name: entry.about for name, entry in PRESETS.items()}


def churn_models() -> list[str]:
    from trellis.workloads.churn_configs import CHURN_ALIASES, CHURN_MODELS

    return [*CHURN_MODELS, *CHURN_ALIASES]


def experiments() -> dict[str, str]:
    """Return the arguments of `trellis lab run`: all, the papers, and the ids of experiments."""
    from trellis.lab.catalogue import catalogue
    from trellis.lab.experiment import PAPERS

    return {"all": "every experiment", **PAPERS, **{one.id: one.title for one in catalogue().values()}}
