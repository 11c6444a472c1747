"""Nodes with a store: what was acknowledged is there after a crash of all of them.  [docs/durable.md]"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from live.lives import client_address, config, peer_address, run, until, within
from trellis.errors import TrellisError
from trellis.live.client import Client, ClientError, connect
from trellis.live.config import DurableConfig
from trellis.live.shell import LiveNode
from trellis.store.disk import SyncFailed


class Mesh:
    """Nodes with stores in this process, which crash and start again."""

    def __init__(self, folder: Path, *names: str, **fields: Any) -> None:
        self.folder, self.names, self.fields = folder, names, fields
        self.nodes: dict[str, LiveNode] = {}
        self.ports: dict[str, tuple[str, str]] = {}

    async def start(self, *names: str) -> None:
        for name in names or self.names:
            durable = DurableConfig(path=str(self.folder / name), segment_bytes=8_192, bytes_max=1 << 20)
            seeds = tuple(peers for other, (peers, _) in self.ports.items() if other != name)
            fields = {"durable": durable, **self.fields}
            if name in self.ports:
                fields["listen"], fields["client_listen"] = self.ports[name]
            node = self.nodes[name] = LiveNode(config(name, seeds, **fields))
            await node.start()
            self.ports[name] = (peer_address(node), client_address(node))

    async def crash(self, *names: str) -> None:
        for name in names or self.names:
            node = self.nodes.pop(name)
            assert not node.counters["bugs"]
            node.mesh.check()
            await node.stop(in_order=False)
            assert node.keeper is not None
            await until(lambda node=node: not node.keeper.log.is_writing or node.keeper.disk._lock < 0)  # type: ignore[misc]
            node.keeper.disk.close()  # type: ignore[attr-defined]

    def client(self, node: str, name: str) -> Client:
        return connect(self.ports[node][1], client=name)


async def read(client: Client, count: int) -> list[bytes]:
    return [(await within(anext(client))).payload for _ in range(count)]


def test_a_durable_subscriber_gets_what_came_while_it_and_its_node_were_away(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a")
        await mesh.start()
        async with mesh.client("a", "reader") as reader:
            await within(reader.subscribe("news", durable=True))
            async with mesh.client("a", "writer") as writer:
                for number in range(5):
                    await within(writer.publish("news", b"%d" % number))
                assert await read(reader, 5) == [b"0", b"1", b"2", b"3", b"4"]
        async with mesh.client("a", "writer") as writer:
            for number in range(5, 10):
                await within(writer.publish("news", b"%d" % number))
        await mesh.crash()
        await mesh.start()
        async with mesh.client("a", "reader") as reader:
            await within(reader.subscribe("news", durable=True))
            got = await read(reader, 5)
            again = [number for number in got if number in (b"0", b"1", b"2", b"3", b"4")]
            # A client that restarts gets those again of which the node did not hear that they were taken.
            got += await read(reader, len(again))
            assert got[len(again) :] == [b"5", b"6", b"7", b"8", b"9"]
        await mesh.crash()

    run(story())


def test_a_client_that_stays_gets_nothing_twice_when_its_node_restarts(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a", "b")
        await mesh.start()
        async with mesh.client("b", "reader") as reader, mesh.client("a", "writer") as writer:
            await within(reader.subscribe("news", durable=True))
            sent = 0
            for _ in range(3):
                for _ in range(20):
                    receipt = await within(writer.publish("news", b"%d" % sent))
                    assert receipt.copies == 2
                    sent += 1
                await mesh.crash()
                await mesh.start()
            assert await read(reader, sent) == [b"%d" % number for number in range(sent)]
            await within(writer.publish("news", b"last"))
            assert await read(reader, 1) == [b"last"]
        await mesh.crash()

    run(story())


def test_a_publication_that_its_client_repeats_to_a_restarted_node_comes_once(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a", "b")
        await mesh.start()
        async with mesh.client("b", "reader") as reader, mesh.client("a", "writer") as writer:
            await within(reader.subscribe("news", durable=True))
            await within(writer.publish("news", b"first"))
            await mesh.crash("b")  # so the next one is not acknowledged
            waiting = asyncio.ensure_future(writer.publish("news", b"second"))
            node = mesh.nodes["a"]
            await until(lambda: any(entry.payload == b"second" for entry in _entries(node)))
            await until(lambda: all(entry.is_synced for entry in _entries(node)))
            await mesh.crash("a")
            await mesh.start()
            await within(waiting)
            await within(writer.publish("news", b"third"))
            assert await read(reader, 3) == [b"first", b"second", b"third"]
        await mesh.crash()

    run(story())


def _entries(node: LiveNode) -> list[Any]:
    topics = node.mesh.delivery.state.topics.values()
    return [one for topic in topics for stream in topic.streams.values() for one in stream.entries.values()]


def test_without_a_store_a_durable_subscription_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a", durable=DurableConfig())
        await mesh.start()
        async with mesh.client("a", "reader") as reader:
            with pytest.raises(ClientError, match="has no store"):
                await within(reader.subscribe("news", durable=True))
        await mesh.nodes["a"].stop(in_order=False)

    run(story())


def _small(tmp_path: Path, full: str, keep_s: float = 86_400.0) -> DurableConfig:
    path = str(tmp_path / "a")
    return DurableConfig(path=path, segment_bytes=4_096, bytes_max=32_768, full=full, keep_s=keep_s)  # type: ignore[arg-type]


def test_a_full_store_drops_its_oldest_messages_and_tells_who_misses_them(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a", durable=_small(tmp_path, "drop-oldest"))
        await mesh.start()
        async with mesh.client("a", "reader") as reader:
            await within(reader.subscribe("news", durable=True))
        async with mesh.client("a", "writer") as writer:
            for number in range(60):
                await within(writer.publish("news", b"%d" % number + bytes(1_000)))
        node = mesh.nodes["a"]
        assert node.keeper is not None
        await until(lambda: not node.keeper.log.is_writing)  # type: ignore[union-attr]
        assert node.keeper.log.bytes <= 32_768 + 2 * 4_096
        assert node.mesh.delivery.state.store.overflows > 20
        async with mesh.client("a", "reader") as reader:
            await within(reader.subscribe("news", durable=True))
            got = [await within(anext(reader))]
            while not got[-1].payload.startswith(b"59"):
                got.append(await within(anext(reader)))
            numbers = [int(one.payload.rstrip(b"\0")) for one in got]
            assert numbers == list(range(numbers[0], 60))
            assert 10 < len(numbers) < 40
        await mesh.crash()

    run(story())


async def _publish_many(writer: Client, count: int) -> None:
    for number in range(count):
        await within(writer.publish("news", b"%d" % number + bytes(1_000)))


def test_a_full_store_that_refuses_says_so_and_recovers_when_messages_are_old(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a", durable=_small(tmp_path, "refuse", keep_s=1_000.0))
        await mesh.start()
        async with mesh.client("a", "writer") as writer:
            with pytest.raises(ClientError, match="the store of this node is full"):
                await _publish_many(writer, 200)
            node = mesh.nodes["a"]
            held = node.mesh.delivery.state.store.count
            assert held > 15, "something acknowledged was dropped"
            node._carry_out(node.mesh.stood_still(2_000_000))  # all messages are older than keep_s now
            await until(lambda: not node.mesh.delivery.state.durable.why_full)  # type: ignore[union-attr]
            await within(writer.publish("news", b"again"))
        await mesh.crash()

    run(story())


def test_a_node_whose_sync_fails_ends_and_acknowledges_nothing_more(tmp_path: Path) -> None:
    async def story() -> None:
        mesh = Mesh(tmp_path, "a")
        await mesh.start()
        node = mesh.nodes["a"]
        assert node.keeper is not None
        async with mesh.client("a", "writer") as writer:
            await within(writer.publish("news", b"good"))

            def fail(name: str) -> None:
                raise SyncFailed(f"{name}: an error of the disk")

            node.keeper.disk.sync = fail  # type: ignore[method-assign]
            waiting = asyncio.ensure_future(writer.publish("news", b"bad"))
            with pytest.raises(TrellisError, match="cannot be written"):
                await within(node.wait())
            assert not waiting.done()
            waiting.cancel()
        node.keeper.disk.close()  # type: ignore[attr-defined]

    run(story())
