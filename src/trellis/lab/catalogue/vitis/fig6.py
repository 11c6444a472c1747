"""Larger tables.  [VI Fig. 6]"""

from __future__ import annotations

from trellis.lab.catalogue.vitis.shared import DEGREES, LEVELS, SCALES, SEEDS, links, rvr, vitis
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table, Values
from trellis.lab.verdict import Rule, below, falling, holds

TABLES = {"smoke": (15, 25, 35), "medium": (15, 20, 25, 30, 35), "paper": (15, 20, 25, 30, 35)}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return [*vitis(scale, table_size=TABLES[scale]), *rvr(scale, table_size=TABLES[scale])]


def along(table: Table, metric: str, system: str, level: str) -> list[Values]:
    return [table.each(metric, system, level=level, table_size=size) for size in table.values_of("table_size")]


def rule_a(table: Table) -> Rule:
    other = along(table, "overhead %", "RVR", "random")
    mine = {level: along(table, "overhead %", "Vitis", level) for level in LEVELS}
    less = [
        below(f"{level}: below RVR at {size} entries", float(m.mean()), float(o.mean()))
        for level in ("low", "high")
        for size, m, o in zip(table.values_of("table_size"), mine[level], other, strict=True)
    ]
    ends = [
        below(f"{level}: less with the largest table", float(v[-1].mean()), float(v[0].mean()))
        for level, v in mine.items()
    ]
    falls = [falling(f"{level}: overhead falls with the table", values) for level, values in mine.items()]
    return Rule([*falls, falling("RVR: overhead falls with the table", other), *less], ends)


def rule_b(table: Table) -> Rule:
    sizes = table.values_of("table_size")
    mine, other = ([float(v.mean()) for v in along(table, "delay", name, "random")] for name in ("Vitis", "RVR"))
    slower = [size for size, m, o in zip(sizes, mine, other, strict=True) if m > o]
    # The crossing lies between the last table with which Vitis is slower and the next one.
    most = max(slower, default=0)
    is_one = slower == [size for size in sizes if size <= most]
    crossed = is_one and most >= min(25, sizes[-2]) and mine[-1] < other[-1]
    last = below("random: faster than RVR with the largest table", mine[-1], other[-1])
    return Rule(
        [holds("random: slower than RVR up to a table of 25 to 35, then faster", f"slower at {slower}", crossed), last],
        [last],
    )


EXPERIMENTS = [
    Experiment(
        "vitis-fig6a",
        "Larger tables, less overhead",
        "Fig. 6(a)",
        "Overhead falls with the table in both systems.",
        run,
        rule_a,
        (Lines("overhead %", "table_size", "traffic overhead, %"), DEGREES),
        scales=SCALES,
        seeds=SEEDS,
        beside=links,
    ),
    Experiment(
        "vitis-fig6b",
        "Larger tables, shorter paths",
        "Fig. 6(b)",
        "Delay falls in both; on random interests Vitis beats RVR above 30 entries.",
        run,
        rule_b,
        (Lines("delay", "table_size", "propagation delay, hops"), DEGREES),
        scales=SCALES,
        seeds=SEEDS,
        beside=links,
    ),
]
