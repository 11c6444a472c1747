"""`trellis retire`: a site that goes leaves nothing at its broker, and what waits there is not lost unawares."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.lives import run, until
from mqtt.attached import attach, client_of
from mqtt.brokers import Mosquitto, free_port, needs_mosquitto, running
from mqtt.sites import Site, Talk, lone_door, talking
from mqtt.talk import doors
from trellis.cli.main import run as trellis
from trellis.live import retire as departure
from trellis.live.mqtt import retire as broker_session
from trellis.live.reasons import is_refused
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.bridge import Bridge
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing

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
                # Its last acknowledgements go out. A client that is killed before that may be at fault: when it is
                # back, our listener sends it one message at a time.
                await asyncio.sleep(1.0)
            # It was killed, and its session stays.
            await publish(port, 7)
            for _ in range(3):  # on a busy machine a broker pauses, and a look ends before all messages have come
                code, told = await retire("--config", str(site.node.config))
                assert code == 1, told
                if "7 messages wait" in told:
                    break
            assert "Node s does not run." in told
            assert f"7 messages wait in the session trellis-s at 127.0.0.1:{port}: t/0 (4), t/1 (3)." in told
            assert await is_there(port, "trellis-s")
            code, told = await retire("--config", str(site.node.config), "--drop")
            assert code == 0, told
            assert "7 messages wait" in told
            assert not await is_there(port, "trellis-s")

    run(work())


async def retire_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run the command in a thread of this process, which takes less time than a process of its own."""
    code = await asyncio.to_thread(trellis, ["retire", *arguments])
    return code, "".join(capsys.readouterr())


LINE = b"1794814035: New client connected from 127.0.0.1:52194 as other (p2, c1, k60)."


class KeptSession:
    """A broker with one session, which is kept. Like Mosquitto, it sends `window` messages without acknowledgements."""

    def __init__(self, *kept: tuple[str, bytes], window: int = 20) -> None:
        self.kept, self.window = list(kept), window
        self.is_there = True

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        framing, sent, number = Framing(1 << 16), dict[int, tuple[str, bytes]](), 0
        while data := await reader.read(65_536):
            framing.feed(data)
            for first, body in framing.packets():
                packet = decode(p.V5, first, body)
                if isinstance(packet, p.Connect):
                    self.is_there = self.is_there and not packet.clean_start
                    writer.write(encode(p.V5, p.ConnAck(reason=0, session_present=self.is_there)))
                if isinstance(packet, p.Ack):
                    self.kept.remove(sent.pop(packet.id))
            waiting = [one for one in self.kept if one not in sent.values()] if self.is_there else []
            for one in waiting[: self.window - len(sent)]:
                number += 1
                sent[number] = one
                writer.write(encode(p.V5, p.Publish(topic=one[0], payload=one[1], qos=1, id=number)))
        writer.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[list[str]]:
        """Give the arguments with which it is retired."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield ["--broker", f"mqtt://127.0.0.1:{port}", "--client", "trellis-s"]
        finally:
            server.close()


def lines(count: int) -> list[tuple[str, bytes]]:
    return [("$SYS/broker/log/N", b"%d" % number + LINE) for number in range(count)]


def messages(count: int) -> list[tuple[str, bytes]]:
    return [(f"t/{number % 2}", b"%d" % number) for number in range(count)]


def test_messages_behind_lines_of_the_broker_s_log_are_not_lost_unawares(capsys):
    """The lines take all places that a broker gives to messages without acknowledgements."""

    async def work() -> None:
        kept = KeptSession(*lines(30), *messages(50))
        async with kept.running() as session:
            code, told = await retire_here(capsys, *session)
            assert (code, kept.is_there) == (1, True), told
            assert "At least 10 messages wait in the session trellis-s" in told  # behind the last ten lines
            assert "Nothing was ended." in told
            assert "lines of the broker's log were taken" in told
            assert [one for one in kept.kept if one[0].startswith("t/")] == messages(50)
            code, told = await retire_here(capsys, *session, "--drop")
            assert (code, kept.is_there) == (0, False), told
            assert told.startswith("50 messages wait in the session trellis-s")

    run(work())


def test_a_session_with_lines_of_the_broker_s_log_alone_is_empty(capsys):
    async def work() -> None:
        kept = KeptSession(*lines(45))
        async with kept.running() as session:
            code, told = await retire_here(capsys, *session)
            assert (code, kept.is_there) == (0, False), told
            assert "Nothing waits in the session trellis-s" in told

    run(work())


def test_lines_of_the_broker_s_log_stay_there_for_a_node_whose_messages_are_seen_at_once(capsys):
    async def work() -> None:
        kept = KeptSession(*lines(5), *messages(3))
        async with kept.running() as session:
            code, told = await retire_here(capsys, *session)
            assert (code, kept.is_there) == (1, True), told
            assert told.startswith("3 messages wait in the session trellis-s")
            assert kept.kept == lines(5) + messages(3)

    run(work())


def test_a_broker_that_never_becomes_quiet_keeps_its_session_unless_it_is_dropped(monkeypatch):
    """What is behind its lines is not known then."""
    monkeypatch.setattr(broker_session, "_LOOK_S", 0.3)

    async def work() -> None:
        kept = KeptSession(*lines(5))
        async with kept.running() as (_, url, _, client):
            found = await broker_session.BrokerSession(client, MqttConfig(broker=url)).look()
            assert (found.messages, found.is_more, found.is_empty) == (0, True, False)

    run(work())


@needs_mosquitto
def test_messages_behind_mosquitto_s_log_are_not_lost_unawares(tmp_path, capsys):
    log = "log_dest topic\nlog_type subscribe\nlog_type unsubscribe\nlog_type notice\nmax_queued_messages 0"

    async def work() -> None:
        async with running([Mosquitto(tmp_path, "x", log)]) as (one,):
            session = ["--broker", one.url, "--client", "trellis-s"]
            raw = await client_of(one, "trellis-s", "#", "$SYS/broker/log/#", expiry_s=600)
            raw.writer.close()
            await raw.writer.wait_closed()
            for number in range(12):
                async with talking(one.port, f"other {number}"):
                    pass
            await publish(one.port, 50)
            code, told = await retire_here(capsys, *session)
            assert code == 1, told
            assert "messages wait in the session trellis-s" in told
            code, told = await retire_here(capsys, *session, "--drop")
            assert code == 0, told
            assert told.startswith("50 messages wait in the session trellis-s")

    run(work())


def test_a_node_that_hangs_is_not_taken_for_one_that_does_not_run(tmp_path, capsys, monkeypatch):
    """It holds its admin port, and does not answer there. Its session must stay."""
    monkeypatch.setattr(departure, "_ASK_S", 0.3)
    written = tmp_path / "s.toml"

    async def work() -> None:
        kept = KeptSession()
        with socket.create_server(("127.0.0.1", 0)) as hung:  # the kernel takes connections for it
            async with kept.running() as (_, url, _, _):
                address = f"127.0.0.1:{hung.getsockname()[1]}"
                written.write_text(f'name = "s"\nadmin_listen = "{address}"\nmqtt.broker = "{url}"\n')
                code, told = await retire_here(capsys, "--config", str(written))
                assert (code, kept.is_there) == (2, True), told
                assert "it cannot be seen whether node s runs: no answer in time; nothing was ended" in told
                assert "does not run" not in told
                only = f'name = "s"\nadmin_listen = ""\nclient_listen = "{address}"\nmqtt.broker = "{url}"\n'
                written.write_text(only)
                code, told = await retire_here(capsys, "--config", str(written))
                assert (code, kept.is_there) == (2, True), told
                assert f"something listens on {address}, where node s takes clients" in told

    run(work())


@pytest.mark.parametrize(
    ("error", "is_nobody"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), True),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1, 0, 0), [Errno 111] C"), True),
        (OSError("Multiple exceptions: [Errno 99] Cannot assign ('::1', 1, 0, 0), [Errno 111] Connect call"), True),
        (OSError("Multiple exceptions: [Errno 97] Address family not supported, [Errno 111] Connect call"), True),
        (OSError("Multiple exceptions: [Errno 111] Connect call failed, [Errno 110] Connect call failed"), False),
        (TimeoutError(), False),
        (ConnectionResetError(), False),
        (OSError(errno.EHOSTUNREACH, "No route to host"), False),
    ],
)
def test_only_a_refused_connection_says_that_nobody_is_there(error, is_nobody):
    assert is_refused(error) is is_nobody


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
