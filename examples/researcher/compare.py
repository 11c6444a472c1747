"""A system of one's own beside those of the papers: one table, with confidence intervals.

`Chains` is the protocol of chains.py, for the event engine. `Stars` is a network in rounds, for the cycle engine: each
topic has a center, and every other subscriber links itself to it as soon as it has heard of it. Run it:

    python examples/researcher/compare.py --seeds 3 --report report
"""

from __future__ import annotations

import argparse

import numpy as np
from chains import Chains

import trellis
from trellis import lab


class Stars:
    """In every round a node hears of a random subscriber of each of its topics. The first by name is the center."""

    def __init__(self, interests: trellis.Interests, seed: int) -> None:
        self.interests, self.random, self.messages = interests, np.random.default_rng(seed), 0
        self.center = {  # (node, topic) -> the smallest subscriber that the node has heard of
            (node, int(topic)): node for node in range(len(interests.nodes)) for topic in interests.topics_of(node)
        }

    def cycle(self) -> bool:
        changed = False
        for (node, topic), known in self.center.items():
            other = int(self.random.choice(self.interests.nodes_of(topic)))
            heard = min(known, self.center[other, topic], other)
            self.messages += 1
            if heard != known:
                self.center[node, topic], changed = heard, True
        return changed

    def links(self) -> tuple[list[int], list[int]]:
        pairs = sorted({(center, node) for (node, _), center in self.center.items() if center != node})
        return [one for one, _ in pairs], [other for _, other in pairs]


def main(nodes: int = 24, seeds: int = 3, report: str | None = None) -> lab.Comparison:
    interests = trellis.Interests.from_pairs(
        {f"n{number:02}": sorted({f"t{number % 7}", f"t{number % 5}", "all"}) for number in range(nodes)}
    )
    lab.register("chains", Chains)
    lab.register("stars", Stars, engine="cycles")
    found = lab.compare(
        ["omen", ("spidercast", {"kg": 3, "kr": 0}), "vitis", "lowoda", "chains", "stars"],
        interests,
        seeds=seeds,
        engine="both",
    )
    print(found)
    if report is not None:
        print(found.write(report))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--report", help="a folder for a page with plots")
    given = parser.parse_args()
    main(given.nodes, given.seeds, given.report)
