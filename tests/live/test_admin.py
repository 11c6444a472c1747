"""The admin port: what a node says about itself, and that it says it to nobody in a way that could hurt."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

import pytest

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from live.prometheus import parse_metrics
from trellis.errors import InputError
from trellis.live.http import get
from trellis.live.shell import LiveNode
from trellis.protocols.ring import RING, identifier

ADMIN = {"admin_listen": "127.0.0.1:0"}


def admin_address(node: LiveNode) -> str:
    assert node.admin is not None
    return f"127.0.0.1:{node.admin.port}"


async def read(node: LiveNode, path: str) -> tuple[int, str]:
    status, body = await get(admin_address(node), path, timeout_s=30)
    return status, body.decode()


async def overlay(node: LiveNode) -> Any:
    status, body = await read(node, "/overlay.json")
    assert status == 200
    return json.loads(body)


def test_the_overlay_of_three_nodes_is_told_as_it_is():
    async def work() -> None:
        async with mesh("a", "b", "c", **ADMIN) as nodes, AsyncExitStack() as stack:
            for node, topics in zip(nodes, (["t", "u"], ["t"], ["u", "t"]), strict=True):
                client = await stack.enter_async_context(trellis.connect(client_address(node)))
                for topic in topics:
                    await client.subscribe(topic)
            await until(lambda: all(node.links for node in nodes))
            await until(lambda: all(not node.mends.open for node in nodes))
            told = {node.name: await overlay(node) for node in nodes}
            assert [told[name]["topics"] for name in "abc"] == [["t", "u"], ["t"], ["t", "u"]]
            for name, one in told.items():
                assert one["node"] == name
                assert one["overlay"] == "omen"
                assert one["place"] == pytest.approx(identifier(name) / RING)
                assert 0 <= one["place"] < 1
                assert one["leaving"] is False
                for link in one["links"]:
                    back = {other["peer"]: other["topics"] for other in told[link["peer"]]["links"]}
                    assert back[name] == link["topics"], "both ends tell the same of a link"
                    assert link["topics"] == sorted({*one["topics"]} & {*told[link["peer"]]["topics"]})
            reached = {"a"}
            for _ in told:
                reached |= {link["peer"] for name in reached for link in told[name]["links"] if "t" in link["topics"]}
            assert reached == {"a", "b", "c"}

    run(work())


def test_a_node_is_healthy_when_it_has_joined_and_not_while_it_leaves():
    async def work() -> None:
        async with mesh("a", "b", **ADMIN) as nodes:
            assert await read(nodes[0], "/healthz") == (200, "ok\n")  # it has no seed to wait for
            while (await read(nodes[1], "/healthz"))[0] != 200:
                await asyncio.sleep(0.01)
            nodes[1].leave()
            assert await read(nodes[1], "/healthz") == (503, "leaving\n")

    run(work())


def test_a_node_whose_seeds_are_silent_says_so():
    async def work() -> None:
        lonely = LiveNode(config("lonely", ("127.0.0.1:9",), **ADMIN))
        await lonely.start()
        try:
            assert await read(lonely, "/healthz") == (503, "joining: no seed answers\n")
        finally:
            await lonely.stop(in_order=False)

    run(work())


def test_a_node_among_its_own_seeds_waits_for_nobody():
    async def work() -> None:
        before = LiveNode(config("x"))
        await before.start()
        here = peer_address(before)
        await before.stop(in_order=False)
        node = LiveNode(config("x", (here,), listen=here, **ADMIN))
        await node.start()
        try:
            while (await read(node, "/healthz"))[0] != 200:
                await asyncio.sleep(0.01)
        finally:
            await node.stop(in_order=False)

    run(work())


def test_a_crash_is_timed_by_who_mends_it_and_its_cause_is_named():
    async def work() -> None:
        async with mesh("a", "b", "c", topics=("t",), **ADMIN) as nodes:
            await until(lambda: all(node.links for node in nodes))
            await nodes[1].stop(in_order=False)
            rest = [nodes[0], nodes[2]]
            await until(lambda: any(one.cause == "crash" for node in rest for one in node.mends.latest))
            told = [one for node in rest for one in (await overlay(node))["mends"]]
            assert any(one["cause"] == "crash" and one["node"] == "b" and one["ms"] >= 0 for one in told)
            assert any(one["cause"] == "join" for one in told)
            found = [parse_metrics((await read(node, "/metrics"))[1]) for node in rest]
            crashes = [one.value("trellis_mend_seconds_count", cause="crash") or 0 for one in found]
            assert sum(crashes) == sum(one["cause"] == "crash" for one in told)

    run(work())


def test_metrics_count_what_was_done():
    async def work() -> None:
        async with mesh("a", "b", "c", **ADMIN) as nodes, AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(trellis.connect(client_address(node))) for node in nodes]
            await asyncio.gather(*(client.subscribe("t") for client in clients))
            for _ in range(10):
                await clients[0].publish("t", b"...")
            for client in clients:
                for _ in range(10):
                    await anext(client)
            found = [parse_metrics((await read(node, "/metrics"))[1]) for node in nodes]
            assert found[0].value("trellis_published_total") == found[0].value("trellis_acknowledged_total") == 10
            for node, one in zip(nodes, found, strict=True):
                assert one.value("trellis_delivered_total") == 10
                assert one.value("trellis_degree") == len(node.links)
                assert one.value("trellis_clients") == one.value("trellis_topics") == 1
                assert one.value("trellis_lost_total") == one.value("trellis_bugs_total") == 0
                assert one.value("trellis_bytes_out_total", kind="tman-request") > 0
                assert one.value("trellis_process_resident_bytes") > 10 << 20
                assert one.value("trellis_process_cpu_seconds_total") > 0
            assert [one.value("trellis_sends_per_delivery") >= 1 for one in found[1:]] == [True, True]

    run(work())


def test_an_admin_port_beyond_loopback_needs_tls_or_a_word():
    with pytest.raises(InputError, match=r"admin_listen: 0\.0\.0\.0 is beyond loopback"):
        config("a", admin_listen="0.0.0.0:0")
    assert config("a", admin_listen="0.0.0.0:0", insecure=True).admin_listen == "0.0.0.0:0"
