"""What an event costs on Facebook interests, by kinds of messages, beside SpiderCast.  [OM §6.8]

The paper counts messages on Twitter interests only (Fig. 12). The bounds here are goals of our own.
"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.omen.fig9 import MINE, SPIDER, apart, ratios
from trellis.lab.catalogue.omen.shared import SEEDS, SIZES, TIMED, fb
from trellis.lab.experiment import Bars, Case, Experiment, Over
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_most, below, each_of

CONTROL = ("coordination", "set-up")
GOAL_MESSAGES, GOAL_RATIO, GOAL_MORE = 65, 1.10, 0.45


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return fb(scale, at_hand, (MINE, SPIDER, "LowODA-Re"), SIZES[scale][:1], events=TIMED[scale])


def control(table: Table, system: str) -> float:
    """Return the messages of coordination and link set-up of an event."""
    return sum(table.mean(kind, system) for kind in CONTROL)


def rule(table: Table) -> Rule:
    (n,) = table.values_of("nodes")
    mine, other = control(table, MINE), control(table, SPIDER)
    fewer = below("control messages an event: fewer than SpiderCast's", mine, other)
    return Rule(
        [
            at_most("control messages an event", mine, GOAL_MESSAGES),
            fewer,
            at_most("mean_r(D_OMen / D_LowODA-Re)", ratios(table, MINE, "LowODA-Re", n), GOAL_RATIO),
            at_most("mean_r(d_OMen - d_LowODA-Re)", apart(table, MINE, "LowODA-Re", "d", n), GOAL_MORE),
            each_of(
                "every topic is connected after the last event",
                table.everywhere("split_end", MINE),
                lambda split: split == 0,
            ),
        ],
        [fewer],
    )


def beside(table: Table) -> str:
    """Return the control messages of an event by type, and the degrees, of each simulated system."""
    told = []
    for case in (case for case in table.cases() if "coordination" in table.metrics(case)):
        by_type = {
            metric.removeprefix("sent "): float(np.mean([one.of(np.mean) for one in table.of_case(case, metric)]))
            for metric in table.metrics(case)
            if metric.startswith("sent ")
        }
        listed = ", ".join(f"{name} {count:.1f}" for name, count in sorted(by_type.items(), key=lambda one: -one[1]))
        d, most = table.mean("d", case.system), table.mean("D", case.system)
        told.append(f"{case.system} {control(table, case.system):.1f} ({listed}; D {most:.1f}, d {d:.2f})")
    return f"control messages an event: {'; '.join(told)}"


EXPERIMENTS = [
    Experiment(
        "omen-s68",
        "Control messages of an event on Facebook interests",
        "§6.8",
        "SpiderCast sends significantly more messages. The bounds are ours: 65 messages an event, D at most 1.10 times "
        "LowODA's, d at most 0.45 above it.",
        run,
        rule,
        (
            Bars((*CONTROL, "early", "split"), "messages an event"),
            Over("D", "churn event", "maximum degree"),
            Over("d", "churn event", "mean degree"),
        ),
        seeds=SEEDS,
        by_step=("D",),
        beside=beside,
        note="The first 40 machine events; `omen-fig9a` has degrees over the whole trace. OMen builds backup sets by "
        "the rule of section 4.2.",
    )
]
