"""What a bound of hops costs: links, degrees and topic diameters beside LowODA's plan.

python benchmarks/bench_plan_hops.py             1,000 nodes with 20 of 100 topics each
python benchmarks/bench_plan_hops.py --nodes N   other sizes; there are a tenth as many topics as nodes
"""

from __future__ import annotations

import argparse

import numpy as np

import trellis
from trellis.measure.diameters import topic_diameters
from trellis.model.interests import Interests

TOPICS_EACH = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    print("| instance | hops | links | degree: mean, max | topic diameter: max, mean |")
    print("| --- | --- | --- | --- | --- |")
    for kind in ("uniform", "zipf"):
        interests = instance(kind, nodes)
        for hops_max in (None, 6, 4, 3, 2):
            made = trellis.plan(interests, hops_max=hops_max)
            found = topic_diameters(interests, made.overlay)
            degrees = made.overlay.degrees
            assert hops_max is None or (found.maximum or 0) <= hops_max, "the bound is not kept"
            print(
                f"| {kind}, {nodes:,} | {hops_max or 'any'} | {len(made.overlay):,} "
                f"| {degrees.mean():.2f}, {degrees.max()} | {found.maximum}, {found.mean:.1f} |"
            )
    return 0


def instance(kind: str, nodes: int) -> Interests:
    topics = nodes // 10
    chance = np.random.default_rng(1)
    weights = np.ones(topics) if kind == "uniform" else 1 / np.arange(1, topics + 1)
    drawn = {node: chance.choice(topics, TOPICS_EACH, False, weights / weights.sum()).tolist() for node in range(nodes)}
    return Interests.from_pairs(drawn)


if __name__ == "__main__":
    raise SystemExit(main())
