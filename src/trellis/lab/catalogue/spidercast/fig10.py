"""Partial views.  [SC Fig. 10]"""

from __future__ import annotations

from trellis.lab.catalogue.spidercast.shared import connected, static
from trellis.lab.experiment import Case, Experiment, Lines
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_most, falling

SHARES = (0.05, 0.1, 0.25, 0.5, 1.0)


def run(scale: str, at_hand: AtHand) -> list[Case]:
    if scale == "smoke":  # 10% of 800 nodes are too few to cover 100 topics as the paper's 400 of 4,000 do
        return static(scale, nodes=(800,), view=list(SHARES[2:]))
    return static(scale, nodes=(4000, 8000), view=list(SHARES))


def rule(table: Table) -> Rule:
    shares = table.values_of("view")
    checks = [connected(table, "every topic is connected, whatever the view")]
    for n in table.values_of("nodes"):
        each = [table.each("degree", nodes=n, view=share) for share in shares]
        ratio = float(each[0].mean() / each[-1].mean())
        checks += [at_most(f"d(smallest view) / d(100%), {n} nodes", ratio, 1.4),
                   falling(f"d falls with the view, {n} nodes", each)]  # fmt: skip
    larger = [connected(table, f"every topic is connected with views of {s:.0%}", view=s) for s in shares if s >= 0.1]
    return Rule(checks, larger)


EXPERIMENTS = [
    Experiment(
        "spidercast-fig10",
        "A view of 5% is enough",
        "Fig. 10",
        "Connected already when nodes know 5% of the others; small effect on the degree.",
        run,
        rule,
        (Lines("degree", "view", "mean degree", log="x"),),
    )
]
