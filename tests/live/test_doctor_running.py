"""`trellis doctor --at` says what is wrong with a running node, and alarms nobody."""

from __future__ import annotations

import asyncio
import sys
import time
from contextlib import AsyncExitStack

from live.lives import config, mesh, peer_address, run, until
from live.test_admin import ADMIN, admin_address
from live.test_doctor import certs, said, with_tls  # noqa: F401  certs is a fixture
from trellis.cli.main import run as trellis_run
from trellis.live.doctor import examine, examine_running
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context
from trellis.protocols.mqtt.config import MqttConfig


def test_a_running_node_that_is_well_is_called_so_and_its_complaints_are_repeated(capsys):
    async def work() -> None:
        async with mesh("a", **ADMIN) as (a,), AsyncExitStack() as stack:
            found = await examine_running(admin_address(a), None, config("a"))
            assert said(found, "good") == f"{admin_address(a)}: a runs and is healthy. "
            lonely = LiveNode(config("b", ("127.0.0.1:9",), **ADMIN))
            await lonely.start()
            stack.push_async_callback(lonely.stop, in_order=False)
            await until(lambda: bool(lonely.transport.failures))
            told = said(await examine_running(admin_address(lonely), None, config("a", cluster="x")))
            assert "Seed 127.0.0.1:9 did not accept this node: connection refused" in told
            assert 'The node there has name "b", and the configuration says "a".' in told
            assert 'The node there has cluster "test", and the configuration says "x".' in told

    run(work())


def test_a_port_that_is_no_admin_port_is_told_by_its_kind():
    async def work() -> None:
        async with mesh("a", mqtt=MqttConfig(listen="127.0.0.1:0")) as (a,):
            assert a.mqtt is not None
            kinds = {a.client_port.port: "the client port of node a", a.mqtt.port: "an MQTT listener"}
            for port, kind in kinds.items():
                told = said(await examine_running(f"127.0.0.1:{port}", None, None))
                assert told == f"127.0.0.1:{port}: It is {kind}, not an admin port. Name the admin_listen of a node."

    run(work())


def test_a_question_of_the_doctor_alarms_nobody_at_the_nodes_it_asks(caplog):
    async def work() -> None:
        async with mesh("a", "b", **ADMIN) as (a, b):
            await until(lambda: "b" in a.transport.peers)
            await examine(config("b", (peer_address(a),), listen=peer_address(b)))
            assert not [one for one in caplog.records if one.levelname == "WARNING"]
            assert not {key for node in (a, b) for key in node.transport.counters if key in ("cut old", "cut taken")}
            stranger = LiveNode(config("b", (peer_address(a),)), life=1)
            await stranger.start()
            await until(lambda: a.transport.counters["cut old"] > 0)
            await stranger.stop(in_order=False)
        assert any("a later life of b is connected" in one for one in caplog.messages)

    run(work())


def test_a_running_node_whose_clock_differs_is_told(monkeypatch):
    async def work() -> None:
        async with mesh("a", **ADMIN) as (a,):
            monkeypatch.setattr("trellis.live.admin.wall_ms", lambda: int(time.time() * 1_000) - 120_000)
            told = said(await examine_running(admin_address(a), None, None))
            assert "Its clock differs from this machine's by -120 s." in told

    run(work())


def test_a_running_node_one_of_whose_peers_started_in_the_future_is_told():
    async def work() -> None:
        async with mesh("a", **ADMIN) as (a,), AsyncExitStack() as stack:
            peer = LiveNode(config("b", (peer_address(a),)))
            peer.life += 6_000
            await peer.start()
            stack.push_async_callback(peer.stop, in_order=False)
            await until(lambda: "b" in a.transport.peers)
            told = said(await examine_running(admin_address(a), None, None))
            assert "One of its peers started " in told

    run(work())


def test_where_no_node_answers_that_is_told(capsys):
    assert trellis_run(["doctor", "--at", "127.0.0.1:9"]) == 1
    assert "No node answers there: connection refused" in capsys.readouterr().out


def test_a_running_node_with_tls_needs_a_certificate(certs, tmp_path):  # noqa: F811
    async def work() -> None:
        node = LiveNode(with_tls(certs, **ADMIN))
        await node.start()
        try:
            assert "It speaks TLS, and this command did not." in said(
                await examine_running(admin_address(node), None, None)
            )
            tls = make_context(node.config.tls, server=False)
            assert "a runs and is healthy." in said(await examine_running(admin_address(node), tls, None), "good")
            path = tmp_path / "node.toml"
            files = "".join(f'{key} = "{getattr(node.config.tls, key)}"\n' for key in ("cert", "key", "ca"))
            path.write_text(f'name = "a"\ncluster = "test"\nlisten = "{peer_address(node)}"\n[tls]\n{files}')
            words = ["-m", "trellis", "doctor", "--config", str(path), "--at", admin_address(node)]
            process = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=asyncio.subprocess.DEVNULL)
            assert await process.wait() == 0, "it uses the certificates of the configuration"
        finally:
            await node.stop(in_order=False)

    run(work())
