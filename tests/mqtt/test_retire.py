"""`trellis retire`: a site that goes leaves nothing at its broker, and what waits there is not lost unawares."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.lives import run, until
from mqtt.attached import attach
from mqtt.brokers import Mosquitto, free_port, needs_mosquitto, running
from mqtt.sites import Site, Talk, lone_door, talking
from mqtt.talk import doors
from trellis.cli.main import run as trellis
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig

BROKERS = ["ours", pytest.param("mosquitto", marks=needs_mosquitto)]


@asynccontextmanager
async def broker(kind: str, folder: Path) -> AsyncIterator[int]:
    """Give the port of a broker: our own MQTT listener, or Mosquitto."""
    if kind == "mosquitto":
        async with running([Mosquitto(folder, "x", "sys_interval 1")]) as (one,):
            yield one.port
        return
    door = lone_door("x", folder)
    try:
        await door.start_node([])
        yield door.port
    finally:
        await door.kill_node()


@asynccontextmanager
async def sidecar(folder: Path, port: int, **more: Any) -> AsyncIterator[Site]:
    """A node beside the broker, which takes what is published there."""
    given = {"mqtt.broker": f"mqtt://127.0.0.1:{port}", "mqtt.want": ["#"], "delivery.copies": 1}
    given |= {"admin_listen": f"127.0.0.1:{free_port()}", **more}
    site = Site("s", folder, None, given)
    try:
        await site.start_node([])
        while not await site.count("sidecar taken"):
            await publish(port, 1)
            await asyncio.sleep(0.05)
        yield site
    finally:
        await site.kill_node()


async def publish(port: int, count: int) -> None:
    async with talking(port, "publisher") as talk:
        for number in range(count):
            await talk.publish(f"t/{number % 2}", b"%d" % number)


async def is_there(port: int, client: str) -> bool:
    """Does the broker have a session of this name? Where it has none, none is left behind."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        talk = Talk(reader, writer)
        talk.send(p.Connect(version=p.V5, client=client, clean_start=False, expiry_s=600))
        answer = await talk.read()
        assert isinstance(answer, p.ConnAck)
        talk.send(p.Disconnect(expiry_s=None if answer.session_present else 0))
        return answer.session_present
    finally:
        writer.close()


async def retire(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "trellis", "retire", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, told.decode()


@pytest.mark.parametrize("kind", BROKERS)
def test_a_site_that_is_retired_leaves_in_order_and_leaves_no_session_and_no_file(kind, tmp_path):
    async def work() -> None:
        learned = tmp_path / "s.learned.json"
        more = {"mqtt.learn": True, "mqtt.learn_file": str(learned)}
        async with broker(kind, tmp_path) as port, sidecar(tmp_path, port, **more) as site:
            session = ["--broker", f"mqtt://127.0.0.1:{port}", "--client", "trellis-s"]
            code, told = await retire(*session, "--drop")
            assert code == 2, told
            warned, refused = told.splitlines()
            assert warned.startswith("If a node still uses the session trellis-s, the broker cuts it off for a moment")
            assert "after it was cut off for a moment: its node still runs; stop the node first" in refused
            while not learned.exists():
                await asyncio.sleep(0.05)
            code, told = await retire("--config", str(site.node.config), "--drop")
            assert code == 0, told
            assert f"Node s (process {site.node.pid}) was told to leave, and has left after" in told
            assert f"The session trellis-s at 127.0.0.1:{port} has ended." in told
            assert f"The file {learned} was removed." in told
            assert await site.node.ended() == 0
            assert not await is_there(port, "trellis-s")
            assert not learned.exists()
            code, told = await retire("--config", str(site.node.config), "--json")
            assert code == 0, told
            found = json.loads(told.splitlines()[-1])
            assert (found["left"], found["session"], found["waiting"]) == (False, False, 0)

    run(work())


@pytest.mark.parametrize("kind", BROKERS)
def test_messages_that_wait_for_a_retired_site_are_told_and_dropped_only_if_that_is_said(kind, tmp_path):
    async def work() -> None:
        async with broker(kind, tmp_path) as port:
            async with sidecar(tmp_path, port) as site:
                pass  # killed: its session stays
            await publish(port, 7)
            code, told = await retire("--config", str(site.node.config))
            assert code == 1, told
            assert "Node s does not run." in told
            assert f"7 messages wait in the session trellis-s at 127.0.0.1:{port}: t/0 (4), t/1 (3)." in told
            assert await is_there(port, "trellis-s")
            code, told = await retire("--config", str(site.node.config), "--drop")
            assert code == 0, told
            assert "7 messages wait" in told
            assert not await is_there(port, "trellis-s")

    run(work())


def test_a_session_at_the_broker_ends_a_while_after_its_sidecar_has_gone():
    """Else the broker keeps what is published there for ever, for a node that nobody will start again."""
    forever = 0xFFFF_FFFF
    assert 0 < Bridge("trellis-n", MqttConfig(broker="mqtt://b")).connect(None, None).expiry_s < forever

    async def work() -> None:
        async with doors("outer") as (outer,):
            nodes: list[LiveNode] = []
            sessions = outer.mqtt.host.sessions
            node = await attach("s0", f"mqtt://127.0.0.1:{outer.mqtt.port}", nodes, broker_session_s=1)
            try:
                await until(lambda: "trellis-s0" in sessions and sessions["trellis-s0"].subscriptions)
                assert sessions["trellis-s0"].expiry_s == 1
            finally:
                await node.stop(in_order=False)
            await until(lambda: "trellis-s0" not in sessions)

    run(work())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give --config, or --broker and --client"),
        (["--broker", "mqtt://127.0.0.1:1"], "name one with --client"),
        (["--client", "trellis-a"], "give --config, or --broker and --client"),
        (["--broker", "127.0.0.1:1", "--client", "x"], "is no broker"),
        (["--broker", f"mqtt://127.0.0.1:{free_port()}", "--client", "x"], "cannot be asked"),
    ],
)
def test_what_cannot_be_retired_is_refused_in_one_line(arguments, said, capsys):
    assert trellis(["retire", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    told = re.sub(r"If a node still uses .*\n", "", told)
    assert told.count("\n") == 1


def test_a_node_that_is_no_sidecar_and_one_whose_admin_port_belongs_to_another_are_not_touched(tmp_path):
    async def work() -> None:
        plain = lone_door("x", tmp_path)
        plain.mqtt["admin_listen"] = f"127.0.0.1:{free_port()}"
        try:
            await plain.start_node([])
            code, told = await retire("--config", str(plain.node.config))
            assert (code, "it has no mqtt.broker" in told) == (2, True), told
            other = tmp_path / "other.toml"
            mine = f'name = "y"\nadmin_listen = "{plain.mqtt["admin_listen"]}"\nmqtt.broker = "mqtt://127.0.0.1:1"\n'
            other.write_text(mine)
            code, told = await retire("--config", str(other))
            assert (code, "it is the admin port of x, not of y" in told) == (2, True), told
            assert plain.node.is_running
        finally:
            await plain.kill_node()

    run(work())
