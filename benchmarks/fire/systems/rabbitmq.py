"""RabbitMQ brokers with the MQTT plugin, whose topic exchanges are federated, each with each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.fire.network import Place
from benchmarks.fire.systems.base import MQTT_PORT, Command, System, find, write

_AMQP_PORT, _EPMD_PORT, _DIST_PORT = 5672, 4469, 25672
_HOME = Path("/usr/lib/rabbitmq")
_PLUGINS = ("rabbitmq_mqtt", "rabbitmq_federation")


class RabbitMq(System):
    name = "rabbitmq"
    title = "RabbitMQ, federated exchanges"
    safe = (
        "sessions that are not clean have durable queues, and QoS 1 is acknowledged when the message is in them",
        "federation with ack-mode on-confirm (the default): an upstream keeps what was not confirmed",
        "reconnect-delay 1: a link dials again after 1 s (the default is 5 s)",
    )
    known = ("Every broker has every other one as its upstream, with max-hops 1.",)

    def missing(self) -> str | None:
        where = "Debian, Ubuntu: apt install rabbitmq-server; https://www.rabbitmq.com/docs/download"
        return None if find("rabbitmq-server") and find("epmd") else f"rabbitmq-server is not installed ({where})"

    def version(self) -> str:
        """Return the number in the name of its folder: to ask the program would start a virtual machine."""
        found = sorted(_HOME.glob("lib/rabbitmq_server-*"))
        return f"RabbitMQ {found[-1].name.rpartition('-')[2]}" if found else "RabbitMQ, version unknown"

    def configure(self, places: Sequence[Place], folder: Path) -> list[list[Command]]:
        return [self._site(place, places, folder) for place in places]

    def _site(self, place: Place, places: Sequence[Place], folder: Path) -> list[Command]:
        name, own = place.name, folder / f"{place.name}-data"
        own.mkdir(exist_ok=True)
        upstreams = [one for one in places if one != place]
        definitions = folder / f"{name}.definitions.json"
        definitions.write_text(json.dumps(_definitions(upstreams), indent=1), "utf-8")
        lines = [
            f"listeners.tcp.1 = {place.peer_ip}:{_AMQP_PORT}",
            f"mqtt.listeners.tcp.1 = {place.client_ip}:{MQTT_PORT}",
            "mqtt.allow_anonymous = true",
            "mqtt.default_user = guest",
            "mqtt.default_pass = guest",
            "mqtt.exchange = amq.topic",
            "loopback_users = none",
            f"cluster_name = {name}",  # federation takes brokers of one cluster name for the same broker
            f"load_definitions = {definitions}",
            "log.file = false",
            "log.console = true",
            "log.console.level = warning",
        ]
        write(folder / f"{name}.conf", lines)
        plugins = write(folder / f"{name}.plugins", [f"[{','.join(_PLUGINS)}]."])
        env = {
            "HOME": str(own),
            "ERL_EPMD_PORT": str(_EPMD_PORT + place.index),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"{name}@localhost",
            "RABBITMQ_DIST_PORT": str(_DIST_PORT + place.index),
            "RABBITMQ_CONFIG_FILE": str(folder / f"{name}.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(own),
            "RABBITMQ_LOG_BASE": str(own),
            "RABBITMQ_PID_FILE": str(own / "pid"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        # Erlang's name server would leave as a daemon of its own and outlive the site, so it is started here.
        argv = (_program("epmd"), "-port", env["ERL_EPMD_PORT"], "-address", "127.0.0.1")
        epmd = Command(argv, env, pause_s=0.3)
        return [epmd, Command((_program("rabbitmq-server"),), env, ready=(place.client_ip, MQTT_PORT))]


def _definitions(upstreams: Sequence[Place]) -> dict[str, object]:
    return {
        "users": [{"name": "guest", "password": "guest", "tags": "administrator"}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "parameters": [
            {
                "vhost": "/", "component": "federation-upstream", "name": one.name,
                "value": {
                    "uri": f"amqp://guest:guest@{one.peer_ip}:{_AMQP_PORT}",
                    "ack-mode": "on-confirm", "max-hops": 1, "reconnect-delay": 1,
                },
            }
            for one in upstreams
        ],
        "policies": [
            {
                "vhost": "/", "name": "federate", "pattern": "^amq\\.topic$", "apply-to": "exchanges", "priority": 0,
                "definition": {"federation-upstream-set": "all"},
            }
        ],
    }  # fmt: skip


def _program(name: str) -> str:
    """Return the program itself: Debian's wrappers in /usr/sbin change the user and the environment."""
    own = _HOME / "bin" / name
    return str(own) if own.exists() else find(name) or name
