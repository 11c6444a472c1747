"""Three places where stock clients of MQTT connect, that are one mesh: by their ports.

embedded            three nodes with doors
sidecars of doors   three brokers, which are doors of ours in processes of their own, and a sidecar beside each
sidecars of amqtt   three amqtt, which speak 3.1.1 and know no bridges; a sidecar beside each tells echoes apart
sidecars of mosquitto   three Mosquitto, and a sidecar beside each
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mqtt.attached import sidecars
from mqtt.brokers import Amqtt, brokers, needs_mosquitto, running
from mqtt.sites import lone_door
from mqtt.talk import doors

MOSQUITTO = pytest.param("sidecars of mosquitto", marks=needs_mosquitto)
KINDS = ["embedded", pytest.param("sidecars of doors", marks=pytest.mark.slow), MOSQUITTO]
AMQTT = "sidecars of amqtt"  # clients of 3.1.1 only
PLAIN = {"broker_version": "3.1.1", "broker_echo": "match"}


@asynccontextmanager
async def three_places(kind: str, folder: Path) -> AsyncIterator[list[int]]:
    if kind == "embedded":
        async with doors("a", "b", "c") as nodes:
            yield [one.mqtt.port for one in nodes if one.mqtt is not None]
    elif kind == "sidecars of mosquitto":
        lines = "max_queued_messages 0"
        async with brokers(folder, "x", "y", "z", lines=lines) as three, sidecars(*(one.url for one in three)):
            yield [one.port for one in three]
    elif kind == AMQTT:
        several = [Amqtt(folder, name) for name in ("x", "y", "z")]
        async with running(several), sidecars(*(one.url for one in several), **PLAIN):
            yield [one.port for one in several]
    else:
        three_doors = [lone_door(name, folder) for name in ("x", "y", "z")]
        try:
            for one in three_doors:
                await one.start_node([])
            ports = [one.port for one in three_doors]
            async with sidecars(*(f"mqtt://127.0.0.1:{port}" for port in ports)):
                yield ports
        finally:
            for one in three_doors:
                await one.kill_node()
