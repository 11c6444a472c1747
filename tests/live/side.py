"""One side of a network that is cut: live nodes in one process, with a client each. Run inside a network namespace.

    python side.py '{"host": "10.91.1.2", "seeds": [...], "nodes": {"a0": {"topics": [...], "publishes": [...]}}, ...}'

It reads commands from standard input, one a line: `publish`, `pause`, `end`. It writes what its clients see to standard
output, one JSON array a line. Times are those of the machine's monotonic clock, which all namespaces share.

    ["started", node, address]              ["confirmed", node, topic]
    ["published", id, node, topic, time]    ["acknowledged", id, time]     ["refused", id, reason]
    ["delivered", id, node, time]           ["unanswered", node, peer, seconds]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import suppress
from typing import Any

import msgspec

import trellis
from trellis.live.client import Client, ClientError, NotAcknowledged
from trellis.live.config import NodeConfig
from trellis.live.run import run_loop
from trellis.live.shell import LiveNode

FIRST_PORT = 7001


class Side:
    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.nodes: dict[str, LiveNode] = {}
        self.clients: dict[str, Client] = {}
        self.is_publishing = False
        self.count = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        host = self.given["host"]
        for place, (name, about) in enumerate(self.given["nodes"].items()):
            seeds = [one for one in self.given["seeds"] if not one.startswith(f"{host}:{FIRST_PORT + place}")]
            config = msgspec.convert(
                {
                    "name": name,
                    "cluster": "cut",
                    "listen": f"{host}:{FIRST_PORT + place}",
                    "client_listen": "127.0.0.1:0",
                    "seeds": seeds,
                    "insecure": True,
                    **self.given.get("settings", {}),
                },
                NodeConfig,
            )
            node = self.nodes[name] = LiveNode(config)
            await node.start()
            say("started", name, f"{host}:{node.transport.port}")
            client = self.clients[name] = trellis.connect(f"127.0.0.1:{node.client_port.port}", timeout_s=120)
            await client.__aenter__()
            self.start(self.read(name, client))
            for topic in about["topics"]:
                self.start(self.confirm(name, client, topic))
            for topic in about["publishes"]:
                self.start(self.publish(name, client, topic))
        self.start(self.look())
        await self.obey()
        for task in self.tasks:
            task.cancel()
        for node in self.nodes.values():
            await node.stop(in_order=False)

    def start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def obey(self) -> None:
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while command := (await reader.readline()).decode().strip():
            if command == "end":
                return
            self.is_publishing = command == "publish"

    async def read(self, name: str, client: Client) -> None:
        with suppress(ClientError):
            async for message in client:
                say("delivered", message.payload.decode(), name, time.monotonic())

    async def confirm(self, name: str, client: Client, topic: str) -> None:
        await client.subscribe(topic)
        say("confirmed", name, topic)

    async def publish(self, name: str, client: Client, topic: str) -> None:
        while True:
            await asyncio.sleep(1 / self.given["rate"])
            if self.is_publishing:
                self.count += 1
                self.start(self.publish_one(name, client, topic, f"{name}/{self.count}"))

    async def publish_one(self, name: str, client: Client, topic: str, number: str) -> None:
        say("published", number, name, topic, time.monotonic())
        try:
            await client.publish(topic, number.encode())
        except (NotAcknowledged, ClientError) as error:
            say("refused", number, str(error))
        else:
            say("acknowledged", number, time.monotonic())

    async def look(self) -> None:
        """Tell which peers leave our questions unanswered."""
        while True:
            await asyncio.sleep(0.5)
            for name, node in self.nodes.items():
                for peer, seconds in getattr(node.transport, "unanswered", dict)().items():
                    say("unanswered", name, peer, round(seconds, 1))


def say(*what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    run_loop(Side(json.loads(sys.argv[1])).run())
