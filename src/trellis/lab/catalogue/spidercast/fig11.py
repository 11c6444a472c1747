"""Churn: connectivity, degree and control messages.  [SC Fig. 11, §3.8.1]

At scale smoke the protocol's own code runs message by message, at scale paper the cycle engine.
"""

from __future__ import annotations

import numpy as np

from trellis.lab.experiment import Case, Experiment, Lines, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, at_most, between, each_of, missing, within

MEASURE, SYSTEM = "spidercast.churned", "spidercast(3,0)"
PRINTED = {1000: 38, 2000: 34}


def run(scale: str, at_hand: AtHand) -> list[Case]:
    if scale == "smoke":
        small = {"nodes": (150, 300), "mean_life": (100, 300)}
        return cases(MEASURE, SYSTEM, small, popularity="rss", seconds=120, every=40)
    grid = {"nodes": (1000, 2000), "mean_life": (100, 200, 300, 400, 500)}
    return cases(MEASURE, SYSTEM, grid, popularity="rss", seconds=1000, every=200, engine="cycles")


def rule(table: Table) -> Rule:
    spread = []
    for n in table.values_of("nodes"):
        means = [table.mean("degree", nodes=n, mean_life=m) for m in table.values_of("mean_life")]
        spread.append(max(means) / min(means))
    worst = table.everywhere("split", of=np.max)
    share = 1 - table.everywhere("split", of=np.sum).sum() / table.everywhere("topics", of=np.sum).sum()
    return Rule(
        [
            each_of("every snapshot of every run connected, without nodes of the last 2 s", worst, lambda v: v == 0),
            at_most("greatest by least mean degree over the rates", max(spread), 1.1),
        ],
        [between("share of connected (snapshot, topic) pairs", float(share), 0.95, 1)],
    )


def older(table: Table) -> str:
    """Return how many runs are connected if nodes count only 10 s after they joined (A-SPC-14)."""
    worst = table.everywhere("split_10s", of=np.max)
    return f"without nodes of the last 10 s every snapshot is connected in {np.sum(worst == 0)} of {len(worst)} runs"


def rule_messages(table: Table) -> Rule:
    sizes, lives = table.values_of("nodes"), table.values_of("mean_life")
    messages = {n: float(np.mean([table.mean("messages", nodes=n, mean_life=m) for m in lives])) for n in sizes}
    degrees = {n: float(np.mean([table.mean("degree", nodes=n, mean_life=m) for m in lives])) for n in sizes}
    checks = []
    for n in sizes:
        near = within(f"messages per join or leave, {n}", messages[n], PRINTED[n], 25) if n in PRINTED else missing(
            f"messages per join or leave, {n}", f"{messages[n]:.3g}; the paper has 1,000 and 2,000 nodes"
        )  # fmt: skip
        checks += [near, between(f"messages / d, {n}", messages[n] / degrees[n], 2.4, 3.6)]
        checks.append(at_most(f"messages / 10 topics, {n}", messages[n] / 10, 4.5))
    return Rule(
        checks,
        [at_most("messages at the larger size, of those at the smaller", messages[sizes[-1]] / messages[sizes[0]], 1),
         at_most("messages per join or leave", max(messages.values()), 80)],
    )  # fmt: skip


EXPERIMENTS = [
    Experiment(
        "spidercast-fig11",
        "Connected while nodes come and go",
        "Fig. 11",
        "All topics connected in all snapshots; the degree does not depend on the rate of churn.",
        run,
        rule,
        (Over("degree", "seconds", "mean degree"), Lines("degree", "mean_life", "mean degree")),
        beside=older,
    ),
    Experiment(
        "spidercast-s381",
        "Control messages per join or leave",
        "§3.8.1",
        "38 at 1,000 and 34 at 2,000 nodes: about 3 times the degree, below 4 per topic.",
        run,
        rule_messages,
        (
            Lines("messages", "nodes", "control messages per event", {"paper": PRINTED}),
            Lines("messages Disconnect", "nodes"),
        ),
        note="Most of ours are DISCONNECTs that are refused (A-SPC-23); the first construction is counted in.",
    ),
]
