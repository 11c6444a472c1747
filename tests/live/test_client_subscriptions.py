"""When `client.subscribe` returns: only when the node has confirmed this subscription on the present connection.

The client port and the client are real. The node behind the port confirms a topic when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

import trellis
from live.lives import CLUSTER, run, until, within
from trellis.live.client import MISSED_MAX, Client
from trellis.live.client_port import ClientPort
from trellis.live.config import LimitsConfig
from trellis.live.frames import pack
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, TO_CLIENT, Greet, Missed, Welcome, pack_to_node
from trellis.protocols.delivery.outcome import Acknowledged, ClientId, Confirmed


class SlowNode:
    """A node with a real client port. It acknowledges at once, and confirms topics when it is told to."""

    def __init__(self) -> None:
        self.client_port = ClientPort(self, Welcome("a", CLUSTER, 1, CLIENT_VERSION), LimitsConfig(), ())
        self.asked: list[str] = []  # topics that the port subscribed to, in order

    def refusal(self, topic: str) -> str | None:
        return None

    def subscribe(self, topic: str) -> None:
        self.asked.append(topic)

    def unsubscribe(self, topic: str) -> None:
        pass

    def publish(self, topic: str, payload: bytes, client_id: ClientId) -> None:
        self.client_port.tell(Acknowledged(topic, 1, 1, 1, ("a",), client_id))

    def is_confirmed(self, topic: str) -> bool:
        return False

    def confirm(self, topic: str) -> None:
        self.client_port.tell(Confirmed(topic))

    def cut(self) -> None:
        for stream in list(self.client_port.streams):
            stream.cut("closed")


@asynccontextmanager
async def slow_node() -> AsyncIterator[tuple[SlowNode, Client]]:
    node = SlowNode()
    node.client_port.bind("127.0.0.1:0", None)
    node.client_port.serve()
    try:
        async with trellis.connect(f"127.0.0.1:{node.client_port.port}") as client:
            yield node, client
    finally:
        node.client_port.close()
        await node.client_port.closed()


async def heard_all(client: Client) -> None:
    """Return when the client has handled everything that its node said before, and its callers have run."""
    for _ in range(2):  # answers come in order
        await within(client.publish("other", b"x"))


async def subscribed(node: SlowNode, client: Client, topic: str) -> None:
    task = asyncio.ensure_future(client.subscribe(topic))
    await until(lambda: topic in node.asked)
    node.confirm(topic)
    await within(task)


def test_after_a_reconnection_subscribe_waits_for_the_confirmation_of_the_new_connection():
    async def work() -> None:
        async with slow_node() as (node, client):
            await subscribed(node, client, "t")
            node.cut()
            await until(lambda: client.reconnects == 1)
            again = asyncio.ensure_future(client.subscribe("t"))
            await heard_all(client)
            assert node.asked == ["t", "t"], "the client subscribes again by itself"
            assert not again.done()
            node.confirm("t")
            await within(again)
            await within(client.subscribe("t"))  # confirmed: returns without another answer

    run(work())


def test_who_subscribes_while_the_connection_is_lost_waits_for_the_next_one():
    async def work() -> None:
        async with slow_node() as (node, client):
            await subscribed(node, client, "t")
            first = asyncio.ensure_future(client.subscribe("u"))  # asked before the connection breaks
            await until(lambda: "u" in node.asked)
            node.cut()
            await client._ended.wait()
            assert client.reconnects == 0
            second = asyncio.ensure_future(client.subscribe("t"))
            await until(lambda: client.reconnects == 1)
            await heard_all(client)
            assert not first.done()
            assert not second.done()
            node.confirm("u")
            await within(first)
            assert not second.done()
            node.confirm("t")
            await within(second)

    run(work())


def test_a_late_answer_does_not_confirm_a_newer_subscription():
    async def work() -> None:
        async with slow_node() as (node, client):
            first = asyncio.ensure_future(client.subscribe("t"))
            await until(lambda: node.asked == ["t"])
            node.confirm("t")  # on its way while the client changes its mind twice
            await client.unsubscribe("t")
            again = asyncio.ensure_future(client.subscribe("t"))
            await heard_all(client)
            assert node.asked == ["t", "t"]
            assert first.cancelled()
            assert not again.done()
            node.confirm("t")
            await within(again)

    run(work())


def test_an_answer_of_an_older_node_without_a_number_confirms():
    async def work() -> None:
        async with slow_node() as (node, client):
            task = asyncio.ensure_future(client.subscribe("t"))
            await until(lambda: node.asked == ["t"])
            [stream] = node.client_port.streams
            stream.send(pack(msgspec.msgpack.encode({"type": "subscribed", "topic": "t"})))
            await within(task)

    run(work())


def test_a_node_answers_every_number_under_which_a_client_subscribes():
    async def work() -> None:
        async with slow_node() as (node, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.client_port.port)

            async def read() -> object:
                head = await reader.readexactly(len(pack(b"")))
                return TO_CLIENT.decode(await reader.readexactly(int.from_bytes(head, "big")))

            def ask(**fields: object) -> None:
                writer.write(pack(msgspec.msgpack.encode({"type": "subscribe", "topic": "t", **fields})))

            writer.write(pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "stranger", 1)))
            assert isinstance(await within(read()), Welcome)
            node.is_confirmed = lambda topic: True  # type: ignore[method-assign]
            for fields in ({}, {"number": 1}, {"number": 1}, {"number": 2}):  # an older client sends no number
                ask(**fields)
            answers = [msgspec.to_builtins(await within(read())) for _ in range(3)]
            assert answers == [{"type": "subscribed", "topic": "t", "number": number} for number in (0, 1, 2)]
            writer.close()

    run(work())


def test_a_client_keeps_the_latest_reports_of_lost_messages_and_counts_those_that_it_removed():
    client = trellis.connect("127.0.0.1:1")
    for number in range(1, MISSED_MAX + 6):
        client.received(None, TO_CLIENT.encode(Missed("t", "a", number, number, "nobody keeps it")))  # type: ignore[arg-type]
    assert [one.first for one in client.missed] == list(range(6, MISSED_MAX + 6))
    assert client.missed_dropped == 5
