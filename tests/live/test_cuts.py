"""A network that is cut for a while: TCP streams across the cut die in silence, and nothing acknowledged may be lost.

Six nodes, three on either side of a router in a network namespace of its own. Clients on both sides publish before,
during and after the cut. The judge knows only what clients saw: a publication that was acknowledged, by whatever side,
is owed to every client that was confirmed on its topic before it was published. All of it must be there 5 s after the
healing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from live.lives import run
from live.namespaces import HOSTS, Router, network, why_not

HEALED_S = 5.0  # all that was acknowledged is there by then
RATE = 5.0  # publications a second, of each publisher on each topic
HERE = Path(__file__).parent
SEEDS = [f"{HOSTS['left']}:7001", f"{HOSTS['right']}:7001"]

# Everybody subscribes to `all`. Each of `near` and `far` has its subscribers on one side and publishers on both. `pair`
# has one subscriber on either side, so that during the cut no node but its own can hold what it publishes.
NODES: dict[str, dict[str, dict[str, list[str]]]] = {
    "left": {
        "a0": {"topics": ["all", "near"], "publishes": ["all"]},
        "a1": {"topics": ["all", "near", "pair"], "publishes": ["near", "pair"]},
        "a2": {"topics": ["all"], "publishes": ["far"]},
    },
    "right": {
        "b0": {"topics": ["all", "far"], "publishes": ["all", "far"]},
        "b1": {"topics": ["all", "far"], "publishes": ["near"]},
        "b2": {"topics": ["all", "pair"], "publishes": ["pair"]},
    },
}


class Judge:
    """What clients on both sides have seen."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.confirmed: dict[str, dict[str, None]] = {}  # topic -> nodes whose client is subscribed
        self.owed: dict[str, tuple[str, ...]] = {}  # publication -> who was confirmed when it was published
        self.acknowledged: dict[str, float] = {}
        self.refused: dict[str, str] = {}
        self.delivered: dict[tuple[str, str], float] = {}  # (publication, node) -> when
        self.twice: Counter[tuple[str, str]] = Counter()
        self.unanswered: dict[tuple[str, str], float] = {}  # (node, peer) -> the longest that it has waited

    def take(self, what: list[Any]) -> None:
        match what:
            case ["started", node, _]:
                self.started.append(node)
            case ["confirmed", node, topic]:
                self.confirmed.setdefault(topic, {})[node] = None
            case ["published", number, _, topic, _]:
                self.owed[number] = tuple(self.confirmed.get(topic, ()))
            case ["acknowledged", number, at]:
                self.acknowledged[number] = at
            case ["refused", number, why]:
                self.refused[number] = why
            case ["delivered", number, node, at]:
                if (number, node) in self.delivered:
                    self.twice[number, node] += 1
                self.delivered.setdefault((number, node), at)
            case ["unanswered", node, peer, seconds]:
                self.unanswered[node, peer] = max(seconds, self.unanswered.get((node, peer), 0.0))

    @property
    def waiting(self) -> int:
        return len(self.owed) - len(self.acknowledged) - len(self.refused)

    def missing(self) -> list[tuple[str, str]]:
        return [
            (number, node)
            for number in self.acknowledged
            for node in self.owed[number]
            if (number, node) not in self.delivered
        ]

    def last_delivery(self, acknowledged_before: float) -> float:
        """Return when the last delivery came that was owed for something acknowledged before that time."""
        numbers = [number for number, at in self.acknowledged.items() if at <= acknowledged_before]
        times = [self.delivered[number, node] for number in numbers for node in self.owed[number]]
        return max(times, default=0.0)


@asynccontextmanager
async def sides(router: Router, judge: Judge, settings: dict[str, Any]) -> AsyncIterator[Callable[[str], None]]:
    """Start both sides. Yields what gives a command to both."""
    processes, readers = [], []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        for side, nodes in NODES.items():
            given = {"host": HOSTS[side], "seeds": SEEDS, "nodes": nodes, "rate": RATE, "settings": settings}
            process = await asyncio.create_subprocess_exec(
                *router.inside(side, sys.executable, str(HERE / "side.py"), json.dumps(given)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
            )
            processes.append(process)
            readers.append(asyncio.create_task(_read(process, judge)))

        def tell(command: str) -> None:
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{command}\n".encode())

        yield tell
        tell("end")
        assert [await process.wait() for process in processes] == [0, 0]
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
                await process.wait()
        await asyncio.gather(*readers)


async def _read(process: asyncio.subprocess.Process, judge: Judge) -> None:
    assert process.stdout is not None
    while line := await process.stdout.readline():
        judge.take(json.loads(line))


async def until(is_so: Callable[[], bool], limit_s: float, what: str) -> None:
    limit = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < limit, f"{what}: not so after {limit_s:.0f} s"
        await asyncio.sleep(0.05)


async def cut_for(seconds: float, settings: dict[str, Any]) -> None:
    judge = Judge()
    wanted = {(topic, node) for side in NODES.values() for node, about in side.items() for topic in about["topics"]}
    with network() as router:
        async with sides(router, judge, settings) as tell:
            await until(
                lambda: {(topic, node) for topic, nodes in judge.confirmed.items() for node in nodes} == wanted,
                60,
                "all subscriptions are confirmed",
            )
            tell("publish")
            await until(lambda: len(judge.acknowledged) > 50, 60, "publications are acknowledged")
            router.cut()
            begun, before = time.monotonic(), len(judge.acknowledged)
            await asyncio.sleep(seconds)
            router.heal()
            healed = time.monotonic()
            during = len(judge.acknowledged) - before
            await asyncio.sleep(1)
            tell("pause")
            await until(lambda: not judge.waiting and not judge.missing(), 60, "all that was acknowledged is there")
            took = judge.last_delivery(healed) - healed
            told = (
                f"cut of {healed - begun:.1f} s: {before} acknowledged before, {during} meanwhile, "
                f"{len(judge.acknowledged)} in all, {len(judge.refused)} refused; whole {took:.1f} s after the healing"
            )
            sys.stderr.write(f"{told}\n")
            assert during > 0, "each side should go on by itself"
            assert took <= HEALED_S, told
            assert any(seconds > 2 for seconds in judge.unanswered.values()), "no node told of links without answers"
            assert not judge.twice


@pytest.fixture(scope="module")
def namespaces() -> None:
    if reason := why_not():
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [5, 18, 30, 53])
def test_what_was_acknowledged_is_there_soon_after_a_cut_has_healed(namespaces, seconds):
    run(cut_for(seconds, {}), 240)
