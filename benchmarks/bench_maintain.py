"""Maintenance under churn: what a repair costs beside a rebuild, how many links it changes, and where degrees end.

    python benchmarks/bench_maintain.py [--nodes 2000] [--rounds 1000] [--seeds 1] [--popularity uniform]
                                        [--exponent 3] [--grow]

The setting of the Shadows paper, section VI: 200 topics, 10 to 90 subscriptions by a power law, one join or leave a
round, lambda = 3, rho = 3. Times are processor time of this process; "share" is the median of Step II over the median
of a rebuild round in the same run. Means over the seeds. The paper's own figures stand beside.
"""

from __future__ import annotations

import argparse
from statistics import fmean, median

import numpy as np

from trellis.model.churn import ChurnTrace
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.construction import construct
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import BACKUPS, MaintainConfig
from trellis.plan.maintain_history import Round
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import RandomChurn
from trellis.workloads.configs import Exponential, Uniform, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import Sizes

REBUILDS = 60  # rebuild rounds measured: enough for a median
POPULARITY = {"uniform": Uniform, "zipf": Zipf, "exponential": Exponential}
COLUMNS = (
    "join med", "mean", "share %", "leave med", "mean", "share %", "round ms",
    "join links", "leave links", "|S| % join", "leave", "max", "D", "d",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--popularity", choices=POPULARITY, default="uniform")
    parser.add_argument("--exponent", type=float, default=3.0, help="P(size = k) ~ k^-exponent")
    parser.add_argument("--grow", action="store_true", help="also with twice and four times the nodes")
    options = parser.parse_args()
    compile_all(options)
    for factor in (1, 2, 4) if options.grow else (1,):
        report(options, options.nodes * factor)


def compile_all(options: argparse.Namespace) -> None:
    """Once through everything, so that no time below holds a compilation."""
    interests, trace, start = instance(options, 60, 10, 0)
    for algorithm in ("shadows", "naive", "rebuild"):
        list(Maintenance(interests, trace, start, MaintainConfig(algorithm=algorithm)).rounds())


def instance(options: argparse.Namespace, nodes: int, rounds: int, seed: int) -> tuple[Interests, ChurnTrace, Overlay]:
    config = POPULARITY[options.popularity](nodes, 200, Sizes(10, 90, "powerlaw", options.exponent))
    interests = generate(config, seed)
    trace = churn(RandomChurn(rounds, joiners=config), interests, seed)
    return interests, trace, construct(interests, "lowoda", seed=seed).overlay


def report(options: argparse.Namespace, nodes: int) -> None:
    print(
        f"\n{nodes:,} nodes, 200 topics, {options.popularity}, sizes ~ k^-{options.exponent:g}, {options.rounds} rounds"
    )
    print(f"{'Step II in microseconds':<32}" + "".join(f"{name:>12}" for name in COLUMNS))
    rows: dict[str, list[list[float]]] = {}
    for seed in range(1, options.seeds + 1):
        for label, row in measured(*instance(options, nodes, options.rounds, seed), seed):
            rows.setdefault(label, []).append(row)
    for label, found in rows.items():
        print(f"{label:<32}" + "".join(f"{value:12.3f}" for value in np.mean(found, axis=0)))
    paper = [2690, 2690, 0.014, 333e3, 333e3, 1.78, np.nan, 4.83, 12.24, np.nan, 1.59, 4.97, 22, np.nan]
    print(f"{'the paper (Java; means)':<32}" + "".join(f"{value:12.3f}" for value in paper))


def measured(interests: Interests, trace: ChurnTrace, start: Overlay, seed: int) -> list[tuple[str, list[float]]]:
    rebuild = Maintenance(interests, trace, start, MaintainConfig(algorithm="rebuild", seed=seed))
    rebuilt = [round_ for round_, _ in zip(rebuild.rounds(), range(REBUILDS), strict=False)]
    whole = median(round_.seconds_step2 for round_ in rebuilt)
    rows = []
    for label, config in {
        **{f"shadows, {name}": MaintainConfig(backups=name, seed=seed) for name in BACKUPS},
        "naive": MaintainConfig(algorithm="naive", seed=seed),
    }.items():
        run = Maintenance(interests, trace, start, config)
        rows.append((label, figures(list(run.rounds()), whole)))
        assert run.split_topics() == 0, f"{label} ended without a TCO"
    final = construct(run.interests(), "lowoda", seed=seed).overlay  # where LowODA from scratch ends
    rows.append(("rebuild", [*figures(rebuilt, whole)[:-2], final.degrees.max(), final.degrees.mean()]))
    return rows


def figures(rounds: list[Round], rebuild_seconds: float) -> list[float]:
    joins = [round_ for round_ in rounds if round_.event == "join"]
    leaves = [round_ for round_ in rounds if round_.event == "leave"]
    times: list[float] = []
    for some in (joins, leaves):
        seconds = [round_.seconds_step2 for round_ in some]
        times += [median(seconds) * 1e6, fmean(seconds) * 1e6, 100 * median(seconds) / rebuild_seconds]
    shares = [[100 * round_.shadow_set / round_.nodes for round_ in some] for some in (joins, leaves)]
    return [
        *times,
        1e3 * fmean(round_.seconds for round_ in rounds),
        *(fmean(round_.links_added + round_.links_removed for round_ in some) for some in (joins, leaves)),
        *(fmean(share) for share in shares),
        max(max(share) for share in shares),
        rounds[-1].degree_max,
        rounds[-1].degree_mean,
    ]


if __name__ == "__main__":
    main()
