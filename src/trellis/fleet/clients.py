"""Clients of a fleet: native ones, MQTT clients of a node, and MQTT clients of a broker whose sidecar the node is.

All of them have the methods of `live/client.py` that the fleet uses. MQTT tells neither the holders of a message nor
its sequence, so receipts of MQTT clients have no holders, and sequences are 0.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal, Protocol

from trellis.errors import InputError
from trellis.fleet.interests import InterestsByNode
from trellis.live.client import Client, ClientError, Receipt, connect
from trellis.live.mqtt.client import MqttClient
from trellis.live.received import Message
from trellis.protocols.mqtt.topics import PREFIX_LETTERS_MAX, is_topic

# Native clients; MQTT clients of the nodes; MQTT clients of a Mosquitto beside each node.
ClientKind = Literal["trellis", "mqtt", "mosquitto"]

SIDECAR_INFLIGHT_MAX = 256  # the receive maximum that a sidecar tells its broker
_PROBE = b"trellis up: is this subscribed?"
_PROBE_S = 1.0


class FleetClient(Protocol):
    """What the fleet needs of a client, whatever it speaks."""

    @property
    def reconnects(self) -> int: ...

    async def __aenter__(self) -> object: ...

    async def subscribe(self, topic: str) -> None: ...

    async def unsubscribe(self, topic: str) -> None: ...

    async def publish(self, topic: str, payload: bytes) -> Receipt: ...

    def __aiter__(self) -> AsyncIterator[Message]: ...

    async def close(self) -> None: ...


def make_client(client_listen: str, mqtt_listen: str, broker: str, name: str) -> FleetClient:
    """Return a client of the broker, else of the node's MQTT listener, else of its client port.

    Empty addresses mean that there is no broker, or no MQTT listener.
    """
    if broker:
        return BrokerClient(broker, name, client_listen)
    return MqttFleetClient(mqtt_listen, name) if mqtt_listen else connect(client_listen)


class MqttFleetClient:
    """An MQTT client with the methods of a native one."""

    def __init__(self, address: str, name: str) -> None:
        self.mqtt = MqttClient(address, name)

    @property
    def reconnects(self) -> int:
        return self.mqtt.reconnects

    async def __aenter__(self) -> object:
        return await self.mqtt.__aenter__()

    async def subscribe(self, topic: str) -> None:
        await self.mqtt.subscribe(topic)

    async def unsubscribe(self, topic: str) -> None:
        await self.mqtt.unsubscribe(topic)

    async def publish(self, topic: str, payload: bytes) -> Receipt:
        await self.mqtt.publish(topic, payload)
        return Receipt(topic, 0, 0, ())

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        message = await self.mqtt.__anext__()
        return Message(message.topic, "", 0, message.payload)

    async def close(self) -> None:
        await self.mqtt.close()


class BrokerClient(MqttFleetClient):
    """An MQTT client of a broker whose sidecar is a node of the fleet.

    A broker's SUBACK says nothing about the mesh. So `subscribe` waits until the node is subscribed as well. It then
    publishes a probe at the node until the broker delivers one.
    """

    def __init__(self, address: str, name: str, client_listen: str) -> None:
        super().__init__(address, name)
        self.node: Client = connect(client_listen)
        self._probes: dict[str, asyncio.Event] = {}

    async def __aenter__(self) -> object:
        await self.node.__aenter__()
        return await super().__aenter__()

    async def subscribe(self, topic: str) -> None:
        has_come = self._probes[topic] = asyncio.Event()
        await self.node.subscribe(topic)
        while not has_come.is_set():
            await super().subscribe(topic)  # The sidecar learns of it from the broker's log, once it reads that.
            await self.node.publish(topic, _PROBE)
            with suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_S):
                    await has_come.wait()
        await self.node.unsubscribe(topic)

    async def __anext__(self) -> Message:
        message = await super().__anext__()
        if message.payload == _PROBE and message.topic in self._probes:
            self._probes[message.topic].set()
        return message

    async def close(self) -> None:
        with suppress(ClientError):
            await self.node.close()
        await super().close()


def mqtt_settings(topics_by_node: InterestsByNode) -> dict[str, object]:
    """Return keys of node.toml for a mesh whose clients speak MQTT. Every topic is an overlay topic of its own."""
    depth = 1
    for topics in topics_by_node.values():
        for topic in topics:
            if not is_topic(topic) or len(topic) > PREFIX_LETTERS_MAX:
                remedy = "give topics without + and #, that do not begin with $"
                raise InputError("--mqtt", f'"{topic}" cannot be a topic of MQTT', remedy)
            depth = max(depth, topic.count("/") + 1)
    if depth > 32:
        raise InputError("--mqtt", f"a topic with {depth} levels", "give at most 32")
    # SUBACK then means that the mesh has confirmed the subscription; the score counts from there.
    return {"mqtt.depth": depth, "mqtt.suback_s": 120.0}
