"""What nodes with very many topics send to each other at rest: four nodes in this process, each with topics of its own.

python benchmarks/bench_topics.py --topics 1800
python benchmarks/bench_topics.py --topics 1800 --version 1    # complete lists of topics in every message
"""

from __future__ import annotations

import argparse
import asyncio

from trellis.live.config import NodeConfig
from trellis.live.frames import VERSION
from trellis.live.shell import LiveNode


async def measure(topics: int, letters: int, version: int, seconds: float) -> None:
    nodes: list[LiveNode] = []
    for name in ("a", "b", "c", "d"):
        wanted = tuple(f"{name}/{place:06}/".ljust(letters, "x") for place in range(topics))
        seeds = tuple(f"127.0.0.1:{one.transport.port}" for one in nodes[:1])
        ports = {"listen": "127.0.0.1:0", "client_listen": "127.0.0.1:0"}
        node = LiveNode(NodeConfig(name=name, seeds=seeds, topics=wanted, **ports))
        await node.start()
        node.transport.speaks = (1, version)  # nothing was sent yet
        nodes.append(node)
    await asyncio.sleep(30)  # until they have told each other
    before = [node.transport.counters["sent_bytes"] for node in nodes]
    await asyncio.sleep(seconds)
    for node, count in zip(nodes, before, strict=True):
        sent = (node.transport.counters["sent_bytes"] - count) / seconds
        print(f"{node.name}: {sent:,.0f} bytes a second, too large: {node.counters['too_large']}")
    for node in nodes:
        await node.stop(in_order=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=1_800)
    parser.add_argument("--letters", type=int, default=120)
    parser.add_argument("--version", type=int, default=VERSION, choices=range(1, VERSION + 1))
    parser.add_argument("--seconds", type=float, default=15)
    given = parser.parse_args()
    asyncio.run(measure(given.topics, given.letters, given.version, given.seconds))
