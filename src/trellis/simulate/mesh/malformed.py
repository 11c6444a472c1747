"""Run a peer that breaks the rules of the wire format: names with colons, and hosts that cannot be looked up.

A node refuses it, and no other node or client notices.
"""

from __future__ import annotations

import asyncio
from random import Random

from trellis.live.frames import Address, Addresses, pack_control, pack_message
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.mesh import CODECS
from trellis.protocols.newscast import NewscastRequest
from trellis.simulate.mesh.hostile import OVERLAY, Peer, Target, again

NAMES = ("x0:bad", "10.0.0.1:7001", ":", "x:99999999")
HOSTS = (".", "a..b", "y" * 64, f"{'y' * 70}.example")
_PAUSE_S = 0.2


async def malformed(target: Target, random: Random) -> None:
    """Send names and hosts that are not allowed, until cancelled."""
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
