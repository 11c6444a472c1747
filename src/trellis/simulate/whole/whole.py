"""Run whole nodes on simulated hosts: `LiveNode` with all its listeners, and clients that talk to them.

    with World(seed=7) as world:
        mesh = Mesh(world, ["a", "b", "c"])
        mesh.start_all()
        mesh.subscribe("reader", "b", ["news"])            # trellis.connect, on a host of its own
        mesh.publish("writer", "a", "news", every_s=0.1)
        world.run_for(10.0)

The nodes and clients run the code of `live/`, unchanged. What clients see goes into the history of the world: when they
connect, subscribe and publish, and which messages they receive.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import trellis
from trellis.errors import TrellisError
from trellis.live.addresses import show_address
from trellis.live.client import ClientError
from trellis.live.config import NodeConfig
from trellis.live.mqtt.client import MqttClient
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.disks import SimulatedDisk
from trellis.simulate.whole.host import Host
from trellis.simulate.whole.world import World

PEERS, CLIENTS, ADMIN, MQTT = 7001, 7101, 7201, 1883  # ports of every node
SEEDS = 2  # number of nodes that all others know at their start

Configure = Callable[[str, dict[str, Any]], NodeConfig]


def plain_config(name: str, fields: dict[str, Any]) -> NodeConfig:
    """Return the configuration of a node from the fields that the mesh sets."""
    return NodeConfig(name=name, **fields)


class Mesh:
    """Nodes of one mesh, each on a host of its name."""

    def __init__(
        self,
        world: World,
        names: Sequence[str],
        configure: Configure = plain_config,
        *,
        has_mqtt: bool = True,
        telemetry: Path | None = None,
        disks: dict[str, SimulatedDisk] | None = None,
    ) -> None:
        """`configure` gets a name and the fields that depend on the host, and returns a complete configuration.

        `telemetry` is a folder in which each node writes its file. `disks`: those of nodes that have stores.
        """
        self.world, self.names, self._configure = world, list(names), configure
        self.has_mqtt, self.telemetry, self.disks = has_mqtt, telemetry, disks or {}
        self.on_made: Callable[[LiveNode, Host], None] = lambda node, host: None  # called before each node starts
        self.nodes: dict[str, LiveNode] = {}  # the last incarnation of each name, also after its process has ended
        self.counters: Counter[str] = Counter()
        for name in self.names:
            world.host(name)

    # Nodes

    def host(self, name: str) -> Host:
        return self.world.host(name)

    def address(self, name: str, port: int) -> str:
        return show_address(self.host(name).address, port)

    def config(self, name: str) -> NodeConfig:
        """Return the configuration of a node: its addresses on its host, completed by `configure`."""
        fields: dict[str, Any] = {
            "listen": self.address(name, PEERS),
            "client_listen": self.address(name, CLIENTS),
            "admin_listen": self.address(name, ADMIN),
            "seeds": tuple(self.address(one, PEERS) for one in self.names[:SEEDS] if one != name),
            "insecure": True,  # The addresses are not loopback.
        }
        if self.has_mqtt:
            fields["mqtt"] = MqttConfig(listen=self.address(name, MQTT))
        if self.telemetry is not None:
            from trellis.live.telemetry import TelemetryConfig

            fields["telemetry"] = TelemetryConfig(file=str(self.telemetry / f"{name}.jsonl"))
        return self._configure(name, fields)

    def start(self, name: str) -> asyncio.Task[Any]:
        """Start the process of a node, for the first time or after it has ended, under the same name."""
        host = self.host(name)
        if host.loop is not None:
            raise TrellisError(f"{name} runs already; crash it first, or give another name")
        self.world.say(f"{name} starts")
        return host.start(self._live(name))

    def start_all(self, apart_s: float = 0.05) -> None:
        """Start all nodes, one after the other."""
        for number, name in enumerate(self.names):
            self.world.after(number * apart_s, self.start, name)

    async def _live(self, name: str) -> None:
        node = LiveNode(self.config(name), disk=self.disks.get(name))
        self.nodes[name] = node
        self.on_made(node, self.host(name))
        await node.start()
        await node.wait()
        self.world.say(f"{name} has left")

    def leave(self, name: str) -> None:
        """Make a node leave in order, as SIGTERM does. Its process ends when it has left."""
        loop = self.host(name).loop
        if loop is None:
            raise TrellisError(f"{name} does not run; start it first")
        loop.call_soon(self.nodes[name].leave)

    def is_running(self, name: str) -> bool:
        return self.host(name).loop is not None

    def is_linked(self) -> bool:
        """Return whether every running node says that it is ready for clients."""
        from trellis.live.health import not_ready

        running = [name for name in self.names if self.is_running(name)]
        return all(name in self.nodes and not self.host(name).call(not_ready, self.nodes[name]) for name in running)

    # Clients, each on a host of its own

    def subscribe(self, client: str, node: str, topics: Sequence[str]) -> asyncio.Task[Any]:
        """Start a client of `trellis.connect` that subscribes and reads."""
        return self.host(client).start(self._reader(client, self.address(node, CLIENTS), topics))

    def publish(
        self, client: str, node: str, topic: str, *, every_s: float, count: int | None = None, size: int = 64
    ) -> asyncio.Task[Any]:
        """Publish repeatedly. A publication does not wait for the previous one."""
        return self.host(client).start(self._writer(client, self.address(node, CLIENTS), topic, every_s, count, size))

    def mqtt_subscribe(self, client: str, node: str, filters: Sequence[str]) -> asyncio.Task[Any]:
        """Start an MQTT client that subscribes and reads."""
        return self.host(client).start(self._mqtt_reader(client, self.address(node, MQTT), filters))

    def mqtt_publish(
        self, client: str, node: str, topic: str, *, every_s: float, count: int | None = None, size: int = 64
    ) -> asyncio.Task[Any]:
        """Start an MQTT client that publishes repeatedly."""
        return self.host(client).start(self._mqtt_writer(client, self.address(node, MQTT), topic, every_s, count, size))

    async def _reader(self, name: str, address: str, topics: Sequence[str]) -> None:
        async with trellis.connect(address, client=name) as client:
            self._note(name, "connected")
            for topic in topics:
                await client.subscribe(topic)
                self._note(name, "subscribed", topic)
            async for message in client:
                self._note(name, "received", f"{message.topic} {message.origin}/{message.sequence}", message.payload)

    async def _writer(self, name: str, address: str, topic: str, every_s: float, count: int | None, size: int) -> None:
        async with trellis.connect(address, client=name) as client:
            self._note(name, "connected")
            await self._repeat(name, client.publish, topic, every_s, count, size)

    async def _mqtt_reader(self, name: str, address: str, filters: Sequence[str]) -> None:
        async with MqttClient(address, name) as client:
            self._note(name, "connected")
            for one in filters:
                await client.subscribe(one)
                self._note(name, "subscribed", one)
            async for message in client:
                self._note(name, "received", message.topic, message.payload)

    async def _mqtt_writer(
        self, name: str, address: str, topic: str, every_s: float, count: int | None, size: int
    ) -> None:
        async with MqttClient(address, name) as client:
            self._note(name, "connected")
            await self._repeat(name, client.publish, topic, every_s, count, size)

    async def _repeat(
        self,
        name: str,
        publish: Callable[[str, bytes], Any],
        topic: str,
        every_s: float,
        count: int | None,
        size: int,
    ) -> None:
        loop, under_way = asyncio.get_running_loop(), dict[asyncio.Task[None], None]()
        begun, number = loop.time(), 0
        while count is None or number < count:
            payload = f"{name}/{number}/".encode().ljust(size, b".")
            task = loop.create_task(self._publish(name, publish, topic, payload))
            under_way[task] = None
            task.add_done_callback(lambda done: under_way.pop(done, None))
            number += 1
            await asyncio.sleep(max(0.0, begun + number * every_s - loop.time()))
        if under_way:
            # A finished task may still be listed, because its callback runs one turn later.
            await asyncio.wait(under_way)

    async def _publish(self, name: str, publish: Callable[[str, bytes], Any], topic: str, payload: bytes) -> None:
        self._note(name, "publishes", topic, payload)
        try:
            await publish(topic, payload)
        except ClientError as error:
            self._note(name, "not acknowledged", f"{topic} {error}", payload)
        else:
            self._note(name, "acknowledged", topic, payload)

    def _note(self, client: str, what: str, about: str = "", payload: bytes = b"") -> None:
        self.counters[what] += 1
        shown = payload.rstrip(b".").decode("utf-8", "backslashreplace")
        self.world.say(f"{client} {what} {about} {shown}".rstrip())
