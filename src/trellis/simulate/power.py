"""Losses of power in the simulator: whole nodes with stores on simulated disks, under traffic, judged from outside.

    verdict = Power(seed=7).run()

All nodes lose their power at once, several times. A seed draws a fault of disks as well. Faults that nodes survive
with their promises (`GENTLE`) may hit every disk. A disk that loses what it had promised (`LYING`) hits one node: its
messages are held by another one, and its own durable subscribers are not judged.  [docs/durable.md]
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

import trellis
from trellis.judge import History, Promise, Verdict, judge
from trellis.judge import history as h
from trellis.live.client import Client, ClientError
from trellis.live.config import NodeConfig
from trellis.protocols.delivery.config import DurableConfig
from trellis.simulate.disks import DiskFaults, SimulatedDisk
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import CLIENTS, Mesh
from trellis.simulate.whole.world import World

GENTLE = ("none", "slow", "full", "sync_error")
LYING = ("flip", "lost_sync", "read_error")
TOPICS = ("red", "green")
_SEGMENT_BYTES = 8_192


class Power:
    """One trial."""

    def __init__(self, seed: int, *, nodes: int = 5, readers: int = 2, writers: int = 2) -> None:
        self.world = World(seed)
        self.random = self.world.random("power")
        self.fault = (*GENTLE, *LYING)[seed % (len(GENTLE) + len(LYING))]
        self.names = [f"n{number}" for number in range(nodes)]
        self.readers = {f"r{number}": self.names[number % nodes] for number in range(readers)}
        self.writers = {f"w{number}": self.names[(number + readers - 1) % nodes] for number in range(writers)}
        self.disks = {name: SimulatedDisk(self.world.random("disk", name)) for name in self.names}
        self.bad: list[str] = self.names if self.fault in GENTLE else [self.random.choice(self.names)]
        self.mesh = Mesh(self.world, self.names, self._config, has_mqtt=False, disks=self.disks)
        self.faults = Faults(self.world)
        self.events: list[tuple[float, int, Any]] = []
        self.is_over = False
        self.ended = 0  # processes that ended because a sync failed
        self.confirmed = 0

    def _config(self, name: str, fields: dict[str, Any]) -> NodeConfig:
        durable = DurableConfig(path=f"/{name}", segment_bytes=_SEGMENT_BYTES, bytes_max=1 << 30)
        return NodeConfig(name=name, durable=durable, **{**fields, "admin_listen": ""})

    def note(self, kind: type[h.Record], *fields: object, t: float | None = None, **named: object) -> None:
        when = round(self.world.now_s if t is None else t, 6)
        self.events.append((when, len(self.events), kind(when, *fields, **named)))

    def _spoil(self) -> None:
        """Let the disks be bad from now on."""
        faults = {
            "slow": DiskFaults(slow_s=0.05),
            "full": DiskFaults(room=self.random.randint(30_000, 90_000)),
            "sync_error": DiskFaults(sync_error=0.002),
            "flip": DiskFaults(flip=1.0),
            "lost_sync": DiskFaults(lost_sync=0.2),
            "read_error": DiskFaults(read_error=0.05),
        }
        for name in self.bad:
            self.disks[name].faults = faults.get(self.fault, DiskFaults())

    def start_all(self) -> None:
        """Start all nodes that do not run."""
        for name in self.names:
            if not self.mesh.is_running(name):
                self.note(h.Up, name)
                self.mesh.start(name)

    def lose_power(self) -> None:
        """All machines lose their power at this moment."""
        for name in self.names:
            if self.mesh.is_running(name):
                self.note(h.Down, name)
            self.faults.crash_machine(name)
            self.disks[name].lose_power()

    def _replace_ended(self) -> None:
        """Start nodes again that have ended by themselves. A failed sync is a loss of what was not synced."""
        for name in self.names:
            if not self.mesh.is_running(name):
                self.ended += 1
                self.note(h.Down, name)
                self.disks[name].lose_power()
                self.note(h.Up, name)
                self.mesh.start(name)

    def run(self) -> Verdict:
        """Run the trial, and judge it."""
        with self.world as world:
            self.start_all()
            world.run_for(5)
            for name, node in self.readers.items():
                self.mesh.host(name).start(self._read(name, node))
            world.run_until(lambda: self.confirmed == len(self.readers), 120)
            for name, node in self.writers.items():
                self.mesh.host(name).start(self._write(name, node))
            world.run_for(1)
            self._spoil()
            for _ in range(self.random.randint(2, 4)):
                self._go(self.random.uniform(0.3, 4))
                self.lose_power()
                world.run_for(self.random.uniform(0.1, 8))
                self.start_all()
                self._go(self.random.uniform(0, 6))
            for disk in self.disks.values():
                disk.faults = DiskFaults()
            self._go(6)
            self.is_over = True
            self._go(75)
            self.note(h.Settled)
            self.bugs = sum(node.counters["bugs"] for node in self.mesh.nodes.values())
            self.failures = list(world.failures)
        events = [event for _, _, event in sorted(self.events, key=lambda one: one[:2])]
        return judge(History(events), Promise(durable=True))

    def _go(self, seconds: float) -> None:
        """Let time pass. Nodes that end are started again."""
        until = self.world.now_s + seconds
        while self.world.now_s < until:
            self.world.run_for(min(0.5, max(0.001, until - self.world.now_s)))
            self._replace_ended()

    def wrong(self, verdict: Verdict) -> list[str]:
        """Return what broke a promise that this trial's faults leave in force."""
        kinds = ("lost", "twice", "order", "unknown", "not subscribed", "older")
        unjudged = {name for name, node in self.readers.items() if self.fault in LYING and node in self.bad}
        found = [one for one in verdict.violations if one.kind in kinds and one.session not in unjudged]
        told = [f"{one.kind} at {one.t:.3f}: {one.text}" for one in found]
        told += [f"a bug: {self.bugs} handlers broke"] if self.bugs else []
        return told

    # Clients

    async def _watch(self, client: Client, name: str, node: str) -> None:
        is_away = False
        while not self.is_over:
            gone = client._stream is None or client.node is None
            if gone != is_away:
                is_away = gone
                if gone:
                    self.note(h.Away, name, True)
                else:
                    self.note(h.Back, name, node)
            await asyncio.sleep(0.002)
        if is_away:
            self.note(h.Back, name, node)

    async def _read(self, name: str, node: str) -> None:
        async with trellis.connect(self.mesh.address(node, CLIENTS), client=name, timeout_s=600) as client:
            self.note(h.Connected, name, name, node, speaks="native")
            for topic in TOPICS:
                self.note(h.Subscribing, name, topic)
                await client.subscribe(topic, durable=True)
                self.note(h.Confirmed, name, topic)
            self.confirmed += 1
            watch = asyncio.ensure_future(self._watch(client, name, node))
            async for message in client:
                self.note(h.Received, name, message.payload.decode(), message.topic)
            await watch

    async def _write(self, name: str, node: str) -> None:
        async with trellis.connect(self.mesh.address(node, CLIENTS), client=name, timeout_s=600) as client:
            self.note(h.Connected, name, name, node, speaks="native")
            watch = asyncio.ensure_future(self._watch(client, name, node))
            number, sending = 0, set[asyncio.Task[None]]()
            while not self.is_over:
                number += 1
                sending.add(asyncio.ensure_future(self._publish(client, name, f"{name}-{number}")))
                await asyncio.sleep(0.05)
            await asyncio.gather(*sending, watch)

    async def _publish(self, client: Client, name: str, message: str) -> None:
        topic = TOPICS[len(message) % 2]
        self.note(h.Publishing, name, message, topic)
        try:
            receipt = await client.publish(topic, message.encode().ljust(len(message)))
        except ClientError as error:
            self.note(h.Refused, name, message, str(error))
        else:
            self.note(h.Acknowledged, name, message, receipt.holders)


def run_seed(seed: int) -> dict[str, Any]:
    """Run one seed. Return what a report needs."""
    power = Power(seed)
    verdict = power.run()
    return {
        "seed": seed,
        "fault": power.fault,
        "owed": verdict.counts.owed,
        "acknowledged": verdict.acknowledged,
        "refused": msgspec.to_builtins(dict(verdict.refusals.most_common(3))),
        "ended": power.ended,
        "hits": {name: dict(disk.counts) for name, disk in power.disks.items() if name in power.bad[:1]},
        "wrong": power.wrong(verdict),
        "failures": [str(one) for one in power.failures][:3],
    }
