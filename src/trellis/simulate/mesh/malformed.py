"""Peers and clients that break the rules of the wire itself. A node refuses them, and nobody else notices.

| kind       | what it does                                                                                     |
| ---------- | ------------------------------------------------------------------------------------------------ |
| malformed  | a peer that tells of nodes whose names hold colons, and of hosts that cannot be looked up          |
| namesake   | a native client that calls itself as the node calls the publisher of what MQTT clients publish     |
"""

from __future__ import annotations

import asyncio
from random import Random

from trellis.live.frames import Address, Addresses, pack_control, pack_message
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, Greet, Publish, pack_to_node
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.mesh import CODECS
from trellis.protocols.newscast import NewscastRequest
from trellis.simulate.mesh.hostile import OVERLAY, Peer, Target, Wire, again

NAMES = ("x0:bad", "10.0.0.1:7001", ":", "x:99999999")
HOSTS = (".", "a..b", "y" * 64, f"{'y' * 70}.example")
_PAUSE_S = 0.2
_NUMBERS = 40  # publications of a namesake in one go


async def malformed(target: Target, random: Random) -> None:
    codec = CODECS[OVERLAY]

    async def talk() -> None:
        name = f"malformed{random.randrange(3)}"
        wire = await Peer(name, target, target.node, random).connect()
        while not wire.is_over:
            await asyncio.sleep(_PAUSE_S)
            strange = f"far{random.randrange(1_000)}"
            if random.random() < 0.5:
                told = tuple(Descriptor(f"{one}{random.choice(('', '0'))}") for one in NAMES)
                wire.say(pack_message(codec.encode(NewscastRequest(told))))
            else:
                wire.say(pack_control(Addresses((Address(strange, 1, random.choice(HOSTS), 7_001),))))
                wire.say(pack_message(codec.encode(NewscastRequest((Descriptor(strange),)))))
            await wire.drain()

    await again(talk)


async def namesake(target: Target, random: Random) -> None:
    async def talk() -> None:
        wire, number = Wire(), 0
        await wire.connect(target.clients)
        wire.say(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "$mqtt", random.choice((0, 1)))))
        while not wire.is_over:
            await asyncio.sleep(_PAUSE_S)
            for _ in range(_NUMBERS):
                number += 1
                wire.say(pack_to_node(Publish(number, "namesake", b"")))
            await wire.drain()

    await again(talk)
