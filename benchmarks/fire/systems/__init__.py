"""All systems that the harness knows, by name."""

from __future__ import annotations

from benchmarks.fire.systems.base import System
from benchmarks.fire.systems.elsewhere import Emqx, HiveMq, VerneMq
from benchmarks.fire.systems.mosquitto import Mesh, Star, Triangle
from benchmarks.fire.systems.nats import Nats
from benchmarks.fire.systems.rabbitmq import RabbitMq
from benchmarks.fire.systems.trellis import Embedded, Sidecars

SYSTEMS: dict[str, type[System]] = {
    one.name: one for one in (Embedded, Sidecars, Star, Triangle, Mesh, Nats, RabbitMq, Emqx, HiveMq, VerneMq)
}
