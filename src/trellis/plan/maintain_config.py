"""Define the settings of `maintain`. This module needs no numpy, so a help page can read it quickly."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trellis.errors import InputError

ALGORITHMS = {
    "shadows": "new links among the shadow set only  [SH Alg. 6-12]",
    "naive": "new links between any nodes; LowODA-Inc  [SH Alg. 3-4]",
    "rebuild": "LowODA from scratch after every event; LowODA-Re  [OMen 6.1]",
}
BACKUPS = {
    "primal-dual": "an uncovered topic at random, its lightest subscriber  [SH Alg. 12]",
    "primal-dual-carry": "the same, lowered weights carried to the next cover  [A-SHD-5]",
    "primal-dual-uncovered": "an uncovered topic at random, its subscriber with most uncovered topics  [OMen 4.2]",
    "greedy": "the node with most uncovered topics  [OMen 4.2]",
    "greedy-weighted": "the node of least weight per uncovered topic  [SH Alg. 11]",
}
COMPONENTS = {
    "overlay": "connected through any nodes of the overlay",
    "shadow": "connected inside the shadow set, all of which must be connected: the listing taken literally",
    "neighbors": "connected inside the shadow set; only neighbours of the lost node must be connected",
}


@dataclass(frozen=True)
class MaintainConfig:
    """The settings of a run. A value that makes no sense raises InputError."""

    algorithm: str = "shadows"
    rho: float = 3.0  # A higher value keeps the maximum degree lower and takes more links. The paper uses 3.
    coverage_factor: int = 3  # lambda: a higher value gives better links and larger shadow sets. The paper uses 3.
    backups: str = "primal-dual"
    components: str = "overlay"  # A-SHD-11; only `overlay` comes near the paper's figures.
    check_every: int = 0  # rounds between two checks of the whole overlay; 0: never
    seed: int | str = 0

    def __post_init__(self) -> None:
        _one_of("algorithm", self.algorithm, ALGORITHMS)
        _one_of("backups", self.backups, BACKUPS)
        _one_of("components", self.components, COMPONENTS)
        if math.isnan(self.rho) or self.rho < 1:
            remedy = "give a number from 1 up, or inf; the paper uses 3"
            raise InputError(f"--rho {self.rho:g}", "is not 1 or more", remedy)
        if self.coverage_factor < 0:
            raise InputError(f"--lambda {self.coverage_factor}", "is negative", "give 0 or more; the paper uses 3")
        if self.check_every < 0:
            raise InputError(f"--check-every {self.check_every}", "is negative", "give a number of rounds, 0 for never")


def _one_of(option: str, value: str, choices: dict[str, str]) -> None:
    if value not in choices:
        raise InputError(f"--{option} {value}", "there is no such choice", f"choose from {', '.join(choices)}")
