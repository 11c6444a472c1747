"""Clients that come, go and come back while others publish, and a judge that believes only what clients saw.

Nodes run as processes with their default configuration. Nothing is broken on purpose. Subscribers connect to any node,
natively or by MQTT 3.1.1 and 5, under a new name or one that was used before, with plain topics or wildcards, stay for
a while and end. Publishers do the same.

The judge knows when each subscription was confirmed, when its client began to end, and when each publication began and
was acknowledged. A publication is owed to a subscription if it began after the confirmation and was acknowledged at
least `GRACE_S` before the client began to end. Each such message must have come exactly once; none may come twice.

    PYTHONPATH=tests python -m live.come_and_go --nodes 2 --seconds 75 --seed 1
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import aiomqtt

import trellis
from trellis.live.client import ClientError
from trellis.live.mqtt.client import MqttClient

GRACE_S = 5.0
READY_S = 18.0  # homes of a mesh that has just started are not sure before `registered_ms`
TOPICS = [f"plant/{place}/{what}" for place in ("oven", "press", "hall") for what in ("heat", "state")]
WILDCARDS = ["plant/#", "plant/+/heat", "plant/oven/#", "+/press/state", "#"]


@dataclass
class Publication:
    topic: str
    began: float
    acknowledged: float = float("inf")


@dataclass
class Subscription:
    """One client under one filter, from its confirmation on."""

    who: str
    kind: str  # "native" or "mqtt": what natives publish has a form of its own, so each family is judged by itself
    fits: Callable[[str], bool]
    confirmed: float
    ended: float = float("inf")
    got: Counter[str] = field(default_factory=Counter)


class Judge:
    def __init__(self) -> None:
        self.publications: dict[str, dict[str, Publication]] = {"native": {}, "mqtt": {}}
        self.subscriptions: list[Subscription] = []
        self.refused: Counter[str] = Counter()
        self.troubles: Counter[str] = Counter()

    def verdict(self) -> dict[str, Any]:
        owed = 0
        missing: list[str] = []
        twice: list[str] = []
        for one in self.subscriptions:
            twice += [f"{one.who} got {payload} {count} times" for payload, count in one.got.items() if count > 1]
            for payload, made in self.publications[one.kind].items():
                is_in_time = made.began > one.confirmed and made.acknowledged < one.ended - GRACE_S
                if is_in_time and one.fits(made.topic):
                    owed += 1
                    if payload not in one.got:
                        after_s = made.began - one.confirmed
                        missing.append(f"{one.who}: {payload} on {made.topic}, {after_s:.1f} s after its confirmation")
        made = [one for kind in self.publications.values() for one in kind.values()]
        acknowledged = [one for one in made if one.acknowledged < float("inf")]
        return {
            "subscriptions": len(self.subscriptions),
            "publications": len(made),
            "acknowledged": len(acknowledged),
            "refused": dict(self.refused),
            "troubles": dict(self.troubles),
            "slowest_acknowledgement_s": round(max((o.acknowledged - o.began for o in acknowledged), default=0), 2),
            "owed": owed,
            "missing": missing,
            "twice": twice,
        }


def fits(pattern: str) -> Callable[[str], bool]:
    """MQTT's rule for filters, written once more: the judge takes nothing from the project."""
    wanted = pattern.split("/")

    def does(topic: str) -> bool:
        levels = topic.split("/")
        for place, level in enumerate(wanted):
            if level == "#":
                return True
            if place >= len(levels) or level not in ("+", levels[place]):
                return False
        return len(levels) == len(wanted)

    return does


class Trial:
    def __init__(self, nodes: list[dict[str, Any]], seed: int, seconds: float) -> None:
        self.nodes, self.random, self.judge = nodes, Random(seed), Judge()
        self.until = time.monotonic() + seconds
        self.numbers = 0

    async def run(self, subscribers: int = 6, publishers: int = 3) -> dict[str, Any]:
        tasks = []
        for slot in range(subscribers):
            tasks += [self._subscribe_natively(f"s{slot}"), self._subscribe_by_mqtt(f"m{slot}")]
        for slot in range(publishers):
            tasks += [self._publish("native", f"p{slot}"), self._publish("mqtt", f"q{slot}")]
        await asyncio.gather(*tasks)
        return self.judge.verdict()

    # What clients do

    def _name(self, slot: str) -> str:
        """A name that was used before, or a new one."""
        return slot if self.random.random() < 0.5 else f"{slot}-{self.random.randrange(10**9)}"

    def _stay_s(self) -> float:
        return self.random.choice((2.0, 7.0, 9.0, 14.0, 20.0))

    async def _away(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.1, 0.5, 2.0, 5.0, 9.0)))

    def _has_time(self) -> bool:
        return time.monotonic() < self.until - GRACE_S

    async def _subscribe_natively(self, slot: str) -> None:
        while self._has_time():
            await self._away()
            chosen = self.random.sample(TOPICS, self.random.choice((1, 2, 6)))
            name, node = self._name(slot), self.random.choice(self.nodes)
            with suppress(ClientError):
                async with trellis.connect(node["client_listen"], client=name) as client:
                    await asyncio.gather(*(client.subscribe(topic) for topic in chosen))
                    who = f"{name} at {node['name']}, natively to {len(chosen)} topics"
                    mine = Subscription(who, "native", set(chosen).__contains__, time.monotonic())
                    self.judge.subscriptions.append(mine)
                    reading = asyncio.create_task(self._read_natively(client, mine))
                    await asyncio.sleep(self._stay_s())
                    mine.ended = time.monotonic()
                    reading.cancel()
                    continue
            self.judge.troubles["native subscriber"] += 1

    async def _read_natively(self, client: Any, mine: Subscription) -> None:
        async for message in client:
            mine.got[message.payload.decode()] += 1

    async def _subscribe_by_mqtt(self, slot: str) -> None:
        while self._has_time():
            await self._away()
            pattern = self.random.choice(WILDCARDS if self.random.random() < 0.5 else TOPICS)
            name, node = self._name(slot), self.random.choice(self.nodes)
            host, port = node["mqtt_listen"].split(":")
            version = self.random.choice((aiomqtt.ProtocolVersion.V311, aiomqtt.ProtocolVersion.V5))
            try:
                async with aiomqtt.Client(host, int(port), identifier=name, protocol=version, timeout=30) as client:
                    await client.subscribe(pattern, qos=1)
                    mine = Subscription(f"{name} at {node['name']}, {pattern}", "mqtt", fits(pattern), time.monotonic())
                    self.judge.subscriptions.append(mine)
                    reading = asyncio.create_task(self._read_by_mqtt(client, mine))
                    await asyncio.sleep(self._stay_s())
                    mine.ended = time.monotonic()
                    reading.cancel()
            except aiomqtt.MqttError as error:
                self.judge.troubles[f"mqtt subscriber: {error}"] += 1

    async def _read_by_mqtt(self, client: aiomqtt.Client, mine: Subscription) -> None:
        async for message in client.messages:
            payload = message.payload
            assert isinstance(payload, bytes)
            if payload.startswith(b"mqtt/"):  # a wildcard also gets what natives publish
                mine.got[payload.decode()] += 1

    async def _publish(self, kind: str, slot: str) -> None:
        while self._has_time():
            await self._away()
            name, node = self._name(slot), self.random.choice(self.nodes)
            leaves = time.monotonic() + self._stay_s()
            place = node["client_listen"] if kind == "native" else node["mqtt_listen"]
            made: Any = trellis.connect(place, client=name) if kind == "native" else MqttClient(place, name)
            try:
                async with made as client:
                    while time.monotonic() < leaves and self._has_time():
                        await self._publish_one(kind, client)
                        await asyncio.sleep(self.random.choice((0.0, 0.05, 0.3)))
            except ClientError as error:
                self.judge.troubles[f"{kind} publisher: {error}"] += 1

    async def _publish_one(self, kind: str, client: Any) -> None:
        self.numbers += 1
        payload, topic = f"{kind}/{self.numbers}", self.random.choice(TOPICS)
        one = self.judge.publications[kind][payload] = Publication(topic, time.monotonic())
        try:
            await client.publish(topic, payload.encode())
            one.acknowledged = time.monotonic()
        except ClientError as error:
            self.judge.refused[str(error)[:120]] += 1


def start_nodes(count: int) -> tuple[list[subprocess.Popen[str]], list[dict[str, Any]]]:
    processes: list[subprocess.Popen[str]] = []
    told: list[dict[str, Any]] = []
    for number in range(count):
        command = [sys.executable, "-m", "trellis", "node", "--json", "--name", f"n{number}", "--log-level", "warning"]
        command += ["--listen", "127.0.0.1:0", "--client-listen", "127.0.0.1:0", "--set", "mqtt.listen=127.0.0.1:0"]
        command += ["--seeds", told[0]["listen"]] if told else []
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        line = processes[-1].stdout.readline()  # type: ignore[union-attr]
        told.append(json.loads(line))
    return processes, told


def try_coming_and_going(nodes: int, seconds: float, seed: int) -> dict[str, Any]:
    processes, told = start_nodes(nodes)
    try:
        time.sleep(READY_S)
        found = asyncio.run(_run(told, seed, seconds))
        assert all(one.poll() is None for one in processes), "a node has ended"
        return found
    finally:
        for one in processes:
            one.terminate()
        for one in processes:
            with suppress(subprocess.TimeoutExpired):
                one.wait(20)
            one.kill()
            one.communicate()


async def _run(told: list[dict[str, Any]], seed: int, seconds: float) -> dict[str, Any]:
    return await Trial(told, seed, seconds).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    sys.stdout.write(json.dumps(try_coming_and_going(given.nodes, given.seconds, given.seed), indent=2) + "\n")
