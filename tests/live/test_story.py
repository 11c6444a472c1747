"""The log of a node tells what happened to it, in order, and cannot be flooded."""

from __future__ import annotations

import json
import logging
import re
import sys
from contextlib import AsyncExitStack

import pytest

from live.lives import config, mesh, peer_address, run, until
from trellis.live.log import Damper, JsonLines, PlainLines, listed, start_logging
from trellis.live.shell import LiveNode
from trellis.protocols.delivery.outcome import Lost


def lines_of(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.getMessage().startswith(f"{name}: ")]


def places(lines: list[str], *patterns: str) -> list[int]:
    """Where the first line of each pattern is; -1 where there is none."""
    return [next((at for at, line in enumerate(lines) if re.search(one, line)), -1) for one in patterns]


def in_order(found: list[int]) -> bool:
    return -1 not in found and found == sorted(found)


async def stands(nodes: list[LiveNode]) -> None:
    """Every node has joined, has told so, and nothing is under way."""
    await until(lambda: all(node.story.has_joined and node.links and not node.repairs.open for node in nodes))


def test_the_survivors_of_a_crash_tell_its_story_in_order(caplog):
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        async with mesh("a", "b", "c", topics=("t", "u")) as nodes:
            await stands(nodes)
            victim = max(nodes, key=lambda node: len(node.links))  # three nodes on one topic: one is linked to both
            rest = [node for node in nodes if node is not victim]
            assert all(victim.name in node.links for node in rest)
            caplog.clear()
            await victim.stop(in_order=False)
            await until(lambda: all(places(lines_of(caplog, one.name), "whole again") != [-1] for one in rest))
            told = {node.name: lines_of(caplog, node.name) for node in rest}
            lost = rf"lost neighbor {victim.name}: its stream broke; 2 topics: t, u$"
            whole = rf"whole again [\d.]+ s after the loss of {victim.name}: neighbors [abc]$"
            for name, lines in told.items():
                assert in_order(places(lines, lost, whole)), lines
                began = places(lines, rf"repair \d+ started: crash of {victim.name}$")
                if began != [-1]:
                    steps = places(lines, lost, "repair .* started", "repair .* finished", "whole again")
                    assert in_order(steps), f"{name}: {lines}"
            ended = rf"repair \d+ finished after \d+ ms: crash of {victim.name}; 2 topics: t, u$"
            assert any(places(lines, ended) != [-1] for lines in told.values()), told

    run(work())


def test_a_node_tells_with_whom_it_has_joined_and_after_how_long(caplog):
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await stands(nodes)
            for name, other in ("ab", "ba"):
                lines = [line for line in lines_of(caplog, name) if "joined" in line]
                assert len(lines) == 1
                told = rf"{name}: joined the mesh after [\d.]+ s: neighbors {other}; streams to {other}"
                assert re.fullmatch(told, lines[0])

    run(work())


def test_a_neighbor_that_leaves_in_order_is_told_as_such(caplog):
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        async with mesh("a", "b", "c", topics=("t",)) as nodes:
            await stands(nodes)
            nodes[1].leave()
            await nodes[1].wait()
            neighbor = "lost neighbor b: it left in order; 1 topic: t"
            await until(lambda: any(places(lines_of(caplog, one), neighbor) != [-1] for one in "ac"))
            assert not any("broke" in line for one in "ac" for line in lines_of(caplog, one))

    run(work())


def test_a_neighbor_that_restarts_is_told_as_such(caplog):
    """Its new incarnation comes before the end of its old stream is seen, which answers nothing any more."""
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as (a, b), AsyncExitStack() as stack:
            await stands([a, b])
            b.transport._answer = lambda stream: None  # type: ignore[method-assign]
            again = LiveNode(config("b", (peer_address(a),), topics=("t",)), life=b.life + 100)
            await again.start()
            stack.push_async_callback(again.stop, in_order=False)
            await until(lambda: places(lines_of(caplog, "a"), "lost neighbor b: it restarted") != [-1])
            await until(lambda: places(lines_of(caplog, "a"), "whole again .* neighbors b") != [-1])

    run(work())


def test_a_seed_that_refuses_is_named_with_its_reason_once(caplog):
    caplog.set_level(logging.INFO, "trellis.live")

    async def work() -> None:
        async with mesh("a") as (a,):
            node = LiveNode(config("n", (peer_address(a),), cluster="other"))
            await node.start()
            try:
                await until(lambda: node.transport.counters["refused cluster"] >= 3)
            finally:
                await node.stop(in_order=False)
            told = f"n: seed {peer_address(a)} did not accept us: it refused this node (cluster): "
            told += 'this node is of cluster "test"'
            assert lines_of(caplog, "n").count(told) == 1

    run(work())


def test_losses_of_clients_are_warnings_in_plain_words_and_those_of_the_directory_are_not(caplog):
    caplog.set_level(logging.DEBUG, "trellis.live")

    async def work() -> None:
        async with mesh("a") as (a,):
            a._carry_out(
                [Lost("t", "b", 1, 4, 6, "nobody keeps it"), Lost("$mqtt/ask", "b", 1, 2, 2, "nobody keeps it")]
            )
            told = [(one.levelname, one.getMessage()) for one in caplog.records if "handed over" in one.getMessage()]
            assert told == [
                ("WARNING", "a: messages 4 to 6 of b on t will never be handed over: nobody keeps it"),
                ("DEBUG", "a: message 2 of b on $mqtt/ask will never be handed over: nobody keeps it"),
            ]

    run(work())


def test_names_are_listed_shortly():
    assert listed(["t"]) == "t"
    assert listed([f"t{number}" for number in range(5)]) == "t0, t1, t2, t3, t4"
    assert listed(f"t{number}" for number in range(1_000)) == "t0, t1, t2, t3, t4 and 995 more"


# Floods


def record(sentence: str, *values: object, at_s: float = 0.0) -> logging.LogRecord:
    made = logging.LogRecord("trellis.live", logging.INFO, "", 0, sentence, values, None)
    made.created = at_s
    return made


LOST = "%s: lost neighbor %s: %s; %s"


def test_a_peer_that_flaps_cannot_flood_the_log_and_what_was_left_out_is_told():
    damper = Damper()
    flapping = [record(LOST, "a", "b", "its stream broke", "t", at_s=number / 100) for number in range(900)]
    passed = [one for one in flapping if damper.filter(one)]
    assert len(passed) == Damper.SAME_MAX
    assert damper.filter(record(LOST, "a", "c", "its stream broke", "t", at_s=9.0)), "the others are heard of"
    again = record(LOST, "a", "b", "its stream broke", "t", at_s=20.0)
    assert damper.filter(again)
    later = record(LOST, "a", "b", "its stream broke", "t", at_s=20.1)
    assert damper.filter(later)
    told = [PlainLines().format(one) for one in (again, later)]
    assert not told[1].endswith("before)")
    assert json.loads(JsonLines().format(passed[0])).keys().isdisjoint({"left_out"})


def test_the_number_of_lines_left_out_is_told_in_both_formats():
    damper = Damper()
    for number in range(Damper.SAME_MAX + 7):
        damper.filter(record(LOST, "a", "b", "its stream broke", "t", at_s=number / 100))
    again = record(LOST, "a", "b", "its stream broke", "t", at_s=20.0)
    assert damper.filter(again)
    assert PlainLines().format(again).endswith("(7 lines like this were left out before)")
    assert json.loads(JsonLines().format(again))["left_out"] == 7


def test_nobody_can_write_lines_of_their_own_into_the_log_or_into_health():
    forged = "no\n2026-01-01 00:00:00,000 INFO a: all is well\x1b[2J"
    line = PlainLines().format(record("%s: %s refuses us: %s", "a", "b", forged))
    assert line.splitlines() == [line]
    assert line.endswith("a: b refuses us: no\\n2026-01-01 00:00:00,000 INFO a: all is well\\x1b[2J")

    async def work() -> None:
        async with mesh("a") as (a,):
            node = LiveNode(config("n", (peer_address(a),)))
            await node.start()
            try:
                node.transport.peers.clear()
                node.transport.failures[peer_address(a)] = forged
                assert all("\n" not in one.text for one in node.health.complaints())
            finally:
                await node.stop(in_order=False)

    run(work())


def test_thousands_of_names_cannot_flood_the_log_or_fill_the_memory():
    damper = Damper()
    passed = sum(damper.filter(record(LOST, "a", f"n{number}", "why", "t")) for number in range(20_000))
    assert passed == Damper.KIND_MAX
    assert len(damper._seen) <= Damper.KEYS_MAX
    assert damper.filter(record("%s: leaves", "a")), "other sentences still pass"


def test_the_log_of_a_node_is_damped(capsys, monkeypatch):
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    try:
        monkeypatch.setattr(sys, "stderr", sys.stderr)
        start_logging("info", False)
        for _ in range(50):
            logging.getLogger("trellis.live").info(LOST, "a", "b", "its stream broke", "1 topic: t")
        assert capsys.readouterr().err.count("lost neighbor b") == Damper.SAME_MAX
    finally:
        root.handlers[:] = before
        root.setLevel(level)
