"""Proof of life on streams: a peer that answers nothing is noticed, told of and given up; a slow one is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from live.lives import mesh, run, until
from live.test_transport import Node
from trellis.live import proof, transport
from trellis.live.frames import (
    BODY_BYTES_MAX,
    CONTROL,
    PROTOCOL,
    VERSION,
    Address,
    Bye,
    Hello,
    Ping,
    Pong,
    Splitter,
    pack_control,
    read_control,
)
from trellis.live.proof import Proof, notice_death


@pytest.fixture
def quick_rounds(monkeypatch):
    """Four rounds a second instead of one, and everything that is counted in rounds with them."""
    monkeypatch.setattr(transport, "ROUND_S", proof.ROUND_S / 4)
    for name in ("ROUND_S", "_PROVE_S", "_LATE_S"):
        monkeypatch.setattr(proof, name, getattr(proof, name) / 4)


@asynccontextmanager
async def peer(answers: bool) -> AsyncIterator[tuple[Address, list[object]]]:
    """A peer that reads everything, greets, and answers pings or does not; and what it was told."""
    told: list[object] = []
    over = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(pack_control(Hello(PROTOCOL, VERSION, "test", "omen", place)))
        splitter = Splitter(BODY_BYTES_MAX)
        while data := await reader.read(1 << 16):
            for body in splitter.feed(data):
                if body[:1] == CONTROL:
                    told.append(read_control(body))
                    if answers and isinstance(told[-1], Ping):
                        writer.write(pack_control(Pong()))
        writer.close()
        over.set()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    place = Address("b", 1, "127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        yield place, told
    finally:
        await over.wait()
        server.close()


def test_a_peer_that_takes_everything_and_answers_nothing_is_told_of_and_then_given_up(quick_rounds):
    async def work() -> None:
        node = await Node("a", silent_s=1.5).start()
        async with peer(answers=False) as (place, told):
            node.transport.book.learn([place])
            node.transport.send("b", b"are you there?")
            await until(lambda: node.transport.unanswered().get("b", 0) > proof._LATE_S)
            assert "b" in node.transport.peers
            assert node.down == []
            await until(lambda: node.down == ["b"])
            assert node.transport.counters["cut silent"] == 1
            assert "b" not in node.transport.peers
            assert node.transport.unanswered() == {}
            await node.end()
        assert Ping() in told
        assert told[-1] == Bye(), "if it only hangs, it must not take us for dead"

    run(work())


def test_the_reason_for_which_a_silent_peer_is_down_is_its_silence(quick_rounds):
    async def work() -> None:
        node = await Node("a", silent_s=1.5).start()
        reasons: list[str] = []
        node.transport.on_peer_down = lambda peer: reasons.append(node.transport.why_down)
        async with peer(answers=False) as (place, _):
            node.transport.book.learn([place])
            node.transport.send("b", b"are you there?")
            await until(lambda: bool(reasons))
            assert reasons == ["it was silent for 1.5 s"]
            await node.end()

    run(work())


def test_a_peer_that_answers_is_kept_though_it_never_speaks_by_itself(quick_rounds):
    async def work() -> None:
        node = await Node("a", silent_s=3).start()
        async with peer(answers=True) as (place, told):
            node.transport.book.learn([place])
            node.transport.send("b", b"are you there?")
            await until(lambda: told.count(Ping()) >= 3)
            assert node.down == []
            assert node.transport.unanswered() == {}
            await node.end()

    run(work())


def test_nodes_prove_to_each_other_that_they_live(quick_rounds):
    async def work() -> None:
        async with mesh("a", "b", topics=("t",)) as nodes:
            await until(lambda: all(len(node.links) == 1 for node in nodes))
            streams = [next(iter(node.transport.peers.values())) for node in nodes]
            begun = [stream.tag.proof._proved for stream in streams]
            await until(lambda: all(stream.tag.proof._proved > was for stream, was in zip(streams, begun, strict=True)))
            assert not any(node.transport.unanswered() for node in nodes)

    run(work())


def test_silence_counts_in_rounds_of_the_one_who_asks():
    """A process that was stopped for an hour has asked nobody: its peers are not to blame."""
    proof = Proof(0.0)
    assert not proof.must_ask(1.0)
    assert proof.must_ask(3_600.0)
    assert not proof.is_silent(5.0)
    for second in range(3_601, 3_606):
        assert not proof.must_ask(float(second))
    assert proof.is_silent(5.0)
    proof.heard()
    assert not proof.is_silent(5.0)
    assert proof.waits_s(3_606.0) == 6.0, "what came was no answer to our question"
    proof.answered(3_606.0)
    assert proof.waits_s(3_700.0) == 0.0


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this platform has no TCP_USER_TIMEOUT")
def test_the_kernel_is_told_to_give_up_a_stream_that_nobody_acknowledges():
    with socket.socket() as one:
        notice_death(one, 6.0)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 6_000
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 3
