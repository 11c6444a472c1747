"""/healthz is red when messages that should flow do not, and says why."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

import trellis
from live.lives import DELIVERY, OMEN, client_address, config, mesh, peer_address, run, until
from live.prometheus import parse_metrics
from live.test_admin import ADMIN, overlay, read
from trellis.live.addresses import parse_seed
from trellis.live.admin import exposition
from trellis.live.config import LimitsConfig
from trellis.live.health import LOOK_S, Canary, Links
from trellis.live.mqtt import sidecar
from trellis.live.mqtt.client import MqttClient
from trellis.live.seeds import Names
from trellis.live.shell import LiveNode
from trellis.protocols.delivery.messages import AskHome, Frame
from trellis.protocols.effects import Send
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.encode import encode

QUICK_LIMITS = LimitsConfig(handshake_s=0.5, leave_s=20)


async def health(node: LiveNode) -> tuple[int, list[str]]:
    status, body = await read(node, "/healthz")
    return status, body.splitlines()


async def until_health(node: LiveNode, status: int, *parts: str) -> list[str]:
    """Until /healthz has this status, and each part is in one of its sentences."""
    while True:
        found, lines = await health(node)
        if found == status and all(any(part in line for line in lines) for part in parts):
            return lines
        await asyncio.sleep(0.02)


def test_trouble_is_told_within_ten_seconds():
    assert Canary.EVERY_S + Canary.LATE_S + LOOK_S < 10
    assert Links.SILENT_S + LOOK_S < 10
    assert sidecar._PING_S + sidecar._QUIET_S + LOOK_S < 10


def test_each_seed_that_did_not_accept_the_node_is_told_with_the_true_reason():
    async def work() -> None:
        async with AsyncExitStack() as stack:
            silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            closed = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            nowhere = f"127.0.0.1:{closed.getsockname()[1]}"
            closed.close()
            other, same = LiveNode(config("o", cluster="other")), LiveNode(config("n"))
            seeds = [nowhere, f"127.0.0.1:{silent.getsockname()[1]}"]
            for one in (other, same):
                await one.start()
                stack.push_async_callback(one.stop, in_order=False)
                seeds.append(peer_address(one))
            node = LiveNode(config("n", tuple(seeds), limits=QUICK_LIMITS, **ADMIN))
            await node.start()
            stack.push_async_callback(node.stop, in_order=False)
            lines = await until_health(node, 503, "refused:", "in time", "cluster", "another node is named n")
            told = {seed: next(line for line in lines if line.startswith(f"Seed {seed} ")) for seed in seeds}
            assert told[seeds[0]].endswith("did not accept this node: connection refused: nothing listens there.")
            assert told[seeds[1]].endswith("it took the connection and said nothing in time.")
            assert told[seeds[2]].endswith('it refused this node (cluster): this node is of cluster "other".')
            assert "(taken): another node is named n" in told[seeds[3]]
            found = parse_metrics(exposition(node))
            assert found.value("trellis_healthy") == found.value("trellis_ready") == 0
            assert found.value("trellis_complaints", kind="seeds") == 4

    run(work())


def test_a_seed_that_speaks_tls_or_another_language_is_told_as_such():
    async def work() -> None:
        async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"\x15\x03\x03\x00\x02\x02\x46")  # what a TLS server says to a plain hello: an alert
            writer.close()

        server = await asyncio.start_server(babble, "127.0.0.1", 0)
        seed = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node = LiveNode(config("n", (seed,), **ADMIN))
        await node.start()
        try:
            await until_health(node, 503, f"Seed {seed} did not accept this node: what it answers is no hello: perhaps")
        finally:
            await node.stop(in_order=False)
            server.close()

    run(work())


def test_a_node_with_seeds_is_not_healthy_alone_and_one_without_is():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b):
            assert not a.config.seeds
            await until_health(b, 200)
            seed = peer_address(a)
            await a.stop(in_order=False)
            await until_health(b, 503, f"Seed {seed} did not accept this node: connection refused")
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b):
            await until_health(b, 200)
            await b.stop(in_order=False)
            await until(lambda: not a.transport.peers)
            assert (await health(a))[0] == 200

    run(work())


def test_a_canary_that_no_home_answers_turns_health_red_and_an_answer_green(monkeypatch):
    monkeypatch.setattr(Canary, "EVERY_S", 0.1)
    monkeypatch.setattr(Canary, "LATE_S", 1.0)

    async def work() -> None:
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b):
            await until(lambda: bool(a.health.canary.answered and b.health.canary.answered))
            assert (await health(a))[0] == 200
            on_message = b.transport.on_message

            def deaf(sender: str, encoded: bytes) -> None:
                if not isinstance(b.codec.decode(encoded), AskHome):
                    on_message(sender, encoded)

            b.transport.on_message = deaf
            lines = await until_health(a, 503, "canary")
            assert lines[0].startswith("A canary publication has had no answer for ")
            assert parse_metrics(exposition(a)).value("trellis_complaints", kind="canary") == 1
            b.transport.on_message = on_message
            await until_health(a, 200)

    run(work())


def test_canaries_leave_no_trace_with_clients_topics_or_counters(monkeypatch):
    monkeypatch.setattr(Canary, "EVERY_S", 0.01)

    async def work() -> None:
        async with mesh("a", "b", mqtt=MqttConfig(listen="127.0.0.1:0"), **ADMIN) as nodes:
            assert nodes[0].mqtt is not None
            async with MqttClient(f"127.0.0.1:{nodes[0].mqtt.port}", "all") as client:
                await client.subscribe("#")
                before = [node.health.canary.answered for node in nodes]
                published = [node.mesh.delivery.state.counters.published for node in nodes]
                topics = [(await overlay(node))["topics"] for node in nodes]
                await until(lambda: all(n.health.canary.answered > b + 3 for n, b in zip(nodes, before, strict=True)))
                for node, count, listed in zip(nodes, published, topics, strict=True):
                    assert node.mesh.delivery.state.counters.published == count
                    assert (await overlay(node))["topics"] == listed
                    assert not any("canary" in topic for topic in node.mesh.delivery.state.topics)
                    assert not any("canary" in topic for topic in node.mesh.delivery.homes.registry)
                await client.publish("x", b"end")
                assert (await anext(client)).payload == b"end", "nothing came before it"

    run(work())


def test_a_canary_asks_other_homes_than_its_own_node_where_there_are_any():
    asked: list[str] = []
    canary = Canary("a", asked.append, lambda topic: int(topic[-1]) % 2 == 0, lambda: float(len(asked)), 30.0)
    for _ in range(5):
        canary.look()
        canary.heard(asked[-1], True)
        canary._due = 0.0
    assert len(set(asked)) == 5
    assert all(int(topic[-1]) % 2 for topic in asked)
    lonely = Canary("a" * 512, asked.append, lambda topic: True, lambda: 0.0, 30.0)
    lonely.look()
    assert len(asked[-1]) < 64, "the longest name of a node makes no name of a topic that is too long"


def test_homes_that_are_never_sure_are_a_complaint_and_a_moment_of_doubt_is_none():
    now = [0.0]
    asked: list[str] = []
    canary = Canary("a", asked.append, lambda topic: False, lambda: now[0], 30.0)
    while now[0] < 60:
        canary.look()
        canary.heard(asked[-1], False)
        assert bool(canary.complaints()) == (now[0] > 30)
        now[0] += 1
    canary.look()
    now[0] += 3
    canary.look()
    canary.heard(asked[-1], True)
    assert not canary.complaints()


def test_a_neighbor_that_says_nothing_on_a_link_that_is_up_is_told(monkeypatch):
    monkeypatch.setattr(Links, "SILENT_S", 0.5)

    async def work() -> None:
        patient = replace(OMEN, silence_max=1_000)  # the overlay itself believes in its neighbor
        async with mesh("a", "b", topics=("t",), omen=patient, **ADMIN) as (a, b):
            await until(lambda: bool(a.links and b.links))
            await until_health(a, 200)
            b.transport.send = lambda *_: None  # type: ignore[method-assign]
            await until_health(a, 503, "Neighbor b has answered nothing for ")

    run(work())


def test_a_node_whose_only_peer_hangs_is_not_healthy_although_the_stream_stands(monkeypatch):
    monkeypatch.setattr(Links, "SILENT_S", 1.0)

    async def work() -> None:
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b):
            await until_health(b, 200)
            send = a.transport.send
            a.transport.send = lambda *_: None  # type: ignore[method-assign]
            await until_health(b, 503, "No other node has said anything for ")
            assert not b.links, "the overlay has given it up, and b would be its own home"
            assert "a" in b.transport.peers
            a.transport.send = send  # type: ignore[method-assign]
            await until_health(b, 200)

    run(work())


@pytest.mark.parametrize("overlay_name", ["spidercast", "vitis", "magnet"])
def test_links_of_every_overlay_are_heard_of_while_nothing_is_published(overlay_name):
    """Heartbeats of every overlay come more often than the time after which a neighbor counts as silent."""

    async def work() -> None:
        async with mesh("a", "b", topics=("t",), overlay=overlay_name, **ADMIN) as nodes:
            await until(lambda: all(node.links for node in nodes))
            heard: dict[tuple[str, str], set[float]] = {}
            long_s = 3 * nodes[0].health.links.period_s
            while not heard or any(max(times) - min(times) < long_s for times in heard.values()):
                for node in nodes:
                    for peer, at in node.health.links.heard.items():
                        heard.setdefault((node.name, peer), set()).add(at)
                assert not any(kind == "links" for kind, _ in _complaints(nodes))
                await asyncio.sleep(0.02)

    run(work())


def _complaints(nodes: list[LiveNode]) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for node in nodes for one in node.health.complaints()]


def test_the_broker_of_a_sidecar_that_is_away_is_told_until_it_is_back():
    async def work() -> None:
        async with AsyncExitStack() as stack:
            broker = LiveNode(config("broker", mqtt=MqttConfig(listen="127.0.0.1:0")))
            await broker.start()
            assert broker.mqtt is not None
            place = f"127.0.0.1:{broker.mqtt.port}"
            await broker.stop(in_order=False)
            node = LiveNode(config("n", mqtt=MqttConfig(broker=f"mqtt://{place}"), **ADMIN))
            await node.start()
            stack.push_async_callback(node.stop, in_order=False)
            await until_health(node, 503, f"The broker at {place} is away: ", "refused")
            assert parse_metrics(exposition(node)).value("trellis_complaints", kind="broker") == 1
            while (await read(node, "/readyz"))[0] != 200:  # its other clients may come
                await asyncio.sleep(0.02)
            assert (await health(node))[0] == 503
            broker = LiveNode(config("broker", mqtt=MqttConfig(listen=place)))
            await broker.start()
            stack.push_async_callback(broker.stop, in_order=False)
            await until_health(node, 200)
            await broker.stop(in_order=False)
            await until_health(node, 503, f"The broker at {place} is away: ")

    run(work())


@pytest.mark.parametrize("names", ["a", "abc"])
def test_a_node_is_ready_when_a_suback_for_a_wildcard_is_a_promise(names):
    """A node alone, and nodes that start at once: each is learning first, and becomes ready."""

    async def work() -> None:
        async with mesh(*names, mqtt=MqttConfig(listen="127.0.0.1:0"), **ADMIN) as nodes:
            doors = [node.mqtt for node in nodes if node.mqtt is not None]
            assert await read(nodes[0], "/readyz") == (503, "learning\n")
            assert parse_metrics(exposition(nodes[0])).value("trellis_ready") == 0
            assert (await health(nodes[0]))[0] == 200, "its messages flow"
            for node, door in zip(nodes, doors, strict=True):
                while (await read(node, "/readyz"))[0] != 200:
                    await asyncio.sleep(0.02)
                assert door.host.directory.is_informed
            last, first = f"127.0.0.1:{doors[-1].port}", f"127.0.0.1:{doors[0].port}"
            async with MqttClient(last, "reader") as reader, MqttClient(first, "writer") as writer:
                await reader.subscribe("r/#")
                for number in range(20):
                    await writer.publish("r/x", b"%d" % number)
                assert [(await anext(reader)).payload for _ in range(20)] == [b"%d" % number for number in range(20)]
            assert not any(door.host.counters["subacks early"] for door in doors)

    run(work())


def test_a_leaving_node_does_not_call_itself_healthy_again(caplog):
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        node = LiveNode(config("n", mqtt=MqttConfig(broker="mqtt://127.0.0.1:9"), **ADMIN))
        await node.start()
        try:
            await until(lambda: any("n: is not healthy: The broker at" in one for one in caplog.messages))
            node.leave()
            node.health._look()
            assert "n: is healthy again" not in caplog.messages
        finally:
            await node.stop(in_order=False)

    run(work())


def test_a_broker_that_hangs_is_told_although_its_connection_stands(monkeypatch):
    monkeypatch.setattr(sidecar, "_PING_S", 0.1)
    monkeypatch.setattr(sidecar, "_QUIET_S", 0.5)
    assert sidecar._SILENCE_S > 10, "it is not given up so soon"

    async def work() -> None:
        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1_000)
            writer.write(encode(p.V5, p.ConnAck(reason=0)))
            await reader.read(1_000)
            writer.write(encode(p.V5, p.SubAck(1, (1,))))
            await reader.read(-1)  # pings and all, until the node goes
            writer.close()

        server = await asyncio.start_server(hang, "127.0.0.1", 0)
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node = LiveNode(config("n", mqtt=MqttConfig(broker=f"mqtt://{place}"), **ADMIN))
        await node.start()
        try:
            await until_health(node, 200)
            await until_health(node, 503, f"The broker at {place} has said nothing for ")
        finally:
            await node.stop(in_order=False)
            server.close()

    run(work())


@asynccontextmanager
async def twin_of(a: LiveNode, b: LiveNode) -> AsyncIterator[LiveNode]:
    """Start a second node named b, which complains of that."""
    await until_health(b, 200)
    twin = LiveNode(config("b", (peer_address(a),), **ADMIN), life=b.life + 10)
    await twin.start()
    try:
        await until_health(twin, 503, "Another node named b runs")
        yield twin
    finally:
        await twin.stop(in_order=False)


def test_a_second_node_of_the_same_name_complains_and_the_first_one_goes_on():
    async def work() -> None:
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b), twin_of(a, b):
            await until_health(b, 200)

    run(work())


def test_the_complaint_about_a_name_ends_with_the_other_node(monkeypatch):
    monkeypatch.setattr(Names, "TOLD_S", 3_600.0)

    async def work() -> None:
        async with mesh("a", "b", topics=("t",), **ADMIN) as (a, b), twin_of(a, b) as twin:
            await b.stop(in_order=False)
            await until(lambda: "a" in twin.transport.peers)
            assert not twin.health.names.complaints()

    run(work())


def test_a_peer_that_refused_the_name_is_asked_again_until_it_accepts_this_node(monkeypatch):
    """Also one to which there is nothing to say."""
    monkeypatch.setattr(Names, "TOLD_S", 3_600.0)

    async def work() -> None:
        async with mesh("a", topics=("t",)) as (a,):
            node = LiveNode(config("n", **ADMIN))
            await node.start()
            try:
                node.transport.dialing.note_name_refused(parse_seed(peer_address(a)))
                await until_health(node, 503, "Another node named n runs")
                await until_health(node, 200)
                assert "a" in node.transport.peers
            finally:
                await node.stop(in_order=False)

    run(work(), 20)


def test_health_is_json_to_who_asks_for_it():
    async def work() -> None:
        async with mesh("a", **ADMIN) as (node,):
            assert node.admin is not None
            for expected in (200, 503):
                reader, writer = await asyncio.open_connection("127.0.0.1", node.admin.port)
                head = (
                    "GET /healthz HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
                )
                writer.write(head.encode())
                told, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
                writer.close()
                found: Any = json.loads(body)
                assert told.startswith(b"HTTP/1.1 %d " % expected)
                assert found["healthy"] == (expected == 200)
                assert [one["kind"] for one in found["complaints"]] == ([] if expected == 200 else ["leaving"])
                node.leave()

    run(work())


def test_clients_are_told_of_health_by_nothing_but_the_admin_port():
    """A canary's answer is for the node alone."""

    async def work() -> None:
        async with mesh("a", **ADMIN) as (node,), trellis.connect(client_address(node)) as client:
            await client.subscribe("t")
            effects = node.mesh.ask_home(node.health.canary.topics[0])
            assert [type(one).__name__ for one in effects if not isinstance(one, Send)] == ["HomeTold"]

    run(work())


def test_publications_that_fill_the_window_are_told_and_refused_with_the_reason_and_what_follows_flows():
    """The messages that wait are 90% of the window: a canary, which stores nothing, is answered all the time."""
    delivery = replace(DELIVERY, window_bytes=4 << 20, payload_bytes_max=400 << 10)

    async def work() -> None:
        async with mesh("a", "b", topics=("t",), delivery=delivery, **ADMIN) as (a, b):
            await until(lambda: bool(a.health.canary.answered and "b" in a.links and b.is_confirmed("t")))
            assert (await health(a))[0] == 200
            send = a.exchange.send
            a.exchange.send = lambda to, message: None if isinstance(message, Frame) else send(to, message)
            async with trellis.connect(client_address(a)) as client:
                publications = [asyncio.ensure_future(client.publish("t", b"x" * 300_000)) for _ in range(20)]
                await until(lambda: sum(one.done() for one in publications) == 7)
                refused = [one.exception() for one in publications if one.done()]
                assert all("fill this node's window: window_bytes is 4194304" in str(one) for one in refused)
                lines = await until_health(a, 503, "window")
                assert lines[0].startswith("The window of this node is full: 7 publications were refused in the last")
                assert lines[0].endswith("13 wait for their copies.")
                assert parse_metrics(exposition(a)).value("trellis_complaints", kind="window") == 1
                assert parse_metrics(exposition(a)).value("trellis_window_full_total") == 7
                a.health.window._refused.clear()
                await until_health(a, 503, "The window of this node has been full for 5 s: 13 publications wait")
                a.exchange.send = send
                receipts = await asyncio.gather(*publications, return_exceptions=True)
                assert sum(not isinstance(one, BaseException) for one in receipts) == 13
                await until_health(a, 200)
                assert (await client.publish("t", b"y" * 300_000)).copies == 2

    run(work())
