"""What a node keeps of a topic that a client has published on once: one node and its client in this process.

python benchmarks/bench_topic_memory.py --topics 3000

Windows and pauses are much shorter than by default, so that the node leaves and forgets its topics while you wait.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tracemalloc

import trellis
from trellis.live.config import DeliveryConfig, NodeConfig
from trellis.live.shell import LiveNode

QUICK = DeliveryConfig(tick_ms=100, window_ms=3_000, tombstone_ms=12_000, interest_ms=3_000)
BATCH = 500


async def publish(client: trellis.Client, first: int) -> None:
    topics = [f"plant/line/{number:06}" for number in range(first, first + BATCH)]
    await asyncio.gather(*(client.publish(topic, bytes(20)) for topic in topics))


async def measure(count: int) -> None:
    ports = {"listen": "127.0.0.1:0", "client_listen": "127.0.0.1:0"}
    node = LiveNode(NodeConfig(name="a", delivery=QUICK, **ports))
    await node.start()
    state = node.mesh.delivery.state
    async with trellis.connect(f"127.0.0.1:{node.client_port.port}") as client:
        await publish(client, 900_000)
        gc.collect()
        tracemalloc.start(1)
        before = tracemalloc.get_traced_memory()[0]
        for first in range(0, count, BATCH):
            await publish(client, first)
        while True:
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / count
            part = sum(topic.takes_part for topic in state.topics.values())
            known = len(state.topics)
            print(
                f"{known} topics known, {part} taken part in, {state.store.count} messages held: {each:,.0f} bytes each"
            )
            if not known:
                break
            await asyncio.sleep(4)
    await node.stop(in_order=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=3_000)
    asyncio.run(measure(parser.parse_args().topics))
