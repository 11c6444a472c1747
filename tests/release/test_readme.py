"""The README's snippets: its Python runs, its mesh by hand runs, and every other line that it shows can be typed."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

import trellis
from trellis.cli.main import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
LONG_S = 120


def blocks(kind: str, page: str = README) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page, re.DOTALL)


def test_the_python_of_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    wanted = {f"n{number}": ["all", f"t{number % 3}"] for number in range(9)}
    trellis.write_table(trellis.Interests.from_pairs(wanted).to_table(), "interests.parquet")
    (block,) = blocks("python")
    space: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), space)
    assert space["run"].summary()["tco"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/install.md", "docs/runbook.md", "docs/upgrading.md", "docs/limits.md"]
)
def test_every_command_that_a_page_shows_can_be_typed(page, capsys):
    """Its options exist: with --help behind it, nothing else happens."""
    text = (ROOT / page).read_text("utf-8")
    lines = [
        line.removeprefix("$ ")
        for block in re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        for line in block.splitlines()
    ]
    shown = [re.split(r"\s{3,}|[>|&]", line)[0] for line in lines if line.startswith("trellis ")]
    shown += re.findall(r"`(trellis [a-z-][^`]*)`", text)
    assert shown
    for line in shown:
        words = shlex.split(line.replace("\\", " "), comments=True)[1:]
        words = [word for word in words if word not in ("...", "DIR", "ID...")]
        assert run([*words, "--help"]) == 0, (line, capsys.readouterr().err)


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_the_mesh_by_hand_of_the_readme_carries_a_message():
    """Its four lines, on free ports, with quicker periods."""
    (block,) = [one for one in blocks("sh") if "trellis node" in one]
    named = sorted(set(re.findall(r"127\.0\.0\.1:(\d+)", block)))
    for port, free in zip(named, free_ports(len(named)), strict=True):
        block = block.replace(f"127.0.0.1:{port}", f"127.0.0.1:{free}")
    first, second, subscribe, publish = (
        [sys.executable, "-m", *shlex.split(line)] for line in block.splitlines() if line.startswith("trellis ")
    )
    quick = ["--set", "omen.period_ms=200", "--set", "delivery.tick_ms=200", "--set", "delivery.confirm_ms=300"]
    with ExitStack() as stack:

        def started(command: list[str]) -> subprocess.Popen[str]:
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            process = stack.enter_context(subprocess.Popen(command, text=True, **pipes))
            stack.callback(process.kill)
            return process

        for command in (first, second):
            up = started([*command, *quick])
            assert up.stdout is not None
            assert up.stdout.readline().startswith("node ")
        reader = started([*subscribe, "--count", "1", "--timeout", "60"])
        assert reader.stderr is not None
        assert reader.stderr.readline() == "subscribed to news\n"
        done = subprocess.run([*publish, "--timeout", "60"], capture_output=True, text=True, timeout=LONG_S)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith("acknowledged: 2 copies (")
        told, _ = reader.communicate(timeout=LONG_S)
        assert told == "news\thello\n"
