"""The runs behind the figures, each made once: instances, backup sets, maintenance over a churn trace.  [SH VI]"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.model.churn import ChurnTrace
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.construction import construct
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.maintain_history import Round
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.shadows import Shadows
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import RandomChurn
from trellis.workloads.configs import Exponential, Uniform, WorkloadConfig, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import Sizes

POPULARITY = {"unif": Uniform, "zipf": Zipf, "expo": Exponential}  # presets shadows-unif, -zipf, -expo
TOPICS, LAMBDA = 200, 3


class Backups(NamedTuple):
    """Of every node: subscription size, out-degree |B(v)|, in-degree |primaries(v)|."""

    sizes: npt.NDArray[np.int64]
    backup_degrees: npt.NDArray[np.int64]
    primary_degrees: npt.NDArray[np.int64]
    served: float  # share of the nodes that have a backup with more than 100 primaries


@dataclass(frozen=True)
class Lab:
    nodes: int
    rounds: int
    seeds: tuple[int, ...]
    exponent: float  # of the subscription sizes, P(k) ~ k^-exponent in [10, 90] (E-1)

    def config(self, popularity: str, nodes: int | None = None) -> WorkloadConfig:
        return POPULARITY[popularity](nodes or self.nodes, TOPICS, Sizes(10, 90, "powerlaw", self.exponent))

    @cache  # noqa: B019  one lab a process
    def instance(self, popularity: str, seed: int, nodes: int | None = None) -> Interests:
        return generate(self.config(popularity, nodes), seed)

    @cache  # noqa: B019
    def lowoda(self, popularity: str, seed: int) -> Overlay:
        return construct(self.instance(popularity, seed), "lowoda", seed=seed).overlay

    @cache  # noqa: B019
    def trace(self, popularity: str, seed: int) -> ChurnTrace:
        joiners = self.config(popularity)
        return churn(RandomChurn(self.rounds, joiners=joiners), self.instance(popularity, seed), seed)

    @cache  # noqa: B019
    def backups(self, popularity: str, routine: str, seed: int) -> Backups:
        """Step I for all nodes.  [SH Alg. 6]"""
        current = CurrentOverlay.of(self.instance(popularity, seed), self.lowoda(popularity, seed), seed)
        sets = Shadows(current, routine, LAMBDA, seed).backups
        popular = sets.primaries_of.length > 100
        served = np.mean([popular[sets.backups_of[node]].any() for node in current.everyone])
        return Backups(current.topics_of.length, sets.backups_of.length, sets.primaries_of.length, float(served))

    def run(
        self,
        seed: int,
        algorithm: str = "shadows",
        backups: str = "primal-dual",
        coverage_factor: int = LAMBDA,
        popularity: str = "unif",
        check_every: int = 0,
    ) -> list[Round]:
        config = MaintainConfig(
            algorithm=algorithm, backups=backups, coverage_factor=coverage_factor, check_every=check_every, seed=seed
        )
        return self._run(popularity, seed, config)

    @cache  # noqa: B019  by the whole configuration: figures ask for the same runs in different words
    def _run(self, popularity: str, seed: int, config: MaintainConfig) -> list[Round]:
        trace, start = self.trace(popularity, seed), self.lowoda(popularity, seed)
        run = Maintenance(self.instance(popularity, seed), trace, start, config)
        rounds = list(run.rounds())
        assert run.split_topics() == 0, f"{config} ended without a TCO"
        return rounds

    def about(self, **more: Any) -> dict[str, Any]:
        """The parameters that every row carries."""
        base = {"popularity": "unif", "exponent": self.exponent, "nodes": self.nodes, "rounds": self.rounds}
        return {**base, **more}


def warm_up() -> None:
    """Once through everything, so that no time holds a compilation."""
    lab = Lab(60, 10, (0,), 3.0)
    for algorithm in ("shadows", "naive", "rebuild"):
        lab.run(0, algorithm)
