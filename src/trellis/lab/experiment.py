"""An experiment is data: what is run, with what, and the rule that judges it. One small file each in `catalogue/`.

    case          measure, system and parameters: what one point of a figure needs, but for the seed
    row           a case with a seed: what one task of the runner does
    measure       a function (system, parameters, seed, inputs) -> numbers, in `measures/`, found by its name
    rule          reads the table of results alone, and gives the conditions R and S of the specification

Figures that ask for the same case share its rows: a row is known by what it does, not by who asks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from trellis.lab.inputs import AtHand
    from trellis.lab.table import Table
    from trellis.lab.verdict import Rule

SCALES = ("smoke", "medium", "paper", "beyond")
PAPERS = {
    "omen": "OMen, DEBS 2016",
    "shadows": "Shadows (ShadowDynAlg)",
    "spidercast": "SpiderCast, DEBS 2007",
    "vitis": "Vitis, IPDPS 2011",
    "magnet": "Magnet, DEBS 2010",
}
LARGE_NODES, LARGE_SEEDS = 10_000, 3  # five seeds at least, three from 10,000 nodes on  [EXPERIMENTS 1]
Parameters = Mapping[str, Any]  # plain values only: they are hashed, written and read as JSON

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Case(NamedTuple):
    measure: str  # module.function in `measures/`
    system: str
    parameters: Parameters

    @property
    def identity(self) -> str:
        """One text for equal cases, whatever the order of the parameters."""
        return json.dumps([self.measure, self.system, dict(self.parameters)], sort_keys=True, ensure_ascii=False)


class Row(NamedTuple):
    case: Case
    seed: int
    experiments: tuple[str, ...] = ()  # who asks for it; no part of its identity

    @property
    def key(self) -> str:
        """The name of its folder."""
        text = json.dumps([self.case.identity, self.seed, VERSIONS.get(self.case.measure, 1)])
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


# Raised by one when a measure changes what it measures: rows of the old one are then no longer found.
VERSIONS: dict[str, int] = {
    "omen.churned": 5,
    "omen.grown": 2,
    "omen.promises": 2,
    "shadows.maintained": 3,
    "spidercast.settled": 2,
    "vitis.events": 2,
    "vitis.crowd": 2,
    "magnet.cost": 2,
    "magnet.tail": 2,
}
# What a node costs in a measure, roughly, beside one of a static run of SpiderCast.
WEIGHTS = {
    "omen.churned": 0.7,
    "omen.views": 10.0,
    "omen.promises": 20.0,
    "vitis.events": 20.0,
    "vitis.perfect": 1.0,
    "magnet.cost": 20.0,
}


# Measures that compute without any engine: central algorithms, and properties of data.
CENTRAL = ("shadows.", "inputs.", "ideal.", "omen.rebuilt", "spidercast.closeness", "magnet.tail", "vitis.utility")
CENTRAL_SYSTEMS = ("RingPT", "LowODA-Re", "LowODA-Inc")


def engine_of(case: Case) -> str:
    """Return what produced the numbers of a case: cycles, events, a converged model, or a central algorithm."""
    if case.measure.startswith(CENTRAL) or case.system in CENTRAL_SYSTEMS:
        return "central"
    if case.parameters.get("model") == "converged":
        return "converged model"
    return str(case.parameters.get("engine", "events"))


def cases(
    measure: str, systems: Iterable[str] | str, grid: Mapping[str, Sequence[Any]] | None = None, **fixed: Any
) -> list[Case]:
    """Every system with every combination of the lists in `grid`, and what is the same for all."""
    names = [systems] if isinstance(systems, str) else list(systems)
    combined: list[dict[str, Any]] = [{}]
    for name, values in (grid or {}).items():
        combined = [{**one, name: value} for one in combined for value in values]
    return [Case(measure, system, {**fixed, **one}) for system in names for one in combined]


class Lines(NamedTuple):
    """A metric over a parameter: means over seeds with 95% intervals, a line per system and other parameters."""

    metric: str
    x: str
    ylabel: str = ""
    paper: Mapping[str, Mapping[Any, float]] = NOTHING  # what the paper prints: label -> x -> value
    log: str = ""  # "x", "y" or "xy"
    only: Parameters = NOTHING  # of all cases, those with these parameters
    line: Callable[[Parameters], str] | None = None  # names a line; else the parameters in which lines differ do


class Limited(NamedTuple):
    """Lines, and the cases without their parameter: each is a dashed line across the plot, and has its own column."""

    lines: Lines
    name: str  # the head of the column


class Over(NamedTuple):
    """A metric over its steps (rounds, time, degrees): means over seeds with 95% bands, a line per case."""

    metric: str
    xlabel: str = "churn round"
    ylabel: str = ""
    log: str = ""
    only: Parameters = NOTHING
    systems: tuple[str, ...] = ()  # of all systems, these
    paper: Mapping[str, Mapping[float, float]] = NOTHING  # what the paper prints: label -> step -> value


class Bars(NamedTuple):
    """Single numbers, a group per metric, a bar per case."""

    metrics: tuple[str, ...]
    ylabel: str = ""
    paper: Mapping[str, float] = NOTHING  # metric -> printed value, a line across its group
    log: str = ""
    only: Parameters = NOTHING


Plot = Lines | Limited | Over | Bars


@dataclass(frozen=True, eq=False)
class Experiment:
    id: str
    title: str
    figure: str  # as the paper numbers it
    claim: str  # what the paper reports
    cases: Callable[[str, AtHand], list[Case]]  # by scale and by the raw data that there is
    rule: Callable[[Table], Rule]
    plots: tuple[Plot, ...] = ()
    scales: tuple[str, ...] = ("smoke", "paper")
    seeds: Mapping[str, int] = field(default_factory=lambda: {"smoke": 2, "medium": 1, "paper": 5, "beyond": 3})
    always_exact: bool = False  # the smoke sizes are the paper's own
    beside: Callable[[Table], str] | None = None  # numbers without which the result misleads; printed with the verdict
    limit: str = ""  # what keeps it from `reproduced` at any size; printed with the verdict
    note: str = ""  # where we deviate, or what the rule does not see
    by_step: tuple[str, ...] = ()  # metrics whose single steps the rule reads: kept whole in `results/` (kept.py)
    is_timed: bool = False  # its rule divides times of different rows: all must come from one commit
    not_yet: str = ""  # why it cannot be judged now; nothing is run then
    no_data: str = ""  # the data set that it needs and nobody has; nothing is run then

    @property
    def paper(self) -> str:
        return self.id.split("-")[0]

    @property
    def can_run(self) -> bool:
        return not (self.not_yet or self.no_data)

    def rows(self, scale: str, at_hand: AtHand, seeds: Iterable[int] | None = None) -> list[Row]:
        if not self.can_run or scale not in self.scales:
            return []
        found = []
        for case in self.cases(scale, at_hand):
            wanted = range(1, self.seeds_of(case, scale) + 1) if seeds is None else seeds
            found += [Row(case, seed, (self.id,)) for seed in wanted]
        return found

    def seeds_of(self, case: Case, scale: str) -> int:
        """Return the number of seeds that the rules ask for."""
        count = self.seeds.get(scale, 1)
        return min(count, LARGE_SEEDS) if int(case.parameters.get("nodes", 0)) >= LARGE_NODES else count


def merged(rows: Iterable[Row]) -> list[Row]:
    """Each row once, with all who ask for it; the largest first, so that no core waits for one at the end."""
    found: dict[str, Row] = {}
    for row in rows:
        before = found.get(row.key)
        asking = row.experiments if before is None else (*before.experiments, *row.experiments)
        found[row.key] = row._replace(experiments=tuple(dict.fromkeys(asking)))
    return sorted(found.values(), key=lambda row: -size_of(row))


def size_of(row: Row) -> float:
    """A guess at its cost, to order rows and to tell the time left; only proportions matter."""
    told = row.case.parameters
    events = float(told.get("events", 50)) if row.case.measure == "omen.churned" else 1.0
    return float(told.get("nodes", 100)) * WEIGHTS.get(row.case.measure, 1.0) * min(events, 1500.0) + 50.0
