"""Central maintenance under churn, backup sets, static construction.  [SH VI; OM Table 1, Fig. 3-5]

`syn`: 200 topics, 10 to 90 subscriptions by a power law of exponent 3 (E-1), one join or leave a round.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.measure.connectivity import connectivity
from trellis.model import Interests, Overlay
from trellis.plan import construct
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_steps import IncrementalMaintenance
from trellis.plan.shadows import Shadows
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import RandomChurn
from trellis.workloads.configs import Exponential, Uniform, WorkloadConfig, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import Sizes

POPULARITY: dict[str, Any] = {"unif": Uniform, "zipf": Zipf, "expo": Exponential}
TOPICS = 200
REBUILT_EVERY = 20  # rounds: a rebuild takes some hundred times as long as a round

# Ours: the paper has the interests only in its picture. v' is 10; 3 and 9 are its neighbours.
FIG1_INTERESTS = {
    1: "ac", 2: "cx", 3: "abcg", 4: "bg", 5: "x", 6: "gy", 7: "y", 8: "bx", 9: "abg", 10: "abcg", 11: "ag", 12: "az"
}  # fmt: skip
FIG1_LINKS = ((10, 3), (10, 9), (3, 1), (3, 11), (3, 8), (9, 4), (9, 6), (9, 12), (1, 2), (2, 5), (2, 8), (6, 7))
FIG1_BACKUPS = (1, 4, 11)


def config_of(parameters: Parameters) -> WorkloadConfig:
    sizes = Sizes(10, 90, "powerlaw", float(parameters.get("exponent", 3.0)))
    made: WorkloadConfig = POPULARITY[parameters["popularity"]](int(parameters["nodes"]), TOPICS, sizes)
    return made


def maintained(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """`system`: naive, rebuild, or shadows with a routine for backup sets, for instance `shadows(greedy)`.

    `rebuild seconds` are processor times of LowODA from scratch on the same nodes, measured between rounds of this run.
    A ratio of times is taken of these, in one process: other rows may come from another machine or another commit.
    """
    config = config_of(parameters)
    interests = generate(config, seed)
    trace = churn(RandomChurn(int(parameters["rounds"]), joiners=config), interests, seed)
    start = construct(interests, "lowoda", seed=seed).overlay
    kind, _, routine = system.rstrip(")").partition("(")
    chosen = MaintainConfig(
        algorithm=kind,
        backups=routine or "primal-dual",
        coverage_factor=int(parameters.get("coverage", 3)),
        check_every=int(parameters.get("check_every", 0)),
        seed=seed,
    )
    run = Maintenance(interests, trace, start, chosen)
    rounds, rebuilt = [], list[tuple[int, float]]()
    for one in run.rounds():
        rounds.append(one)
        if kind != "rebuild" and one.round % REBUILT_EVERY == 0:
            rebuilt.append((one.round, _rebuild_seconds(run, seed)))
    found: dict[str, Any] = {
        "D": [one.degree_max for one in rounds],
        "d": [one.degree_mean for one in rounds],
        "links": [one.links for one in rounds],
        "D0": float(start.degrees.max()),
        "split": float(run.split_topics() + sum(one.split_topics or 0 for one in rounds)),
    }
    for event, kinds in {"join ": ("join",), "leave ": ("leave",), "": ("join", "leave")}.items():
        some = [one for one in rounds if one.event in kinds]
        steps = [one.round for one in some]
        found |= {
            f"{event}seconds": (steps, [one.seconds_step2 for one in some]),
            f"{event}|S| %": (steps, [100 * one.shadow_set / one.nodes for one in some]),
            f"{event}changes": (steps, [one.links_added + one.links_removed for one in some]),
            f"{event}ratio %": (steps, [100 * (one.repair_ratio or 0.0) for one in some]),
        }
    if rebuilt:
        found["rebuild seconds"] = tuple(map(list, zip(*rebuilt, strict=True)))
    return found


def _rebuild_seconds(run: Maintenance, seed: int) -> float:
    """Return the processor time of LowODA from scratch on the present nodes, as `RebuildMaintenance` does."""
    interests = run.interests()
    begin = time.process_time()
    construct(interests, "lowoda", rho=run.config.rho, seed=seed)
    return time.process_time() - begin


def backups(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Step I for all nodes; `system` is the routine.  [SH Alg. 6, 11, 12]"""
    interests = generate(config_of(parameters), seed)
    overlay = construct(interests, "lowoda", seed=seed).overlay
    current = CurrentOverlay.of(interests, overlay, seed)
    sets = Shadows(current, system, int(parameters.get("coverage", 3)), seed).backups
    return described_arcs(current.topics_of.length, sets.backups_of.length, sets.primaries_of.length)


def described_arcs(size: Any, out: Any, into: Any) -> dict[str, Any]:
    """Describe backup sets as a graph: topics of each node, backups that it has, nodes that it backs."""
    popular = into > 100
    return {
        "mean out": float(out.mean()),
        "mean out %": 100 * float(out.mean()) / len(size),
        "min in": float(into.min()),
        "max in": float(into.max()),
        "in < 5 %": 100 * float(np.mean(into < 5)),
        "rho(size, out)": float(np.corrcoef(size, out)[0, 1]),
        "rho(size, in)": float(np.corrcoef(size, into)[0, 1]),
        "in > 100 %": 100 * float(np.mean(popular)),
        "assignments %": 100 * float(into[popular].sum()) / max(1.0, float(into.sum())),
        "in by size": _means(size, into),
        "out by size": _means(size, out),
    }


def _means(size: Any, degree: Any) -> tuple[list[float], list[float]]:
    sizes = np.unique(size)
    return sizes.tolist(), [float(degree[size == one].mean()) for one in sizes]


def built(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """GM, MinMaxODA or LowODA from nothing.  [OM Table 1]"""
    made = construct(generate(config_of(parameters), seed), system, seed=seed)
    degrees = made.overlay.degrees
    return {"links": float(len(made.overlay)), "D": float(degrees.max()), "d": float(degrees.mean())}


def example(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """[SH Fig. 1] Node 10 leaves; its backup set is given. `system` says where components are looked for."""
    interests = Interests.from_pairs(FIG1_INTERESTS)
    current = CurrentOverlay.of(interests, Overlay.from_pairs(interests.nodes, FIG1_LINKS), seed)
    shadows = Shadows(current, "primal-dual", 0, seed)  # lambda 0: no sets but the one given here
    leaver, given = current.rank_of["10"], np.sort([current.rank_of[str(node)] for node in FIG1_BACKUPS])
    shadows.backups.backups_of.insert(leaver, given)
    shadows.backups.primaries_of.insert(given, leaver)
    chosen = sorted(int(current.names[rank]) for rank in shadows.of_leavers(np.array([leaver], np.int32)))
    added = IncrementalMaintenance(current, shadows, 3.0, system).leave([leaver], 1).added
    ends = [int(current.names[rank]) for pair in zip(*added, strict=True) for rank in sorted(pair)]
    split = connectivity(current.interests(), current.overlay()).split
    return {"shadow set": chosen, "ends of new links": ends, "split": float(len(split))}
