"""A live mesh on loopback, nodes in processes of their own: what one node forwards, and how long a message takes.

    .venv/bin/python benchmarks/bench_live.py [--messages 60000] [--window 2048]

forward   `m` in the middle has three neighbours and all want one topic: `s`, where a client publishes, and `x` and `y`,
          where clients read. So m takes each message from one neighbour and sends it to two others, with
          acknowledgements on every link and one to the publisher. (A topic of its own with each neighbour makes the
          link with m the best one that a neighbour can get, so that the overlay is this star; the bench looks.)
delay     1,000 messages a second along s, m, x: from the call of `publish` to the message at x's client. Two hops
          between nodes, and one at each end between node and client; `per hop` is half of it, so more than a hop.

Wall time depends on what else the machine does; CPU time does not. Clients share one process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import time
import urllib.request
from contextlib import AsyncExitStack
from statistics import quantiles

import trellis
from node_process import cpu_s, peak_mb, start
from trellis.live.client import Client
from trellis.live.run import run_loop

PAYLOAD_BYTES = 128
Node = tuple[subprocess.Popen[str], dict[str, str]]


async def measure(nodes: dict[str, Node], count: int, window: int) -> None:
    await build(nodes)
    async with AsyncExitStack() as stack:

        async def client(name: str) -> Client:
            return await stack.enter_async_context(trellis.connect(nodes[name][1]["client_listen"], timeout_s=60))

        publisher, readers = await client("s"), [await client("x"), await client("y")]
        for one in readers:
            await one.subscribe("t")
        await forward(nodes, publisher, readers, count, window)
        await delays(publisher, readers[0], 10_000, 1_000)


async def links(nodes: dict[str, Node]) -> set[str]:
    found = set()
    for _, about in nodes.values():
        address = f"http://{about['admin_listen']}/overlay.json"
        overlay = json.loads(await asyncio.to_thread(lambda: urllib.request.urlopen(address).read()))  # noqa: B023
        found |= {"".join(sorted((overlay["node"], link["peer"]))) for link in overlay["links"]}
    return found


async def build(nodes: dict[str, Node]) -> None:
    """One after the other, so that a neighbour finds all of m's topics when it comes. If it links elsewhere: again."""
    for name, topics in {"m": "t,ms,mx,my", "s": "t,ms", "x": "t,mx", "y": "t,my"}.items():
        for _ in range(10):
            seeds = nodes["m"][1]["listen"] if nodes else ""
            nodes[name] = start(name, seeds, "--admin-listen", "127.0.0.1:0", "--topics", topics)
            await asyncio.sleep(3.0)
            if await links(nodes) == {"".join(sorted(("m", one))) for one in nodes if one != "m"}:
                break
            end(nodes.pop(name)[0])
            await asyncio.sleep(3.0)
        else:
            raise SystemExit(f"{name} never linked with m alone")


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


async def forward(nodes: dict[str, Node], publisher: Client, readers: list[Client], count: int, window: int) -> None:
    before = {name: cpu_s(process.pid) for name, (process, _) in nodes.items()}
    own, began = time.process_time(), time.monotonic()
    reading = [asyncio.create_task(read(one, count)) for one in readers]
    gate, payload = asyncio.Semaphore(window), bytes(PAYLOAD_BYTES)

    async def publish() -> None:
        async with gate:
            await publisher.publish("t", payload)

    await asyncio.gather(*(publish() for _ in range(count)))
    for one in reading:
        await one
    wall, mine = time.monotonic() - began, time.process_time() - own
    print(f"forward: {count:,} messages of {PAYLOAD_BYTES} bytes, {window} under way")
    print(f"  wall {wall:.2f} s: {count / wall:,.0f}/s; the clients took {mine:.2f} s of CPU")
    for name, (process, _) in nodes.items():
        used = cpu_s(process.pid) - before[name]
        rate = count / used if used else float("inf")
        print(f"  node {name}: CPU {used:.2f} s, {rate:,.0f} messages per CPU second, {peak_mb(process.pid):.0f} MB")


async def read(client: Client, count: int) -> list[int]:
    taken = []
    for _ in range(count):
        message = await anext(client)
        taken.append(time.monotonic_ns() - int.from_bytes(message.payload[:8], "big"))
    return taken


async def delays(publisher: Client, reader: Client, count: int, rate: int) -> None:
    reading, acknowledged, under_way = asyncio.create_task(read(reader, count)), [], set()

    async def publish() -> None:
        began = time.monotonic_ns()
        await publisher.publish("t", began.to_bytes(8, "big") + bytes(PAYLOAD_BYTES - 8))
        acknowledged.append(time.monotonic_ns() - began)

    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        under_way.add(asyncio.create_task(publish()))
    await asyncio.gather(*under_way)
    print(f"delay: {count:,} messages at {rate:,}/s")
    for name, times in (
        ("client to client, two hops", await reading),
        ("acknowledged to the publisher", acknowledged),
    ):
        cuts = quantiles(times, n=100)
        print(f"  {name}: p50 {cuts[49] / 1e6:.2f} ms, p99 {cuts[98] / 1e6:.2f} ms", end="")
        print(f"; per hop {cuts[49] / 2e6:.2f} and {cuts[98] / 2e6:.2f} ms" if "two" in name else "")


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=60_000)
    parser.add_argument("--window", type=int, default=2048, help="publications under way")
    chosen = parser.parse_args()
    nodes: dict[str, Node] = {}
    try:
        run_loop(measure(nodes, chosen.messages, chosen.window))
    finally:
        for process, _ in nodes.values():
            end(process)


if __name__ == "__main__":
    main()
