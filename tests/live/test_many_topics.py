"""A node with very many topics: it stays linked, gets everything, and refuses what it could not tell other nodes."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack

import pytest

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from trellis.live.client import Client, ClientError, NotAcknowledged
from trellis.live.config import DeliveryConfig, LimitsConfig, LiveOMenConfig
from trellis.live.shell import LiveNode


def topics_of(count: int, letters: int) -> list[str]:
    return [f"plant/{place:05}/".ljust(letters, "x") for place in range(count)]


async def publish_to_all(nodes: list[LiveNode], topics: list[str], published: int) -> None:
    """A client at the first node subscribes to all topics; clients of all others publish on some of them."""
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(trellis.connect(client_address(nodes[0])))
        await asyncio.gather(*(reader.subscribe(topic) for topic in topics))
        owed = set()
        for node in nodes[1:]:
            writer = await stack.enter_async_context(trellis.connect(client_address(node)))
            chosen = topics[:: max(1, len(topics) // published)]
            await asyncio.gather(*(writer.publish(topic, node.name.encode()) for topic in chosen))
            owed |= {(topic, node.name) for topic in chosen}
        while owed:
            message = await anext(reader)
            owed.discard((message.topic, message.payload.decode()))
        for node in nodes:
            assert node.counters["too_large"] == 0
            assert node.pieces.counters["refused"] == node.pieces.counters["pushed out"] == 0
            node.pieces.check()
        await until(lambda: all(node.links for node in nodes))  # publishers may be linked to each other, and one to `a`


def test_a_node_whose_topics_do_not_fit_into_a_frame_stays_linked_and_gets_everything():
    topics = topics_of(2_300, 500)
    assert sum(map(len, topics)) > 1 << 20

    async def work() -> None:
        async with mesh("a", "b", "c", "d", omen=LiveOMenConfig(period_ms=200)) as nodes:
            await publish_to_all(nodes, topics, 20)

    run(work(), 120)


@pytest.mark.slow
def test_9000_topics_of_120_letters_at_one_node_of_four_cost_no_message():
    async def work() -> None:
        async with mesh("a", "b", "c", "d", omen=LiveOMenConfig(), delivery=DeliveryConfig()) as nodes:
            await publish_to_all(nodes, topics_of(9_000, 120), 100)

    run(work(), 600)


@pytest.mark.slow
def test_9000_topics_of_120_letters_at_all_four_nodes_cost_no_acknowledged_message():
    """Nodes may lose each other for a while where a machine is busy. So the window is longer than the test."""
    topics = topics_of(9_000, 120)
    delivery = DeliveryConfig(window_ms=900_000, tombstone_ms=2_700_000)

    async def work() -> None:
        async with (
            mesh("a", "b", "c", "d", omen=LiveOMenConfig(), delivery=delivery) as nodes,
            AsyncExitStack() as stack,
        ):
            readers = [await stack.enter_async_context(trellis.connect(client_address(node))) for node in nodes]
            await asyncio.gather(*(reader.subscribe(topic) for reader in readers for topic in topics))
            owed = [set[tuple[str, str]]() for _ in nodes]

            async def publish(node: LiveNode) -> None:
                async with trellis.connect(client_address(node)) as writer:
                    for topic in topics[:: len(topics) // 50]:
                        try:
                            await writer.publish(topic, node.name.encode())
                        except NotAcknowledged:
                            continue
                        for one in owed:
                            one.add((topic, node.name))

            async def read(reader: Client, owed_here: set[tuple[str, str]]) -> None:
                got = set()
                async for message in reader:
                    one = (message.topic, message.payload.decode())
                    assert one not in got, f"{one} came twice"
                    got.add(one)
                    if owed_here <= got and are_published.is_set():
                        return

            are_published = asyncio.Event()
            reading = [asyncio.ensure_future(read(*pair)) for pair in zip(readers, owed, strict=True)]
            await asyncio.gather(*map(publish, nodes))
            are_published.set()
            assert len(owed[0]) > 100
            last = await stack.enter_async_context(trellis.connect(client_address(nodes[0])))
            await last.publish(topics[1], b"the last one")  # so that each reader looks once more whether it has all
            await asyncio.gather(*reading)

    run(work(), 900)


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (LimitsConfig(topics_max=3), "this node takes part in 3 topics, and 3 is the limit"),
        (LimitsConfig(topics_bytes_max=60), "names of this node's topics would have 64 bytes, and 60 is the limit"),
    ],
    ids=["number", "bytes"],
)
def test_a_subscription_that_others_could_not_be_told_of_is_refused_with_the_reason(limits, reason):
    async def work() -> None:
        async with mesh("a", limits=limits) as (node,), trellis.connect(client_address(node)) as first:
            for topic in ("topic 01", "topic 02", "topic 03"):
                await first.subscribe(topic)
            async with trellis.connect(client_address(node)) as second:
                await second.subscribe("topic 01")  # is told already
                with pytest.raises(ClientError, match=f"{reason}; subscribe at another node, or to fewer topics"):
                    await second.subscribe("topic 04")
            assert node.counters["topics_refused"] == node.client_port.counters["cut topics"] == 1
            await first.publish("topic 03", b"still here")
            assert (await anext(first)).payload == b"still here"
            await first.unsubscribe("topic 02")
            async with trellis.connect(client_address(node)) as third:  # room again when it was left
                await until(lambda: node.mesh.topics_count == 2)
                await third.subscribe("topic 04")

    run(work())


def test_a_node_of_the_version_before_gets_long_lists_written_out():
    topics = topics_of(300, 100)

    async def work() -> None:
        async with mesh("a") as (new,):
            old = LiveNode(config("b", (peer_address(new),)))
            await old.start()
            old.transport.speaks = (1, 1)
            try:
                await publish_to_all([new, old], topics, 10)
                assert new.transport.peers["b"].tag.version == 1
                assert new.pieces.counters["given"] == old.pieces.counters["given"] == 0
            finally:
                await old.stop(in_order=False)

    run(work())


def test_what_is_too_large_for_a_node_of_the_version_before_is_counted_and_its_upgrade_is_asked_for(caplog):
    async def work() -> None:
        async with mesh("a", topics=tuple(topics_of(2_300, 500))) as (new,):
            old = LiveNode(config("b", (peer_address(new),)))
            await old.start()
            old.transport.speaks = (1, 1)
            try:
                await until(lambda: new.counters["too_large"] > 0)
            finally:
                await old.stop(in_order=False)
        assert any("cannot send to b" in line and "upgrade it" in line for line in caplog.messages)

    with caplog.at_level(logging.ERROR, "trellis.live"):
        run(work())
