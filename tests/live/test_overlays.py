"""Twelve live nodes over each overlay: they find each other through one seed, and deliver everything, exactly once."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

import trellis
from live.lives import DELIVERY, client_address, config, mesh, peer_address, run
from trellis.live.client import Client
from trellis.live.shell import LiveNode
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet import MagnetConfig
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.oscar import OscarConfig
from trellis.protocols.spidercast import SpiderCastConfig
from trellis.protocols.vitis import VitisConfig

NAMES = tuple(f"n{number}" for number in range(12))
TOPICS = tuple("pqrstu")
LIMIT_S = 180.0  # only a failure reaches it
# A machine that is busy for a second must not make a home believe that nobody subscribes any more.
PATIENT = msgspec.structs.replace(DELIVERY, registered_ms=10_000, publish_timeout_ms=120_000)

NEWSCAST = NewscastConfig(period_ms=100)
RING: dict[str, Any] = {"ring_ms": 100, "beat_ms": 150, "bury_ms": 400, "walk_ms": 150, "estimate_ms": 500}
# Tables and fingers are fewer than nodes, so that some must relay.
OVERLAYS: dict[str, dict[str, Any]] = {
    "omen": {},
    "spidercast": {
        "spidercast": SpiderCastConfig(
            connect_timeout_ms=40,
            quarantine_ms=200,
            suspect_quarantine_ms=400,
            disconnect_timeout_ms=80,
            heartbeat_ms=100,
        ),
        "gossip": GossipViewConfig(newscast=NEWSCAST),
    },
    "vitis": {"vitis": VitisConfig(period_ms=100, table_size=6)},
    "magnet": {
        "magnet": MagnetConfig(
            skewed=OscarConfig(links=8, **RING),
            control=OscarConfig(links=8, walks=3, two_choices=False, **RING),
            newscast=NEWSCAST,
            sample_ms=300,
            inquire_ms=150,
            place_ms=150,
            tree_wait_ms=50,
            join_ms=200,
            tree_ms=150,
        )
    },
}


def topics_of(name: str) -> tuple[str, ...]:
    """Three of the six, another three at every node beside it: no topic is everybody's."""
    place = NAMES.index(name)
    return tuple(TOPICS[(place + step) % len(TOPICS)] for step in (0, 1, 3))


class Reader:
    """A client of one node that subscribes to the node's topics, and everything that came to it."""

    def __init__(self, node: LiveNode, client: Client) -> None:
        self.node, self.client, self.topics = node, client, topics_of(node.name)
        self.came: Counter[bytes] = Counter()
        self.arrived = asyncio.Condition()
        self.task = asyncio.create_task(self.read())

    async def read(self) -> None:
        async for message in self.client:
            async with self.arrived:
                self.came[message.payload] += 1
                self.arrived.notify_all()

    async def has(self, wanted: set[bytes]) -> None:
        async with self.arrived:
            await self.arrived.wait_for(lambda: wanted <= self.came.keys())


async def reader_of(stack: AsyncExitStack, node: LiveNode) -> Reader:
    client = await stack.enter_async_context(trellis.connect(client_address(node)))
    reader = Reader(node, client)
    stack.callback(reader.task.cancel)
    await asyncio.gather(*(client.subscribe(topic) for topic in reader.topics))
    return reader


async def everybody_publishes(readers: list[Reader], words: str) -> dict[str, set[bytes]]:
    """On every topic of theirs and one that is not; what was published, by topic."""
    sent: dict[str, set[bytes]] = {topic: set() for topic in TOPICS}
    waiting = []
    for reader in readers:
        other = next(topic for topic in TOPICS if topic not in reader.topics)
        for topic in (*reader.topics, other):
            payload = f"{words} {topic} {reader.node.name}".encode()
            sent[topic].add(payload)
            waiting.append(reader.client.publish(topic, payload))
    for receipt in await asyncio.gather(*waiting):
        assert len(set(receipt.holders)) == receipt.copies >= 2
    return sent


async def all_arrives(readers: list[Reader], sent: dict[str, set[bytes]]) -> None:
    for reader in readers:
        await reader.has({payload for topic in reader.topics for payload in sent[topic]})


@pytest.mark.parametrize("overlay", ["spidercast", "vitis", "magnet"])
def test_twelve_nodes_deliver_everything_once_and_again_after_one_was_killed(overlay):
    async def work() -> None:
        fields = {"overlay": overlay, "delivery": PATIENT, **OVERLAYS[overlay]}
        async with mesh(*NAMES, **fields) as nodes, AsyncExitStack() as stack:
            readers = list(await asyncio.gather(*(reader_of(stack, node) for node in nodes)))
            everything = [await everybody_publishes(readers, "all are there:")]
            await all_arrives(readers, everything[-1])

            dead = readers.pop(5)
            await dead.client.close()
            await dead.node.stop(in_order=False)
            everything.append(await everybody_publishes(readers, "one is dead:"))
            await all_arrives(readers, everything[-1])

            seeds = (peer_address(nodes[0]),)
            again = LiveNode(config(dead.node.name, seeds, **fields), dead.node.life + 1)
            await again.start()
            nodes[5] = again
            readers.append(await reader_of(stack, again))
            everything.append(await everybody_publishes(readers, "it is back:"))
            await all_arrives(readers, everything[-1])
            for reader in readers:
                wanted = {one for sent in everything for topic in reader.topics for one in sent[topic]}
                assert set(reader.came.values()) == {1}
                assert reader.came.keys() <= wanted

    run(work(), LIMIT_S)


@pytest.mark.parametrize("overlay", ["spidercast", "vitis", "magnet"])
def test_a_node_alone_confirms_and_acknowledges_with_what_there_is(overlay):
    async def work() -> None:
        async with AsyncExitStack() as stack:
            (node,) = await stack.enter_async_context(mesh("a", overlay=overlay, **OVERLAYS[overlay]))
            client = await stack.enter_async_context(trellis.connect(client_address(node)))
            await client.subscribe("t")
            assert (await client.publish("t", b"to myself")).holders == ("a",)
            assert (await anext(client)).payload == b"to myself"

    run(work(), LIMIT_S)


@pytest.mark.parametrize("overlay", ["spidercast", "vitis", "magnet"])
def test_subscriptions_change_while_the_mesh_runs(overlay):
    """Who leaves in order is missed by nobody; who subscribes later, or again, gets what is published then."""

    async def work() -> None:
        async with mesh(*"abcde", overlay=overlay, **OVERLAYS[overlay]) as nodes, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(trellis.connect(client_address(node))) for node in nodes]
            await asyncio.gather(*(client.subscribe("t") for client in clients[:4]))
            await clients[0].publish("t", b"first")
            for client in clients[:4]:
                assert (await anext(client)).payload == b"first"
            await clients[3].unsubscribe("t")
            await clients[4].subscribe("t")
            nodes[1].leave()
            await nodes[1].wait()
            await clients[0].publish("t", b"second")
            for client in (clients[2], clients[4]):
                assert (await anext(client)).payload == b"second"
            await clients[3].subscribe("t")
            await clients[2].publish("t", b"third")
            came = [(await anext(clients[3])).payload]
            while came[-1] != b"third":  # what was published while it was away may come, once
                came.append((await anext(clients[3])).payload)
            assert came in ([b"third"], [b"second", b"third"])

    run(work(), LIMIT_S)
