"""Wills survive their node: a keeper publishes them once when the node has crashed, and only then."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from live.lives import run
from mqtt.delayed import Mesh
from mqtt.sites import lone_door
from mqtt.talk import connect, doors
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import testaments
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.testaments import BEAT_MS, SILENT_MS, STEP_MS

SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 20))]
LATEST_MS = 10_000  # A will is published this long after its node has crashed, at the latest.


class Wills(Mesh):
    """A reader at node a, and clients with wills at any node."""

    def __init__(self, names: str, seed: int, delay_ms_max: int = 300) -> None:
        super().__init__(names, Random(seed), delay_ms_max, 500)
        self.numbers = 100
        self.pass_time(20_000)
        self.subscribe("a", "will/#")
        self.pass_time(20_000)
        assert self.subacks["a"]

    def join(self, name: str, client: str, delay_s: int = 0, expiry_s: int = 0) -> int:
        """A client with a will connects. Return its connection."""
        self.numbers += 1
        will = p.Will(topic=f"will/{client}", payload=client.encode(), qos=1, retain=False, delay_s=delay_s)
        host = self.hosts[name]
        host.at(self.now_ms, self.now_ms)
        host.opened(self.numbers)
        connect = p.Connect(version=5, client=client, clean_start=True, will=will, expiry_s=expiry_s)
        host.received(self.numbers, connect)
        self.carry_out(name)
        return self.numbers

    def found(self) -> list[bytes]:
        return [payload for _, payload in self.got["a"]]


@pytest.mark.parametrize("seed", SEEDS)
def test_when_a_node_crashes_another_one_publishes_its_wills_once(seed: int):
    mesh = Wills("abcd", seed)
    clients = [f"c{number}" for number in range(seed + 1)]
    for client in clients:
        mesh.join("d", client)
    mesh.pass_time(2_000)
    mesh.stop("d")
    mesh.pass_time(LATEST_MS)
    assert sorted(mesh.found()) == sorted(client.encode() for client in clients)
    mesh.pass_time(60_000)
    assert len(mesh.found()) == len(clients)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_keeper_may_crash_together_with_the_node(seed: int):
    mesh = Wills("abcd", seed)
    mesh.join("d", "c")
    mesh.pass_time(2_000)
    (first, _) = [node for node in mesh.hosts if "d" in mesh.hosts[node].testaments.kept]
    victim = first if first != "a" else ""
    mesh.stop("d")
    if victim:
        mesh.stop(victim)
    mesh.pass_time(SILENT_MS + STEP_MS + BEAT_MS + 1_000)
    assert mesh.found() == [b"c"]


def test_a_keeper_that_crashed_is_replaced():
    mesh = Wills("abcde", 1)
    mesh.join("e", "c")
    mesh.pass_time(2_000)
    for _ in range(2):
        keepers = [node for node in mesh.hosts if "e" in mesh.hosts[node].testaments.kept]
        assert len(keepers) == 2
        mesh.stop(next(node for node in keepers if node != "a"))
        mesh.pass_time(30_000)
    mesh.stop("e")
    mesh.pass_time(LATEST_MS)
    assert mesh.found() == [b"c"]


def test_a_client_that_leaves_in_order_leaves_no_will_behind():
    mesh = Wills("abc", 2)
    number = mesh.join("c", "c")
    other = mesh.join("c", "other")
    mesh.pass_time(2_000)
    mesh.receive("c", number, p.Disconnect(0))
    mesh.hosts["c"].closed(other)  # its connection breaks: its own node publishes the will
    mesh.carry_out("c")
    mesh.pass_time(2_000)
    assert mesh.found() == [b"other"]
    mesh.stop("c")
    mesh.pass_time(60_000)
    assert mesh.found() == [b"other"]


def test_a_client_that_connects_elsewhere_in_time_has_no_will_published():
    mesh = Wills("abcd", 3)
    mesh.join("d", "moved")
    mesh.join("d", "stayed")
    mesh.pass_time(2_000)
    mesh.stop("d")
    mesh.pass_time(2_000)
    mesh.join("b", "moved")
    mesh.pass_time(60_000)
    assert mesh.found() == [b"stayed"]


def test_the_delay_of_a_will_counts_from_the_moment_at_which_the_crash_is_noticed():
    mesh = Wills("abc", 4)
    mesh.join("c", "c", delay_s=20, expiry_s=60)
    mesh.pass_time(2_000)
    mesh.stop("c")
    mesh.pass_time(LATEST_MS + 9_000)
    assert mesh.found() == []
    mesh.pass_time(20_000)
    assert mesh.found() == [b"c"]


def test_a_node_that_restarts_at_once_has_its_old_wills_published():
    mesh = Wills("abc", 5)
    mesh.join("c", "c")
    mesh.pass_time(2_000)
    mesh.stop("c")
    mesh.start("c")
    mesh.pass_time(LATEST_MS)
    assert mesh.found() == [b"c"]
    mesh.pass_time(60_000)
    assert mesh.found() == [b"c"]


def test_nodes_without_wills_say_nothing():
    mesh = Wills("abc", 6)
    assert all(not host.testaments.kept for host in mesh.hosts.values())
    for host in mesh.hosts.values():
        host.at(mesh.now_ms + 60_000, mesh.now_ms)
        host.testaments.tick()
        assert not host.testaments.emits


def test_wills_of_other_nodes_take_bounded_memory(monkeypatch):
    monkeypatch.setattr(testaments, "BYTES_MAX", 1_000)
    mesh = Wills("abc", 7)
    for number in range(20):
        mesh.join("c", f"c{number}")
    mesh.pass_time(2_000)
    assert all(len(host.testaments.kept.get("c", testaments.Kept(1, 0)).wills) < 5 for host in mesh.hosts.values())
    assert mesh.hosts["a"].counters["wills not kept"] > 10


@pytest.mark.slow
def test_a_node_that_is_killed_has_its_wills_published(tmp_path):
    async def work() -> None:
        site = lone_door("victim", tmp_path)
        async with doors("a", "b") as (first, second):
            await site.start_node([f"127.0.0.1:{first.transport.port}"])
            reader = await connect(second, "reader")
            await reader.subscribe("will/#")
            will = p.Will(topic="will/c", payload=b"gone", qos=1, retain=True)
            _, writer = await asyncio.open_connection("127.0.0.1", site.port)
            writer.write(encode(p.V5, p.Connect(version=p.V5, client="c", clean_start=True, will=will)))
            while not (first.mqtt.host.testaments.kept or second.mqtt.host.testaments.kept):
                await asyncio.sleep(0.1)
            await asyncio.sleep(1)
            await site.kill_node()
            packet = await reader.until(p.Publish)
            assert packet.payload == b"gone"
            writer.close()

    run(work(), 90)
