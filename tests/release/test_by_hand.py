"""The meshes that the pages start by hand carry a message; so does the Python that they show for a live node."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread
from typing import IO

import pytest

import trellis
from live.lives import client_address, mesh
from live.lives import run as run_mesh
from release.pages import PAGES, ROOT, Block, blocks

LONG_S = 120
QUICK = {"omen.period_ms": 200, "delivery.tick_ms": 200, "delivery.register_ms": 1_000, "delivery.registered_ms": 3_000}
QUICK |= {"delivery.confirm_ms": 300, "delivery.ask_ms": 300}
SETTINGS = [part for key, value in QUICK.items() for part in ("--set", f"{key}={value}")]
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", ""), "/usr/sbin"])
PORT = r"(?<=127\.0\.0\.1:)\d+|(?<=-p )\d+"


def by_hand() -> dict[str, Block]:
    """Blocks with nodes by their names, each once, however many pages show it."""
    found: dict[str, Block] = {}
    for block in [one for page in PAGES for one in blocks(page, "sh") if "trellis node --name a" in one.text]:
        found.setdefault(block.text, block)
    return {block.page: block for block in found.values()}


def on_free_ports(text: str) -> str:
    """The same lines, each port that they name replaced by one that is free."""
    with ExitStack() as stack:
        free: dict[str, str] = {}
        for named in re.findall(PORT, text):
            one = stack.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            free.setdefault(named, str(one.getsockname()[1]))
    return re.sub(PORT, lambda found: free[found[0]], text)


def read_until(stream: IO[str] | None, wanted: str) -> None:
    assert stream is not None
    for line in stream:
        if wanted in line:
            return
    raise AssertionError(f"it ended before it said {wanted!r}")


@pytest.mark.parametrize("block", by_hand().values(), ids=by_hand())
def test_a_mesh_by_hand_carries_a_message(block):
    """Line by line, on free ports, with quicker periods: nodes and readers stay, and hear who publishes."""
    lines = [shlex.split(line) for line in on_free_ports(block.text).splitlines()]
    if missing := [words[0] for words in lines if words[0] != "trellis" and shutil.which(words[0]) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    heard = []
    with ExitStack() as stack:

        def started(words: list[str]) -> subprocess.Popen[str]:
            process = subprocess.Popen(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        for words in lines:
            ours = [sys.executable, "-m", *words]
            match words[:2]:
                case ["trellis", "node"]:
                    read_until(started([*ours, *SETTINGS]).stdout, "node ")
                case ["trellis", "sub"]:
                    reader = started([*ours, "--count", "1", "--timeout", "60"])
                    read_until(reader.stderr, "subscribed to news\n")
                case ["trellis", "pub"]:
                    done = subprocess.run([*ours, "--timeout", "60"], capture_output=True, text=True, timeout=LONG_S)
                    assert done.returncode == 0, done.stderr
                    assert done.stderr.startswith("acknowledged: 2 copies (")
                    heard.append(reader.communicate(timeout=LONG_S)[0])
                case ["trellis", "dashboard"]:
                    read_until(started([*ours, "--listen", "127.0.0.1:0"]).stdout, "dashboard: http://127.0.0.1:")
                case ["mosquitto_sub", _]:
                    reader = started([*words, "-C", "1", "-W", "60"])
                case ["mosquitto_pub", _]:
                    while reader.poll() is None:  # the reader does not say when it is subscribed
                        subprocess.run(words, check=True, timeout=LONG_S)
                        with suppress(subprocess.TimeoutExpired):
                            reader.wait(timeout=1)
                    heard.append(reader.communicate()[0])
                case _:
                    raise AssertionError(f"{block.place}: who runs {words}?")
    assert heard in (["news\thello\n"], ["21\n"])


def test_the_python_for_a_live_node_hears_what_it_publishes():
    """It reads for ever: here until its first message."""
    (block,) = blocks(ROOT / "docs" / "live.md", "python")
    heard: list[tuple[object, ...]] = []

    class Enough(Exception):
        pass

    def printed(*values: object) -> None:
        heard.append(values)
        raise Enough

    async def work() -> None:
        async with mesh("a", "b", topics=("news",)) as (node, _):
            text = block.text.replace("127.0.0.1:7101", client_address(node))
            code = compile(text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            with pytest.raises(Enough):
                await eval(code, {"trellis": trellis, "print": printed})

    run_mesh(work())
    ((topic, _, _, payload),) = heard
    assert (topic, payload) == ("news", b"hello")


# What takes longer


def meshes_on_one_machine() -> list[str]:
    """Lines with `trellis up` that need no file and end by themselves."""
    lines = {line.split(" #")[0].strip() for page in PAGES for block in blocks(page, "sh") for line in block.lines()}
    lines |= {one for page in PAGES for one in re.findall(r"`(trellis up [^`]+)`", page.read_text("utf-8"))}
    return sorted(one for one in lines if re.match(r"trellis up .*--duration \d+$", one) and "--interests" not in one)


@pytest.mark.slow
@pytest.mark.parametrize("line", meshes_on_one_machine())
def test_a_mesh_on_one_machine_has_a_clean_score(line):
    if "--broker mosquitto" in line and shutil.which("mosquitto", path=PATH) is None:
        pytest.skip("mosquitto is not installed")
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(line)], env={**os.environ, "PATH": PATH}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "good: nothing missing, " in done.stdout
    assert "good: nothing missing, nothing twice" in done.stdout or "--broker" in line


@pytest.mark.slow
def test_five_mosquitto_brokers_become_a_mesh_as_the_page_says(tmp_path):
    """docs/operating.md, typed into one shell; its ports as they stand. A publication is repeated until it is heard."""
    if missing := [one for one in ("mosquitto", "mosquitto_pub", "pgrep") if shutil.which(one, path=PATH) is None]:
        pytest.skip(f"{missing[0]} is not installed")
    shown = (block.text for block in blocks(ROOT / "docs" / "operating.md", "sh"))
    brokers, nodes, two, five, broken, restarted, retired, renamed = shown
    heard: list[str] = []
    environment = {**os.environ, "PATH": PATH, "XDG_STATE_HOME": str(tmp_path / "state")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(["bash"], text=True, cwd=tmp_path, env=environment, start_new_session=True, **pipes) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        reader = Thread(target=lambda: heard.extend(iter(shell.stdout.readline, "")))
        reader.start()
        try:

            def type_in(text: str, *wanted: str) -> None:
                """Type it, and then its publications again and again, each time when the shell has done the last."""
                since, until = len(heard), time.monotonic() + LONG_S
                again = [line for line in text.splitlines() if line.startswith("mosquitto_pub")]
                for number in range(LONG_S):
                    done = f"typed {since} {number}\n"
                    shell.stdin.write(f"{text}echo {done}")
                    shell.stdin.flush()
                    while done not in heard[since:]:
                        assert time.monotonic() < until, f"{wanted} not heard: {heard}"
                        time.sleep(0.1)
                    if all(any(one in line for line in heard[since:]) for one in wanted):
                        return
                    text = "".join(f"sleep 1; {line}\n" for line in again) or "sleep 1\n"
                raise AssertionError(f"{wanted} not heard: {heard}")

            type_in(brokers)
            type_in(nodes, "attached to 127.0.0.1:1881", "attached to 127.0.0.1:1882")
            type_in(two, "plant/oven/temperature 180")
            type_in(five, "plant/oven/temperature 175")
            type_in(broken, "plant/oven/temperature one", "plant/oven/temperature three")
            type_in(restarted, "plant/oven/pressure 3")  # only the reader at site 5 wants it
            type_in(retired, "The session trellis-site-4 at 127.0.0.1:1884 has ended.", "was removed.")
            type_in(renamed, "The session trellis-site-3 at 127.0.0.1:1883 has ended.")
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            reader.join()
