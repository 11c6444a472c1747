"""How fast a store writes and opens, SQLite beside it, and what durable publications cost on live nodes.

    .venv/bin/python benchmarks/bench_store.py [--folder /var/tmp] [--messages 20000] [--stored 1000000] [--part live]

write   records of 128 bytes in batches, each batch synced: our segments, and SQLite in WAL mode with synchronous=FULL
open    opening a store: the log alone, and a delivery part that restores all messages of it
live    two nodes in one process with stores on this disk: acknowledged publications a second, with a window of
        unanswered ones; then the replay of a backlog to a durable subscriber

Rates by the clock depend on the disk, and on whoever else uses it. Computing times are the process's own (CPU).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import shutil
import sqlite3
import tempfile
import time
from pathlib import Path
from random import Random

import trellis
from trellis.live.config import DurableConfig, NodeConfig
from trellis.live.run import run_loop
from trellis.live.shell import LiveNode
from trellis.protocols.delivery import Delivery, DeliveryConfig
from trellis.protocols.delivery.durable import Durable
from trellis.protocols.delivery.records import Kept, encode
from trellis.store.disk import FolderDisk
from trellis.store.log import Log

PAYLOAD = Random(1).randbytes(128)
_NOW_MS = 1_800_000_000_000


def show(what: str, count: int, wall_s: float, cpu_s: float) -> None:
    print(f"{what:<44} {count / wall_s:>10,.0f} a second {1e6 * cpu_s / count:>8.1f} us of computing each")


def open_log(disk: FolderDisk, segment_bytes: int = 16 << 20) -> Log:
    random = Random(2)
    return Log(disk, segment_bytes, lambda: random.getrandbits(63), lambda: [])


def commit(log: Log, disk: FolderDisk) -> None:
    batch = log.take_batch()
    batch.write(disk)
    log.written(batch)


def bench_write(folder: Path, messages: int) -> None:
    for group in (1, 20, 200):
        count = min(messages, 500 * group)
        disk = FolderDisk(folder / f"segments{group}")
        log = open_log(disk)
        list(log.restored())
        log.begin()
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(0, count, group):
            for number in range(first, first + group):
                log.append(encode(Kept("news", "a", 1, number + 1, _NOW_MS, 0)), PAYLOAD)
            commit(log, disk)
        show(f"segments, {group} in a batch", count, time.perf_counter() - wall, time.process_time() - cpu)
        disk.close()
        database = sqlite3.connect(folder / f"{group}.sqlite", isolation_level=None)
        database.execute("pragma journal_mode=wal")
        database.execute("pragma synchronous=full")
        database.execute("create table messages (number integer primary key, head blob, body blob)")
        wall, cpu = time.perf_counter(), time.process_time()
        for first in range(0, count, group):
            rows = [
                (number, encode(Kept("news", "a", 1, number + 1, _NOW_MS, 0)), PAYLOAD)
                for number in range(first, first + group)
            ]
            database.execute("begin")
            database.executemany("insert into messages values (?, ?, ?)", rows)
            database.execute("commit")
        show(f"SQLite,   {group} in a batch", count, time.perf_counter() - wall, time.process_time() - cpu)
        database.close()


class Lonely:
    """An overlay without links, for a delivery part that only restores."""

    has_homes = relays = False
    incarnation, interest, id = 2, 0, "a"

    def neighbors(self) -> dict[str, int]:
        return {}


def bench_open(folder: Path, stored: int) -> None:
    disk = FolderDisk(folder / "many")
    log = open_log(disk)
    list(log.restored())
    log.begin()
    for number in range(stored):
        log.append(encode(Kept(f"topic{number % 50}", "a", 1, number // 50 + 1, _NOW_MS, 0)), PAYLOAD)
        if number % 10_000 == 9_999:
            commit(log, disk)
    commit(log, disk)
    disk.close()
    disk = FolderDisk(folder / "many")
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    log = open_log(disk)
    count = sum(1 for _ in log.restored())
    print(
        f"open the log: {count:,} records in {time.perf_counter() - wall:.2f} s, {time.process_time() - cpu:.2f} s CPU"
    )
    log = open_log(disk)
    part = Delivery(Lonely(), DeliveryConfig())  # type: ignore[arg-type]
    wall, cpu = time.perf_counter(), time.process_time()
    durable = Durable(part.state, log, DurableConfig(path="x", bytes_max=4 << 30), _NOW_MS)
    durable.restore(log.restored())
    print(f"restore: {durable.restored:,} messages in {time.perf_counter() - wall:.2f} s, ", end="")
    print(f"{time.process_time() - cpu:.2f} s CPU")
    disk.close()


async def live(folder: Path, messages: int, window: int) -> None:
    nodes: list[LiveNode] = []
    for name in ("a", "b"):
        seeds = (f"127.0.0.1:{nodes[0].transport.port}",) if nodes else ()
        durable = DurableConfig(path=str(folder / f"{name}{window}"))
        config = NodeConfig(name=name, listen="127.0.0.1:0", client_listen="127.0.0.1:0", seeds=seeds, durable=durable)
        nodes.append(LiveNode(config))
        await nodes[-1].start()
    first, second = [f"127.0.0.1:{node.client_port.port}" for node in nodes]
    async with trellis.connect(second, client="reader") as reader:
        await reader.subscribe("news", durable=True)
    async with trellis.connect(first, client="writer") as writer:
        await writer.publish("news", PAYLOAD)
        left = iter(range(messages - 1))

        async def work() -> None:
            for _ in left:
                await writer.publish("news", PAYLOAD)

        wall, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(work() for _ in range(window)))
        what = f"two nodes, two synced copies, window {window}"
        show(what, messages - 1, time.perf_counter() - wall, time.process_time() - cpu)
    async with trellis.connect(second, client="reader") as reader:
        wall, cpu = time.perf_counter(), time.process_time()
        await reader.subscribe("news", durable=True)
        for _ in range(messages):
            await anext(reader)
        show("replay to a durable subscriber", messages, time.perf_counter() - wall, time.process_time() - cpu)
    for node in nodes:
        await node.stop(in_order=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=None, help="a folder on the disk to measure")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--stored", type=int, default=1_000_000)
    parser.add_argument("--part", choices=["write", "open", "live"], default=None, help="measure this part only")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-store-", dir=given.folder))
    try:
        if given.part in (None, "write"):
            bench_write(folder, given.messages)
        if given.part in (None, "open"):
            bench_open(folder, given.stored)
        if given.part in (None, "live"):
            for window in (1, 20, 200):
                run_loop(live(folder, min(given.messages, 100 * window + 500), window))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
