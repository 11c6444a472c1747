"""Processes with a client each: their states, their subscriptions, and the faults that are done to them.

Every node gets its topics in its configuration, so that it joins with them. Its client subscribes to the same topics,
and tells the ledger what it gets. A client ends with its node, and the next incarnation of the node has another one.
If clients speak MQTT, a node knows no topics but their subscriptions. A broker beside a node outlives it.
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
from trellis.fleet.ledger import Incarnation, Ledger
from trellis.fleet.mosquitto import Mosquitto, find_mosquitto
from trellis.fleet.processes import ANY, NodeFailed, NodeProcess
from trellis.fleet.relay import Relays
from trellis.fleet.traffic import number_in
from trellis.fleet.watch import AdminPort, Snapshot
from trellis.live.client import ClientError
from trellis.live.config import read_config
from trellis.protocols.overlays import overlay_of

_SEEDS_MAX = 5
_STARTING_MAX = max(2, os.cpu_count() or 1)  # processes that start at the same time
_LEAVE_S = 40.0
_START_S = 30.0  # with one second for each node: how long a node waits for its planned neighbors
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]")

State = Literal["down", "starting", "up", "hung", "leaving"]


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True):
    overlay: str = "omen"
    copies: int = 2
    settings: dict[str, object] = {}
    """Any key of node.toml that nodes can share (`settings.py`). `topics` are added to those of each node."""

    planned: dict[str, tuple[str, ...]] = {}
    """Node -> its neighbors in the overlay that the mesh starts with. A node that restarts joins instead."""

    client_kind: ClientKind = "trellis"
    """How clients talk to nodes. `mosquitto`: each node is the sidecar of a broker."""

    has_relays: bool = False
    """Put a relay before every node, so that the network between them can be cut."""

    @property
    def is_topic_connected(self) -> bool:
        return overlay_of(self.overlay).connects_topics


@dataclass(eq=False)
class Member:
    """A node, through all its incarnations."""

    name: str
    topics: dict[str, None]
    state: State = "down"
    incarnation: Incarnation = ("", 0)
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
        """The address where MQTT clients connect. Empty if there is none."""
        if self.broker is not None:
            return self.broker.address
        return self.process.about.get("mqtt_listen", "") if self.process is not None else ""


class Fleet:
    """The nodes of a mesh with their clients, as processes on this machine."""

    def __init__(
        self, interests: InterestsByNode, config: FleetConfig, folder: Path, ledger: Ledger, mark: str
    ) -> None:
        self.config, self.folder, self.ledger, self.mark = config, folder, ledger, mark
        self.members = {name: Member(name, dict.fromkeys(topics)) for name, topics in interests.items()}
        self.relays = Relays() if config.has_relays else None
        self._mqtt = mqtt_settings(interests) if config.client_kind != "trellis" else {}
        self._mosquitto = find_mosquitto() if config.client_kind == "mosquitto" else ""
        self.failures: list[str] = []  # nodes that ended by themselves
        # Called with a node and the time when a process was killed (SIGKILL), but not by this fleet.
        self.on_kill: Callable[[str, float], None] = lambda name, at: None
        self.reconnects = 0  # of clients whose node went on running
        self.most = 0  # the largest number of nodes that ran at the same time
        self._random = Random(mark)
        self._starting = asyncio.Semaphore(_STARTING_MAX)
        # Names of files. They contain the node's name, so that a user finds its process and can kill it by hand.
        self._labels = {name: f"{index:03}-{_PLAIN.sub('_', name)[:40]}" for index, name in enumerate(self.members)}

    # Members and their states

    def among(self, *states: State) -> list[Member]:
        """Return the members that are in one of `states`."""
        return [member for member in self.members.values() if member.state in states]

    @property
    def joined(self) -> list[Member]:
        return [member for member in self.members.values() if member.is_joined]

    def subscribers(self, members: Iterable[Member]) -> dict[str, set[str]]:
        """Return for each topic those of some members whose subscription was confirmed."""
        subscribers: dict[str, set[str]] = {}
        for member in members:
            for topic in member.confirmed:
                subscribers.setdefault(topic, set()).add(member.name)
        return subscribers

    async def snapshots(self, members: Iterable[Member]) -> dict[str, Snapshot]:
        """Return the snapshots of those members that answer, by name."""
        asked = [(member.name, member.admin) for member in members if member.admin is not None]
        answers = await asyncio.gather(*(admin.snapshot() for _, admin in asked))
        return {name: answer for (name, _), answer in zip(asked, answers, strict=True) if answer is not None}

    # Starts and faults

    async def start(self, names: Iterable[str], told: Callable[[int], None] = lambda up: None) -> None:
        """Start the first node, then all others with it as their seed. Return when each is up and has its client.

        `told` is called with the number of nodes that are up.
        """
        first, *others = names
        await self.start_node(first)
        told(1)
        tasks = [asyncio.create_task(self.start_node(name)) for name in others]
        try:
            for done, task in enumerate(asyncio.as_completed(tasks), start=2):
                await task
                told(done)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def start_node(self, name: str) -> None:
        """Start a node that is down, and its client. Do nothing in any other state."""
        member = self.members[name]
        if member.state != "down":
            return
        member.state = "starting"
        async with self._starting:
            if self._mosquitto and member.broker is None:
                member.broker = Mosquitto(self._mosquitto, self.folder, self._labels[name])
                await member.broker.start()
            member.process = await self._started(member)
        member.incarnation = self.ledger.born(name)
        member.listen = member.process.about["listen"]
        member.mqtt_listen = member.process.about.get("mqtt_listen", ANY)
        if self.relays is not None:
            self.relays.lead(name, member.listen)
        member.state = "up"
        self.most = max(self.most, len(self.among("up", "hung", "leaving")))
        member.admin = AdminPort(member.process.about["admin_listen"])
        about, broker = member.process.about, member.broker.address if member.broker is not None else ""
        mine = f"{self._labels[name].partition('-')[0]}-{member.incarnation[1]}"
        member.client = make_client(about["client_listen"], about.get("mqtt_listen", ""), broker, mine)
        await member.client.__aenter__()
        member.tasks = [
            asyncio.create_task(self._read(member.client, member.incarnation)),
            asyncio.create_task(self._watch(member, member.process)),
            *(asyncio.create_task(self._confirm(member, member.client, topic)) for topic in member.topics),
        ]

    def kill(self, names: Iterable[str]) -> float:
        """Kill nodes (SIGKILL), all at the same time. Return the time."""
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
        """Stop a node (SIGSTOP): it falls silent, and its streams stay open. Return the time."""
        member = self.members[name]
        assert member.process is not None
        member.state = "hung"
        member.process.signal(signal.SIGSTOP)
        return time.monotonic()

    def resume(self, name: str) -> None:
        """Let a stopped node go on (SIGCONT)."""
        member = self.members[name]
        if member.state == "hung" and member.process is not None:
            member.process.signal(signal.SIGCONT)
            member.state = "up"

    async def leave(self, name: str) -> None:
        """Let a node leave in order (SIGTERM). Return when its process has ended."""
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
        """Kill everything. When this returns, every process has ended and every port is free."""
        processes = [member.process for member in self.members.values() if member.process is not None]
        for member in self.members.values():
            member.state = "down"
            self._forget(member)
        for process in processes:
            process.signal(signal.SIGKILL)
        await asyncio.gather(*(process.ended() for process in processes if process.is_running))
        brokers = [member.broker for member in self.members.values() if member.broker is not None]
        await asyncio.gather(*(broker.kill() for broker in brokers))
        if self.relays is not None:
            await self.relays.close()

    # Helpers

    async def _started(self, member: Member) -> NodeProcess:
        process = NodeProcess(member.name, self.folder, self._labels[member.name])
        member.process = process  # before it starts, so that `end` finds it at any time
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
            await process.ended()  # Another process has taken its port.
            await process.start({"listen": ANY, **config, **self._mqtt_listener(member, ANY)})
        return process

    def _plan(self, name: str) -> dict[str, object]:
        """Return the planned neighbors of a node, as settings. A node that has restarted has none.

        A node waits long for its neighbors, because only a few processes start at a time, on a busy machine.
        """
        chosen = self.config.planned.get(name)
        if not chosen or self.ledger.incarnation(name)[1]:
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
        """Return the addresses of a few nodes that are up."""
        known = [member for member in self.among("up") if member.name != name]
        seeds = self._random.sample(known, min(_SEEDS_MAX, len(known)))
        return [self.relays.address(seed.name) if self.relays is not None else seed.listen for seed in seeds]

    def _forget(self, member: Member) -> None:
        """Forget what belongs to an incarnation that has ended: its client, its admin port and its tasks."""
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

    async def _read(self, client: FleetClient, incarnation: Incarnation) -> None:
        """Tell the ledger of each message that a client gets."""
        reconnects = 0
        with suppress(ClientError):
            async for message in client:
                number = number_in(message.payload, self.mark)
                if number is not None:
                    sequence = message.sequence or number  # Numbers grow as sequences do.
                    self.ledger.deliver(incarnation, message.topic, number, sequence, time.monotonic())
                self.reconnects += client.reconnects - reconnects
                reconnects = client.reconnects

    async def _confirm(self, member: Member, client: FleetClient, topic: str) -> None:
        """Subscribe a client to a topic, and wait until that is confirmed."""
        self.ledger.asked(member.incarnation, topic)
        with suppress(ClientError):
            await client.subscribe(topic)
            if member.client is client and topic in member.topics:
                member.confirmed[topic] = None
                self.ledger.confirmed(member.incarnation, topic)

    async def _watch(self, member: Member, process: NodeProcess) -> None:
        """Wait for the end of a process. It is a failure, unless the process was killed or told to leave."""
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
    """Return the keys of node.toml that all nodes of a fleet share, with the topics of one node."""
    settings = dict(config.settings)
    more = settings.pop("topics", [])
    assert isinstance(more, list), "settings hold lists as lists"
    own = list(topics) if config.client_kind == "trellis" else []
    return {
        "cluster": cluster,
        "overlay": config.overlay,
        "client_listen": ANY,
        "admin_listen": ANY,
        "topics": list(dict.fromkeys([*own, *more])),
        "delivery.copies": config.copies,
        **mqtt,
        **settings,
    }


def check_config(config: FleetConfig, interests: InterestsByNode) -> None:
    """Raise the InputError that a node would raise at its start, before any node is started."""
    mqtt = mqtt_settings(interests) if config.client_kind != "trellis" else {}
    if config.client_kind == "mosquitto":
        find_mosquitto()
    for name, topics in interests.items():
        read_config(None, {}, {"name": name, **node_config(config, "up", topics, mqtt)})
