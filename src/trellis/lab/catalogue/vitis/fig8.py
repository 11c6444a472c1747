"""The Twitter graph itself.  [VI Fig. 8-9]"""

from __future__ import annotations

from trellis.lab.experiment import Experiment
from trellis.lab.verdict import Rule

WHICH = "Twitter, 2.4 million users (Galuba et al.)"


def _figure(number: int, title: str, claim: str) -> Experiment:
    return Experiment(
        f"vitis-fig{number}",
        title,
        f"Fig. {number}",
        claim,
        lambda scale, at_hand: [],
        lambda table: Rule([]),
        no_data=WHICH,
    )


EXPERIMENTS = [
    _figure(8, "Degrees of the Twitter graph follow a power law", "In- and out-degrees with exponent about 1.65."),
    _figure(9, "Statistics of the Twitter graph", "In-degree mean 87.88, maximum 349,573; out-degree maximum 172,268."),
]
