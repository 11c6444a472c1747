"""Alg. 1 of OMen in plain Python: a shadow set of 60 nodes and 50 topics, and how its time grows.  [OM Lemma 1]

    python benchmarks/bench_omen.py

Time should grow as |S|^2 |T|. Processor time, median of 200 draws each; the aim is below 5 ms at 60 x 50.
"""

from __future__ import annotations

import time
from random import Random
from statistics import median

from trellis import ids
from trellis.protocols.omen.shadow import low_edges


def instance(nodes: int, topics: int, random: Random) -> tuple:
    """A departure: 10 required nodes, the rest backups that know each a part; every topic in two to four parts."""
    names = [f"n{number}" for number in range(nodes)]
    interest = {
        name: random.getrandbits(topics) & random.getrandbits(topics) | 1 << random.randrange(topics) for name in names
    }
    parts = {}
    for place in range(topics):
        wanting = [name for name in names if interest[name] >> place & 1]
        split = random.randint(2, 4)
        groups = [group for group in (wanting[number::split] for number in range(split)) if group]
        if len(groups) > 1:
            parts[1 << place] = groups
    return parts, {name: random.randint(2, 12) for name in names}, {name: ids.key(1, name) for name in names}


def milliseconds(nodes: int, topics: int, times: int = 200) -> float:
    random, spent = Random(1), []
    for _ in range(times):
        given = instance(nodes, topics, random)
        start = time.process_time()
        low_edges(*given)
        spent.append(1000 * (time.process_time() - start))
    return median(spent)


def main() -> None:
    print("nodes topics  median ms      x")
    for nodes, topics in ((30, 50), (60, 25), (60, 50), (60, 100), (120, 50)):
        found = milliseconds(nodes, topics)
        if (nodes, topics) == (30, 50):
            first = found
        print(f"{nodes:5} {topics:6} {found:10.2f} {found / first:6.2f}")


if __name__ == "__main__":
    main()
