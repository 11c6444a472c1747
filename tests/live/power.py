"""Five nodes with stores as processes that lose their power together, under traffic, and what their clients saw."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import trellis
from live.test_processes import SETTINGS
from trellis.judge import Promise, Verdict, judge
from trellis.judge import history as h
from trellis.live.client import Client, ClientError

TOPICS = ("red", "green")


def free_ports(random: Random, count: int) -> list[int]:
    """Return ports that the kernel gives to nobody else while nodes are down: below those of outgoing connections."""
    ports: list[int] = []
    while len(ports) < count:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            ports += [port] if port not in ports else []
    return ports


class Site:
    """One node as a process, with ports and a folder that stay the same."""

    def __init__(self, name: str, folder: Path, ports: tuple[int, int], seeds: list[int]) -> None:
        self.name, self.folder, self.ports, self.seeds = name, folder, ports, seeds
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "trellis", "node", "--json", "--name", self.name]
        command += ["--listen", f"127.0.0.1:{self.ports[0]}", "--client-listen", f"127.0.0.1:{self.ports[1]}"]
        command += ["--seeds", ",".join(f"127.0.0.1:{port}" for port in self.seeds)]
        settings = [*SETTINGS, f"durable.path={self.folder}", "durable.segment_bytes=65536"]
        command += [part for one in settings for part in ("--set", one)]
        log = (self.folder.parent / f"{self.name}.log").open("a")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        log.close()

    def wait_until_up(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        deadline = threading.Timer(60, self.process.kill)
        deadline.start()
        try:
            json.loads(self.process.stdout.readline())
        finally:
            deadline.cancel()

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)

    def reap(self) -> None:
        if self.process is not None:
            self.process.communicate(timeout=60)


class Power:
    """The mesh, its clients, and the history that they write."""

    def __init__(self, folder: Path, seed: int, nodes: int = 5) -> None:
        self.random, self.began = Random(seed), time.monotonic()
        ports = free_ports(Random(), 2 * nodes)
        seeds = ports[:2]
        self.sites = [
            Site(f"n{index}", folder / f"n{index}", (ports[index], ports[nodes + index]), seeds)
            for index in range(nodes)
        ]
        self.events: list[h.Record] = []
        self.sent = self.received = 0
        self.is_over = False

    def note(self, kind: type[h.Record], *fields: object, **named: object) -> None:
        self.events.append(kind(time.monotonic() - self.began, *fields, **named))  # type: ignore[arg-type]

    async def start_all(self) -> None:
        for site in self.sites:
            self.note(h.Up, site.name)
            site.start()
        for site in self.sites:
            await asyncio.to_thread(site.wait_until_up)

    def kill_all(self) -> None:
        for site in self.sites:
            site.kill()
        for site in self.sites:
            self.note(h.Down, site.name)
            site.reap()

    async def watch(self, client: Client, name: str, keeps: bool, node: str) -> None:
        """Note when a client is away and back."""
        is_away = False
        while not self.is_over:
            gone = client._stream is None or client.node is None
            if gone and not is_away:
                self.note(h.Away, name, keeps)
            elif is_away and not gone:
                self.note(h.Back, name, node)
            is_away = gone
            await asyncio.sleep(0.002)

    async def read(self, site: Site, name: str) -> None:
        """A durable subscriber."""
        async with trellis.connect(f"127.0.0.1:{site.ports[1]}", client=name, timeout_s=3_600) as client:
            self.note(h.Connected, name, name, site.name, speaks="native")
            for topic in TOPICS:
                self.note(h.Subscribing, name, topic)
                await client.subscribe(topic, durable=True)
                self.note(h.Confirmed, name, topic)
            watching = asyncio.ensure_future(self.watch(client, name, True, site.name))
            self.readers[name] = client
            with suppress(ClientError):
                async for message in client:
                    self.received += 1
                    self.note(h.Received, name, message.payload.decode(), message.topic)
            await watching

    async def write(self, site: Site, name: str) -> None:
        """A client that publishes all the time, and waits for each acknowledgement in a group of ten."""
        async with trellis.connect(f"127.0.0.1:{site.ports[1]}", client=name, timeout_s=3_600) as client:
            self.note(h.Connected, name, name, site.name, speaks="native")
            watching = asyncio.ensure_future(self.watch(client, name, True, site.name))
            while not self.is_over:
                await asyncio.gather(*(self._publish(client, name) for _ in range(10)))
                await asyncio.sleep(0.02)
            await watching

    async def _publish(self, client: Client, name: str) -> None:
        self.sent += 1
        message, topic = f"{name}-{self.sent}", TOPICS[self.sent % 2]
        self.note(h.Publishing, name, message, topic)
        try:
            receipt = await client.publish(topic, message.encode())
        except ClientError as error:
            self.note(h.Refused, name, message, str(error))
        else:
            self.note(h.Acknowledged, name, message, receipt.holders)

    async def run(self, rounds: int) -> None:
        """Lose the power of all nodes `rounds` times, under traffic. Then let everything arrive."""
        self.readers: dict[str, Client] = {}
        try:
            await self.start_all()
            reading = [asyncio.ensure_future(self.read(site, f"r{i}")) for i, site in enumerate(self.sites[:3])]
            while len(self.readers) < 3:
                await asyncio.sleep(0.05)
                for task in reading:
                    if task.done():
                        task.result()
            writing = [asyncio.ensure_future(self.write(site, f"w{i}")) for i, site in enumerate(self.sites[2:])]
            for _ in range(rounds):
                await asyncio.sleep(self.random.uniform(0.5, 3.0))
                self.kill_all()
                await self.start_all()
            await asyncio.sleep(3)
            self.is_over = True
            await asyncio.gather(*writing)
            before = -1
            while before != self.received:
                before = self.received
                await asyncio.sleep(3)
            self.note(h.Settled)
            for name, client in self.readers.items():
                self.note(h.Ended, name)
                await client.close()
            await asyncio.gather(*reading)
        finally:
            for site in self.sites:
                site.kill()
                site.reap()

    def verdict(self, path: Path) -> Verdict:
        """Write the history, and let the judge read it."""
        h.write_history(h.History(self.events), path)
        return judge(h.read_history(path), Promise(durable=True))
