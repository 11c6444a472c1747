"""Mosquitto brokers that are joined by bridges: as a star, as a triangle of hubs, or each with each.

Bridges of Mosquitto do not recognize loops of three brokers. So each broker sends out only topics of its own clients:
the first level of a topic names the broker where it is published. That is why topics of this benchmark begin so. Two
brokers share one connection, which the one with the lower number opens; what waits for it is kept at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import MQTT_PORT, Command, System, find, said_by, write

INSTALL = "mosquitto is not installed (Debian, Ubuntu: apt install mosquitto; others: https://mosquitto.org/download)"
SAFE = (
    "persistence true, autosave_interval 1: sessions and queues are saved every second (the default is 30 minutes)",
    "max_queued_messages 0: no limit for what waits for a client or a bridge that is away",
)


def broker_lines(place: Place, folder: Path) -> list[str]:
    """Return the configuration of a broker without bridges."""
    data = folder / f"{place.name}-data"
    data.mkdir(exist_ok=True)
    return [
        "per_listener_settings false",
        "allow_anonymous true",
        "user root",  # else a broker of root becomes somebody who cannot write here
        f"listener {MQTT_PORT} {place.client_ip}",
        "persistence true",
        f"persistence_location {data}/",
        "autosave_interval 1",
        "max_queued_messages 0",
        "log_dest stdout",
        "log_type error",
        "log_type warning",
        "log_type notice",
    ]


def bridge_lines(place: Place, other: Place, sent: Sequence[str], got: Sequence[str]) -> list[str]:
    """Return the bridge from `place` to `other`; `sent` and `got` are the sites whose topics it carries each way."""
    return [
        f"connection {place.name}-{other.name}",
        f"address {other.peer_ip}:{MQTT_PORT}",
        f"bridge_bind_address {place.peer_ip}",
        f"remote_clientid bridge-{place.name}-{other.name}",
        f"local_clientid bridge-local-{place.name}-{other.name}",
        "bridge_protocol_version mqttv311",
        "cleansession false",
        "local_cleansession false",
        "restart_timeout 1",
        "notifications false",
        *(f"topic {site}/# out 1" for site in sent),
        *(f"topic {site}/# in 1" for site in got),
    ]


class Bridges(System):
    safe = (
        *SAFE,
        "cleansession false, local_cleansession false, topics with QoS 1: both ends keep what waits for a bridge",
        "restart_timeout 1: a bridge dials again after 1 s (the default is a pause of 5 to 30 s)",
    )

    def missing(self) -> str | None:
        return None if find("mosquitto") else INSTALL

    def version(self) -> str:
        return said_by(find("mosquitto") or "mosquitto", "-h")

    def bridges(self, names: Sequence[str]) -> list[tuple[int, int, list[str], list[str]]]:
        """Return (from, to, sites whose topics go there, sites whose topics come back) for every bridge."""
        raise NotImplementedError

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        bridges = self.bridges([one.name for one in places])
        commands = []
        for place in places:
            lines = [*broker_lines(place, folder), f"listener {MQTT_PORT} {place.peer_ip}"]
            for begin, end, sent, got in bridges:
                if begin == place.index:
                    lines += ["", *bridge_lines(place, places[end], sent, got)]
            path = write(folder / f"{place.name}.conf", lines)
            argv = (find("mosquitto") or "mosquitto", "-c", str(path))
            commands.append([Command(argv, ready=(place.client_ip, MQTT_PORT))])
        return commands


class Star(Bridges):
    name = "mosquitto-star"
    title = "Mosquitto, bridges as a star"
    known = ("The first broker is the hub. Everything passes it.",)

    def bridges(self, names: Sequence[str]) -> list[tuple[int, int, list[str], list[str]]]:
        return [(leaf, 0, [names[leaf]], _without(names, leaf)) for leaf in range(1, len(names))]


class Mesh(Bridges):
    name = "mosquitto-mesh"
    title = "Mosquitto, bridges each with each"
    known = ("Every broker gets every message: a bridge's patterns know nothing of subscriptions.",)

    def bridges(self, names: Sequence[str]) -> list[tuple[int, int, list[str], list[str]]]:
        count = range(len(names))
        return [(one, other, [names[one]], [names[other]]) for one in count for other in count if one < other]


class Triangle(Bridges):
    name = "mosquitto-triangle"
    title = "Mosquitto, three hubs as a triangle"
    known = ("Three hubs are bridged with each other, and every other broker with one hub.",)

    def unfit(self, brokers: int) -> str | None:
        return "with three brokers or fewer it is the same as bridges each with each" if brokers <= 3 else None

    def bridges(self, names: Sequence[str]) -> list[tuple[int, int, list[str], list[str]]]:
        hubs = range(min(3, len(names)))
        groups = {hub: [name for index, name in enumerate(names) if index % 3 == hub] for hub in hubs}
        between = [(one, other, groups[one], groups[other]) for one in hubs for other in hubs if one < other]
        return between + [(leaf, leaf % 3, [names[leaf]], _without(names, leaf)) for leaf in range(3, len(names))]


def _without(names: Sequence[str], index: int) -> list[str]:
    return [name for place, name in enumerate(names) if place != index]
