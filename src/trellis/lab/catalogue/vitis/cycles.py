"""Whether 50 gossip cycles are enough. No figure of the paper.  [VI §IV]"""

from __future__ import annotations

from trellis.lab.catalogue.vitis.shared import DEGREES, EVENTS, LEVELS, SCALES, SEEDS, engine, links, size
from trellis.lab.experiment import Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, at_most, each_of

COUNTS = {"smoke": (20, 30, 60), "medium": (50, 100, 200), "paper": (50, 100, 200)}
SLACK = 5  # percent


def run(scale: str, at_hand: AtHand) -> list[Case]:
    fixed = {name: value for name, value in size(scale).items() if name != "cycles"}
    return cases(EVENTS, "Vitis", {"level": LEVELS, "cycles": COUNTS[scale]}, **fixed, **engine(scale))


def off(table: Table, metric: str, level: str) -> float:
    """How far the least number of cycles is from the greatest, in percent."""
    counts = table.values_of("cycles")
    early, late = (table.mean(metric, "Vitis", level=level, cycles=count) for count in (counts[0], counts[-1]))
    return 100 * abs(early / max(late, 1e-9) - 1)


def rule(table: Table) -> Rule:
    last = table.values_of("cycles")[-1]
    hit = each_of(f"hit ratio 100% after {last} cycles", table.everywhere("hit ratio", cycles=last), lambda v: v == 1)
    checks: list[Check] = [
        at_most(f"{level}: {metric.removesuffix(' %')} after the fewest cycles, off that after the most by %",
                off(table, metric, level), SLACK)
        for level in LEVELS
        for metric in ("overhead %", "delay")
    ]  # fmt: skip
    return Rule([hit, *checks], [hit])


EXPERIMENTS = [
    Experiment(
        "vitis-cycles",
        "What more gossip cycles change",
        "§IV",
        "The paper does not say after how many cycles it measures; the other entries take 50.",
        run,
        rule,
        (
            Lines("overhead %", "cycles", "traffic overhead, %"),
            Lines("delay", "cycles", "propagation delay, hops"),
            Lines("missed", "cycles", "pairs missed"),
            DEGREES,
        ),
        scales=SCALES,
        seeds=SEEDS,
        beside=links,
        note="Converged: numbers after 50 cycles within 5% of those after the most cycles.",
    )
]
