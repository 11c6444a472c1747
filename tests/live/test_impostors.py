"""Peers that use the name of another node, or ask without end: the links of honest nodes stand."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from contextlib import AsyncExitStack

import pytest

import trellis
from live.lives import CLUSTER, client_address, config, mesh, peer_address, run, until
from live.signing import node_of
from live.test_hostile import stranger
from live.test_tls import join_as
from trellis.live.addresses import BOOK_MAX
from trellis.live.allowance import Allowance
from trellis.live.dialing import Dial
from trellis.live.frames import (
    ADDRESSES_MAX,
    BODY_BYTES_MAX,
    PROTOCOL,
    VERSION,
    Address,
    Addresses,
    Bye,
    Hello,
    Ping,
    Pong,
    Refused,
    Splitter,
    pack_control,
    read_control,
)
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context


async def claim(node: LiveNode, name: str, incarnation: int) -> Hello | Refused | None:
    """Connect to a node under some name, and return its answer: None, if it closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.transport.port)
    address = Address(name, incarnation, "127.0.0.1", 9)
    writer.write(pack_control(Hello(PROTOCOL, VERSION, CLUSTER, "omen", address)))
    splitter = Splitter(BODY_BYTES_MAX)
    try:
        while data := await reader.read(1 << 16):
            for body in splitter.feed(data):
                answer = read_control(body)
                assert isinstance(answer, Hello | Refused)
                return answer
    finally:
        writer.close()
    return None


async def assert_flows(giver: LiveNode, taker: LiveNode, tls: ssl.SSLContext | None = None) -> None:
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(trellis.connect(client_address(taker), tls=tls))
        writer = await stack.enter_async_context(trellis.connect(client_address(giver), tls=tls))
        await reader.subscribe("t")
        await writer.publish("t", b"still here")
        assert (await anext(reader)).payload == b"still here"


async def linked(nodes: list[LiveNode]) -> None:
    await until(lambda: all(len(node.links) == len(nodes) - 1 for node in nodes))


def test_nobody_takes_the_name_of_a_neighbor_by_asking_again_and_again():
    """A neighbor answers a few questions a second. It must not be asked once for every stranger."""

    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await linked(nodes)
            stands = nodes[0].transport.peers["b"]
            for number in range(60):
                answer = await claim(nodes[0], "b", nodes[1].life + 1 + number)
                assert isinstance(answer, Refused), f"stranger {number} took the name"
            assert nodes[0].transport.peers["b"] is stands
            await assert_flows(*nodes)

    run(work())


@pytest.mark.parametrize("told", [["b"], ["b", "c"]])
def test_a_false_address_keeps_no_node_from_joining_again(told):
    async def work() -> None:
        async with mesh("a", "b", "c", topics=("t",)) as (a, b, c):
            await until(lambda: all(node.links for node in (a, b, c)))
            reader, writer = await asyncio.open_connection("127.0.0.1", a.transport.port)
            address = Address("stranger", 1, "127.0.0.1", 9)
            writer.write(pack_control(Hello(PROTOCOL, VERSION, CLUSTER, "omen", address)))
            lies = tuple(Address(name, a.life + 1_000_000, "127.0.0.1", 1) for name in told)
            writer.write(pack_control(Addresses(lies)))
            await reader.read(1)
            writer.close()
            await b.stop(in_order=False)
            again = LiveNode(config("b", seeds=(peer_address(a),), topics=("t",)), b.life + 1)
            await again.start()
            try:
                await until(lambda: all(node.links for node in (a, again, c)))
                await assert_flows(a, again)
                await until(lambda: "c" in again.transport.peers)
            finally:
                await again.stop()

    run(work())


def test_a_flood_of_addresses_is_passed_on_no_faster_than_its_sender_may_change_the_book():
    """Each change of the book goes to all other peers, so one peer could make all others busy."""

    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await linked(nodes)
            a = nodes[0]
            reader, writer = await asyncio.open_connection("127.0.0.1", a.transport.port)
            writer.write(
                pack_control(Hello(PROTOCOL, VERSION, CLUSTER, "omen", Address("stranger", 1, "127.0.0.1", 9)))
            )
            await until(lambda: "stranger" in a.transport.peers)
            before, began = a.transport.book.version, a.now()
            for frame in range(100):
                lies = tuple(Address(f"x{frame}-{number}", 1, "127.0.0.1", 1) for number in range(ADDRESSES_MAX))
                writer.write(pack_control(Addresses(lies)))
            writer.write(pack_control(Bye()))
            while await reader.read(65_536):
                pass
            await until(lambda: "stranger" not in a.transport.peers)
            writer.close()
            changes = a.transport.book.version - before
            may_each = BOOK_MAX + 64 * (a.now() - began + 1)
            assert changes <= 2 * may_each, "the stranger and b, which says again what this node had no room for"
            assert a.transport.counters["addresses left out"] > 0
            await assert_flows(*nodes)

    run(work())


@pytest.mark.parametrize(("later", "allowed", "is_over"), [(1, 1, True), (1, 0, False), (10**9, 1, False)])
def test_only_an_address_that_the_book_takes_ends_the_pause_of_a_dial(later, allowed, is_over):
    """A peer could otherwise make this node dial a dead address again and again, without a pause."""

    async def work() -> None:
        async with mesh("a") as (node,):
            transport, known = node.transport, Address("x", node.life, "127.0.0.1", 1)
            transport.book.learn([known])
            transport.dials["x"] = Dial(pause_s=600, not_before=node.now() + 600)
            transport.addresses_left = Allowance(allowed, 0.0, node.now)
            transport._learn("liar", [Address("x", node.life + later, "127.0.0.1", 1)])
            assert ("x" not in transport.dials) is is_over

    run(work())


def test_addresses_that_are_known_already_are_not_counted_as_left_out():
    async def work() -> None:
        async with mesh("a") as (node,):
            transport = node.transport
            transport.addresses_left = Allowance(2, 0.0, node.now)
            told = [Address(name, 1, "127.0.0.1", 1) for name in ("x", "y", "z")]
            transport._learn("p", told[:2])
            transport._learn("p", told[:2])
            assert transport.counters["addresses left out"] == 0
            transport._learn("p", told)
            assert transport.counters["addresses left out"] == 1
            assert transport.book.find("z") is None

    run(work())


def test_what_a_peer_may_do_grows_back_with_time():
    now = [0.0]
    allowance = Allowance(10, 2.0, lambda: now[0])
    allowance.use("p", 8)
    assert (allowance.left("p"), allowance.left("q")) == (2, 10)
    now[0] = 3.0
    assert allowance.left("p") == 8
    allowance.use("p", 8)
    assert allowance.left("p") == 0
    now[0] = 100.0
    assert allowance.left("p") == 10


@pytest.mark.parametrize(("attacked", "victim"), [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("later", [0, 1, 1_000_000])
def test_nobody_takes_the_name_of_a_linked_neighbor_that_answers(attacked, victim, later):
    """Without TLS anybody can say any name, so the stream that stands is asked first."""

    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await linked(nodes)
            by_name = {node.name: node for node in nodes}
            node, other = by_name[attacked], by_name[victim]
            stream, place = node.transport.peers[victim], node.transport.book.find(victim)
            for _ in range(3):
                answer = await claim(node, victim, other.life + later)
                assert isinstance(answer, Refused)
                assert answer.kind == ("taken" if later else "second")
            assert node.transport.peers[victim] is stream
            assert node.transport.book.find(victim) == place
            assert not node.counters["links_down"]
            assert not node.transport.handshake._contests
            await assert_flows(other, node)

    run(work())


def test_a_node_that_restarts_is_linked_again_though_its_old_stream_seems_to_stand():
    """Its machine lost power: nobody has closed the old stream, and nobody answers on it."""

    async def work() -> None:
        async with mesh("a", topics=("t",)) as (node,), stranger(node, "b"):  # says nothing more
            again = LiveNode(config("b", (peer_address(node),), topics=("t",)))
            await again.start()
            try:
                await linked([node, again])
                assert node.transport.peers["b"].tag.incarnation == again.life
                await assert_flows(again, node)
            finally:
                await again.stop(in_order=False)

    run(work())


def test_many_impostors_at_once_cost_the_neighbor_one_question():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await linked(nodes)
            node, other = nodes
            asked = []
            real = other.transport._answer
            other.transport._answer = lambda stream: asked.append(stream) or real(stream)  # type: ignore[method-assign]  # counts the questions
            answers = await asyncio.gather(*(claim(node, "b", other.life + 1) for _ in range(50)))
            assert all(isinstance(one, Refused) for one in answers)
            assert len(asked) < 25
            await assert_flows(other, node)

    run(work())


def test_a_certificate_of_another_node_takes_no_name_and_no_link(sign):
    """With TLS a name is proven: a member cannot be another member."""

    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a")), topics=("t",)) as (a,):
            b = LiveNode(config("b", (peer_address(a),), tls=sign("b", *node_of("b")), topics=("t",)))
            await b.start()
            try:
                await linked([a, b])
                stream, x = a.transport.peers["b"], sign("x", *node_of("x"))
                for name in ("b", "c", "a"):
                    answer = await join_as(peer_address(a), name, x)
                    assert isinstance(answer, Refused)
                    assert answer.kind == ("taken" if name == "a" else "certificate")
                assert a.transport.peers["b"] is stream
                assert not a.counters["links_down"]
                assert a.transport.counters["cut certificate"] == 2
                await assert_flows(b, a, make_context(x, server=False))
            finally:
                await b.stop(in_order=False)

    run(work())


def test_a_peer_that_asks_for_proofs_without_end_is_answered_a_few_times_and_cut_off():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await linked(nodes)
            node = nodes[0]
            async with stranger(node) as (reader, writer):
                writer.write(pack_control(Ping()) * 20_000)
                splitter, told = Splitter(BODY_BYTES_MAX), []
                with contextlib.suppress(ConnectionResetError):
                    while data := await reader.read(1 << 16):
                        told += [read_control(body) for body in splitter.feed(data) if body[:1] == b"\x00"]
            assert node.transport.counters["cut flood"] == 1
            assert "x" not in node.transport.peers
            assert told.count(Pong()) <= 64  # 16 in a round, and the flood may take more than one
            await assert_flows(nodes[1], node)

    run(work())
