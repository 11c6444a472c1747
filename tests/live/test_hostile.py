"""What a hostile peer says cannot end a node, nor make it silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from live.lives import CLUSTER, mesh, run, until
from trellis.live.config import LimitsConfig
from trellis.live.frames import MESSAGE, PROTOCOL, VERSION, Address, Hello, Splitter, pack_control, pack_message
from trellis.live.shell import LiveNode
from trellis.live.transport import Transport
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.newscast import NewscastRequest
from trellis.protocols.omen.messages import Connect, FindRecord, FoundRecord

ROUNDS = 12  # of gossip: what one node has taken is at all others by then


@asynccontextmanager
async def stranger(node: LiveNode, name: str = "x") -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A peer that has said hello, and says what it likes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.transport.port)
    writer.write(pack_control(Hello(PROTOCOL, VERSION, CLUSTER, "omen", Address(name, 1, "127.0.0.1", 9))))
    await until(lambda: name in node.transport.peers)
    try:
        yield reader, writer
    finally:
        writer.close()


async def some_rounds(nodes: list[LiveNode]) -> None:
    """Until every node has gossiped a while, or one has ended."""
    tables = [node.mesh.overlay.node.parts.sampling.table for node in nodes]  # type: ignore[attr-defined]
    ends = [table.round + ROUNDS for table in tables]
    await until(
        lambda: (
            all(table.round >= end for table, end in zip(tables, ends, strict=True))
            or any(node.failure is not None for node in nodes)
        )
    )


def test_descriptors_with_a_colon_in_their_names_end_no_node():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes:
            await until(lambda: all(len(node.transport.peers) == 2 for node in nodes))
            async with stranger(nodes[0]) as (_, writer):
                bad = NewscastRequest(tuple(Descriptor(f"x{number}:bad") for number in range(20)))
                writer.write(pack_message(msgspec.msgpack.encode(bad)))
                await some_rounds(nodes)
                assert [node.failure for node in nodes] == [None] * 3
                assert nodes[0].transport.counters["cut garbage"] == 1
                assert not any(node.transport.book.find("x0:bad") for node in nodes)

    run(work())


def test_a_name_that_reads_like_a_seed_is_dialled_as_a_name():
    """`_place` once took a colon for an address; now only a `Seed` has one."""

    async def work() -> None:
        transport = Transport(
            Address("a", 1, "127.0.0.1", 0),
            CLUSTER,
            "omen",
            LimitsConfig(),
            None,
            on_message=lambda peer, body: None,
            on_peer_down=lambda peer: None,
            on_peer_ended=lambda peer, is_alone: None,
            is_linked=lambda peer: False,
        )
        transport.bind("127.0.0.1:0")
        for name in ("127.0.0.1:9", "x0:bad", "[::1]:9"):
            transport.send(name, b"anything")
        assert transport.counters["dropped unaddressed"] == 3
        assert not transport.dials
        transport.close()
        await transport.closed()

    run(work())


@pytest.mark.parametrize("host", [".", "a..b", "x" * 64 + ".example"])
def test_a_host_that_the_resolver_cannot_take_fails_the_dial_and_it_is_tried_again(host):
    async def work() -> None:
        async with mesh("a", limits=LimitsConfig(backoff_s=0.01, backoff_s_max=0.01)) as (node,):
            transport = node.transport
            transport.book.learn([Address("b", 1, host, 9)])  # past the checks of the wire
            for tried in range(1, 4):
                while transport.counters["dials failed"] < tried:
                    transport.send("b", b"?")
                    await asyncio.sleep(0.01)

    run(work())


def test_the_record_of_the_node_itself_is_looked_for_by_a_node_alone_on_its_ring():
    async def work() -> None:
        async with mesh("a") as (node,):
            codec, ring = node.codec, node.mesh.overlay.node.ring  # type: ignore[attr-defined]
            async with stranger(node) as (reader, writer):
                assert ring.successor == "a"
                writer.write(pack_message(codec.encode(FindRecord("a", 1, "x", 7, 0, 3))))
                splitter, told = Splitter(1 << 20), []
                while not any(isinstance(one, FoundRecord) for one in told):
                    bodies = list(splitter.feed(await reader.read(1 << 16)))
                    told += [codec.decode(body[1:]) for body in bodies if body[:1] == MESSAGE]
                    assert not node.counters["bugs"]
                (found,) = (one for one in told if isinstance(one, FoundRecord))
                assert found == FoundRecord("a", 1, 7, last=True, record=None)

    run(work())


def break_timer(node: LiveNode, tag: str, times: int) -> list[str]:
    """The next `times` runs of a timer fail. Returns a list that grows with each."""
    real, failed = node.mesh.on_timer, list[str]()

    def on_timer(which: str) -> Any:
        if which == tag and len(failed) < times:
            failed.append(which)
            raise ValueError("made up")
        return real(which)

    node.mesh.on_timer = on_timer  # type: ignore[method-assign]
    return failed


@pytest.mark.parametrize("tag", ["newscast/exchange", "ring/exchange", "detector/tick", "delivery/tick"])
def test_a_timer_that_fails_is_tried_again_and_the_node_goes_on(tag):
    async def work() -> None:
        async with mesh("a", "b") as nodes:
            failed = break_timer(nodes[0], tag, times=2)
            await until(lambda: len(failed) == 2 and not nodes[0].timers.failed)
            await some_rounds(nodes)
            assert nodes[0].failure is None
            assert nodes[0].counters.pop("bugs") == 2

    run(work())


def test_a_timer_that_keeps_failing_ends_the_node(monkeypatch):
    monkeypatch.setattr("trellis.live.timers.PAUSES_S", (0.01, 0.01, 0.01))

    async def work() -> None:
        async with mesh("a") as (node,):
            failed = break_timer(node, "newscast/exchange", times=1_000)
            with pytest.raises(ValueError, match="made up"):
                await node.wait()
            assert len(failed) == 4
            assert node.counters.pop("bugs") == 4

    run(work())


def test_an_effect_that_fails_keeps_back_no_other():
    """The timer of the same round is set: else the node would fall silent."""

    async def work() -> None:
        async with mesh("a", "b") as nodes:
            await until(lambda: all(node.transport.peers for node in nodes))
            real, failed = nodes[0].transport.send, list[str]()

            def send(to: Any, encoded: bytes, *more: Any, **options: Any) -> None:
                if len(failed) < 50:
                    failed.append(to)
                    raise OverflowError("made up")
                real(to, encoded, *more, **options)

            nodes[0].transport.send = send  # type: ignore[method-assign]
            await until(lambda: len(failed) == 50)
            await some_rounds(nodes)
            assert nodes[0].failure is None
            assert nodes[0].counters.pop("bugs") == 50

    run(work())


def test_the_loss_of_a_stream_that_breaks_a_handler_is_counted_and_the_node_goes_on():
    async def work() -> None:
        async with mesh("a") as (node,):

            def on_peer_down(peer: str) -> Any:
                raise KeyError(peer)

            async with stranger(node):
                node.mesh.on_peer_down = on_peer_down  # type: ignore[method-assign]
            await until(lambda: "x" not in node.transport.peers)
            await some_rounds([node])
            assert node.failure is None
            assert node.counters.pop("bugs") == 1

    run(work())


def test_names_of_topics_that_nobody_uses_any_more_are_forgotten():
    """A peer that invents topics, or one that changes its honest ones often, does not fill the node's memory."""

    async def work() -> None:
        async with mesh("a", topics=("t",)) as (node,):
            names = node.mesh.overlay.table
            for number in range(1, 61):
                invented = tuple(f"{number}/{place}" for place in range(500))
                node.exchange.on_message("x", node.codec.encode(Connect(7, ("t", *invented), 1, number)))
            state, ticks = node.mesh.delivery.state, 5 * node.config.delivery.tick_ms
            end_ms = state.now_ms + ticks
            await until(lambda: state.now_ms >= end_ms)
            assert sum(map(bool, names.names)) < 10_000
            node.exchange.on_message("x", node.codec.encode(Connect(7, ("t", "new"), 1, 100)))
            (link,) = node.mesh.overlay.node.links.links.values()  # type: ignore[attr-defined]
            assert names.topics(link.interest) == ("new", "t")
            assert names.topics(node.mesh.overlay.interest) == ("t",)

    run(work())
