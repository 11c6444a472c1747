"""The ring below: partitions and degrees.  [MG Fig. 1-2]"""

from __future__ import annotations

from trellis.lab.catalogue.magnet.shared import NODES, SEEDS, engine, multi
from trellis.lab.experiment import Bars, Case, Experiment, Over, cases
from trellis.lab.inputs import AtHand
from trellis.lab.table import Table
from trellis.lab.verdict import Rule, between, each_of


def run_1(scale: str, at_hand: AtHand) -> list[Case]:
    by = {} if scale == "smoke" else engine(scale)
    return cases("magnet.partitions", ("Magnet", "strawman"), None, nodes=NODES[scale], **by)


def rule_1(table: Table) -> Rule:
    return Rule([
        each_of(f"{labels} labels: each partition within a factor 3 of n/2^j", table.path("ratio", name).values,
                lambda v: 1 / 3 <= v <= 3)
        for name, labels in (("Magnet", "skewed"), ("strawman", "uniform"))
    ])  # fmt: skip


def run_2(scale: str, at_hand: AtHand) -> list[Case]:
    return [case for case in multi(scale, 1, 10) if case.system == "Magnet"]


def rule_2(table: Table) -> Rule:
    return Rule([between("mean degree on the skewed ring", table.mean("degree"), 18, 20)])


EXPERIMENTS = [
    Experiment(
        "magnet-fig1",
        "Partitions halve, whatever the labels",
        "Fig. 1",
        "The j-th partition holds n/2^j peers; k = O(log n) of them.",
        run_1,
        rule_1,
        (Over("ratio", "partition j", "size / (n / 2^j)"),),
        seeds=SEEDS,
    ),
    Experiment(
        "magnet-fig2",
        "Degrees on the skewed ring",
        "Fig. 2",
        "19 links a peer on average.",
        run_2,
        rule_2,
        (Over("degrees", "links of a peer", "share of peers"), Bars(("degree",), "mean degree", {"degree": 19})),
        seeds=SEEDS,
    ),
]
