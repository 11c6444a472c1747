"""Streams between peers: one per pair, dialled again, and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import Callable

import pytest

import trellis
from live.lives import client_address, mesh, peer_address, run, until
from trellis.live.client import ClientError
from trellis.live.config import LimitsConfig, TlsConfig
from trellis.live.frames import (
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    PROTOCOL,
    VERSION,
    Address,
    Addresses,
    Bye,
    Hello,
    Splitter,
    pack,
    pack_control,
    pack_message,
    read_control,
)
from trellis.live.talk import CLIENT_PROTOCOL, CLIENT_VERSION, CLIENT_VERSION_OLDEST, Greet, Subscribe, pack_to_node
from trellis.live.tls import make_context
from trellis.live.transport import Transport
from trellis.protocols.effects import Seed


class Node:
    """A transport, and what came to it."""

    def __init__(self, name: str, incarnation: int = 1, port: int = 0, **limits: float) -> None:
        self.came: list[tuple[str, bytes]] = []
        self.down: list[str] = []
        self.transport = Transport(
            Address(name, incarnation, "127.0.0.1", port),
            "test",
            "omen",
            LimitsConfig(**limits),
            None,
            on_message=lambda peer, body: self.came.append((peer, body)),
            on_peer_down=self.down.append,
            on_peer_ended=lambda peer, is_alone: None,
            is_linked=lambda peer: False,
        )

    async def start(self) -> Node:
        self.transport.bind(f"127.0.0.1:{self.transport.me.port}")
        self.transport.serve()
        return self

    async def end(self, *, in_order: bool = True) -> None:
        self.transport.close(in_order=in_order)
        await self.transport.closed()


def test_two_that_dial_each_other_at_once_keep_one_stream_and_agree_which():
    """The one that the smaller name dialled, unless the other one stood already when its hello came."""

    async def work() -> None:
        a, b = await Node("a").start(), await Node("b").start()
        for node, other in ((a, b), (b, a)):
            node.transport.book.learn([other.transport.me])
        for number in range(20):
            a.transport.send("b", b"%d" % number)
            b.transport.send("a", b"%d" % number)
            await until(lambda: bool(a.transport.peers and b.transport.peers))
            a.came.clear()
            b.came.clear()
            await until(lambda: _speaks(a, "b", b) and _speaks(b, "a", a))
            ends = a.transport.peers["b"].tag.dialled, b.transport.peers["a"].tag.dialled
            assert ends in (("b", ""), ("", "a"))
            assert ends == ("b", "") or a.transport.counters["refused second"] or b.transport.counters["refused second"]
            a.transport._say_bye(a.transport.peers["b"])
            await until(lambda: not (a.transport.peers or b.transport.peers or b.transport._greeting))
        assert a.down == b.down == []
        assert not any("garbage" in why for node in (a, b) for why in node.transport.counters)
        for node in (a, b):
            await node.end()

    run(work())


def test_what_a_peer_says_after_its_hello_was_refused_is_no_garbage():
    """It took the stream, told its addresses, and said good-bye, before it knew that we keep another one."""

    async def work() -> None:
        b, came = await Node("b").start(), asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readexactly(4)  # the dialled stream is there: now the other one comes first
            first, other = await asyncio.open_connection("127.0.0.1", b.transport.port)
            other.write(pack_control(hello))
            await until(lambda: "a" in b.transport.peers)
            writer.write(pack_control(hello) + pack_control(Addresses((place,))) + pack_control(Bye()))
            await reader.read()
            writer.close()
            came.set()
            await first.read()
            other.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        place = Address("a", 1, "127.0.0.1", server.sockets[0].getsockname()[1])
        hello = Hello(PROTOCOL, VERSION, "test", "omen", place)
        b.transport.book.learn([place])
        b.transport.send("a", b"by either stream")
        await came.wait()
        await until(lambda: not b.transport._greeting)
        assert b.transport.peers["a"].tag.dialled == ""
        assert not any("garbage" in why for why in b.transport.counters)
        await b.end()
        server.close()

    run(work())


def test_a_later_life_that_was_heard_of_is_dialled_at_once():
    async def work() -> None:
        a, b = await Node("a", backoff_s=600, backoff_s_max=600).start(), await Node("b").start()
        a.transport.book.learn([b.transport.me])
        await b.end(in_order=False)
        a.transport.send("b", b"nobody hears it")
        await until(lambda: a.transport.counters["dials failed"] > 0)
        again, c = await Node("b", 2).start(), await Node("c").start()
        c.transport.book.learn([again.transport.me])
        c.transport.send(_address(a), b"b is back")
        await until(lambda: ("c", b"b is back") in a.came)
        a.transport.send("b", b"welcome")
        await until(lambda: ("a", b"welcome") in again.came)
        for node in (a, again, c):
            await node.end()

    run(work())


def test_a_stream_that_is_replaced_ends_with_a_word():
    """The other end may see its end before it has the new one, and must not take it for a death."""

    async def work() -> None:
        a, came = await Node("a").start(), asyncio.Event()

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(pack_control(hello))
            await reader.read()
            writer.close()
            came.set()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        place = Address("b", 1, "127.0.0.1", server.sockets[0].getsockname()[1])
        hello = Hello(PROTOCOL, VERSION, "test", "omen", place)
        reader, writer = await asyncio.open_connection("127.0.0.1", a.transport.port)
        writer.write(pack_control(hello))
        await until(lambda: "b" in a.transport.peers)
        a.transport.dialing.dial("b", pack_message(b"by the other stream"), True)
        said = [read_control(body) for body in Splitter(BODY_BYTES_MAX).feed(await reader.read())]
        assert said[-1] == Bye()
        assert a.transport.peers["b"].tag.dialled == "b"
        assert a.down == []
        writer.close()
        await a.end()
        await came.wait()
        server.close()
        await server.wait_closed()

    run(work())


def _speaks(node: Node, to: str, other: Node) -> bool:
    node.transport.send(to, b"more")
    return (node.transport.me.node, b"more") in other.came


def test_who_was_told_a_name_can_dial_it():
    async def work() -> None:
        a, b, c = [await Node(name).start() for name in "abc"]
        b.transport.send(_address(a), b"to the seed")
        c.transport.send(_address(a), b"to the seed")
        await until(lambda: len(a.came) == 2)
        a.transport.send("b", b"c is there")
        await until(lambda: bool(b.came))
        b.transport.send("c", b"I heard of you")
        await until(lambda: ("b", b"I heard of you") in c.came)
        for node in (a, b, c):
            await node.end()

    run(work())


def test_a_peer_that_comes_back_is_dialled_again():
    async def work() -> None:
        a, b = await Node("a", backoff_s=0.02, backoff_s_max=0.1).start(), await Node("b").start()
        a.transport.book.learn([b.transport.me])
        a.transport.send("b", b"first")
        await until(lambda: bool(b.came))
        await b.end(in_order=False)
        await until(lambda: a.down == ["b"])
        a.transport.send("b", b"nobody hears it")
        await until(lambda: a.transport.counters["dials failed"] > 0)
        again = await Node("b", 2, b.transport.port).start()
        await until(lambda: _speaks(a, "b", again))
        assert a.down == ["b"]
        for node in (a, again):
            await node.end()

    run(work())


def test_a_later_life_takes_the_place_of_a_stream_that_answers_nothing_and_the_old_life_is_down():
    async def work() -> None:
        a, new, old = await Node("a").start(), await Node("b", 2).start(), await Node("b", 1).start()
        _reader, writer = await asyncio.open_connection("127.0.0.1", a.transport.port)
        writer.write(pack_control(Hello(PROTOCOL, VERSION, "test", "omen", Address("b", 1, "127.0.0.1", 9))))
        await until(lambda: "b" in a.transport.peers)
        new.transport.send(_address(a), b"here")
        await until(lambda: a.came == [("b", b"here")])
        assert a.down == ["b"]
        assert a.transport.peers["b"].tag.incarnation == 2
        old.transport.send(_address(a), b"and I?")
        await until(lambda: old.transport.counters["refused old"] > 0)
        writer.close()
        for node in (a, old, new):
            await node.end()

    run(work())


def test_an_idle_stream_is_closed_and_is_no_crash():
    async def work() -> None:
        a, b = await Node("a", idle_s=0.05).start(), await Node("b").start()
        a.transport.send(_address(b), b"once")
        await until(lambda: bool(b.came))
        await until(lambda: not a.transport.peers and not b.transport.peers)
        assert a.down == b.down == []
        for node in (a, b):
            await node.end()

    run(work())


def test_the_stream_that_was_idle_longest_gives_way_to_a_new_one():
    async def work() -> None:
        a = await Node("a", connections_max=2).start()
        others = [await Node(name).start() for name in "bcd"]
        for other in others:
            a.transport.send(_address(other), b"hello")
            await until(lambda other=other: bool(other.came))
        assert len(a.transport.peers) == 2
        assert "d" in a.transport.peers
        assert a.down == []
        for node in (a, *others):
            await node.end()

    run(work())


def test_a_stranger_at_the_address_of_a_name_is_not_taken_for_it():
    async def work() -> None:
        a, c = await Node("a").start(), await Node("c").start()
        a.transport.book.learn([Address("b", 1, "127.0.0.1", c.transport.port)])
        a.transport.send("b", b"for b alone")
        await until(lambda: a.transport.counters["cut name"] == 1)
        assert a.transport.book.find("b") is None
        assert c.came == []
        for node in (a, c):
            await node.end()

    run(work())


def test_ones_own_address_among_the_seeds_is_found_out_and_left_alone():
    async def work() -> None:
        a = await Node("a").start()
        a.transport.send(_address(a), b"who is there?")
        await until(lambda: a.transport.names.get(_address(a)) == "a")
        a.transport.send(_address(a), b"not again")
        assert not a.transport.peers
        assert a.came == []
        await a.end()

    run(work())


def test_a_test_that_would_never_end_fails_even_if_tidying_up_never_ends():
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError, match="not over after"):
        run(work(), 0.05)


def oversized(body_bytes: int) -> bytes:
    return body_bytes.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("answer", "counted"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "cut oversized"),
        (oversized(HELLO_BYTES_MAX + 1), "cut oversized"),
        (pack(b"\x00garbage"), "cut garbage"),
        (pack_message(b"a message before the hello"), "cut garbage"),
        (pack_control(Hello(PROTOCOL, VERSION, "another", "omen", Address("b", 1, "127.0.0.1", 9))), "cut cluster"),
        (pack_control(Hello(PROTOCOL, VERSION, "test", "vitis", Address("b", 1, "127.0.0.1", 9))), "cut overlay"),
        (b"", "cut handshake"),
    ],
    ids=str,
)
def test_a_seed_that_answers_badly_is_cut_off_and_counted_and_others_are_served(answer, counted):
    async def work() -> None:
        a, c = await Node("a", handshake_s=0.3 if counted == "cut handshake" else 30).start(), await Node("c").start()
        over = asyncio.Event()

        async def bad(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            await reader.read()
            writer.close()
            over.set()

        server = await asyncio.start_server(bad, "127.0.0.1", 0)
        a.transport.send(Seed("127.0.0.1", server.sockets[0].getsockname()[1]), b"hello?")
        await until(lambda: a.transport.counters[counted] == 1)
        await over.wait()
        assert not a.transport.peers
        assert a.down == []
        a.transport.send(_address(c), b"and you?")
        await until(lambda: c.came == [("a", b"and you?")])
        for node in (a, c):
            await node.end()
        server.close()
        await server.wait_closed()

    run(work())


@pytest.mark.parametrize(
    ("sent", "counted"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "cut oversized"),
        (pack(b"garbage"), "cut garbage"),
        (pack_to_node(Subscribe("t")), "cut garbage"),
        (pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION_OLDEST - 1, "x")), "cut version"),
        (pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "x")) + oversized(1 << 30), "cut oversized"),
        (pack_to_node(Greet(CLIENT_PROTOCOL, CLIENT_VERSION, "x")) + pack(b"\xc1"), "cut garbage"),
        (b"", "cut handshake"),
    ],
    ids=str,
)
def test_a_bad_client_is_cut_off_and_counted_and_others_are_served(sent, counted):
    limits = LimitsConfig(handshake_s=0.5 if counted == "cut handshake" else 30)

    async def work() -> None:
        async with mesh("a", limits=limits) as (node,), trellis.connect(client_address(node)) as client:
            await client.subscribe("t")
            reader, writer = await asyncio.open_connection("127.0.0.1", node.client_port.port)
            writer.write(sent)
            await until(lambda: node.client_port.counters[counted] == 1)
            with contextlib.suppress(ConnectionError):
                await reader.read()  # it ends
            writer.close()
            await client.publish("t", b"afterwards")
            assert (await anext(client)).payload == b"afterwards"

    run(work())


def _address(node: Node) -> Seed:
    return Seed("127.0.0.1", node.transport.port)


# TLS

Make = Callable[[str], TlsConfig]


@pytest.fixture(scope="module")
def make_tls(tmp_path_factory) -> Make:
    """Certificates for the nodes a and b, of authorities by name."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True, timeout=60)

    def make(authority: str) -> TlsConfig:
        new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
        openssl(
            "req", "-x509", *new, "-subj", f"/CN={authority}", "-keyout", f"{authority}.key", "-out", f"{authority}.pem"
        )
        openssl("req", *new[:-2], "-subj", "/CN=a/CN=b", "-keyout", f"{authority}-n.key", "-out", f"{authority}-n.csr")
        signed = ["-CA", f"{authority}.pem", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "2"]
        (folder / "names.cnf").write_text("subjectAltName = URI:trellis:node:a, URI:trellis:node:b\n")
        openssl(
            "x509", "-req", "-in", f"{authority}-n.csr", *signed, "-extfile", "names.cnf", "-out", f"{authority}-n.pem"
        )
        paths = [str(folder / f"{authority}{end}") for end in ("-n.pem", "-n.key", ".pem")]
        return TlsConfig(cert=paths[0], key=paths[1], ca=paths[2])

    return make


async def is_cut_off(address: str, tls: ssl.SSLContext | None) -> bool:
    host, port = address.split(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
        writer.write(bytes(100))
        answer = await reader.read()
    except OSError:
        return True
    writer.close()
    return b"hello" not in answer


def test_a_mesh_with_tls_delivers_and_cuts_off_who_has_no_certificate_of_it(make_tls):
    ours, theirs = make_tls("ours"), make_tls("theirs")

    async def work() -> None:
        async with mesh("a", "b", tls=ours) as nodes:
            context = make_context(ours, server=False)
            clients = [trellis.connect(client_address(node), tls=context) for node in nodes]
            async with clients[0] as first, clients[1] as last:
                await asyncio.gather(first.subscribe("t"), last.subscribe("t"))
                for tls in (None, make_context(theirs, server=False)):
                    with pytest.raises(ClientError):
                        async with trellis.connect(client_address(nodes[0]), tls=tls, timeout_s=0.5):
                            pass
                    assert await is_cut_off(peer_address(nodes[0]), tls)
                await until(lambda: nodes[0].transport.counters["cut tls"] >= 2)
                await until(lambda: nodes[0].client_port.counters["cut tls"] >= 2)
                await first.publish("t", b"in secret")
                assert (await anext(last)).payload == b"in secret"

    run(work())


def test_streams_that_do_not_say_who_they_are_keep_no_peer_out():
    async def work() -> None:
        a, b = await Node("a", connections_max=2, handshakes_max=8).start(), await Node("b").start()
        silent = [await asyncio.open_connection("127.0.0.1", a.transport.port) for _ in range(6)]
        await until(lambda: len(a.transport._greeting) == 6)
        b.transport.book.learn([a.transport.me])
        b.transport.send("a", b"hello")
        await until(lambda: a.came == [("b", b"hello")])
        for _, writer in silent:
            writer.close()
        for node in (a, b):
            await node.end()

    run(work())
