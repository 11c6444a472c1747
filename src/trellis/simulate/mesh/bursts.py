"""Run clients that restart under one name, and subscribe and unsubscribe in bursts. They must not disturb others.

Their subscriptions are recorded, because their node holds copies for them. The judge expects no deliveries to them:
they do not read.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Literal

from trellis.judge.history import Connected, Ended, Subscribing, Unsubscribing
from trellis.live.client import Client
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, Greet, Publish, pack_to_node
from trellis.protocols.mqtt import packets as p
from trellis.simulate.mesh.hostile import Target, Wire, again
from trellis.simulate.mesh.mqtt import Connection, greeting

_NAME = "burst"


class Visit:
    """One connection of such a client, as the history records it."""

    def __init__(self, target: Target, speaks: Literal["native", "mqtt"]) -> None:
        self._witness = target.witness
        self._session, self._is_over = target.witness.session(_NAME), False
        self._witness.add(Connected(self._witness.now(), self._session, _NAME, target.node, speaks=speaks))
        target.sessions.append(self)

    def wants(self, *filters: str) -> None:
        for one in filters:
            self._witness.add(Subscribing(self._witness.now(), self._session, one))

    def wants_no_more(self, *filters: str) -> None:
        for one in filters:
            self._witness.add(Unsubscribing(self._witness.now(), self._session, one))

    def finish(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._witness.add(Ended(self._witness.now(), self._session))


async def burst(target: Target, random: Random) -> None:
    """Run the clients of this attack until it is cancelled."""

    async def native() -> None:
        async with Client(target.clients, _NAME, None, 3.0) as client:
            visit = Visit(target, "native")
            try:
                for _ in range(random.choice((1, 3, 10))):
                    topics = random.sample(target.topics, min(3, len(target.topics)))
                    visit.wants(*topics)
                    async with asyncio.timeout(5.0):
                        await asyncio.gather(*map(client.subscribe, topics))
                    if random.random() < 0.8:
                        visit.wants_no_more(*topics)
                        await asyncio.gather(*map(client.unsubscribe, topics))
            finally:
                visit.finish()

    async def mqtt() -> None:
        one = Connection(random.choice((p.V311, p.V5)), asyncio.get_running_loop().time, lambda _: None)
        is_clean = random.random() < 0.7
        await one.open(target.mqtt, greeting(one.version, _NAME, is_clean=is_clean))
        visit = Visit(target, "mqtt")
        try:
            for number in range(1, random.choice((2, 5, 15))):
                wanted = random.choice(("m/#", "m/+", "b/oven", "burst/#", f"burst/{number}"))
                visit.wants(wanted)
                one.send(p.Subscribe(number, (p.Asked(wanted, random.randrange(2)),)))
                if random.random() < 0.8:
                    visit.wants_no_more(wanted)
                    one.send(p.Unsubscribe(number + 100, (wanted,)))
                await asyncio.sleep(random.choice((0.0, 0.0, 0.02)))
            if random.random() < 0.5:
                one.close()
            else:
                one.cut()
        finally:
            visit.finish()

    async def impostor() -> None:
        """Use the name under which the MQTT listener publishes. The node must refuse it."""
        wire = Wire()
        await wire.connect(target.clients)
        wire.say(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "$mqtt", 0)))
        for number in range(1, 50):
            wire.say(pack_to_node(Publish(number, random.choice(target.topics), b"")))
        await wire.ended

    # Two clients share each name.
    await asyncio.gather(again(native), again(native), again(mqtt), again(mqtt), again(impostor))
