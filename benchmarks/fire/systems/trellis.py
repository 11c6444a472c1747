"""Trellis: nodes that take MQTT clients themselves, or nodes beside Mosquitto brokers."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import MQTT_PORT, Command, System, find, said_by, write
from benchmarks.fire.systems.mosquitto import INSTALL, SAFE, broker_lines

_PEER_PORT, _NATIVE_PORT, _ADMIN_PORT = 7001, 7101, 7201
_SEEDS = 2


def _node_lines(
    place: Place, places: Sequence[Place], mqtt: Mapping[str, object], settings: Mapping[str, str]
) -> list[str]:
    config: dict[str, object] = {
        "name": place.name,
        "cluster": "fire",
        "listen": f"{place.peer_ip}:{_PEER_PORT}",
        "client_listen": f"{place.client_ip}:{_NATIVE_PORT}",
        "admin_listen": f"{place.client_ip}:{_ADMIN_PORT}",
        "seeds": [f"{one.peer_ip}:{_PEER_PORT}" for one in places[:_SEEDS]],
        "insecure": True,  # no system of this benchmark uses TLS
        **{f"mqtt.{key}": value for key, value in mqtt.items()},
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in config.items() if key not in settings]
    return lines + [f"{key} = {value}" for key, value in settings.items()]


def _node(config: Path) -> tuple[str, ...]:
    return (sys.executable, "-m", "trellis", "node", "--json", "--config", str(config))


class _Trellis(System):
    def missing(self) -> str | None:
        return None

    def version(self) -> str:
        return said_by(sys.executable, "-m", "trellis", "--version")


class Embedded(_Trellis):
    name = "trellis"
    title = "Trellis, MQTT clients at nodes"
    safe = (
        "delivery.copies = 2 (the default): PUBACK when two nodes hold the message",
        "mqtt.suback_s = 60 (the default is 5): SUBACK waits longer for a node that is not sure of its mesh yet",
    )
    known = ("Sessions and messages are in memory: a node that is killed forgets the sessions of its clients.",)

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        commands = []
        for place in places:
            mqtt = {"listen": f"{place.client_ip}:{MQTT_PORT}", "suback_s": 60}
            lines = _node_lines(place, places, mqtt, self.settings)
            path = write(folder / f"{place.name}.toml", lines)
            commands.append([Command(_node(path), ready=(place.client_ip, MQTT_PORT))])
        return commands


class Sidecars(_Trellis):
    name = "trellis-mosquitto"
    title = "Trellis beside Mosquitto"
    safe = (*SAFE, "nodes with defaults (delivery.copies = 2) and learn = true, as docs/operating.md recommends")
    known = (
        "A fault hits a broker and its node together.",
        "PUBACK comes from Mosquitto, before the node has the message.",
    )

    def missing(self) -> str | None:
        return None if find("mosquitto") else INSTALL

    def version(self) -> str:
        return f"{super().version()}; {said_by(find('mosquitto') or 'mosquitto', '-h')}"

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        commands = []
        for place in places:
            lines = [
                *broker_lines(place, folder),
                "log_dest topic",
                "log_type subscribe",
                "log_type unsubscribe",
            ]
            broker = write(folder / f"{place.name}.conf", lines)
            mqtt = {
                "broker": f"mqtt://{place.client_ip}:{MQTT_PORT}",
                "learn": True,
                "learn_file": str(folder / f"{place.name}-learned.json"),
            }
            node = write(folder / f"{place.name}.toml", _node_lines(place, places, mqtt, self.settings))
            commands.append([
                Command((find("mosquitto") or "mosquitto", "-c", str(broker)), ready=(place.client_ip, MQTT_PORT)),
                Command(_node(node), ready=(place.client_ip, _ADMIN_PORT)),
            ])  # fmt: skip
        return commands
