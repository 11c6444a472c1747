"""The admin port: what a node says about itself, and that it says it to nobody in a way that could hurt."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from live.prometheus import parse_metrics
from live.test_overlays import OVERLAYS
from trellis.errors import InputError
from trellis.live.admin import not_ready
from trellis.live.http_client import get
from trellis.live.metrics import Exposition
from trellis.live.repair_times import RepairClock
from trellis.live.shell import LiveNode
from trellis.protocols.omen.moments import RepairDropped, RepairFinished, RepairStarted
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
            await until(lambda: all(not node.repairs.open for node in nodes))
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
            assert await read(nodes[1], "/healthz") == (503, "The node is leaving the mesh.\n")
            assert await read(nodes[1], "/readyz") == (503, "leaving\n")
            assert await read(nodes[1], "/livez") == (200, "ok\n")

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
            await until(lambda: all(node.links and not not_ready(node) for node in nodes))
            await nodes[1].stop(in_order=False)
            rest = [nodes[0], nodes[2]]
            await until(lambda: any(one.cause == "crash" for node in rest for one in node.repairs.latest))
            told = [one for node in rest for one in (await overlay(node))["mends"]]
            assert any(one["cause"] == "crash" and one["node"] == "b" and one["ms"] >= 0 for one in told)
            found = [parse_metrics((await read(node, "/metrics"))[1]) for node in rest]
            crashes = [one.value("trellis_mend_seconds_count", cause="crash") or 0 for one in found]
            assert sum(crashes) >= sum(one["cause"] == "crash" for one in told) >= 1  # more may have ended meanwhile

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


def test_the_documentation_names_every_metric_and_no_other():
    async def work() -> None:
        async with mesh("a", **ADMIN) as (node,):
            found = parse_metrics((await read(node, "/metrics"))[1])
            page = (Path(__file__).parents[2] / "docs" / "dashboard.md").read_text("utf-8")
            assert found.kinds.keys() == set(re.findall(r"trellis_[a-z_]+", page))

    run(work())


@pytest.mark.parametrize("overlay_name", ["spidercast", "vitis", "magnet"])
def test_nodes_of_other_overlays_tell_the_same(overlay_name):
    async def work() -> None:
        given = {"overlay": overlay_name, "topics": ("t",), **OVERLAYS[overlay_name], **ADMIN}
        async with mesh("a", "b", **given) as nodes:
            for node, other in (nodes, nodes[::-1]):
                while not (told := await overlay(node))["links"]:
                    await asyncio.sleep(0.01)
                assert told["overlay"] == overlay_name
                assert told["links"] == [{"peer": other.name, "topics": ["t"]}]
                assert await read(node, "/healthz") == (200, "ok\n")
                found = parse_metrics((await read(node, "/metrics"))[1])
                assert found.value("trellis_degree") == 1
                assert found.value("trellis_bytes_out_total", kind="frame") is not None

    run(work())


def test_an_admin_port_beyond_loopback_needs_tls_or_a_word():
    with pytest.raises(InputError, match=r"admin_listen: 0\.0\.0\.0 is beyond loopback"):
        config("a", admin_listen="0.0.0.0:0")
    assert config("a", admin_listen="0.0.0.0:0", insecure=True).admin_listen == "0.0.0.0:0"


NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,9}", fullmatch=True)
VALUES = st.integers(0, 1 << 60) | st.floats(0, allow_nan=False, allow_infinity=False)


@settings(max_examples=100, deadline=None)
@given(
    about=st.text(max_size=40),
    label=NAMES,
    samples=st.dictionaries(st.text(max_size=30), VALUES, max_size=5),
    buckets=st.lists(st.integers(0, 9), min_size=4, max_size=4),
)
def test_whatever_names_and_texts_there_are_the_metrics_can_be_read_and_say_what_was_told(
    about, label, samples, buckets
):
    page = Exposition()
    page.gauge("trellis_some", about, [({label: text}, value) for text, value in samples.items()])
    page.counter("trellis_other_total", about, 3)
    page.histogram("trellis_seconds", about, (0.1, 1.0, 5.0), [({"cause": about}, buckets, 1.5)])
    found = parse_metrics(page.text())
    assert {
        dict(labels)[label]: value for (name, labels), value in found.samples.items() if name == "trellis_some"
    } == {text: float(value) for text, value in samples.items()}
    assert found.value("trellis_other_total") == 3
    assert found.value("trellis_seconds_count", cause=about) == sum(buckets)
    assert found.value("trellis_seconds_bucket", cause=about, le="1.0") == sum(buckets[:2])


def test_the_clock_of_mends_times_what_it_sees_begin_and_end_and_counts_what_ends_at_once():
    now = [0]
    clock = RepairClock(lambda: 1_000_000 + now[0], lambda: now[0])
    first = 3 << 20  # a node numbers its repairs from its incarnation; people count from 1
    clock.note(RepairStarted(first + 1, "crash", "b"))
    clock.look()
    assert [one.cause for one, _ in clock.open.values()] == ["crash"]
    now[0] = 250
    clock.note(RepairFinished(first + 1, "crash", "b", tuple("tuvwxyz")))
    clock.note(RepairStarted(first + 2, "join", "c"))
    clock.note(RepairFinished(first + 2, "join", "c", ()))
    clock.look()
    assert [one.number for one in clock.latest] == [1, 2]
    assert [(one.cause, one.node, one.at_ms, one.ms, one.topics, one.topic_count) for one in clock.latest] == [
        ("crash", "b", 1_000_000, 250, tuple("tuvwx"), 7),
        ("join", "c", 1_000_250, 0, (), 0),
    ]
    assert not clock.open
    counted = {cause: buckets for cause, buckets in clock.buckets.items() if any(buckets)}
    assert counted == {"crash": [0, 0, 0, 1, 0, 0, 0, 0], "join": [1, 0, 0, 0, 0, 0, 0, 0]}
    assert clock.sum_ms == {"crash": 250, "join": 0}


def test_a_repair_that_another_coordinator_does_is_no_longer_under_way():
    clock = RepairClock(lambda: 0, lambda: 0)
    clock.note(RepairStarted(1, "crash", "b"))
    clock.look()
    clock.note(RepairStarted(2, "crash", "c"))
    for number in (1, 2):
        clock.note(RepairDropped(number))
    clock.look()
    assert not clock.open
    assert not clock.latest
