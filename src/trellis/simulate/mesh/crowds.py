"""Open many connections at once: clients that connect together, and silent connections. They must not disturb others.

`watched` adds clients to an attack that only check whether the node still answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from trellis.judge.history import Unreachable
from trellis.live.client import ClientError
from trellis.protocols.mqtt import packets as p
from trellis.simulate.mesh.hostile import Target, Wire, again
from trellis.simulate.mesh.mqtt import Connection, MqttFailed, greeting
from trellis.simulate.mesh.natives import Observed

Program = Callable[[Target, Random], Coroutine[Any, Any, None]]

_CROWD = 300  # more than the half-open connections that a node allows by default
_CROWD_PAUSE_S = (1.0, 3.0)
_ANSWER_S = 2.0  # time within which a node must greet a client during an attack
_WATCH_S = 0.3  # pause between two clients that check the node
_MORE = 20  # silent connections beyond the number that a node keeps before they have introduced themselves


async def half_open(target: Target, random: Random) -> None:
    """Open more connections to the client ports than a node keeps half-open, and send nothing on them."""

    async def one(address: str) -> None:
        wire = Wire()
        await wire.connect(address)
        if random.random() < 0.3:
            wire.say(b"\x00\x00")  # the first half of a length
        await wire.ended

    count = target.handshakes_max + _MORE
    places = [target.clients] * count + [target.mqtt] * count + [target.peers[target.node]] * _MORE
    await asyncio.gather(*(again(lambda place=place: one(place)) for place in places))  # type: ignore[misc]


async def crowd(target: Target, random: Random) -> None:
    """Connect hundreds of MQTT clients at the same moment, as after a power cut. The node must answer each."""

    async def one(name: str) -> None:
        connection = await _connected(target, name, random)
        if connection is not None:
            await asyncio.sleep(random.random())
            connection.close()

    while True:
        await asyncio.gather(*(one(f"crowd{number}") for number in range(_CROWD)))
        await asyncio.sleep(random.choice(_CROWD_PAUSE_S))


async def _connected(target: Target, name: str, random: Random, within_s: float = 20.0) -> Connection | None:
    """Connect an MQTT client. If the node does not answer, record that and return None."""
    now = target.witness.now
    since, one = now(), Connection(random.choice((p.V311, p.V5)), now, lambda _: None)
    try:
        async with asyncio.timeout(within_s):
            await one.open(target.mqtt, greeting(one.version, name))
    except (MqttFailed, TimeoutError) as error:
        one.cut()
        if not target.is_site:
            why = str(error)[:120] or f"no CONNACK within {within_s} s"
            target.witness.add(Unreachable(now(), name, target.node, since, why))
        return None
    return one


def watched(program: Program) -> Program:
    """Return the attack together with clients that connect again and again during it."""

    async def native(target: Target, random: Random) -> None:
        while True:
            with suppress(ClientError):
                async with Observed(target.clients, "watcher", target.witness, timeout_s=_ANSWER_S) as client:
                    client.finish()
            await asyncio.sleep(_WATCH_S)

    async def mqtt(target: Target, random: Random) -> None:
        while True:
            connection = await _connected(target, "watcher", random, _ANSWER_S)
            if connection is not None:
                connection.close()
            await asyncio.sleep(_WATCH_S)

    async def run(target: Target, random: Random) -> None:
        await asyncio.gather(program(target, random), native(target, random), mqtt(target, random))

    return run
