"""Follower distributions.  [OM Fig. 7]"""

from __future__ import annotations

from trellis.lab.experiment import Experiment
from trellis.lab.verdict import Rule

EXPERIMENTS = [
    Experiment(
        "omen-fig7",
        "Samples keep the shape of the whole graph",
        "Fig. 7",
        "CCDFs of followers and followees of 10K samples keep the shape of the full Twitter and Facebook graphs.",
        lambda scale, at_hand: [],
        lambda table: Rule([]),
        no_data="the full graphs: Twitter, 41.7 million users (Kwak et al.), Facebook, 3 million (Wilson et al.)",
    )
]
