"""Processes with a client each: who is up, who wants what, and what was done to them.

Every node gets its topics in its configuration, so that it joins with them, and one client that subscribes to the same:
what the client is told goes to the ledger. A node that dies takes its client with it; its next life has another one.
Where clients speak MQTT, their subscriptions are all that the node knows. A broker beside a node outlives it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal

import msgspec

from trellis.fleet.clients import ClientKind, FleetClient, make_client, mqtt_settings
from trellis.fleet.interests import InterestsByNode
from trellis.fleet.ledger import Ledger, Life
from trellis.fleet.mosquitto import Mosquitto, find_mosquitto
from trellis.fleet.processes import ANY, NodeFailed, NodeProcess
from trellis.fleet.relay import Relays
from trellis.fleet.traffic import number_in
from trellis.fleet.watch import AdminPort, Snapshot
from trellis.live.client import ClientError
from trellis.live.config import read_config

_SEEDS_MAX = 5
_STARTING_MAX = max(2, os.cpu_count() or 1)  # processes that start at the same time
_LEAVE_S = 40.0
_START_S = 30.0  # and a second for each node, until it is in vain to wait for a neighbour that was planned
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")

State = Literal["down", "starting", "up", "hung", "leaving"]


TOPIC_CONNECTED = ("omen", "spidercast")  # overlays that connect a topic through those who want it


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True):
    overlay: str = "omen"
    copies: int = 2
    settings: dict[str, object] = {}
    """Any key of node.toml that nodes can share (`settings.py`). `topics` are added to those of each node."""

    planned: dict[str, tuple[str, ...]] = {}
    """By node, its neighbours of the overlay that the mesh starts with. Whoever starts again joins."""

    client_kind: ClientKind = "trellis"
    """How clients talk to nodes. `mosquitto`: each node is the sidecar of a broker."""

    has_relays: bool = False
    """Put a relay before every node, so that the network between them can be cut."""

    @property
    def is_topic_connected(self) -> bool:
        return self.overlay in TOPIC_CONNECTED


@dataclass(eq=False)
class Member:
    """A node, through its lives."""

    name: str
    topics: dict[str, None]
    state: State = "down"
    life: Life = ("", 0)
    process: NodeProcess | None = None
    client: FleetClient | None = None
    broker: Mosquitto | None = None
    admin: AdminPort | None = None
    confirmed: dict[str, None] = field(default_factory=dict)
    listen: str = ANY
    mqtt_listen: str = ANY
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def is_joined(self) -> bool:
        return self.state == "up" and self.confirmed.keys() >= self.topics.keys()

    @property
    def mqtt_address(self) -> str:
        """Where clients of MQTT connect; empty: nowhere."""
        if self.broker is not None:
            return self.broker.address
        return self.process.about.get("mqtt_listen", "") if self.process is not None else ""


class Fleet:
    def __init__(
        self, interests: InterestsByNode, config: FleetConfig, folder: Path, ledger: Ledger, mark: str
    ) -> None:
        self.config, self.folder, self.ledger, self.mark = config, folder, ledger, mark
        self.members = {name: Member(name, dict.fromkeys(topics)) for name, topics in interests.items()}
        self.relays = Relays() if config.has_relays else None
        self._mqtt = mqtt_settings(interests) if config.client_kind != "trellis" else {}
        self._mosquitto = find_mosquitto() if config.client_kind == "mosquitto" else ""
        self.failures: list[str] = []  # nodes that ended by themselves
        self.on_kill: Callable[[str, float], None] = lambda name, at: None  # kill -9 by somebody else
        self.reconnects = 0  # of clients whose node lived on
        self.most = 0  # processes at a time
        self._random = Random(mark)
        self._starting = asyncio.Semaphore(_STARTING_MAX)
        # Of files: whoever wants to kill a node by hand looks for its name; that may hold anything.
        self._labels = {name: f"{place:03}-{_PLAIN.sub('_', name)[:40]}" for place, name in enumerate(self.members)}

    # Who

    def among(self, *states: State) -> list[Member]:
        return [one for one in self.members.values() if one.state in states]

    @property
    def joined(self) -> list[Member]:
        return [one for one in self.members.values() if one.is_joined]

    def subscribers(self, members: Iterable[Member]) -> dict[str, set[str]]:
        """By topic, out of some members: those that were confirmed."""
        found: dict[str, set[str]] = {}
        for member in members:
            for topic in member.confirmed:
                found.setdefault(topic, set()).add(member.name)
        return found

    async def snapshots(self, members: Iterable[Member]) -> dict[str, Snapshot]:
        asked = [(one.name, one.admin) for one in members if one.admin is not None]
        found = await asyncio.gather(*(admin.snapshot() for _, admin in asked))
        return {name: one for (name, _), one in zip(asked, found, strict=True) if one is not None}

    # What is done to them

    async def start(self, names: Iterable[str], told: Callable[[int], None] = lambda up: None) -> None:
        """The first one, then all others at it. Returns when each is up and has its client."""
        first, *others = names
        await self.start_node(first)
        told(1)
        tasks = [asyncio.create_task(self.start_node(name)) for name in others]
        try:
            for done, task in enumerate(asyncio.as_completed(tasks), start=2):
                await task
                told(done)
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start_node(self, name: str) -> None:
        member = self.members[name]
        if member.state != "down":
            return
        member.state = "starting"
        async with self._starting:
            if self._mosquitto and member.broker is None:
                member.broker = Mosquitto(self._mosquitto, self.folder, self._labels[name])
                await member.broker.start()
            member.process = await self._started(member)
        member.life = self.ledger.born(name)
        member.listen = member.process.about["listen"]
        member.mqtt_listen = member.process.about.get("mqtt_listen", ANY)
        if self.relays is not None:
            self.relays.lead(name, member.listen)
        member.state = "up"
        self.most = max(self.most, len(self.among("up", "hung", "leaving")))
        member.admin = AdminPort(member.process.about["admin_listen"])
        about, broker = member.process.about, member.broker.address if member.broker is not None else ""
        mine = f"{self._labels[name].partition('-')[0]}-{member.life[1]}"
        member.client = make_client(about["client_listen"], about.get("mqtt_listen", ""), broker, mine)
        await member.client.__aenter__()
        member.tasks = [
            asyncio.create_task(self._read(member.client, member.life)),
            asyncio.create_task(self._watch(member, member.process)),
            *(asyncio.create_task(self._confirm(member, member.client, topic)) for topic in member.topics),
        ]

    def kill(self, names: Iterable[str]) -> float:
        """kill -9, all at the same instant: when that was."""
        members = [self.members[name] for name in names]
        now = time.monotonic()
        for member in members:
            assert member.process is not None
            self.ledger.died(member.name, now)
            member.state = "down"
            member.process.signal(signal.SIGKILL)
        for member in members:
            self._forget(member)
        return now

    def hang(self, name: str) -> float:
        """SIGSTOP: it says nothing more, and its streams stay open."""
        member = self.members[name]
        assert member.process is not None
        member.state = "hung"
        member.process.signal(signal.SIGSTOP)
        return time.monotonic()

    def resume(self, name: str) -> None:
        member = self.members[name]
        if member.state == "hung" and member.process is not None:
            member.process.signal(signal.SIGCONT)
            member.state = "up"

    async def leave(self, name: str) -> None:
        """SIGTERM: in order."""
        member = self.members[name]
        if member.state != "up" or member.process is None:
            return
        self.ledger.died(name, time.monotonic())
        member.state = "leaving"
        member.process.signal(signal.SIGTERM)
        process = member.process
        self._forget(member)
        try:
            async with asyncio.timeout(_LEAVE_S):
                code = await process.ended()
        except TimeoutError:
            process.signal(signal.SIGKILL)
            code = await process.ended()
        if code != 0:
            self.failures.append(f"{name} did not leave in order (exit {code}): {process.last_words()}")
        member.state = "down"

    def subscribe(self, name: str, topic: str) -> None:
        member = self.members[name]
        if topic not in member.topics:
            member.topics[topic] = None
            if member.client is not None and member.state == "up":
                member.tasks.append(asyncio.create_task(self._confirm(member, member.client, topic)))

    async def unsubscribe(self, name: str, topic: str) -> None:
        member = self.members[name]
        if member.topics.pop(topic, self) is self:
            return
        member.confirmed.pop(topic, None)
        self.ledger.unsubscribed(name, topic)
        if member.client is not None:
            with suppress(ClientError):
                await member.client.unsubscribe(topic)

    async def end(self) -> None:
        """Every process is gone when this returns, and every port free."""
        processes = [one.process for one in self.members.values() if one.process is not None]
        for member in self.members.values():
            member.state = "down"
            self._forget(member)
        for process in processes:
            process.signal(signal.SIGKILL)
        await asyncio.gather(*(process.ended() for process in processes if process.is_running))
        await asyncio.gather(*(one.broker.kill() for one in self.members.values() if one.broker is not None))
        if self.relays is not None:
            await self.relays.close()

    # Helpers

    async def _started(self, member: Member) -> NodeProcess:
        process = NodeProcess(member.name, self.folder, self._labels[member.name])
        member.process = process  # so that `end` finds it, whenever that is
        advertised = {} if self.relays is None else {"advertise": await self.relays.open(member.name)}
        config = {
            **self._plan(member.name),
            **node_config(self.config, f"up-{self.mark}", member.topics, self._mqtt),
            "seeds": self._seeds(member.name),
            **advertised,
        }
        try:
            await process.start({"listen": member.listen, **config, **self._mqtt_listener(member, member.mqtt_listen)})
        except NodeFailed:
            if member.listen == ANY:
                raise
            await process.ended()
            await process.start(
                {"listen": ANY, **config, **self._mqtt_listener(member, ANY)}
            )  # somebody has taken its port
        return process

    def _plan(self, name: str) -> dict[str, object]:
        """For its first life. All are waited for: processes start a few at a time, and machines are busy."""
        chosen = self.config.planned.get(name)
        if not chosen or self.ledger.life(name)[1]:
            return {}
        return {"planned.neighbours": list(chosen), "planned.wait_s": _START_S + len(self.members)}

    def _mqtt_listener(self, member: Member, listen: str) -> dict[str, object]:
        """Return the keys of a node's MQTT listener, or of the broker beside it. Empty if its clients speak no MQTT."""
        if member.broker is not None:
            learned = self.folder.absolute() / f"{self._labels[member.name]}.learned.json"
            mine = {"mqtt.broker": f"mqtt://{member.broker.address}", "mqtt.learn": True}
            return {**mine, "mqtt.learn_file": str(learned)}
        return {"mqtt.listen": listen} if self.config.client_kind == "mqtt" else {}

    def _seeds(self, name: str) -> list[str]:
        known = [one for one in self.among("up") if one.name != name]
        chosen = self._random.sample(known, min(_SEEDS_MAX, len(known)))
        return [self.relays.address(one.name) if self.relays is not None else one.listen for one in chosen]

    def _forget(self, member: Member) -> None:
        """Its life is over."""
        for task in member.tasks:
            task.cancel()
        member.tasks.clear()
        if member.client is not None:
            closing = asyncio.create_task(member.client.close())
            closing.add_done_callback(lambda task: task.cancelled() or task.exception())
        if member.admin is not None:
            member.admin.close()
        member.client = member.admin = None
        member.confirmed.clear()

    async def _read(self, client: FleetClient, life: Life) -> None:
        reconnects = 0
        with suppress(ClientError):
            async for message in client:
                number = number_in(message.payload, self.mark)
                if number is not None:  # which grows with each publication of a client, as a sequence does
                    self.ledger.deliver(life, message.topic, number, message.sequence or number, time.monotonic())
                self.reconnects += client.reconnects - reconnects
                reconnects = client.reconnects

    async def _confirm(self, member: Member, client: FleetClient, topic: str) -> None:
        self.ledger.asked(member.life, topic)
        with suppress(ClientError):
            await client.subscribe(topic)
            if member.client is client and topic in member.topics:
                member.confirmed[topic] = None
                self.ledger.confirmed(member.life, topic)

    async def _watch(self, member: Member, process: NodeProcess) -> None:
        """Nodes that nobody has killed should not end."""
        code, now = await process.ended(), time.monotonic()
        if member.process is process and member.state in ("up", "hung"):
            self.ledger.died(member.name, now)
            member.state = "down"
            if code == -signal.SIGKILL:
                self.on_kill(member.name, now)
            else:
                self.failures.append(f"{member.name} has ended by itself (exit {code}): {process.last_words()}")
            self._forget(member)


def node_config(
    config: FleetConfig, cluster: str, topics: Iterable[str], mqtt: Mapping[str, object]
) -> dict[str, object]:
    settings = dict(config.settings)
    more = settings.pop("topics", [])
    assert isinstance(more, list), "settings hold lists as lists"
    mine = list(topics) if config.client_kind == "trellis" else []
    return {
        "cluster": cluster,
        "overlay": config.overlay,
        "client_listen": ANY,
        "admin_listen": ANY,
        "topics": list(dict.fromkeys([*mine, *more])),
        "delivery.copies": config.copies,
        **mqtt,
        **settings,
    }


def check_config(config: FleetConfig, interests: InterestsByNode) -> None:
    """What a node would refuse is refused before any is started."""
    mqtt = mqtt_settings(interests) if config.client_kind != "trellis" else {}
    if config.client_kind == "mosquitto":
        find_mosquitto()
    for name, topics in interests.items():
        read_config(None, {}, {"name": name, **node_config(config, "up", topics, mqtt)})
