"""What the data of a case looks like. No protocol runs."""

from __future__ import annotations

from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found


def described(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    interests = inputs.interests(parameters, seed)
    found = {
        "nodes": float(len(interests.nodes)),
        "topics": float(len(interests.topics)),
        "subscriptions": float(interests.sizes.mean()),
        "popularity max": float(interests.popularity.max()),
        "size max": float(interests.sizes.max()),
    }
    if "churn" in parameters:
        trace = inputs.churn(parameters, interests, seed)
        found |= {"events": float(len(trace)), "days": float(trace.time.max(initial=0.0)) / 86_400}
    return found
