"""A node that has seeds and has met nobody: it acknowledges alone only if it is certainly alone."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager

import msgspec
import pytest

import trellis
from live.lives import DELIVERY, client_address, config, mesh, peer_address, run, until, within
from trellis.live.client import NotAcknowledged
from trellis.live.config import LimitsConfig
from trellis.live.machine import MACHINE, telling
from trellis.live.shell import LiveNode
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.newscast import NewscastConfig
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import Mesh
from trellis.simulate.whole.world import World

QUICK = msgspec.structs.replace(DELIVERY, publish_timeout_ms=1_200, leave_ms_max=500)
GOSSIP = GossipViewConfig(newscast=NewscastConfig(period_ms=50))
LIMITS = LimitsConfig(handshake_s=0.5, connect_s=0.3, leave_s=20)


@asynccontextmanager
async def started(name: str, *seeds: str, **fields):
    node = LiveNode(config(name, seeds, **{"delivery": QUICK, "limits": LIMITS, **fields}))
    await node.start()
    try:
        yield node
        assert not node.counters["bugs"]
    finally:
        await node.stop(in_order=False)


async def assert_waits(node: LiveNode, why: str) -> None:
    """Assert that a publication is refused with the reason, and that a subscription is not confirmed meanwhile."""
    async with trellis.connect(client_address(node)) as client:
        subscribing = asyncio.ensure_future(client.subscribe("y"))
        try:
            for _ in range(2):  # the second one follows when registrations have run out: that is no proof
                with pytest.raises(NotAcknowledged, match=f"this node has not joined the mesh: .*{why}"):
                    await within(client.publish("z", b"nobody else hears this"))
            assert not subscribing.done()
            assert not node.is_confirmed("y")
        finally:
            subscribing.cancel()


async def assert_works_alone(name: str, *seeds: str, **fields) -> None:
    async with (
        started(name, *seeds, delivery=DELIVERY, **fields) as node,
        trellis.connect(client_address(node)) as client,
    ):
        await within(client.subscribe("y"))
        assert (await within(client.publish("z", b"alone"))).holders == (node.name,)


@contextmanager
def silent_port() -> Iterator[int]:
    """A port where the kernel accepts, and nobody says anything."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        yield listening.getsockname()[1]


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        return listening.getsockname()[1]


def test_a_second_node_of_a_name_acknowledges_nothing_and_confirms_nothing():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await until(lambda: all(len(node.links) == 1 for node in nodes))
            async with started("a", *map(peer_address, nodes)) as second:
                await assert_waits(second, "names must be unique in a cluster")

    run(work())


def test_a_node_whose_only_seed_is_silent_acknowledges_nothing_and_confirms_nothing():
    async def work() -> None:
        with silent_port() as port:
            async with started("a", f"127.0.0.1:{port}") as node:
                await assert_waits(node, "it took the connection and said nothing in time")

    run(work())


def test_a_node_acknowledges_nothing_while_the_name_of_a_seed_cannot_be_resolved(monkeypatch):
    async def connect(host: str, port: int, connect_s: float) -> socket.socket:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def work() -> None:
        monkeypatch.setattr(MACHINE, "connect", connect, raising=False)
        async with started("a", "seed.example:7001") as node:
            await assert_waits(node, "its host name cannot be resolved")

    run(work())


def test_one_silent_seed_is_enough_to_doubt_although_nothing_listens_at_the_others():
    async def work() -> None:
        with silent_port() as port:
            async with started("a", f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}") as node:
                await assert_waits(node, f"seed 127.0.0.1:{port}: it took the connection")

    run(work())


@pytest.mark.parametrize("overlay", ["omen", "spidercast", "vitis"])
def test_a_node_whose_partners_are_switched_off_works_alone(overlay):
    async def work() -> None:
        seeds = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        await assert_works_alone("a", *seeds, overlay=overlay, gossip=GOSSIP)

    run(work())


def test_over_spidercast_a_node_whose_seed_is_silent_waits_as_well():
    async def work() -> None:
        with silent_port() as port:
            async with started("a", f"127.0.0.1:{port}", overlay="spidercast", gossip=GOSSIP) as node:
                await assert_waits(node, "it took the connection and said nothing in time")

    run(work())


def test_a_node_whose_only_seed_is_itself_works_alone():
    async def work() -> None:
        port = free_port()
        await assert_works_alone("a", f"127.0.0.1:{port}", listen=f"127.0.0.1:{port}")

    run(work())


def test_a_publication_that_waits_for_a_silent_seed_is_acknowledged_when_the_seed_answers():
    async def work() -> None:
        patient = msgspec.structs.replace(QUICK, publish_timeout_ms=50_000)
        async with AsyncExitStack() as stack:
            with silent_port() as port:
                second = await stack.enter_async_context(started("b", f"127.0.0.1:{port}", delivery=patient))
                client = await stack.enter_async_context(trellis.connect(client_address(second)))
                waiting = asyncio.ensure_future(client.publish("t", b"early"))
                await until(lambda: bool(second.mesh.delivery.copies.pending and second.transport.failures))
                assert not waiting.done()
            await stack.enter_async_context(started("a", listen=f"127.0.0.1:{port}", topics=("t",)))
            assert set((await within(waiting)).holders) == {"a", "b"}

    run(work())


def test_a_refusal_counts_only_if_no_address_of_the_host_was_silent():
    refused, lacking = ConnectionRefusedError(errno.ECONNREFUSED, "refused"), OSError(errno.EADDRNOTAVAIL, "no IPv6")
    silent = OSError("no answer within 2 s")
    assert telling([silent, refused]) is silent
    assert telling([refused, silent]) is silent
    assert telling([lacking, refused]) is refused
    assert telling([refused, lacking]) is refused
    assert telling([refused, refused]) is refused
    assert telling([lacking]) is lacking


@pytest.mark.parametrize("is_listening", [True, False])
def test_where_the_kernel_lacks_the_family_of_an_address_the_next_one_is_tried(is_listening):
    async def work() -> None:
        family = 999  # The kernel answers EAFNOSUPPORT, as one without IPv6 does for AF_INET6.
        with socket.create_server(("127.0.0.1", 0)) as listening:
            place = listening.getsockname()
            if not is_listening:
                listening.close()

            async def addresses(*_, **__):
                return [(one, socket.SOCK_STREAM, 0, "", place) for one in (family, socket.AF_INET)]

            asyncio.get_running_loop().getaddrinfo = addresses  # type: ignore[method-assign]
            if is_listening:
                (await MACHINE.connect("host", place[1], 5.0)).close()
            else:
                with pytest.raises(ConnectionRefusedError):
                    await MACHINE.connect("host", place[1], 5.0)

    asyncio.run(work())


def test_a_node_that_leaves_while_the_other_subscriber_hangs_says_what_nobody_has_taken_over():
    with World(1) as world:
        mesh, faults = Mesh(world, "ab"), Faults(world)
        mesh.start_all()
        for name in "ab":
            mesh.subscribe(f"reader at {name}", name, ["news"])
        world.run_until(lambda: mesh.counters["subscribed"] == 2, 60)
        mesh.publish("writer", "a", "news", every_s=0.05, count=5)
        world.run_until(lambda: mesh.counters["acknowledged"] == 5, 60)
        faults.pause("b")
        mesh.leave("a")
        world.run_until(lambda: not mesh.is_running("a"), 60)
        assert mesh.nodes["a"].left_behind == (5, 1)
        assert mesh.nodes["a"].mesh.delivery.metrics()["left_behind"] == 5


@pytest.mark.parametrize("leaves", ["first", "last"])
def test_a_node_whose_messages_were_taken_over_or_wanted_by_nobody_has_left_nothing(leaves):
    async def work() -> None:
        async with mesh("a", "b", delivery=QUICK, limits=LIMITS) as nodes:
            async with (
                trellis.connect(client_address(nodes[0])) as one,
                trellis.connect(client_address(nodes[1])) as two,
            ):
                await within(one.subscribe("t"))
                await within(two.subscribe("t"))
                await within(one.publish("t", b"x"))
            nodes[0].leave()
            await within(nodes[0].wait())
            assert nodes[0].left_behind == (0, 0)
            if leaves == "last":
                nodes[1].leave()
                await within(nodes[1].wait())
                assert nodes[1].left_behind == (0, 0)

    run(work())
