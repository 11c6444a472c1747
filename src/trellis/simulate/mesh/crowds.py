"""Many connections at once: clients that come together, and connections that say nothing. They disturb nobody."""

from __future__ import annotations

import asyncio
from random import Random

from trellis.judge.history import Unreachable
from trellis.protocols.mqtt import packets as p
from trellis.simulate.mesh.hostile import Target, Wire, again
from trellis.simulate.mesh.mqtt import Connection, MqttFailed

_CROWD = 300  # more than a node's half-open connections by default
_CROWD_PAUSE_S = (1.0, 3.0)
_MORE = 20  # idle connections beyond those that a node keeps before they have said who they are


async def half_open(target: Target, random: Random) -> None:
    """Open more connections to the ports of clients than a node keeps half-open, and say nothing there."""

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
    """Connect hundreds of MQTT clients in one moment, as after a power cut. The node must answer each."""

    async def client(name: str) -> None:
        now = target.witness.now
        since, one = now(), Connection(random.choice((p.V311, p.V5)), now, lambda _: None)
        try:
            await one.open(target.mqtt, p.Connect(version=one.version, client=name, clean_start=True))
        except MqttFailed as error:
            if not target.is_site:
                target.witness.add(Unreachable(now(), name, target.node, since, str(error)[:120]))
        else:
            await asyncio.sleep(random.random())
            one.close()

    while True:
        await asyncio.gather(*(client(f"crowd{number}") for number in range(_CROWD)))
        await asyncio.sleep(random.choice(_CROWD_PAUSE_S))
