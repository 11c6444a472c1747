"""Whole nodes as processes of simulated hosts: started, told to leave, crashed and started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trellis.live.addresses import show_address
from trellis.live.config import NodeConfig
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.whole.host import Host
from trellis.simulate.whole.world import World

PEERS, CLIENTS, ADMIN, MQTT = 7001, 7101, 7201, 1883  # ports of every node
_SEEDS = 2  # nodes that all others know at their start

Configure = Callable[[str, dict[str, Any]], NodeConfig]


class Nodes:
    def __init__(self, world: World, names: list[str], configure: Configure) -> None:
        """`configure` gets a name and the fields that tie a node to its host, and returns a whole configuration."""
        self.world, self.names, self._configure = world, names, configure
        self.live: dict[str, LiveNode] = {}  # the present incarnation of each name
        self.left: dict[str, int] = dict.fromkeys(names, 0)  # how often each has left in order
        for name in names:
            world.host(name)

    def host(self, name: str) -> Host:
        return self.world.host(name)

    def address(self, name: str, port: int) -> str:
        return show_address(self.host(name).address, port)

    def start(self, name: str) -> None:
        """Start the process of a node: the first one, or one after a crash, under the same name."""
        assert self.host(name).loop is None, f"{name} runs already"
        self.world.say(f"{name} starts")
        self.host(name).start(self._live(name))

    def leave(self, name: str) -> None:
        """Tell a node to leave in order, as SIGTERM does. Its process ends when it has left."""
        loop = self.host(name).loop
        assert loop is not None
        loop.call_soon(self.live[name].leave)

    def is_running(self, name: str) -> bool:
        return self.host(name).loop is not None

    def _config(self, name: str) -> NodeConfig:
        fields: dict[str, Any] = {
            "listen": self.address(name, PEERS),
            "client_listen": self.address(name, CLIENTS),
            "admin_listen": self.address(name, ADMIN),
            "seeds": tuple(self.address(one, PEERS) for one in self.names[:_SEEDS] if one != name),
            "mqtt": MqttConfig(listen=self.address(name, MQTT)),
            "insecure": True,  # the addresses are not loopback
        }
        return self._configure(name, fields)

    async def _live(self, name: str) -> None:
        node = self.live[name] = LiveNode(self._config(name))
        await node.start()
        await node.wait()
        self.left[name] += 1
        self.world.say(f"{name} has left")
        self.world.after(0.0, self._end, name, self.host(name).loop)

    def _end(self, name: str, loop: object) -> None:
        """The process of a node that has left ends."""
        if self.host(name).loop is loop:
            self.host(name).end_process()
