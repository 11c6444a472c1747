"""The PROXY protocol, version 2: who connects through a load balancer, and what is refused."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import run
from mqtt.talk import doors
from trellis.live.proxy_header import BYTES_MAX, SIGNATURE, ProxyError, body_bytes, source_in
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.encode import encode

CONNECT = encode(p.V5, p.Connect(version=p.V5, client="c", clean_start=True))


def header(source: str = "192.0.2.7", *, command: int = 1, tlvs: bytes = b"", version: int = 2) -> bytes:
    address = ipaddress.ip_address(source)
    family = 0x11 if address.version == 4 else 0x21
    body = address.packed + address.packed + (4_000).to_bytes(2, "big") + (1883).to_bytes(2, "big") + tlvs
    return SIGNATURE + bytes((version << 4 | command, family)) + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize("source", ["192.0.2.7", "2001:db8::7"])
def test_the_source_is_the_one_that_the_load_balancer_names(source: str):
    sent = header(source, tlvs=b"\x04\x00\x03abc")
    assert body_bytes(sent[:16]) == len(sent) - 16
    assert source_in(sent[:16], sent[16:]) == (source, 4_000)


def test_a_load_balancer_may_speak_for_itself():
    sent = header(command=0)
    assert source_in(sent[:16], sent[16:]) is None
    unknown = SIGNATURE + b"\x21\x00\x00\x00"
    assert source_in(unknown, b"") is None


BAD = {
    "no signature": CONNECT.ljust(16, b"x")[:16],
    "version 1": b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\n"[:16],
    "version 3": header(version=3)[:16],
    "an unknown command": header(command=5)[:16],
    "a length that is too large": SIGNATURE + b"\x21\x11" + (BYTES_MAX + 1).to_bytes(2, "big"),
}


@pytest.mark.parametrize("case", BAD)
def test_other_beginnings_are_refused(case: str):
    with pytest.raises(ProxyError):
        body_bytes(BAD[case])


def test_a_header_without_its_addresses_is_refused():
    with pytest.raises(ProxyError):
        source_in(header()[:16], b"\x01\x02")


@given(st.binary(min_size=16, max_size=16), st.binary(max_size=80))
def test_no_bytes_raise_another_error(head: bytes, body: bytes):
    for first in (head, SIGNATURE + head[:4]):
        try:
            body_bytes(first)
            source_in(first, body)
        except ProxyError:
            pass


async def answer_to(port: int, sent: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
    writer.write(sent)
    try:
        return await reader.read(4)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_a_node_behind_a_load_balancer_serves_only_what_comes_with_a_header():
    async def work() -> None:
        async with doors("a", mqtt={"proxy_protocol": True, "websocket": "127.0.0.1:0"}) as (node,):
            port = node.mqtt.port
            assert (await answer_to(port, header() + CONNECT))[:1] == b"\x20"
            long = header("2001:db8::7", tlvs=b"\x04\x02\x00" + b"x" * 512)
            assert (await answer_to(port, long + CONNECT))[:1] == b"\x20"
            assert await answer_to(port, CONNECT.ljust(20, b"x")) == b""
            assert node.metrics()["mqtt cut proxy header"] == 1
            asked = b"GET / HTTP/1.1\r\n\r\n"
            assert await answer_to(node.mqtt.websocket_port, header() + asked) == b"HTTP"

    run(work())
