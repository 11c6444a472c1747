"""Frames that wait for a dial: they leave like all others when a stream is there."""

from __future__ import annotations

from live.lives import run, until
from live.test_transport import Node
from trellis.live.frames import Address
from trellis.protocols.effects import Seed


def test_frames_for_a_seed_that_is_a_connected_peer_follow_the_addresses_that_they_may_name():
    """Node b dials a as a seed, and a refuses the second stream and tells its name. So b uses the first stream."""

    async def work() -> None:
        a, b = await Node("a").start(), await Node("b").start()
        known: list[bool] = []
        a.transport.on_message = lambda peer, body: known.append(a.transport.book.find("c") is not None)
        a.transport.send(Seed("127.0.0.1", b.transport.port), b"hello")
        await until(lambda: bool(b.came))
        b.transport.peers["a"].tag.used = -1.0
        b.transport.book.learn([Address("c", 1, "127.0.0.1", 9)])
        b.transport.send(Seed("127.0.0.1", a.transport.port), b"c is there")
        await until(lambda: bool(known))
        assert b.transport.counters["refused second"] == 1, "the frame went by the first stream"
        assert known == [True]
        assert b.transport.peers["a"].tag.used >= 0, "the stream is not idle"
        assert b.transport.counters["sent_bytes"] == len(b"c is there")
        for node in (a, b):
            await node.end()

    run(work())
