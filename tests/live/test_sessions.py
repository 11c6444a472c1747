"""Clients under one name: each session's publications count for themselves, and no client can take the node's names."""

from __future__ import annotations

import asyncio

import pytest

import trellis
from live.lives import client_address, mesh, run, until
from mqtt.talk import connect as connect_mqtt
from mqtt.talk import doors
from trellis.live.client import Client, ClientError, NotAcknowledged
from trellis.live.frames import pack
from trellis.live.shell import LiveNode
from trellis.live.talk import TO_CLIENT, Greet, Publish, Taken, TurnedAway, Welcome, pack_to_node


async def take(client: Client, count: int) -> list[bytes]:
    async with asyncio.timeout(20):
        return [(await anext(client)).payload for _ in range(count)]


class OldClient:
    """A client of protocol version 1, which knows no sessions."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self):
        head = await self.reader.readexactly(len(pack(b"")))
        return TO_CLIENT.decode(await self.reader.readexactly(int.from_bytes(head, "big")))

    async def publish(self, number: int, payload: bytes) -> None:
        self.writer.write(pack_to_node(Publish(number, "t", payload)))
        answer = await self.read()
        assert isinstance(answer, Taken)
        assert answer.number == number


async def greet(node: LiveNode, name: str, version: int = 1) -> OldClient:
    old = OldClient(*await asyncio.open_connection("127.0.0.1", node.client_port.port))
    old.writer.write(pack_to_node(Greet("trellis-client", version, name)))
    return old


def test_a_named_client_that_restarts_loses_no_acknowledged_message():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as reader:
            await reader.subscribe("t")
            sent = [[b"%d of %d" % (number, turn) for number in range(5)] for turn in range(3)]
            for turn in sent:
                async with trellis.connect(client_address(node), client="sensor-7") as client:
                    for payload in turn:
                        await client.publish("t", payload)
            assert await take(reader, 15) == [one for turn in sent for one in turn]

    run(work())


@pytest.mark.parametrize("names", ["a", "ab"], ids=["at one node", "at two nodes"])
def test_two_clients_of_one_name_do_not_swallow_each_others_publications(names):
    async def work() -> None:
        async with mesh(*names) as nodes, trellis.connect(client_address(nodes[0])) as reader:
            await reader.subscribe("t")
            places = [client_address(nodes[0]), client_address(nodes[-1])]
            async with (
                trellis.connect(places[0], client="twin") as first,
                trellis.connect(places[1], client="twin") as second,
            ):
                for number in range(5):
                    await first.publish("t", b"first %d" % number)
                    await second.publish("t", b"second %d" % number)
                assert first.reconnects == second.reconnects == 0
            got = await take(reader, 10)
            assert sorted(got) == sorted(b"%s %d" % (who, n) for who in (b"first", b"second") for n in range(5))

    run(work())


def test_a_client_of_version_1_that_restarts_loses_no_acknowledged_message():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as reader:
            await reader.subscribe("t")
            for turn in range(2):
                old = await greet(node, "old")
                assert isinstance(await old.read(), Welcome)
                for number in (1, 2, 3):
                    await old.publish(number, b"%d of %d" % (number, turn))
                old.writer.close()
            assert await take(reader, 6) == [b"%d of %d" % (number, turn) for turn in (0, 1) for number in (1, 2, 3)]

    run(work())


def test_a_client_of_version_1_that_comes_back_takes_the_place_of_its_old_stream():
    async def work() -> None:
        async with mesh("a") as (node,):
            first = await greet(node, "old")
            assert isinstance(await first.read(), Welcome)
            second = await greet(node, "old")
            assert isinstance(await second.read(), Welcome)
            assert await first.reader.read() == b""
            await until(lambda: len(node.client_port.clients) == 1)
            await second.publish(1, b"x")
            first.writer.close()
            second.writer.close()

    run(work())


def test_a_number_used_twice_for_different_messages_is_an_error_and_no_silent_loss():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as client:
            await client.publish("t", b"one")
            client._number = 0
            with pytest.raises(NotAcknowledged, match="number 1 of this client's session was used for another"):
                await client.publish("t", b"two")

    run(work())


@pytest.mark.parametrize("name", ["$mqtt", "$", "$anything"])
def test_a_name_that_begins_with_a_dollar_is_turned_away_with_a_reason(name):
    async def work() -> None:
        async with mesh("a") as (node,):
            with pytest.raises(ClientError, match=r"begins with .*reserved; choose another name"):
                trellis.connect(client_address(node), client=name)
            stranger = await greet(node, name, 2)
            answer = await stranger.read()
            assert isinstance(answer, TurnedAway)
            assert answer.text == f'the client name "{name}" begins with "$", which is reserved; choose another name'
            assert await stranger.reader.read() == b""
            assert node.client_port.counters["cut name"] == 1
            assert not node.client_port.clients
            stranger.writer.close()

    run(work())


@pytest.mark.parametrize("name", ["", "x" * 129])
def test_a_name_that_no_node_takes_is_refused_before_dialling(name):
    with pytest.raises(ClientError, match="give it 1 to 128"):
        trellis.connect("127.0.0.1:1", client=name)


def test_no_native_client_can_swallow_publications_of_mqtt_clients():
    """A client that takes the name of the MQTT listener's own publisher, as far as the node lets it."""

    async def work() -> None:
        async with doors("a") as (node,):
            stranger = await greet(node, "$mqtt")
            await stranger.read()
            for number in range(1, 60):
                stranger.writer.write(pack_to_node(Publish(number, "decoy", b"x")))
            reader, writer = await connect_mqtt(node, "reader"), await connect_mqtt(node, "writer")
            assert await reader.subscribe("t") == (1,)
            for number in range(20):
                assert await writer.publish("t", b"%d" % number) == 0
            async with asyncio.timeout(20):
                assert await reader.messages(20) == [b"%d" % number for number in range(20)]
            stranger.writer.close()

    run(work())


def test_no_native_client_publishes_on_topics_of_the_mesh_itself():
    async def work() -> None:
        async with mesh("a") as (node,), trellis.connect(client_address(node)) as client:
            with pytest.raises(NotAcknowledged, match="belong to the mesh itself"):
                await client.publish("$mqtt/ask", b"forged")
            assert (await client.publish("t", b"x")).holders == ("a",)

    run(work())
