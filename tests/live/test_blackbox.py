"""Real nodes in network namespaces, real clients, real cuts and kills: `trellis judge` reads what the clients saw.

Nothing here knows the protocols. The history has the format of the simulator's, and the same judge reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live.namespaces import why_not
from live.star import Star, star
from trellis.cli.main import run
from trellis.judge import History, judge, read_history, write_history
from trellis.judge.history import Disturbed, Down, Event, Received, Up

NODES = ("n0", "n1", "n2")
FORMED_S = 18.0  # homes of a mesh that has just started are not sure before
QUIET_S = 25.0  # after the last fault
PORTS = ("--client-listen", 7101), ("--admin-listen", 7201)


class Mesh:
    """Nodes as processes, and what was done to them."""

    def __init__(self, net: Star) -> None:
        self.net, self.zero = net, time.monotonic()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.events: list[Event] = []
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

    def now(self) -> float:
        return round(time.monotonic() - self.zero, 6)

    def start(self, name: str) -> None:
        host = self.net.hosts[name]
        seeds = ",".join(f"{self.net.hosts[one]}:7001" for one in NODES[:2] if one != name)
        words = ["node", "--name", name, "--listen", f"{host}:7001", "--seeds", seeds, "--insecure"]
        words += ["--set", f"mqtt.listen={host}:1883", "--log-level", "error"]
        for option, port in PORTS:
            words += [option, f"{host}:{port}"]
        command = self.net.inside(name, sys.executable, "-m", "trellis", *words)
        self.processes[name] = subprocess.Popen(command, env=self.environment)
        self.events.append(Up(self.now(), name))

    def kill(self, name: str) -> None:
        """`ip netns exec` replaces itself by the node, so the process is the node's."""
        self.processes[name].kill()
        self.events.append(Down(self.now(), name))
        self.processes[name].wait(30)

    @contextmanager
    def cut(self, one: str, other: str) -> Iterator[None]:
        begun = self.now()
        self.net.cut(one, other)
        try:
            yield
        finally:
            self.net.heal(one, other)
            self.events.append(Disturbed(begun, self.now(), "cut", (one,), (other,)))

    def clients(self, work_s: float, history: Path) -> subprocess.Popen[bytes]:
        nodes = {name: self.net.hosts[name] for name in NODES}
        given = {"nodes": nodes, "seed": 1, "zero": self.zero, "work_s": work_s, "history": str(history)}
        command = self.net.inside("clients", sys.executable, "-m", "live.blackbox", json.dumps(given))
        return subprocess.Popen(command, stdin=subprocess.PIPE, env=self.environment)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(30)


@pytest.mark.slow
def test_real_nodes_keep_their_promises_under_cuts_and_kills(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    seen, told = tmp_path / "seen.jsonl", tmp_path / "history.jsonl"
    with star(*NODES, "clients") as net:
        mesh = Mesh(net)
        try:
            for name in NODES:
                mesh.start(name)
            time.sleep(FORMED_S)
            clients = mesh.clients(62.0, seen)
            try:
                time.sleep(8.0)
                with mesh.cut("n0", "n1"):
                    time.sleep(8.0)
                time.sleep(6.0)
                mesh.kill("n2")
                time.sleep(4.0)
                mesh.start("n2")
                time.sleep(10.0)
                with mesh.cut("n0", "n2"), mesh.cut("n1", "n2"):  # n2 is alone; clients reach all
                    time.sleep(15.0)
                time.sleep(QUIET_S)
                assert clients.poll() is None, "the clients have ended"
                clients.communicate(b"settled\n", timeout=60)
                assert clients.returncode == 0
            finally:
                clients.kill()
                clients.wait(30)
            assert all(process.poll() is None for process in mesh.processes.values()), "a node has ended by itself"
        finally:
            mesh.stop()
    events = sorted([*read_history(seen).events, *mesh.events], key=lambda one: one.t)
    write_history(History(events), told)
    code = run(["judge", str(told), "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["violations"] == []
    assert code == 0
    assert any(_is_missed(events, one) for one in events if isinstance(one, Received)), "the judge misses nothing"
    assert verdict["owed"] > 100
    assert verdict["acknowledged"] > 500


def _is_missed(events: list[Event], one: Event) -> bool:
    """Tell whether the judge sees that a delivery is missing."""
    return not judge(History(event for event in events if event is not one)).holds
