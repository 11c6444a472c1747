"""What `trellis check` and `trellis profile` cost, part by part, and how that grows.

    python benchmarks/bench_check.py [largest number of nodes, 20000]

The instance of the project's target: 100 topics, 10 subscriptions a node, uniform and zipf 0.5, and an overlay of a
mean degree of 10 to 12 that is (nearly) topic-connected: links go to the best of 40 random nodes that share a wanted
topic, until each node has 3 neighbours in each of its topics. Random links of that degree would split most topics, and
split topics have no diameter to search for. Beside the time stands what it should grow with: for the diameters the
sum over topics of subscribers x induced links, for similarity the sum of subscribers squared.
Each time is the best of three, after the kernels were compiled.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from trellis.measure.connectivity import connectivity
from trellis.measure.diameters import search_cost, topic_diameters
from trellis.measure.distributions import degrees
from trellis.measure.profile import profile
from trellis.measure.similarity import similarity
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay

TOPICS, SUBSCRIPTIONS, NEIGHBORS, CANDIDATES = 100, 10, 3, 40


def main() -> None:
    largest = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    measure(*instance(200, 0.0))  # compiles, or loads what was compiled
    for label, alpha in (("uniform", 0.0), ("zipf 0.5", 0.5)):
        print(f"\n{label}: {TOPICS} topics, {SUBSCRIPTIONS} subscriptions a node")
        print(
            f"{'nodes':>7} {'links':>8} {'degree':>6} {'split':>5} {'Diam':>4} | {'connectivity':>12} {'degrees':>8} |"
            f" {'diameters':>9} {'cost':>8} {'ns/unit':>7} {'time x':>6} {'cost x':>6} |"
            f" {'tdi(20)':>8} {'cost':>8} {'time x':>6} {'cost x':>6} | {'profile less tdi':>16}"
        )
        before: dict[str, float] = {}
        nodes = largest // 4
        while nodes <= largest:
            row = measure(*instance(nodes, alpha))
            growth = {key: f"{row[key] / before[key]:6.2f}" if before.get(key) else "     -" for key in row}
            print(
                f"{nodes:7,} {row['links']:8,.0f} {row['degree']:6.2f} {row['split']:5.0f} {row['diam']:4.0f} |"
                f" {row['connectivity']:10.3f} s {row['degrees']:6.4f} s |"
                f" {row['diameters']:7.3f} s {row['search']:8.1e} {row['diameters'] / row['search'] * 1e9:7.2f}"
                f" {growth['diameters']} {growth['search']} |"
                f" {row['similarity']:6.3f} s {row['pairs']:8.1e} {growth['similarity']} {growth['pairs']} |"
                f" {row['profile']:14.3f} s",
                flush=True,
            )
            before = row
            nodes *= 2


def instance(nodes: int, alpha: float, seed: int = 1) -> tuple[Interests, Overlay]:
    rng = np.random.default_rng(seed)
    weight = np.arange(1, TOPICS + 1) ** -alpha
    # The m smallest of E_t / p_t, E_t exponential, are m different topics drawn by their weights.
    wanted = np.argpartition(rng.exponential(size=(nodes, TOPICS)) / weight, SUBSCRIPTIONS)[:, :SUBSCRIPTIONS]
    over = Interests.from_ids(
        Names(f"n{node:06d}" for node in range(nodes)),
        Names(f"t{topic:03d}" for topic in range(TOPICS)),
        np.repeat(np.arange(nodes), SUBSCRIPTIONS),
        wanted.ravel(),
    )
    return over, covering(over, rng)


def covering(over: Interests, rng: np.random.Generator) -> Overlay:
    wants = np.zeros((len(over.nodes), len(over.topics)), bool)
    wants[over.subscription_nodes, over.node_topics] = True
    lacks = np.where(wants, NEIGHBORS, 0)
    links: set[tuple[int, int]] = set()
    for v in rng.permutation(len(over.nodes)):
        while np.any(lacks[v] > 0):
            topic = rng.choice(np.flatnonzero(lacks[v] > 0))
            others = rng.choice(over.nodes_of(topic), CANDIDATES)
            gain = (wants[others] & wants[v] & ((lacks[v] > 0) * 2 + (lacks[others] > 0) > 0)).sum(axis=1)
            for w in others[np.argsort(-gain, kind="stable")]:
                link = (min(v, w), max(v, w))
                if v != w and link not in links:
                    links.add(link)
                    lacks[v] -= wants[w]
                    lacks[w] -= wants[v]
                    break
            else:
                lacks[v, topic] -= 1  # nobody left to link to
    u, w = np.array(sorted(links)).T
    return Overlay.from_ids(over.nodes, u, w)


def measure(over: Interests, overlay: Overlay) -> dict[str, float]:
    row: dict[str, float] = {}

    def timed(name: str, run: Callable[[], Any]) -> Any:
        row[name] = float("inf")
        for _ in range(3):
            begin = time.perf_counter()
            result = run()
            row[name] = min(row[name], time.perf_counter() - begin)
        return result

    found = timed("connectivity", lambda: connectivity(over, overlay))
    degree = timed("degrees", lambda: degrees(overlay))
    far = timed("diameters", lambda: topic_diameters(over, overlay, connected=found))
    timed("similarity", lambda: similarity(over))
    timed("profile", lambda: profile(over, similarity=False))
    row |= {
        "links": len(overlay),
        "degree": degree.mean,
        "split": len(found.split),
        "diam": far.maximum or 0,
        "search": search_cost(over.popularity, found),
        "pairs": float(np.sum(over.popularity.astype(float) ** 2)),
    }
    return row


if __name__ == "__main__":
    main()
