"""Clients of a black-box run: a process of its own, in a network namespace of its own, that writes a history.

    python -m live.blackbox '{"nodes": {"n0": "10.92.0.2"}, "seed": 1, "zero": 0.0, "work_s": 60, "history": "h.jsonl"}'

The clients are those of the simulator (`trellis.simulate.mesh`), on real sockets. They begin at once, begin nothing new
after `work_s`, and what they saw is written when standard input says `settled`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from functools import partial
from random import Random
from typing import Any

from trellis.judge import write_history
from trellis.judge.history import Settled
from trellis.simulate.mesh import topics
from trellis.simulate.mesh.mqttists import mqtt_subscriber
from trellis.simulate.mesh.mqttwriters import mqtt_publisher
from trellis.simulate.mesh.natives import Habits, native_publisher, native_subscriber
from trellis.simulate.mesh.sites import Place
from trellis.simulate.mesh.witness import Witness

CLIENTS, MQTT = 7101, 1883
EACH = 2  # clients of each of the four kinds
RATE, SIZE = 5.0, 64


def clients(given: dict[str, Any], witness: Witness) -> list[asyncio.Task[None]]:
    """Start all clients."""
    begun = witness.now()
    native = {f"{host}:{CLIENTS}": node for node, host in given["nodes"].items()}
    mqtt = {f"{host}:{MQTT}": Place(node) for node, host in given["nodes"].items()}
    tasks = []
    for number in range(4 * EACH):
        random, slot = Random(f"{given['seed']}/{number}"), f"c{number}"
        places = native if number % 2 == 0 else mqtt
        habits = Habits(random, list(places), lambda: witness.now() < begun + given["work_s"])
        own = partial(topics.topic_to_publish, random, is_native=number % 2 == 0)
        match number % 4:
            case 0:
                work = native_subscriber(slot, witness, habits, partial(topics.native_topics, random, 3))
            case 1:
                work = mqtt_subscriber(slot, witness, habits, partial(topics.mqtt_filter, random), mqtt.__getitem__)
            case 2:
                work = native_publisher(slot, witness, habits, own, RATE, SIZE)
            case _:
                work = mqtt_publisher(slot, witness, habits, own, mqtt.__getitem__, RATE, SIZE)
        tasks.append(asyncio.create_task(work))
    return tasks


async def main(given: dict[str, Any]) -> None:
    witness = Witness(lambda: time.monotonic() - given["zero"])
    tasks = clients(given, witness)
    await asyncio.to_thread(sys.stdin.readline)  # "settled"
    witness.add(Settled(witness.now()))
    history = witness.history()
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is not None:
            raise AssertionError("a client broke") from task.exception()
        task.cancel()
    write_history(history, given["history"])


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
