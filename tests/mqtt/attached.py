"""Nodes of this process as sidecars of brokers, and clients of those."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from live.lives import config, peer_address, until
from mqtt.brokers import Broker
from mqtt.talk import QUICK, Raw, vanish_all
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig


async def attach(name: str, url: str, nodes: list[LiveNode], **fields: Any) -> LiveNode:
    given = MqttConfig(broker=url, **{**QUICK, "want": ("#",), **fields})
    node = LiveNode(config(name, tuple(peer_address(one) for one in nodes[:1]), mqtt=given))
    await node.start()
    nodes.append(node)
    return node


@asynccontextmanager
async def sidecars(*urls: str, **fields: Any) -> AsyncIterator[list[LiveNode]]:
    nodes: list[LiveNode] = []
    try:
        for index, url in enumerate(urls):
            await attach(f"s{index}", url, nodes, **fields)
        await until(lambda: all(is_ready(one) for one in nodes))
        yield nodes
        for node in nodes:
            assert not node.counters["bugs"]
            node.mesh.check()
            node.mqtt.host.check()
            node.mqtt.sidecar.bridge.check()
    finally:
        await vanish_all()
        for node in nodes:
            await node.stop(in_order=False)


def is_ready(node: LiveNode) -> bool:
    host = node.mqtt.host
    bridge = node.mqtt.sidecar.bridge
    return bridge.is_up and bridge.is_taking and all(host.directory.is_ready(one) for one in host.interests.patterns)


async def client_of(broker: Broker | int, name: str, *filters: str, version: int = p.V5, **fields: Any) -> Raw:
    port = broker if isinstance(broker, int) else broker.port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    raw = Raw(reader, writer, version)
    raw.send(p.Connect(version=version, client=name, **{"clean_start": True, **fields}))
    assert (await raw.until(p.ConnAck)).reason == 0
    if filters:
        await raw.subscribe(*filters)
    return raw
