"""Static construction and backup sets, and degrees by routine: what OMen shares with Shadows.  [OM Table 1, §6.3]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.shadows.fig2 import dual_figure, greedy_figure
from trellis.lab.catalogue.shadows.fig4 import BOTH, rule_omen_5, run_4
from trellis.lab.catalogue.shadows.shared import backup_sets, size
from trellis.lab.experiment import Bars, Case, Experiment, Lines, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, at_most, in_order

ALGORITHMS = ("gm", "lowoda", "minmax")
POPULARITY = ("unif", "zipf", "expo")
HELD = {"unif": 30, "zipf": 45, "expo": 60}


def run_tab1(scale: str, at_hand: AtHand) -> list[Case]:
    nodes = size(scale)["nodes"]
    return cases("shadows.built", ALGORITHMS, {"nodes": (nodes // 4, nodes // 2, nodes), "popularity": POPULARITY})


def rule_tab1(table: Table) -> Rule:
    checks = []
    for n in table.values_of("nodes"):
        for p in POPULARITY:
            links, D = (
                {name: table.each(metric, name, nodes=n, popularity=p) for name in ALGORITHMS}
                for metric in ("links", "D")
            )
            order = (links["gm"] <= links["lowoda"]) & (links["lowoda"] <= links["minmax"])
            order &= (D["minmax"] <= D["lowoda"] + 1) & (D["lowoda"] <= D["gm"])
            checks.append(at_least(f"{n} nodes, {p}: share of seeds in order", float(np.mean(order)), 0.9))
    return Rule(checks)


def run_s63(scale: str, at_hand: AtHand) -> list[Case]:
    return backup_sets(scale, POPULARITY, ("greedy", "greedy-weighted"))


def rule_s63(table: Table) -> Rule:
    def value(metric: str, p: str) -> float:
        return table.mean(metric, "greedy", popularity=p)

    share = [value("in < 5 %", p) for p in POPULARITY]
    order = in_order("share(in < 5): unif < zipf <= expo", [share[0], share[1], share[2] + 1e-9])
    return Rule(
        [
            order,
            at_least("share(in < 5) under zipf and expo, %", min(share[1:]), 80),
            at_most("nodes with in > 100, %", max(value("in > 100 %", p) for p in POPULARITY), 3),
            *(
                at_least(f"{p}: % of the assignments that they hold", value("assignments %", p), HELD[p])
                for p in POPULARITY
            ),
        ],
        [order],
    )


EXPERIMENTS = [
    Experiment(
        "omen-tab1",
        "GM, LowODA and MinMaxODA: links against degree",
        "Table 1",
        "GM has the fewest links, MinMaxODA the lowest maximum degree, LowODA lies between.",
        run_tab1,
        rule_tab1,
        (Lines("links", "nodes", "links", only={"popularity": "unif"}),
         Lines("D", "nodes", "maximum degree", log="y", only={"popularity": "unif"})),
    ),
    dual_figure("omen-fig3", "Fig. 3"),
    greedy_figure(
        "omen-fig4",
        "Fig. 4",
        "greedy",
        "By OMen's greedy routine, without weights. The weighted one of Shadows' Alg. 11 is balanced: see the numbers.",
    ),
    Experiment(
        "omen-s63",
        "Greedy sets under skewed popularity",
        "§6.3",
        "Below 5 primaries: 42.9 / 89.8 / 95.2% under uniform, Zipf and exponential popularity; about 1% of the nodes "
        "have more than 100, and back 35.8 / 50 / 66.9% of all.",
        run_s63,
        rule_s63,
        (Bars(("in < 5 %", "assignments %"), "%"),),
        note="Read as shares of all backup assignments; as nodes that have such a backup it would be 97% and more.",
    ),
    Experiment(
        "omen-fig5",
        "Primal-dual backups keep the degree low",
        "Fig. 5",
        "D = 84 after 1,000 rounds with greedy backups; primal-dual steadily low.",
        run_4,
        rule_omen_5,
        BOTH,
        note="OMen with global knowledge is asked for; central Shadows with the same routines stands for it.",
    ),
]  # fmt: skip
