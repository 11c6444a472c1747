"""Clients that come, go and come back, on meshes as small as everybody's first one."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import trellis
from live.lives import DELIVERY, client_address, mesh, run, until, within
from trellis.live.shell import LiveNode

TOPICS = tuple(f"t{number}" for number in range(10))
FORGETFUL = msgspec.structs.replace(DELIVERY, interest_ms=300)  # publishers lose interest soon


async def come_and_go(node: LiveNode, publisher: LiveNode, word: str) -> None:
    """A client subscribes, gets what is published from then on, and ends."""
    async with trellis.connect(client_address(node)) as client, trellis.connect(client_address(publisher)) as source:
        await within(asyncio.gather(*(client.subscribe(topic) for topic in TOPICS)))
        await within(asyncio.gather(*(source.publish(topic, f"{word}/{topic}".encode()) for topic in TOPICS)))
        got = [(await within(anext(client))).payload.decode() for _ in TOPICS]
        assert sorted(got) == sorted(f"{word}/{topic}" for topic in TOPICS)


async def all_left(nodes: list[LiveNode]) -> None:
    """No node takes part in any of the topics any more."""
    await until(lambda: not any(node.mesh.overlay.interest for node in nodes))


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_a_subscriber_that_comes_back_gets_everything_from_then_on(names):
    async def work() -> None:
        async with mesh(*names, delivery=FORGETFUL) as nodes:
            first, last = nodes[0], nodes[-1]
            for turn, (subscriber, publisher) in enumerate(
                [(last, first), (first, first), (last, first), (last, last)]
            ):
                await come_and_go(subscriber, publisher, str(turn))
                await all_left(nodes)
            assert not any(node.mesh.delivery.state.counters.lost for node in nodes)

    run(work())


def test_what_is_published_while_nobody_subscribes_holds_nobody_back():
    async def work() -> None:
        async with mesh("a", "b", delivery=FORGETFUL) as nodes:
            a, b = nodes
            await come_and_go(b, a, "first")
            await all_left(nodes)
            async with trellis.connect(client_address(a)) as source:
                await within(asyncio.gather(*(source.publish(topic, b"to nobody") for topic in TOPICS)))
            await all_left(nodes)
            await come_and_go(b, a, "second")
            assert not b.mesh.delivery.state.counters.lost

    run(work())


def test_what_was_published_before_a_subscription_is_not_handed_over():
    """A publisher that does not subscribe holds it, and is the only other node on the topic."""

    async def work() -> None:
        async with (
            mesh("a", "b") as (a, b),
            trellis.connect(client_address(a)) as source,
            trellis.connect(client_address(b)) as client,
        ):
            await within(asyncio.gather(*(source.publish(topic, b"before") for topic in TOPICS)))
            await asyncio.sleep(0.5)  # by the clock: ages tell what was published before
            await within(asyncio.gather(*(client.subscribe(topic) for topic in TOPICS)))
            await within(asyncio.gather(*(source.publish(topic, b"after") for topic in TOPICS)))
            assert [(await within(anext(client))).payload for _ in TOPICS] == [b"after"] * len(TOPICS)

    run(work())
