"""MQTT over WebSocket: the handshake, frames in any pieces, and what is refused."""

from __future__ import annotations

import asyncio
import base64
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import run
from mqtt.talk import doors
from trellis.live.shell import LiveNode
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.decode import decode
from trellis.protocols.mqtt.encode import encode
from trellis.protocols.mqtt.framing import Framing
from trellis.protocols.mqtt.websocket import HEAD_BYTES_MAX, WebSocket

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # the example of RFC 6455, 1.3
HEADERS = {
    "Host": "example.org",
    "Upgrade": "websocket",
    "Connection": "keep-alive, Upgrade",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Protocol": "mqtt",
}


def request(path: str = "/mqtt", **changed: str | None) -> bytes:
    headers = {**HEADERS, **{name.replace("_", "-"): value for name, value in changed.items()}}
    lines = [f"{name}: {value}" for name, value in headers.items() if value is not None]
    return "\r\n".join([f"GET {path} HTTP/1.1", *lines, "", ""]).encode()


def frame(opcode: int, content: bytes, *, is_final: bool = True, mask: bytes = b"\x01\x80\xff\x33") -> bytes:
    """A frame as a client sends it."""
    length = len(content)
    if length < 126:
        head = bytes((is_final << 7 | opcode, 0x80 | length))
    elif length < 1 << 16:
        head = bytes((is_final << 7 | opcode, 0x80 | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((is_final << 7 | opcode, 0x80 | 127)) + length.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(content))


def opened() -> WebSocket:
    websocket = WebSocket()
    websocket.feed(request())
    websocket.take()
    assert websocket.is_open
    return websocket


def test_the_handshake_is_answered_as_in_the_example_of_the_standard():
    websocket = WebSocket()
    assert websocket.feed(request()) == b""
    answer = websocket.take().decode()
    assert answer.startswith("HTTP/1.1 101 ")
    assert "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    assert "Sec-WebSocket-Protocol: mqtt\r\n" in answer


@given(st.lists(st.tuples(st.binary(max_size=300), st.integers(1, 4)), max_size=6), st.data())
def test_contents_of_frames_are_one_stream_whatever_the_pieces(messages: list[tuple[bytes, int]], data: st.DataObject):
    sent = request()
    for content, parts in messages:
        size = max(1, -(-len(content) // parts))
        cut = [content[at : at + size] for at in range(0, len(content), size)] or [b""]
        for index, part in enumerate(cut):
            sent += frame(0 if index else 2, part, is_final=index == len(cut) - 1) + frame(9, b"ping")
    websocket, got = WebSocket(), b""
    while sent:
        size = data.draw(st.integers(1, len(sent)))
        got += websocket.feed(sent[:size])
        sent = sent[size:]
    assert got == b"".join(content for content, _ in messages)
    assert not websocket.is_over


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 200_000])
def test_what_the_node_sends_comes_in_one_frame_of_the_right_length(size: int):
    wrapped = WebSocket().wrap(b"x" * size)
    assert wrapped[0] == 0x82
    head = 2 if size < 126 else 4 if size < 1 << 16 else 10
    assert len(wrapped) == head + size
    if head > 2:
        assert int.from_bytes(wrapped[2:head], "big") == size


def test_a_ping_is_answered_and_a_close_is_returned():
    websocket = opened()
    websocket.feed(frame(9, b"hello"))
    assert websocket.take() == b"\x8a\x05hello"
    websocket.feed(frame(8, (1000).to_bytes(2, "big") + b"bye"))
    assert websocket.take() == b"\x88\x02\x03\xe8"
    assert websocket.is_over
    assert not websocket.why
    assert websocket.feed(frame(2, b"more")) == b""


REFUSED = {
    "no upgrade": ({"Upgrade": None}, "400"),
    "no connection": ({"Connection": "keep-alive"}, "400"),
    "no key": ({"Sec_WebSocket_Key": None}, "400"),
    "a short key": ({"Sec_WebSocket_Key": base64.b64encode(b"short").decode()}, "400"),
    "a key that is none": ({"Sec_WebSocket_Key": "?" * 24}, "400"),
    "an old version": ({"Sec_WebSocket_Version": "8"}, "426"),
    "another subprotocol": ({"Sec_WebSocket_Protocol": "chat, amqp"}, "400"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_request_that_is_no_websocket_of_mqtt_is_refused_with_a_status(case: str):
    changed, status = REFUSED[case]
    websocket = WebSocket()
    assert websocket.feed(request(**changed)) == b""
    assert websocket.take().split()[1] == status.encode()
    assert websocket.is_over
    assert websocket.why


def test_a_client_that_names_no_subprotocol_is_let_in():
    websocket = WebSocket()
    websocket.feed(request(Sec_WebSocket_Protocol=None))
    answer = websocket.take()
    assert answer.startswith(b"HTTP/1.1 101 ")
    assert b"Protocol" not in answer.partition(b"Accept")[2]


def test_origins_that_are_not_listed_are_refused():
    for origin, status in (("https://good.example", b"101"), ("https://bad.example", b"403")):
        websocket = WebSocket(("https://good.example",))
        websocket.feed(request(Origin=origin))
        assert websocket.take().split()[1] == status


def test_a_request_that_never_ends_is_refused_before_it_takes_memory():
    websocket = WebSocket()
    for _ in range(HEAD_BYTES_MAX // 100 + 2):
        websocket.feed(b"x" * 100)
    assert websocket.take().split()[1] == b"431"
    assert websocket.is_over


BAD = {
    "no mask": (b"\x82\x01x", 1002),
    "reserved bits": (b"\xc2\x81" + b"\0\0\0\0x", 1002),
    "text": (frame(1, b"hello"), 1003),
    "an unknown opcode": (frame(3, b"x"), 1002),
    "a long ping": (frame(9, b"x" * 126), 1002),
    "a ping in parts": (frame(9, b"x", is_final=False), 1002),
    "a continuation of nothing": (frame(0, b"x"), 1002),
    "a message within a message": (frame(2, b"x", is_final=False) + frame(2, b"x"), 1002),
}


@pytest.mark.parametrize("case", BAD)
def test_a_frame_that_is_not_allowed_ends_the_connection_with_a_code(case: str):
    sent, code = BAD[case]
    websocket = opened()
    websocket.feed(sent)
    assert websocket.take() == b"\x88\x02" + code.to_bytes(2, "big")
    assert websocket.is_over
    assert websocket.why


@given(st.binary(max_size=200))
def test_no_bytes_of_a_client_raise_an_error(noise: bytes):
    for websocket in (WebSocket(), opened()):
        websocket.feed(noise)
        websocket.feed(noise)


class Client:
    """A client over WebSocket, in a few lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer, self.framing = reader, writer, Framing(1 << 24)
        self.found: list[p.Packet] = []

    def send(self, *packets: p.Packet) -> None:
        self.writer.write(frame(2, b"".join(encode(p.V5, one) for one in packets), mask=os.urandom(4)))

    async def read(self) -> p.Packet:
        while not self.found:
            first, second = await self.reader.readexactly(2)
            assert first == 0x82
            more = {126: 2, 127: 8}.get(second, 0)
            size = int.from_bytes(await self.reader.readexactly(more), "big") if more else second
            self.framing.feed(await self.reader.readexactly(size))
            self.found += [decode(p.V5, kind, body) for kind, body in self.framing.packets()]
        return self.found.pop(0)


async def dial(node: LiveNode) -> Client:
    assert node.mqtt is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", node.mqtt.websocket_port)
    writer.write(request())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    client = Client(reader, writer)
    client.send(p.Connect(version=p.V5, client="ws", clean_start=True))
    assert isinstance(await client.read(), p.ConnAck)
    return client


def test_a_node_serves_clients_over_websocket_and_ends_with_a_close_frame():
    async def work() -> None:
        async with doors("a", mqtt={"websocket": "127.0.0.1:0"}) as (node,):
            client = await dial(node)
            client.send(p.Subscribe(1, (p.Asked("a/b", 1),)))
            assert isinstance(await client.read(), p.SubAck)
            client.send(p.Publish(topic="a/b", payload=b"x" * 200_000, qos=1, id=1))
            got = [await client.read(), await client.read()]
            (message,) = [one for one in got if isinstance(one, p.Publish)]
            assert message.payload == b"x" * 200_000
            client.send(p.Publish(topic="a/+", payload=b""))  # a topic with a wildcard: the node closes
            packet = await client.read()
            while not isinstance(packet, p.Disconnect):
                packet = await client.read()
            assert (await client.reader.readexactly(2))[0] == 0x88
            client.writer.close()

    run(work())


def test_a_browser_that_asks_for_a_page_gets_an_answer_and_costs_no_other_client():
    async def work() -> None:
        async with doors("a", mqtt={"websocket": "127.0.0.1:0"}) as (node,):
            reader, writer = await asyncio.open_connection("127.0.0.1", node.mqtt.websocket_port)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            client = await dial(node)
            client.writer.close()

    run(work())
