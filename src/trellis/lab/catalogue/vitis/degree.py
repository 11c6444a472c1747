"""Vitis, RVR and OPT at the same total degree. No figure of the paper, which compares equal tables.  [VI §IV]"""

from __future__ import annotations

from typing import Any

from trellis.lab.catalogue.vitis.shared import DEGREES, LEVELS, SCALES, SEEDS, all_hit, links, rvr, social, vitis
from trellis.lab.experiment import Bars, Case, Experiment
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Check, Rule, at_least, at_most, below

TABLE = 15
RVR_TABLES = (8, 9, 10, 11, 12)
OPT_TABLES = (15, 25, 35)
SLACK = 8  # percent by which degrees may differ


def run(scale: str, at_hand: AtHand) -> list[Case]:
    return [
        *vitis(scale, table_size=(TABLE,)),
        *rvr(scale, table_size=RVR_TABLES),
        *social(scale, ("Vitis",), (TABLE,)),
        *social(scale, ("RVR",), RVR_TABLES),
        *social(scale, ("OPT",), OPT_TABLES),
    ]


def nearest(table: Table, system: str, degree: float, **where: Any) -> dict[str, Any]:
    """Return the parameters of the case of `system` whose mean total degree is nearest to `degree`."""
    sizes = table.values_of("table_size", system, **where)
    size = min(sizes, key=lambda one: abs(table.mean("degree mean", system, table_size=one, **where) - degree))
    return {"table_size": size, **where}


def rule(table: Table) -> Rule:
    checks, shape = [all_hit(table, "Vitis", "RVR")], list[Check]()
    followers: dict[str, Any] = {"interests": "followers", "table_size": TABLE}
    patterns = {level: {"level": level, "table_size": TABLE} for level in LEVELS} | {"followers": followers}
    for name, mine in patterns.items():
        degree, ours = (table.mean(metric, "Vitis", **mine) for metric in ("degree mean", "overhead %"))
        other = nearest(table, "RVR", degree, **({"level": "random"} if name in LEVELS else {"interests": name}))
        off, rival = (table.mean(metric, "RVR", **other) for metric in ("degree mean", "overhead %"))
        what = f"{name}: degree of RVR with a table of {other['table_size']}, off Vitis' by %"
        checks.append(at_most(what, 100 * abs(off / degree - 1), SLACK))
        if name in ("low", "high"):
            less = 100 * (1 - ours / rival)
            checks.append(at_least(f"{name}: less overhead than RVR at the same degree, %", less, 40))
        shape.append(below(f"{name}: overhead below RVR's at the same degree", ours, rival))
    opt = nearest(table, "OPT", table.mean("degree mean", "Vitis", **followers), interests="followers")
    hits = table.mean("hit ratio", "OPT", **opt)
    return Rule([*checks, below(f"followers: OPT bounded by {opt['table_size']} misses some", hits, 1)], shape)


EXPERIMENTS = [
    Experiment(
        "vitis-degree",
        "Vitis against RVR and OPT with as many links a node",
        "§IV",
        "The paper compares equal tables; with equal tables RVR has half as many links again as Vitis.",
        run,
        rule,
        (Bars(("overhead %", "delay"), "at the same degree"), DEGREES),
        scales=SCALES,
        seeds=SEEDS,
        beside=links,
        note="RVR's table is the one of 8 to 12 entries whose mean total degree is nearest to that of Vitis with 15.",
    )
]
