"""HIERARCHICAL-TOPICS: the workload, and the saving on it.  [MG Fig. 7-8]"""

from __future__ import annotations

import numpy as np

from trellis.lab.catalogue.magnet.shared import SEEDS, engine, pairs, saving, savings
from trellis.lab.experiment import Case, Experiment, Lines, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_least, below, between, each_of, falling, in_order, rising

LAMBDAS, FIRST = (0.5, 1.0, 2.0, 3.0), (0.1, 0.3, 0.5)
NODES = {"smoke": 2**7, "paper": 2**14}


def run_7(scale: str, at_hand: AtHand) -> list[Case]:
    return cases("magnet.tail", "workload", None, workload="hier", nodes=2**14)


def rule_7(table: Table) -> Rule:
    slope = table.mean("slope")
    return Rule(
        [between("slope of the whole log-log CCDF", slope, -1.98, -1.38)],
        [at_least("R^2 of the log-log CCDF", table.mean("R^2"), 0.95), at_least("decades", table.mean("decades"), 1.5)],
    )


def hier(scale: str, **more: float) -> list[Case]:
    first = {"workload": "hier", "nodes": NODES[scale], "z": 16.0, "init_frac": 0.1, "lambda_": 2.0}
    return pairs(None, **{**first, **engine(scale), **more})


def shares(table: Table) -> str:
    """Return the true shares of random subscriptions: above initFrac where Z * initFrac is below one topic a peer."""
    told = []
    for case in table.cases("Magnet"):
        values = [series.of(np.mean) for series in table.of_case(case, "initial share %")]
        where = ", ".join(f"{name} {case.parameters[name]:g}" for name in ("z", "init_frac"))
        told.append(f"{where}: {sum(values) / len(values):.1f}%")
    return "subscriptions dealt at random: " + "; ".join(dict.fromkeys(told))


def run_8a(scale: str, at_hand: AtHand) -> list[Case]:
    by_lambda = [case for value in LAMBDAS for case in hier(scale, lambda_=value)]
    return by_lambda + [case for value in FIRST[1:] for case in hier(scale, init_frac=value)]


def rule_8a(table: Table) -> Rule:
    up = [savings(table, lambda_=value, init_frac=0.1) for value in LAMBDAS]
    down = [savings(table, lambda_=2.0, init_frac=value) for value in FIRST]
    every = [float(v.mean()) for v in (*up, *down)]
    return Rule(
        [
            rising("the saving rises with lambda, %", up),
            falling("it falls with initFrac, %", down),
            each_of("all savings in [8, 70]%", every, lambda v: 8 <= v <= 70),
        ],
        [
            below("lowest lambda < highest lambda", every[0], every[3]),
            below("highest initFrac < lowest", every[-1], every[4]),
        ],
    )


def run_8b(scale: str, at_hand: AtHand) -> list[Case]:
    return [case for z in (8.0, 16.0, 32.0) for case in hier(scale, z=z)]


def rule_8b(table: Table) -> Rule:
    found = [saving(table, z=z) for z in (32.0, 16.0, 8.0)]
    order = in_order("saving(Z = 32) < saving(16) < saving(8), %", found)
    return Rule([order], [below("Z = 8 saves most, %", max(found[:2]), found[2])])


EXPERIMENTS = [
    Experiment(
        "magnet-fig7",
        "Popularity in a hierarchy follows a power law",
        "Fig. 7",
        "The CCDF of topic popularity fits a power law with exponent 1.68.",
        run_7,
        rule_7,
        (Over("ccdf", "subscribers of a topic", "share of topics with at least so many", "xy"),),
        seeds={"smoke": 2, "paper": 5, "beyond": 1},
        always_exact=True,
        note="Read as the slope of the whole log-log CCDF (docs/papers.md); the exponent of the tail is about 2.5.",
    ),
    Experiment(
        "magnet-fig8a",
        "Homophily saves relays",
        "Fig. 8(a)",
        "Better with high lambda and low initFrac.",
        run_8a,
        rule_8a,
        (Lines("cost", "lambda_", "relays per message"), Lines("cost", "init_frac", "relays per message")),
        seeds=SEEDS,
        beside=shares,
    ),
    Experiment(
        "magnet-fig8b",
        "Fewer subscriptions, more saved",
        "Fig. 8(b)",
        "Best at Z = 8.",
        run_8b,
        rule_8b,
        (Lines("cost", "z", "relays per message"),),
        seeds=SEEDS,
        beside=shares,
    ),
]
