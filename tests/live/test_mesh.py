"""Live nodes on loopback, all in this process: they link, deliver exactly once, mend, and outlive bad company."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from typing import Any

import pytest
from msgspec.structs import replace

import trellis
from live.lives import CLUSTER, OMEN, client_address, config, mesh, peer_address, run, until
from trellis.errors import InputError
from trellis.live import timers
from trellis.live.client import Client, ClientError, NotAcknowledged
from trellis.live.config import LimitsConfig
from trellis.live.frames import PROTOCOL, VERSION, VERSION_OLDEST, Address, Hello, pack, pack_control
from trellis.live.shell import LiveNode
from trellis.live.stream import Outbox


async def clients_of(stack: AsyncExitStack, nodes: list[LiveNode], topic: str) -> list[Client]:
    clients = [await stack.enter_async_context(trellis.connect(client_address(node))) for node in nodes]
    await asyncio.gather(*(client.subscribe(topic) for client in clients))
    return clients


async def take(client: Client, count: int) -> list[bytes]:
    return [(await anext(client)).payload for _ in range(count)]


async def nothing_more(client: Client, publisher: Client, topic: str) -> None:
    """Publishers keep their order, so what comes next tells that nothing was left over before it."""
    await publisher.publish(topic, b"the end")
    assert await take(client, 1) == [b"the end"]


def test_every_subscriber_gets_every_message_once_and_in_order():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes, AsyncExitStack() as stack:
            clients = await clients_of(stack, nodes, "t")
            sent = [b"%d" % number for number in range(200)]
            receipts = await asyncio.gather(*(clients[0].publish("t", one) for one in sent))
            assert all(receipt.copies >= 2 and "a" in receipt.holders for receipt in receipts)
            for client in clients:
                assert await take(client, 200) == sent
            for client in clients:
                await nothing_more(client, clients[1], "t")
                for other in clients:
                    if other is not client:
                        await take(other, 1)

    run(work())


def test_a_node_that_publishes_without_subscribing_reaches_the_subscribers():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes, AsyncExitStack() as stack:
            (subscriber,) = await clients_of(stack, nodes[1:2], "t")
            publisher = await stack.enter_async_context(trellis.connect(client_address(nodes[2])))
            receipt = await publisher.publish("t", b"from afar")
            assert receipt.holders
            assert await take(subscriber, 1) == [b"from afar"]
            assert not nodes[0].client_port.counters["delivered"]

    run(work())


def test_the_others_go_on_when_a_node_ends_abruptly():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes, AsyncExitStack() as stack:
            first, _, last = await clients_of(stack, nodes, "t")
            await first.publish("t", b"before")
            await nodes[1].stop(in_order=False)
            sent = [b"%d" % number for number in range(20)]
            for one in sent:
                assert "b" not in (await first.publish("t", one)).holders
            assert await take(last, 21) == [b"before", *sent]
            assert "b" not in nodes[0].links
            assert nodes[0].transport.counters["broken"] == 1

    run(work())


def test_a_node_that_leaves_in_order_is_no_crash_to_the_others():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes, AsyncExitStack() as stack:
            first, _, last = await clients_of(stack, nodes, "t")
            await first.publish("t", b"before")
            nodes[1].leave()
            await nodes[1].wait()
            assert not nodes[0].transport.counters["broken"]
            await first.publish("t", b"after")
            assert await take(last, 2) == [b"before", b"after"]

    run(work())


def test_all_nodes_of_a_mesh_that_are_told_to_end_are_gone_soon():
    """Nobody waits for `leave_s` or `leave_periods_max`: both are longer than this test may take."""
    fields = {"omen": replace(OMEN, leave_periods_max=100_000), "limits": LimitsConfig(handshake_s=5, leave_s=600)}

    async def work() -> None:
        async with mesh("a", "b", "c", **fields) as nodes, AsyncExitStack() as stack:
            first, *_ = await clients_of(stack, nodes, "t")
            await first.publish("t", b"held by all")
            for node in nodes:
                node.leave()
            await asyncio.gather(*(node.wait() for node in nodes))

    run(work(), 30)


def test_a_new_life_under_an_old_name_is_known_at_once():
    async def work() -> None:
        async with mesh("a", "b", "c") as nodes, AsyncExitStack() as stack:
            first, _, _ = await clients_of(stack, nodes, "t")
            old = nodes[1]
            await old.stop(in_order=False)
            again = nodes[1] = LiveNode(config("b", (peer_address(nodes[0]),)), life=old.life + 1)
            await again.start()
            (client,) = await clients_of(stack, [again], "t")
            await first.publish("t", b"to the new life")
            assert await take(client, 1) == [b"to the new life"]
            await until(lambda: nodes[0].transport.book.find("b") == again.transport.me)

    run(work())


async def meet(node: LiveNode, *sent: bytes) -> bytes:
    """Say something to a node's port for peers; what it answers until it cuts us off."""
    reader, writer = await asyncio.open_connection("127.0.0.1", node.transport.port)
    try:
        for one in sent:
            writer.write(one)
            await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def hello(name: str = "x", **changed: Any) -> bytes:
    given = {"protocol": PROTOCOL, "version": VERSION, "cluster": CLUSTER, "overlay": "omen"}
    return pack_control(Hello(**{**given, "address": Address(name, 1, "127.0.0.1", 9), **changed}))


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        ((b"GET / HTTP/1.1\r\n\r\n",), "cut oversized"),
        ((pack(b"\x00garbage"),), "cut garbage"),
        ((pack(b"\x01a message before the hello"),), "cut garbage"),
        ((hello(cluster="another"),), "cut cluster"),
        ((hello(version=VERSION_OLDEST - 1),), "cut version"),
        ((hello(overlay="spidercast"),), "cut overlay"),
        ((hello(), pack(b"\x01\xc1")), "cut garbage"),
        ((hello(), hello()), "cut garbage"),
        ((hello(), (1 << 30).to_bytes(4, "big")), "cut oversized"),
        ((), "cut handshake"),
    ],
    ids=str,
)
def test_a_bad_peer_is_cut_off_and_counted_while_traffic_goes_on(sent, counted):
    async def work() -> None:
        async with mesh("a", "b", limits=LimitsConfig(handshake_s=2)) as nodes, AsyncExitStack() as stack:
            first, last = await clients_of(stack, nodes, "t")
            answer = asyncio.create_task(meet(nodes[0], *sent))
            await first.publish("t", b"meanwhile")
            await answer
            await until(lambda: nodes[0].transport.counters[counted] >= 1)
            await first.publish("t", b"afterwards")
            assert await take(last, 2) == [b"meanwhile", b"afterwards"]

    run(work())


def test_a_refused_peer_is_told_why():
    async def work() -> None:
        async with mesh("a") as (node,):
            assert b'this node is of cluster "test"' in await meet(node, hello(cluster="another"))

    run(work())


def test_a_peer_that_stops_reading_is_cut_off_and_the_others_do_not_wait_for_it():
    limits = LimitsConfig(buffer_bytes=4_096, stall_s=1)

    async def work() -> None:
        async with mesh("a", "b", limits=limits) as nodes, AsyncExitStack() as stack:
            first, last = await clients_of(stack, nodes, "t")
            lazy = socket.create_connection(("127.0.0.1", nodes[0].transport.port))
            stack.callback(lazy.close)
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            lazy.sendall(hello("lazy"))
            await until(lambda: "lazy" in nodes[0].transport.peers)
            sent = 0
            while not nodes[0].transport.counters["cut slow"]:
                if "lazy" in nodes[0].transport.peers:
                    nodes[0].transport.send("lazy", bytes(60_000))
                await first.publish("t", b"%d" % sent)
                sent += 1
                await asyncio.sleep(0.01)
            assert await take(last, sent) == [b"%d" % number for number in range(sent)]

    run(work())


def test_of_idle_connections_beyond_the_limit_the_oldest_are_cut_off():
    async def work() -> None:
        async with mesh("a", limits=LimitsConfig(handshakes_max=3)) as (node,):
            streams = [await asyncio.open_connection("127.0.0.1", node.transport.port) for _ in range(30)]
            await until(lambda: node.transport.counters["cut full"] == 6)  # eight times the limit may come in a burst
            for reader, writer in streams[:6]:
                assert await reader.read() == b""
                writer.close()
            assert not any(reader.at_eof() for reader, _ in streams[6:])
            for _, writer in streams:
                writer.close()

    run(work())


def test_a_client_repeats_what_was_not_acknowledged_and_it_is_delivered_once():
    async def work() -> None:
        async with mesh("a", "b") as nodes, AsyncExitStack() as stack:
            first, last = await clients_of(stack, nodes, "t")
            taken_in = nodes[0].publish

            def publish_and_break(topic: str, payload: bytes, client_id: Any) -> None:
                taken_in(topic, payload, client_id)
                if payload == b"10" and not first.reconnects:  # taken in, and the answer cannot be told
                    nodes[0].client_port.clients[first.name, first.session].cut("closed")

            nodes[0].publish = publish_and_break
            await asyncio.gather(*(first.publish("t", b"%d" % number) for number in range(50)))
            assert first.reconnects == 1
            assert sorted(await take(last, 50)) == sorted(b"%d" % number for number in range(50))
            await first.publish("t", b"the end")
            assert await take(last, 1) == [b"the end"]

    run(work())


def test_a_publication_that_is_refused_raises_a_clear_error():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as client:
            with pytest.raises(NotAcknowledged, match=r'publication on "t": a payload of \d+ bytes is over'):
                await client.publish("t", bytes(300 << 10))

    run(work())


def test_a_client_sends_nothing_that_its_node_would_take_for_garbage():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as client:
            with pytest.raises(ClientError, match="a payload of 600000 bytes"):
                await client.publish("t", bytes(600_000))
            for topic in ("", "t" * 513):
                with pytest.raises(ClientError, match="a topic's name"):
                    await client.subscribe(topic)
            await client.publish("t", b"still welcome")
            assert not client.reconnects
            assert not node.client_port.counters["cut garbage"]

    run(work())


def test_a_client_that_stops_reading_is_cut_off_and_the_others_go_on():
    async def work() -> None:
        limits = LimitsConfig(buffer_bytes=4_096, queue_bytes=100_000, stall_s=30)
        async with mesh("a", limits=limits) as (node,), AsyncExitStack() as stack:
            lazy, other = await clients_of(stack, [node, node], "t")
            assert lazy._stream is not None
            lazy._stream.pause_reading()
            sent = 0
            while not node.client_port.counters["cut slow"]:
                await other.publish("t", b"%d" % sent + bytes(50_000))
                assert (await anext(other)).payload.startswith(b"%d\0" % sent)
                sent += 1

    run(work())


def test_a_message_that_breaks_a_handler_is_lost_and_the_node_goes_on():
    async def work() -> None:
        async with mesh("a", "b") as nodes, AsyncExitStack() as stack:
            first, last = await clients_of(stack, nodes, "t")
            handle, broken = nodes[1].mesh.on_message, []

            def break_once(sender: str, message: Any) -> Any:
                if not broken:
                    broken.append(message)
                    raise KeyError("a bug")
                return handle(sender, message)

            nodes[1].mesh.on_message = break_once
            await first.publish("t", b"afterwards")
            assert await take(last, 1) == [b"afterwards"]
            await until(lambda: bool(broken))
            assert nodes[1].counters.pop("bugs") == 1

    run(work())


def test_a_timer_that_breaks_ends_the_node(monkeypatch):
    monkeypatch.setattr(timers, "PAUSES_S", tuple(pause_s / 100 for pause_s in timers.PAUSES_S))

    async def work() -> None:
        node = LiveNode(config("a"))
        await node.start()

        def fail(tag: str) -> Any:
            raise KeyError("a bug")

        node.mesh.on_timer = fail
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        with pytest.raises(KeyError, match="a bug"):
            await node.wait()

    run(work())


def test_a_client_says_that_nobody_is_there():
    async def work() -> None:
        with pytest.raises(ClientError, match="cannot be reached"):
            async with trellis.connect("127.0.0.1:1", timeout_s=0.3):
                pass

    run(work())


def test_waiting_for_a_message_ends_when_the_node_is_gone_for_good():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node), timeout_s=0.3) as client:
            await client.subscribe("t")
            await node.stop(in_order=False)
            with pytest.raises(ClientError, match="cannot be reached"):
                await anext(client)
            with pytest.raises(ClientError, match="cannot be reached"):
                await client.publish("t", b"")

    run(work())


def test_a_process_that_stood_still_is_told_so(monkeypatch):
    from trellis.live.machine import Machine

    async def work() -> None:
        async with mesh("a") as (node,):
            real = Machine.uptime_s
            monkeypatch.setattr(Machine, "uptime_s", lambda machine: real(machine) + 30)
            await until(lambda: node.counters["stood_still_ms"] >= 29_000)
            assert node.mesh.delivery.state.now_ms >= 29_000

    run(work())


def test_a_port_that_is_taken_is_a_clear_error():
    async def work() -> None:
        async with mesh("a") as (node,):
            other = LiveNode(config("b", listen=peer_address(node)))
            with pytest.raises(InputError, match="cannot listen"):
                await other.start()

    run(work())


def test_gossip_gives_way_in_a_full_queue_and_the_rest_does_not():
    box = Outbox(10)
    assert all(box.put(one, may_drop) for one, may_drop in [(b"gossip", True), (b"kept", False), (b"more", True)])
    assert box.dropped == 1
    assert not box.put(b"kept as well", False)
    assert [box.take(), box.take()] == [b"kept", b"kept as well"]
