"""MQTT doors on loopback: three nodes in processes of their own, clients of MQTT here.

    .venv/bin/python benchmarks/bench_mqtt.py [messages]
    .venv/bin/python benchmarks/bench_mqtt.py --brokers 12 --topics 200 --rate 2000 --seconds 180 --payload 256
    .venv/bin/python benchmarks/bench_mqtt.py --brokers 12 ... --doors embedded
    .venv/bin/python benchmarks/bench_mqtt.py --overhead --rate 500 --seconds 30

The first: codecs and matching alone; then a publisher at `a`, a reader at each node; QoS 1, 256 bytes, 200 topics, each
acknowledged by the mesh. The second: a steady load over Mosquitto brokers with a sidecar each, or over nodes with
embedded doors (`mqtt_load.py`). The last: what a sidecar costs a broker's own clients. Wall time depends on what else
the machine does; CPU time does not.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
import tomllib
from argparse import ArgumentParser
from pathlib import Path
from statistics import quantiles
from typing import Any

from mqtt_load import Load, run_load, run_overhead
from node_process import cpu_s, peak_mb, start
from trellis.live.run import run_loop
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.matcher import FilterTree

PAYLOAD_BYTES = 256
TOPICS = 200
DOOR = ("--set", "mqtt.listen=127.0.0.1:0", "--set", "mqtt.suback_s=60")
WINDOW = 200  # publications under way: below the door's receive maximum


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.framing = reader, writer, Framing(1 << 20)

    @classmethod
    async def connect(cls, address: str, name: str, **proof: Any) -> Client:
        host, _, port = address.rpartition(":")
        client = cls(*await asyncio.open_connection(host, int(port)))
        client.send(p.Connect(version=p.V5, client=name, clean_start=True, **proof))
        assert isinstance((await client.read())[0], p.ConnAck)
        return client

    def send(self, *several: p.Packet) -> None:
        self.writer.write(b"".join(encode(p.V5, one) for one in several))

    async def read(self) -> list[p.Packet]:
        found: list[p.Packet] = []
        while not found:
            data = await self.reader.read(1 << 16)
            assert data, "the door closed the connection"
            self.framing.feed(data)
            found = [decode(p.V5, first, body) for first, body in self.framing.packets()]
        return found


async def publish(client: Client, count: int, pause_s: float) -> None:
    under_way = sent = 0
    while sent < count or under_way:
        while sent < count and under_way < WINDOW:
            sent += 1
            under_way += 1
            payload = time.monotonic_ns().to_bytes(8, "big") + bytes(PAYLOAD_BYTES - 8)
            client.send(p.Publish(topic=f"bench/{sent % TOPICS}/x", payload=payload, qos=1, id=sent % 65_535 + 1))
            if pause_s:
                await asyncio.sleep(pause_s)
        under_way -= sum(isinstance(one, p.Ack) for one in await client.read())


async def read(client: Client, count: int) -> list[float]:
    delays: list[float] = []
    while len(delays) < count:
        messages = [one for one in await client.read() if isinstance(one, p.Publish)]
        now = time.monotonic_ns()
        delays += [(now - int.from_bytes(one.payload[:8], "big")) / 1e6 for one in messages]
        client.send(*(p.Ack(p.PUBACK, one.id) for one in messages if one.id is not None))
    return delays


async def measure(nodes: list[tuple[subprocess.Popen[str], dict[str, str]]], count: int) -> None:
    pids = [process.pid for process, _ in nodes]
    readers = [await Client.connect(about["mqtt_listen"], f"r{index}") for index, (_, about) in enumerate(nodes)]
    for client, filter_ in zip(readers, ("bench/#", "bench/+/x", "#"), strict=True):
        client.send(p.Subscribe(1, (p.Asked(filter_, 1),)))
    for client in readers:
        while not any(isinstance(one, p.SubAck) for one in await client.read()):
            pass
    publisher = await Client.connect(nodes[0][1]["mqtt_listen"], "p")
    plan = (("new topics", TOPICS, 0.0, 0), ("copied", 2 * TOPICS, 0.0, 0))
    for about, total, pause_s, wait_s in (*plan, ("flat out", count, 0.0, 14), ("1 ms apart", count // 10, 0.001, 0)):
        await asyncio.sleep(wait_s)  # readers have joined every topic, and nothing is copied any more
        before, began = [cpu_s(pid) for pid in pids], time.monotonic()
        found = await asyncio.gather(publish(publisher, total, pause_s), *(read(one, total) for one in readers))
        wall = time.monotonic() - began
        used = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
        cuts = quantiles(found[3], n=100)
        line = "  ".join(f"{name} {each:6.2f} s" for name, each in zip("abc", used, strict=True))
        rate = total / max(used[0], 0.01)
        print(f"{about:12} {total:7} messages  CPU {line}  ({rate:7.0f}/s of a's)  wall {wall:6.1f} s  ", end="")
        print(f"delay at c p50 {cuts[49]:7.1f} ms  p99 {cuts[98]:7.1f} ms")
    print("memory " + "  ".join(f"{name} {peak_mb(pid):.0f} MB" for name, pid in zip("abc", pids, strict=True)))


def alone() -> None:
    one = p.Publish(topic="bench/7/x", payload=bytes(PAYLOAD_BYTES), qos=1, id=7)
    for version in (p.V311, p.V5):
        began = time.process_time()
        for _ in range(100_000):
            data = encode(version, one)
        written, began = time.process_time() - began, time.process_time()
        framing = Framing(1 << 20)
        for _ in range(1_000):
            framing.feed(data * 100)
            for first, body in framing.packets():
                decode(version, first, body)
        count = 100_000 / (time.process_time() - began)
        print(f"codec, version {version}: {100_000 / written:9.0f} written/s  {count:9.0f} read/s")
    for filters in (1_000, 10_000, 100_000):
        tree: FilterTree[int, None] = FilterTree()
        for number in range(filters):
            tree.put(f"bench/{number}/x" if number % 10 else f"bench/+/y{number}/#", number, None)
        began = time.process_time()
        for number in range(20_000):
            list(tree.matching(f"bench/{number % filters}/x"))
        print(f"matching among {filters:7} filters: {20_000 / (time.process_time() - began):9.0f} topics/s")


def main() -> None:
    parser = ArgumentParser(description="MQTT doors on loopback.")
    parser.add_argument("messages", nargs="?", type=int, default=5_000)
    parser.add_argument("--brokers", type=int, default=0, help="sites of a steady load")
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--readers", type=int, default=3, help="sites that read a topic")
    parser.add_argument("--publishers", type=int, default=2, help="sites at which a topic is published")
    parser.add_argument("--rate", type=int, default=2_000, help="publications a second, in all")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--payload", type=int, default=PAYLOAD_BYTES)
    parser.add_argument("--doors", choices=["mosquitto", "embedded"], default="mosquitto")
    parser.add_argument("--overhead", action="store_true", help="what a sidecar costs a broker's own clients")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of node.toml")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.overhead:
            run_loop(run_overhead(Path(folder), given.rate, given.seconds, given.payload))
        elif given.brokers:
            settings = {
                key: tomllib.loads(f"v = {value}")["v"] for key, _, value in (s.partition("=") for s in given.set)
            }
            load = Load(
                given.brokers, given.topics, given.rate, given.seconds, given.payload,
                min(given.readers, given.brokers), min(given.publishers, given.brokers), given.doors, settings=settings,
            )  # fmt: skip
            run_loop(run_load(load, Path(folder)))
        else:
            three_nodes(given.messages)


def three_nodes(count: int) -> None:
    alone()
    nodes: list[tuple[subprocess.Popen[str], dict[str, str]]] = []
    try:
        for name in "abc":
            nodes.append(start(name, nodes[0][1]["listen"] if nodes else "", *DOOR))
        run_loop(measure(nodes, count))
    finally:
        for process, _ in nodes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
