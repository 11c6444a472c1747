"""A live mesh on loopback: three nodes in processes of their own; what one forwards, at which CPU time and delay.

    .venv/bin/python benchmarks/bench_live.py [messages]

`a` publishes, all subscribe. Latency is from the call of `publish` at a's client to the message at c's client, so it
holds two hops between nodes and clients as well. Wall time depends on what else the machine does; CPU time does not.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from statistics import quantiles

import trellis
from node_process import cpu_s, peak_mb, start
from trellis.live.client import Client
from trellis.live.run import run_loop

PAYLOAD_BYTES = 128
WINDOW = 512  # publications under way


async def measure(nodes: list[tuple[subprocess.Popen[str], dict[str, str]]], count: int) -> None:
    clients = [trellis.connect(about["client_listen"], timeout_s=60) for _, about in nodes]
    async with clients[0] as first, clients[1] as second, clients[2] as last:
        await asyncio.gather(second.subscribe("t"), last.subscribe("t"), first.subscribe("t"))
        pids = [process.pid for process, _ in nodes]
        before, own, began = [cpu_s(pid) for pid in pids], time.process_time(), time.monotonic()
        readers = [asyncio.create_task(read(client, count)) for client in (first, second, last)]
        gate = asyncio.Semaphore(WINDOW)

        async def publish() -> None:
            async with gate:
                await first.publish("t", time.monotonic_ns().to_bytes(8, "big") + bytes(PAYLOAD_BYTES - 8))

        await asyncio.gather(*(publish() for _ in range(count)))
        for reader in readers:
            await reader
        wall, mine = time.monotonic() - began, time.process_time() - own
        used = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
        print(f"{count:,} messages of {PAYLOAD_BYTES} bytes to three subscribers, {WINDOW} under way")
        print(f"  wall {wall:.2f} s: {count / wall:,.0f}/s; the three clients took {mine:.2f} s of CPU")
        for (_, about), cpu, pid in zip(nodes, used, pids, strict=True):
            rate = count / cpu if cpu else float("inf")
            print(
                f"  node {about['name']}: CPU {cpu:.2f} s, {rate:,.0f} messages per CPU second, {peak_mb(pid):.0f} MB"
            )
        await delays(first, last, 300)


async def read(client: Client, count: int) -> list[int]:
    taken = []
    for _ in range(count):
        message = await anext(client)
        taken.append(time.monotonic_ns() - int.from_bytes(message.payload[:8], "big"))
    return taken


async def delays(first: Client, last: Client, count: int) -> None:
    """One at a time."""
    reader, acknowledged = asyncio.create_task(read(last, count)), []
    for _ in range(count):
        began = time.monotonic_ns()
        await first.publish("t", began.to_bytes(8, "big"))
        acknowledged.append(time.monotonic_ns() - began)
    for name, times in (("client to client", await reader), ("acknowledged", acknowledged)):
        cuts = quantiles(times, n=100)
        print(f"  one at a time, {name}: p50 {cuts[49] / 1e6:.2f} ms, p99 {cuts[98] / 1e6:.2f} ms")


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    nodes = [start("a")]
    try:
        nodes += [start(name, nodes[0][1]["listen"]) for name in "bc"]
        run_loop(measure(nodes, count))
    finally:
        for process, _ in nodes:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    main()
