"""After a crash, nodes go on acknowledging at once: they have proof of who is left."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

import trellis
from live.lives import DELIVERY, client_address, mesh, run, until, within
from trellis.live.shell import LiveNode

# Longer than the test may take: no acknowledgement comes because a registration has run out.
PATIENT = msgspec.structs.replace(DELIVERY, registered_ms=300_000, publish_timeout_ms=50_000)


@pytest.mark.parametrize("count", [2, 3])
def test_the_node_that_is_left_of_a_mesh_acknowledges_without_waiting_for_registrations_to_run_out(count):
    async def work() -> None:
        async with mesh(*"abc"[:count], delivery=PATIENT) as nodes:
            first, *others = nodes
            async with trellis.connect(client_address(first)) as client:
                subscribers = [await trellis.connect(client_address(node)).__aenter__() for node in others]
                for one in subscribers:
                    await within(one.subscribe("t"))
                await within(client.subscribe("t"))
                assert len((await within(client.publish("t", b"before"))).holders) == 2
                for node in others:
                    await node.stop(in_order=False)
                receipt = await within(client.publish("t", b"after"))
                assert receipt.holders == ("a",)
                for one in subscribers:
                    await one.close()
            await until(lambda: first.mesh.overlay.home_range() == "a")
            del nodes[1:]

    run(work())


@pytest.mark.parametrize("count", [3, 4])
def test_the_last_subscriber_of_a_topic_acknowledges_although_the_home_of_the_topic_was_killed(count):
    """The next node on the ring keeps a copy of what the home knew. Topics of all homes are tried."""
    topics = [f"t{number}" for number in range(12)]

    async def work() -> None:
        slow = msgspec.structs.replace(PATIENT, tick_ms=1_000)  # an heir believes a home for three ticks
        async with mesh(*"abcd"[:count], delivery=slow) as nodes:
            first, killed = nodes[:2]
            async with trellis.connect(client_address(first)) as client:
                other = await trellis.connect(client_address(killed)).__aenter__()
                for one in (client, other):
                    await within(asyncio.gather(*(one.subscribe(topic) for topic in topics)))
                await until(lambda: len({node.mesh.overlay.home_range() for node in nodes}) == count)
                for node in nodes:  # as if everybody had been there for long: PATIENT homes are sure after five minutes
                    node.mesh.delivery.homes._is_sure()
                    node.mesh.delivery.homes._range_ms -= PATIENT.registered_ms
                moved = [topic for topic in topics if killed.mesh.overlay.is_home(topic)]
                assert moved
                await until(lambda: all(_has_copy(nodes, killed, topic) for topic in moved))
                await killed.stop(in_order=False)
                receipts = await within(asyncio.gather(*(client.publish(topic, b"after") for topic in topics)))
                assert [one.holders for one in receipts] == [("a",)] * len(topics)
                await other.close()
            nodes.remove(killed)

    run(work())


def _has_copy(nodes: list[LiveNode], home: LiveNode, topic: str) -> bool:
    heir = next(node for node in nodes if node.name == home.mesh.overlay.heir())
    kept = heir.mesh.delivery.homes.heirs.kept.get(home.name)
    return kept is not None and len(kept.registry.get(topic, ())) == 2 and kept.token is not None
