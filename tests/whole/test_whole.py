"""Whole nodes and clients in the simulator: the code of live/, unchanged, and the same run for the same seed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import trellis
from trellis.live.config import NodeConfig
from trellis.live.http_client import HttpClient
from trellis.live.mqtt.client import MqttClient
from trellis.protocols.mqtt.config import MqttConfig
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import ADMIN, CLIENTS, MQTT, Mesh
from trellis.simulate.whole.world import World

ROOT = Path(__file__).parents[2]
DAY = """
import sys
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import Mesh
from trellis.simulate.whole.world import World

with World(int(sys.argv[1]), keeps_lines=True) as world:
    mesh, faults = Mesh(world, "abcde"), Faults(world)
    mesh.start_all()
    world.run_for(3)
    for number, node in enumerate("abcde"):
        mesh.subscribe(f"reader{number}", node, ["news"])
    for number, node in enumerate("abc"):
        mesh.mqtt_subscribe(f"mqtt-reader{number}", node, ["mq/#"])
    world.run_for(3)
    mesh.publish("writer", "a", "news", every_s=0.02)
    mesh.mqtt_publish("mqtt-writer", "b", "mq/today", every_s=0.02)
    world.run_for(2)
    faults.crash_at("c", 37)
    world.run_for(1)
    cuts = faults.partition("ab", "cde")
    mesh.start("c")
    faults.jump_clock("d", 3600)
    world.run_for(4)
    faults.heal(*cuts)
    world.run_for(3)
    assert not world.failures, world.failures
    sys.stdout.write(world.history.text())
"""


def is_received(mesh, count):
    return lambda: mesh.counters["received"] >= count


def test_nodes_and_clients_of_both_kinds_exchange_messages():
    with World(1) as world:
        mesh = Mesh(world, "abc")
        mesh.start_all()
        for node in "abc":
            mesh.subscribe(f"reader-{node}", node, ["news"])
            mesh.mqtt_subscribe(f"mqtt-{node}", node, ["mq/#"])
        world.run_until(lambda: mesh.counters["subscribed"] == 6, 60)
        mesh.publish("writer", "a", "news", every_s=0.05, count=20)
        mesh.mqtt_publish("mqtt-writer", "b", "mq/x", every_s=0.05, count=20)
        world.run_until(is_received(mesh, 120), 60)
        world.run_for(5)
        assert mesh.counters["received"] == 120, "each of them once at each of three"
        assert mesh.counters["acknowledged"] == 40
        assert not world.failures
        for node in mesh.nodes.values():
            assert not node.counters["bugs"]
            node.mesh.check()


def test_the_admin_port_answers_in_the_simulator():
    async def ask(address):
        client = HttpClient(address)
        found = [await client.get(path, 5) for path in ("/healthz", "/overlay.json")]
        client.close()
        return found

    with World(1) as world:
        mesh = Mesh(world, "ab")
        mesh.start_all()
        world.run_for(20)
        (status, text), (_, snapshot) = world.run(world.host("curl").start(ask(mesh.address("a", ADMIN))))
        assert (status, text) == (200, b"ok\n")
        assert b'"node":"a"' in snapshot


def test_metrics_are_the_same_in_every_run():
    async def ask(address):
        client = HttpClient(address)
        _, text = await client.get("/metrics", 5)
        client.close()
        return text

    def run():
        with World(1) as world:
            mesh = Mesh(world, "ab")
            mesh.start_all()
            world.run_for(5)
            return world.run(world.host("prometheus").start(ask(mesh.address("a", ADMIN))))

    first = run()
    assert b"trellis_process_start_time_seconds 17672" in first
    assert first == run()


def test_a_sidecar_and_its_broker_run_in_the_simulator():
    """The broker is a node of a cluster of its own; the sidecar of another cluster attaches to it."""

    def configure(name, fields):
        if name == "broker":
            return NodeConfig(name=name, cluster="broker", **{**fields, "seeds": ()})
        broker = f"mqtt://{world.host('broker').address}:{MQTT}"
        mqtt = MqttConfig(broker=broker, want=("mq/#",)) if name == "a" else fields["mqtt"]
        return NodeConfig(name=name, **{**fields, "mqtt": mqtt, "seeds": fields["seeds"][:1]})

    with World(1) as world:
        mesh = Mesh(world, ["a", "b", "broker"], configure)
        mesh.start_all()
        mesh.mqtt_subscribe("at-broker", "broker", ["mq/#"])
        mesh.mqtt_subscribe("at-b", "b", ["mq/#"])
        world.run_until(lambda: mesh.counters["subscribed"] == 2, 60)
        world.run_for(10)
        assert not mesh.host("a").call(mesh.nodes["a"].mqtt.complaints)
        mesh.mqtt_publish("to-broker", "broker", "mq/1", every_s=0.1, count=5)
        mesh.mqtt_publish("to-b", "b", "mq/2", every_s=0.1, count=5)
        world.run_until(is_received(mesh, 20), 60)
        world.run_for(5)
        assert mesh.counters["received"] == 20
        assert not world.failures


def test_a_node_that_restarts_under_its_name_is_taken_back_and_its_client_comes_again():
    with World(1) as world:
        mesh, faults = Mesh(world, "abc"), Faults(world)
        mesh.start_all()
        mesh.subscribe("reader", "c", ["news"])
        world.run_until(lambda: mesh.counters["subscribed"] == 1, 60)
        life = mesh.nodes["c"].life
        faults.crash("c")
        world.run_for(5)
        mesh.start("c")
        world.run_for(10)
        assert mesh.nodes["c"].life > life
        mesh.publish("writer", "a", "news", every_s=0.1, count=10)
        world.run_until(is_received(mesh, 10), 60)


def test_a_node_leaves_in_order_when_its_process_is_told_to():
    with World(1) as world:
        mesh = Mesh(world, "abc")
        mesh.start_all()
        world.run_for(20)
        assert mesh.is_linked()
        mesh.host("b").call(mesh.nodes["b"].leave)
        world.run_until(lambda: bool(world.exits), 60)
        assert [(one.host, one.error) for one in world.exits] == [("b", None)]
        assert mesh.host("b").loop is None


def test_a_full_disk_costs_telemetry_and_never_the_node(tmp_path):
    with World(1) as world:
        mesh, faults = Mesh(world, "ab", telemetry=tmp_path), Faults(world)
        mesh.start_all()
        world.run_for(15)
        before = (tmp_path / "a.jsonl").read_bytes()
        assert before
        faults.fill_disk("a")
        mesh.subscribe("reader", "a", ["news"])
        world.run_until(lambda: mesh.counters["subscribed"] == 1, 30)
        mesh.publish("writer", "b", "news", every_s=0.5, count=20)
        world.run_for(30)
        assert (tmp_path / "a.jsonl").read_bytes() == before
        assert mesh.nodes["a"].telemetry.counters["failed"] >= 1
        assert mesh.counters["received"] == 20
        faults.empty_disk("a")
        mesh.subscribe("second reader", "a", ["later"])
        world.run_for(20)
        told = (tmp_path / "a.jsonl").read_bytes().removeprefix(before)
        assert b'"event":"subscribe","topic":"later"' in told


def test_a_node_without_file_descriptors_accepts_again_when_there_are_some():
    with World(1) as world:
        mesh, faults = Mesh(world, "ab"), Faults(world)
        mesh.start_all()
        world.run_for(5)
        faults.limit_files("a")
        mesh.subscribe("reader", "a", ["news"])
        world.run_for(4)
        assert not mesh.counters["connected"]
        assert world.counters["no file descriptor"] > 3
        faults.unlimit_files("a")
        world.run_until(lambda: mesh.counters["subscribed"] == 1, 30)


def test_a_client_library_that_nobody_answers_gives_up_with_a_reason():
    async def ask(address, kind):
        client = trellis.connect(address, timeout_s=8) if kind == CLIENTS else MqttClient(address, "x", timeout_s=8)
        with pytest.raises(trellis.live.client.ClientError, match="cannot be reached"):
            async with client:
                pass
        return asyncio.get_running_loop().time()

    with World(1) as world:
        mesh, faults = Mesh(world, "a"), Faults(world)
        mesh.start_all()
        world.run_for(2)
        faults.pause("a")  # its kernel accepts, and nobody says welcome
        for number, kind in enumerate((CLIENTS, MQTT)):
            world.run(world.host(f"c{number}").start(ask(mesh.address("a", kind), kind)), 30)


def test_the_program_on_the_page_runs():
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "simulator-loop.md").read_text("utf-8"), re.DOTALL)
    found: dict[str, Any] = {}
    exec(compile(block, "docs/simulator-loop.md", "exec"), found)
    assert found["received"] > 300
    assert "fault c machine crash" in found["history"]


def test_another_seed_gives_another_history():
    def run(seed):
        with World(seed) as world:
            Mesh(world, "ab").start_all()
            world.run_for(3)
            return world.history.hexdigest()

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_two_runs_of_one_seed_give_the_same_history_byte_for_byte_whatever_the_hash_seed():
    def begin(hash_seed):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")}
        return subprocess.Popen([sys.executable, "-c", DAY, "1"], env=environment, stdout=subprocess.PIPE)

    running = [begin(hash_seed) for hash_seed in ("1", "2")]
    first, second = (one.communicate(timeout=300)[0] for one in running)
    assert [one.returncode for one in running] == [0, 0]
    assert first == second
    assert len(re.findall(rb" received ", first)) > 1_000
    assert b"fault" in first


@pytest.mark.parametrize("kind", ["native", "mqtt"])
def test_a_subscriber_whose_connection_died_silently_notices_it_and_comes_back(kind):
    """It says nothing itself, so only its kernel can find out."""
    with World(5) as world:
        mesh = Mesh(world, "ab")
        mesh.start_all()
        world.run_for(20)
        (mesh.subscribe if kind == "native" else mesh.mqtt_subscribe)("reader", "a", ["n/x"])
        world.run_for(10)
        assert Faults(world).darken_connections("reader", "a") == 1
        world.run_for(40)
        (mesh.publish if kind == "native" else mesh.mqtt_publish)("writer", "b", "n/x", every_s=0.5)
        world.run_until(is_received(mesh, 3), limit_s=20.0)
        assert not world.failures
