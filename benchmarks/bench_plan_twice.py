"""What `trellis plan --connectivity 2` costs and brings: every single node removed in turn, beside LowODA's plan.

    python benchmarks/bench_plan_twice.py [nodes ..., 1000 10000]

uniform and zipf (i^-1), 20 of nodes / 10 topics a node. Each node is taken out of each of its topics, and a search
through the rest tells whether the topic is still connected: another way than `trellis check --connectivity 2` has,
which must find the same. It exits 1 when a loss splits a topic of the two-connected plan, when the two ways differ, or
when the plan has more than LINKS_MAX times LowODA's links.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import trellis
from trellis import plan
from trellis.jit import njit
from trellis.measure.induced import topic_graphs
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.workloads.configs import Uniform, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import parse_subs

LINKS_MAX = 1.7


def main() -> None:
    sizes = [int(word) for word in sys.argv[1:]] or [1000, 10_000]
    broken = []
    heads = f"{'mean':>6} {'max':>4} {'diameter: max, mean':>20} {'split by one loss':>18} {'seconds':>8}"
    print(f"{'':16} {'plan':>14} {heads}")
    for nodes in sizes:
        subs = parse_subs("20")
        for label, over in (
            ("uniform", generate(Uniform(nodes=nodes, topics=nodes // 10, subs=subs), seed=1)),
            ("zipf", generate(Zipf(nodes=nodes, topics=nodes // 10, subs=subs, alpha=1.0), seed=1)),
        ):
            links = []
            for name, connectivity in (("lowoda", 1), ("two-connected", 2)):
                started = time.process_time()
                overlay = plan.construct(over, connectivity=connectivity).overlay
                seconds = time.process_time() - started
                found = trellis.check(over, overlay, connectivity=2)
                topics = removed_in_turn(over, overlay)
                degrees, diameter = overlay.degrees, found.diameters
                print(
                    f"{label:8} {nodes:7,} {name:>14} {degrees.mean():6.2f} {degrees.max():4} {diameter.maximum:12}"
                    f" {diameter.mean:7.2f} {topics:11,} topics {seconds:8.1f}",
                    flush=True,
                )
                links.append(len(overlay))
                if topics != found.cuts.topics:
                    broken.append(f"{label} {nodes}: one way finds {topics} topics, the other {found.cuts.topics}")
            if topics:
                broken.append(f"{label} {nodes}: {topics} topics are split by the loss of one node")
            if links[1] > LINKS_MAX * links[0]:
                broken.append(f"{label} {nodes}: {links[1]} links are above {LINKS_MAX} x {links[0]}")
    for bound in broken:
        print(f"broken: {bound}")
    sys.exit(1 if broken else 0)


def removed_in_turn(over: Interests, overlay: Overlay) -> int:
    """How many topics the loss of some node splits. A loss matters to the topics of the node alone."""
    graphs = topic_graphs(over, overlay)
    split = np.zeros(len(over.topics), np.bool_)
    search(graphs.offsets, graphs.first, graphs.neighbors, split)
    return int(split.sum())


@njit(cache=True)
def search(offsets, first, neighbors, split):  # type: ignore[no-untyped-def]
    seen, queue = np.full(len(first), -1, np.int64), np.empty(len(first), np.int64)
    for topic in range(len(split)):
        begin, end = offsets[topic], offsets[topic + 1]
        for lost in range(begin, end):
            if end - begin < 3 or split[topic]:
                break
            start = begin + 1 if lost == begin else begin
            seen[lost] = seen[start] = lost
            queue[0], taken, filled = start, 0, 1
            while taken < filled:
                for at in range(first[queue[taken]], first[queue[taken] + 1]):
                    if seen[neighbors[at]] != lost:
                        seen[neighbors[at]] = lost
                        queue[filled] = neighbors[at]
                        filled += 1
                taken += 1
            split[topic] = filled < end - begin - 1


if __name__ == "__main__":
    main()
