"""Names, topics and reasons of others write no lines of their own, and nothing that a terminal obeys."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from live.lives import config, mesh, run, until
from live.test_hostile import stranger
from trellis.cli.main import run as trellis_run
from trellis.live.doctor import examine_running
from trellis.live.frames import pack_message
from trellis.live.http import HttpServer
from trellis.live.http_messages import Answer
from trellis.live.log import JsonLines, PlainLines
from trellis.protocols.delivery.outcome import Lost
from trellis.protocols.omen.messages import Connect

# A line that looks like one of the log; a color; a C1 escape; a mark that turns the line around; a separator of lines.
EVIL = "t\n2026-11-17 06:00:00,000 ERROR a: forged\r\x1b[31mred\x9b31m\u202eback\u2028\x85more"


@contextmanager
def logged(formatter: logging.Formatter) -> Iterator[io.StringIO]:
    """What `trellis node` would write to standard error."""
    text, logger = io.StringIO(), logging.getLogger("trellis.live")
    handler = logging.StreamHandler(text)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    try:
        yield text
    finally:
        logger.removeHandler(handler)


def assert_harmless(text: str) -> list[str]:
    lines = text.removesuffix("\n").split("\n")
    assert all(line.isprintable() for line in lines), text
    assert not any(line.startswith("2026-11-17 06:00:00,000") for line in lines), text
    return lines


@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()], ids=["plain", "json"])
def test_a_topic_of_a_hostile_peer_that_breaks_a_handler_writes_no_line_of_its_own(formatter):
    """The error has the topic in its text, and the log the whole trace."""

    async def work() -> None:
        async with mesh("a") as (node,):
            real = node.mesh.on_message

            def on_message(sender, message):
                if isinstance(message, Connect):
                    raise ValueError(f"cannot take {message.topics[0]}")
                return real(sender, message)

            node.mesh.on_message = on_message  # type: ignore[method-assign]
            async with stranger(node) as (_, writer):
                writer.write(pack_message(node.codec.encode(Connect(7, (EVIL,), 1, 1))))
                await until(lambda: node.counters["bugs"] == 1)
            node.counters.pop("bugs")

    with logged(formatter) as text:
        run(work())
    lines = assert_harmless(text.getvalue())
    assert any("forged" in line for line in lines), "it is told, harmlessly"
    if isinstance(formatter, JsonLines):
        assert any(EVIL in json.loads(line).get("trace", "") for line in lines)


@pytest.mark.parametrize("formatter", [PlainLines(), JsonLines()], ids=["plain", "json"])
def test_messages_of_a_topic_with_escapes_are_told_as_lost_on_one_line(formatter):
    async def work() -> None:
        async with mesh("a") as (node,):
            node._carry_out([Lost(EVIL, "b", 1, 1, 2, EVIL)])

    with logged(formatter) as text:
        run(work())
    assert_harmless(text.getvalue())


def test_the_doctor_prints_what_a_hostile_admin_port_says_harmlessly(capsys):
    """It may be any server: the address may be wrong."""

    def answer(request):
        if request.path == "/healthz":
            return Answer(f"is not healthy: {EVIL}\n".encode(), status=503)
        told = {"node": "x", "incarnation": 1, "overlay": "omen", "topics": [], "links": [], "cluster": EVIL}
        return Answer(json.dumps(told).encode())

    async def work() -> list[str]:
        server = HttpServer(answer)
        server.bind("127.0.0.1:0")
        server.serve()
        try:
            return [one.line() for one in await examine_running(f"127.0.0.1:{server.port}", None, config("x"))]
        finally:
            await server.close()

    lines = asyncio.run(work())
    assert sum("forged" in line for line in lines) == 2
    assert_harmless("\n".join(lines))


def test_an_error_of_the_program_has_no_escapes_of_others(capsys):
    assert trellis_run(["doctor", "--config", "/no/such\x1b[31m\x9bfile"]) == 1
    told = capsys.readouterr()
    assert_harmless(told.out)
    assert trellis_run(["pub", "t", "x", "--at", "no\x1b[31m\x9b"]) == 2
    assert_harmless(capsys.readouterr().err)
