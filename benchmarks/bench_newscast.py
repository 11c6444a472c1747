"""Newscast: exchanges per second of processor time, in the simulator and bare.

    python benchmarks/bench_newscast.py                                  1,000 nodes x 20 cycles
    python benchmarks/bench_newscast.py --nodes 10000 --cycles 100       the size of the speed line

Bare: 200 nodes without an engine: what the protocol itself costs.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Effects, NodeId, Send, Topic
from trellis.protocols.newscast import CODEC, Newscast, NewscastReply
from trellis.protocols.node import ProtocolNode
from trellis.simulate.engine import Engine
from trellis.simulate.system import System, World


class NewscastNode(Newscast):
    """The part as a node of its own."""

    def subscribe(self, topic: Topic) -> Effects:
        return []

    def unsubscribe(self, topic: Topic) -> Effects:
        return []

    def leave(self) -> Effects:
        return []


class NewscastSystem(System):
    name = "newscast"
    codec = CODEC

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        return NewscastNode(partial(Descriptor, node), self.contacts[node], random)

    def __init__(self, names: list[NodeId]) -> None:
        random = Random(1)
        self.contacts = {name: random.sample(names, 3) for name in names}


def simulated(nodes: int, cycles: int) -> tuple[float, int, float]:
    names = [f"n{number}" for number in range(nodes)]
    engine = Engine(NewscastSystem(names), dict.fromkeys(names, ("t",)), seed=1)
    begun = time.process_time()
    engine.run(cycles * 1_000)
    views = [len(engine.world.node(name).table) for name in names]  # type: ignore[attr-defined]
    return time.process_time() - begun, engine.sent[NewscastReply], sum(views) / nodes


def bare(nodes: int, cycles: int) -> float:
    """Messages arrive at once, out of a dict: nothing but the protocol."""
    random = Random(1)
    names = [f"n{number}" for number in range(nodes)]
    parts = {name: Newscast(partial(Descriptor, name), random.sample(names, 3), random) for name in names}
    exchanges, begun = 0, time.process_time()
    for _ in range(cycles):
        for name, part in parts.items():
            request = part.on_timer("newscast/exchange")[0]
            if isinstance(request, Send):
                (reply,) = parts[request.to].on_message(name, request.message)
                part.on_message(request.to, reply.message)  # type: ignore[union-attr]
                exchanges += 1
    return exchanges / (time.process_time() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000])
    parser.add_argument("--cycles", type=int, default=20)
    chosen = parser.parse_args()
    print(f"bare: {bare(200, 50):,.0f} exchanges/s")
    print("  nodes  cycles   cpu s   exchanges   exchanges/s   mean view")
    for nodes in chosen.nodes:
        cpu, exchanges, view = simulated(nodes, chosen.cycles)
        print(
            f"{nodes:7} {chosen.cycles:7} {cpu:8.1f} {exchanges:11,} {exchanges / cpu:13,.0f} {view:11.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
