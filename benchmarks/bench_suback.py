"""How long a client waits for its SUBACK on a mesh that has settled, on loopback.

    .venv/bin/python benchmarks/bench_suback.py [--nodes 3] [--rounds 100]

Each round takes a node and a filter by turns, subscribes, waits for the SUBACK, and unsubscribes. Three kinds of
filters are measured: plain topics that nobody else subscribes to, plain topics that a client at every node subscribes
to, and wildcards. `echo` is the time from a publication that is sent in the same write as the SUBSCRIBE until it
arrives at its own publisher.
"""

from __future__ import annotations

import asyncio
import time
from argparse import ArgumentParser
from math import inf

from bench_mqtt import Client
from node_process import start
from trellis.live.run import run_loop
from trellis.protocols.mqtt import packets as p

LISTENER = ("--set", "mqtt.listen=127.0.0.1:0", "--set", "mqtt.suback_s=60")
SHARED = 20  # topics that a client at every node subscribes to
LOST_S = 5.0  # an echo that has not come by then is lost
SETTLE_S = 25.0  # a mesh that has just started is sure of its subscribers by then


async def subscribe(client: Client, filter_: str, number: int) -> float:
    """Return the milliseconds until the SUBACK."""
    began = time.monotonic()
    client.send(p.Subscribe(number, (p.Asked(filter_, 1),)))
    while not any(isinstance(one, p.SubAck) for one in await client.read()):
        pass
    return 1e3 * (time.monotonic() - began)


async def unsubscribe(client: Client, filter_: str, number: int) -> None:
    client.send(p.Unsubscribe(number, (filter_,)))
    while not any(isinstance(one, p.UnsubAck) for one in await client.read()):
        pass


async def echo(client: Client, topic: str, number: int) -> float:
    """Return the milliseconds until a publication arrives that follows its own SUBSCRIBE at once."""
    began = time.monotonic()
    client.send(p.Subscribe(number, (p.Asked(topic, 0),)), p.Publish(topic=topic, payload=b"x", qos=0))
    try:
        async with asyncio.timeout(LOST_S):
            while not any(isinstance(one, p.Publish) for one in await client.read()):
                pass
    except TimeoutError:
        return inf
    return 1e3 * (time.monotonic() - began)


def show(kind: str, times: list[float]) -> None:
    ordered = sorted(times)
    p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
    print(
        f"{kind:10} {len(ordered):4} times  p50 {p50:8.1f} ms  p99 {p99:8.1f} ms  max {ordered[-1]:8.1f} ms", flush=True
    )


async def measure(addresses: list[str], rounds: int) -> None:
    residents = [await Client.connect(address, f"resident{place}") for place, address in enumerate(addresses)]
    for client in residents:
        client.send(p.Subscribe(1, tuple(p.Asked(f"shared/{place}", 1) for place in range(SHARED))))
    for client in residents:
        while not any(isinstance(one, p.SubAck) for one in await client.read()):
            pass
    await asyncio.sleep(SETTLE_S)
    guests = [await Client.connect(address, f"guest{place}") for place, address in enumerate(addresses)]
    extra = [await Client.connect(address, f"extra{place}") for place, address in enumerate(addresses)]
    kinds: dict[str, list[float]] = {"alone": [], "half": [], "same node": [], "wildcard": [], "echo": []}
    for number in range(1, rounds + 1):
        place = number % len(guests)
        other = (place + 1) % len(guests)
        guest = guests[place]
        kinds["alone"].append(await subscribe(guest, f"alone/{number}", 5 * number % 60_000 + 1))
        if other != place:  # a topic that exactly one other node subscribes to
            await subscribe(extra[other], f"half/{number}", number)
            kinds["half"].append(await subscribe(guest, f"half/{number}", 5 * number % 60_000 + 2))
        kinds["same node"].append(await subscribe(guest, f"shared/{number % SHARED}", 5 * number % 60_000 + 3))
        kinds["wildcard"].append(await subscribe(guest, f"some/{number}/#", 5 * number % 60_000 + 4))
        kinds["echo"].append(await echo(guest, f"echo/{number}", 5 * number % 60_000 + 5))
    for kind, times in kinds.items():
        if times:
            show(kind, times)


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    asked = parser.parse_args()
    nodes = [start("n0", "", *LISTENER)]
    nodes += [start(f"n{place}", nodes[0][1]["listen"], *LISTENER) for place in range(1, asked.nodes)]
    try:
        run_loop(measure([about["mqtt_listen"] for _, about in nodes], asked.rounds))
    finally:
        for process, _ in nodes:
            process.kill()


if __name__ == "__main__":
    main()
