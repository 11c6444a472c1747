"""Nodes as processes: killed and started again, stopped in order, and small."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

import trellis
from live.lives import run
from live.signing import node_of
from trellis.live.addresses import parse_address
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, Greet, pack_to_node
from trellis.live.tls import make_context

SETTINGS = ["omen.period_ms=60", "delivery.tick_ms=100", "delivery.register_ms=300", "delivery.registered_ms=900"]
SETTINGS += ["delivery.confirm_ms=300", "delivery.ask_ms=200", "delivery.leave_ms_max=3000", "cluster=test"]
HEAVY = {"numpy", "numba", "pyspark", "pyarrow", "scipy", "matplotlib", "pandas", "starlette", "uvicorn", "networkx"}


class Process:
    def __init__(
        self,
        name: str,
        seeds: str = "",
        listen: str = "127.0.0.1:0",
        python: tuple[str, ...] = (),
        settings: tuple[str, ...] = (),
    ) -> None:
        command = [sys.executable, *python, "-m", "trellis", "node", "--json", "--name", name, "--listen", listen]
        command += ["--client-listen", "127.0.0.1:0", *(["--seeds", seeds] if seeds else [])]
        command += [part for one in (*SETTINGS, *settings) for part in ("--set", one)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    @cached_property
    def about(self) -> dict[str, Any]:
        """What it says when it is up."""
        assert self.process.stdout is not None
        deadline = threading.Timer(60, self.process.kill)
        deadline.start()
        try:
            return json.loads(self.process.stdout.readline())
        finally:
            deadline.cancel()

    def end(self, how: int = signal.SIGKILL) -> tuple[int, str]:
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, told


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for one in started:
        one.end()


def test_a_node_that_is_killed_and_started_again_takes_part_again(processes):
    processes.append(Process("a"))
    seed = processes[0].about["listen"]
    processes += [Process(name, seed) for name in "bc"]

    async def work() -> None:
        a, b, c = [one.about["client_listen"] for one in processes]
        async with trellis.connect(a) as first, trellis.connect(c) as last:
            await asyncio.gather(first.subscribe("t"), last.subscribe("t"))
            async with trellis.connect(b) as second:
                await second.subscribe("t")
                await first.publish("t", b"to three")
                assert (await anext(second)).payload == b"to three"
            killed = processes[1]
            killed.end(signal.SIGKILL)
            await first.publish("t", b"to two")
            processes.append(Process("b", seed, killed.about["listen"]))  # the same name at the same place
            assert processes[-1].about["life"] > killed.about["life"]
            async with trellis.connect(processes[-1].about["client_listen"]) as again:
                await again.subscribe("t")
                receipt = await first.publish("t", b"to three again")
                assert receipt.copies >= 2
                assert (await anext(again)).payload == b"to three again"
            assert [(await anext(last)).payload for _ in range(3)] == [b"to three", b"to two", b"to three again"]

    run(work())


def test_a_node_that_is_told_to_end_leaves_in_order_and_exits_with_0(processes):
    processes.append(Process("a"))
    processes.append(Process("b", processes[0].about["listen"]))

    async def work() -> None:
        addresses = [one.about["client_listen"] for one in processes]
        async with trellis.connect(addresses[0]) as first, trellis.connect(addresses[1]) as last:
            await asyncio.gather(first.subscribe("t"), last.subscribe("t"))
            await first.publish("t", b"held by both")

    run(work())
    code, told = processes[1].end(signal.SIGTERM)
    assert code == 0, told
    assert "b: has left" in told


def test_a_second_sigterm_ends_a_node_at_once_although_a_client_hangs(processes, sign):
    """A TLS connection is closed in order only when its other end answers. `stall_s` is how long that is waited for."""
    tls = sign("a", *node_of("a"))
    files = (f"tls.cert={tls.cert}", f"tls.key={tls.key}", f"tls.ca={tls.ca}")
    processes.append(Process("a", settings=("limits.stall_s=300", *files)))
    process = processes[0].process
    address = parse_address(processes[0].about["client_listen"])
    with (
        socket.create_connection(address) as connection,
        make_context(tls, server=False).wrap_socket(connection) as client,
    ):
        client.do_handshake()
        client.sendall(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "hangs")))
        assert client.recv(1), "it is welcome, and reads nothing more"
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        while "a: leaves" not in process.stderr.readline():
            pass
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_a_node_that_stood_still_for_longer_than_silence_is_forgiven_gets_everything_in_the_end(processes):
    processes.append(Process("a"))
    processes += [Process(name, processes[0].about["listen"]) for name in "bc"]

    async def work() -> None:
        async with AsyncClients(processes) as (first, second, last):
            sent = [b"before"]
            await first.publish("t", sent[0])
            os.kill(processes[1].process.pid, signal.SIGSTOP)
            try:
                stopped = time.monotonic()
                while time.monotonic() < stopped + 2:  # silence_max periods are 0.3 s
                    sent.append(b"%d" % len(sent))
                    await first.publish("t", sent[-1])
                    await asyncio.sleep(0.05)
                assert [(await anext(last)).payload for _ in sent] == sent
            finally:
                os.kill(processes[1].process.pid, signal.SIGCONT)
            assert [(await anext(second)).payload for _ in sent] == sent

    run(work())


class AsyncClients:
    """One client of each node, all subscribed to t."""

    def __init__(self, nodes: list[Process]) -> None:
        self.clients = [trellis.connect(one.about["client_listen"]) for one in nodes]

    async def __aenter__(self) -> list[trellis.live.client.Client]:
        for client in self.clients:
            await client.__aenter__()
        await asyncio.gather(*(client.subscribe("t") for client in self.clients))
        return self.clients

    async def __aexit__(self, *error: object) -> None:
        for client in self.clients:
            await client.close()


def test_a_node_process_loads_no_heavy_package(processes):
    processes.append(Process("a", python=("-X", "importtime")))
    assert processes[0].about["name"] == "a"
    code, told = processes[0].end(signal.SIGTERM)
    assert code == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in told.splitlines() if "import time:" in line}
    assert {"trellis", "msgspec", "asyncio"} <= loaded
    assert not HEAVY & loaded


def test_pub_and_sub_talk_through_a_node(processes, tmp_path):
    processes.append(Process("a"))
    at = ["--at", processes[0].about["client_listen"]]
    program = str(Path(sys.executable).parent / "trellis")
    reader = subprocess.Popen(
        [program, "sub", "t", *at, "--count", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert reader.stderr is not None
    assert "subscribed to t" in reader.stderr.readline()
    written = subprocess.run([program, "pub", "t", *at], input="one\ntwo\n", text=True, capture_output=True, timeout=60)
    assert written.returncode == 0, written.stderr
    told, _ = reader.communicate(timeout=60)
    assert told.splitlines() == ["t\tone", "t\ttwo"]
