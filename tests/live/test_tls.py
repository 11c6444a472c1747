"""Certificates: who may be a node and who a client, and what both ends are told."""

from __future__ import annotations

import asyncio
import ssl

import pytest

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from live.signing import CLIENT, end, node_of
from trellis.cli.main import run as trellis_run
from trellis.errors import InputError
from trellis.live.client import ClientError
from trellis.live.config import TlsConfig
from trellis.live.dashboard import Dashboard
from trellis.live.frames import PROTOCOL, VERSION, Address, Hello, Refused, pack_control, read_control
from trellis.live.http_client import HttpClient, get
from trellis.live.shell import LiveNode
from trellis.live.tls import describe, load_node, make_context, names_of, node_credentials, why_not_node
from trellis.protocols.wire import node_name_fault


async def join_as(address: str, name: str, tls: TlsConfig) -> Hello | Refused:
    """Say hello as a node, and return what is answered."""
    host, port = address.split(":")
    context = make_context(tls, server=False)
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    writer.write(pack_control(Hello(PROTOCOL, VERSION, "test", "omen", Address(name, 1, "127.0.0.1", 9))))
    length = int.from_bytes(await reader.readexactly(4), "big")
    answer = read_control(await reader.readexactly(length))
    await end(writer)
    assert isinstance(answer, Hello | Refused)
    return answer


def why_not(node: LiveNode) -> dict[str, str]:
    """Why seeds did not accept a node, by their addresses."""
    return {str(seed): why for seed, why in node.transport.failures.items()}


# Roles


def test_a_clients_certificate_cannot_join_as_a_node_and_both_sides_are_told(sign, caplog):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a"))) as (node,):
            answer = await join_as(peer_address(node), "ann", sign("ann", *CLIENT))
            assert isinstance(answer, Refused)
            assert answer.kind == "certificate"
            told = "ann shows a certificate for client ann, and may not join as ann"
            told += "; make one with: trellis certs node ann"
            assert answer.text == told
            assert node.transport.counters["cut certificate"] == 1
            assert not node.transport.peers
            assert f"a: refused a peer: {told}" in caplog.messages

    run(work())


def test_a_clients_certificate_opens_the_client_port_and_the_admin_port(sign):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a")), admin_listen="127.0.0.1:0") as (node,):
            context = make_context(sign("ann", *CLIENT), server=False)
            async with trellis.connect(client_address(node), tls=context) as client:
                await client.publish("t", b"hello")
            asking = HttpClient(f"127.0.0.1:{node.admin.port}", context)
            assert (await asking.get("/healthz", 30))[0] == 200
            asking.close()

    run(work())


def test_a_nodes_certificate_joins_under_its_own_name_and_no_other(sign):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a"))) as (node,):
            b = sign("b", *node_of("b"))
            assert isinstance(await join_as(peer_address(node), "c", b), Refused)
            assert isinstance(await join_as(peer_address(node), "b", b), Hello)

    run(work())


@pytest.mark.usefixtures("sign")  # it needs openssl as well
def test_a_name_of_a_host_is_no_name_of_a_node(tmp_path):
    """`trellis certs` puts DNS:localhost into every node's certificate."""
    place = ["--folder", str(tmp_path)]
    assert trellis_run(["certs", "ca", *place]) == 0
    assert trellis_run(["certs", "node", "a", *place]) == 0
    assert trellis_run(["certs", "node", "b", "--host", "c", *place]) == 0

    def files(name: str) -> TlsConfig:
        return TlsConfig(cert=f"{tmp_path}/{name}.pem", key=f"{tmp_path}/{name}.key", ca=f"{tmp_path}/ca.pem")

    async def work() -> None:
        async with mesh("a", tls=files("a")) as (node,):
            for name in ("localhost", "127.0.0.1", "c"):
                assert isinstance(await join_as(peer_address(node), name, files("b")), Refused), name
            assert isinstance(await join_as(peer_address(node), "b", files("b")), Hello)

    run(work())


@pytest.mark.usefixtures("sign")
@pytest.mark.parametrize("name", ["x y", "Zürich 7", "50% #1 $HOME, O=x; \\ 'q' \"p\"", "é" * 80])
def test_every_name_that_a_node_may_have_gets_a_certificate(tmp_path, name):
    place = ["--folder", str(tmp_path)]
    assert trellis_run(["certs", "ca", *place]) == 0
    assert trellis_run(["certs", "node", name, *place]) == 0
    assert trellis_run(["certs", "client", f"{name}!", *place]) == 0
    files = TlsConfig(cert=f"{tmp_path}/{name}.pem", key=f"{tmp_path}/{name}.key", ca=f"{tmp_path}/ca.pem")
    assert load_node(files, name).expires_s
    with pytest.raises(InputError, match="may not join as x; make one with: trellis certs node x"):
        load_node(files, "x")


@pytest.mark.usefixtures("sign")
def test_a_name_that_no_node_may_have_gets_no_certificate(tmp_path, capsys):
    for name in ("a:1", " a", "", "a\n"):
        assert trellis_run(["certs", "node", name, "--folder", str(tmp_path)]) == 2
        fault = node_name_fault(name)
        assert fault is not None
        assert capsys.readouterr().err == f"trellis: NAME: {'; '.join(fault)}\n"


@pytest.mark.usefixtures("sign")
def test_certs_makes_both_roles_and_writes_none_over_the_other(tmp_path, capsys):
    place = ["--folder", str(tmp_path)]
    assert trellis_run(["certs", "ca", *place]) == 0
    for role, name, other in (("node", "a", "client"), ("client", "ann", "node")):
        for _ in range(2):  # the second time it is renewed
            assert trellis_run(["certs", role, name, *place]) == 0
        capsys.readouterr()
        before = (tmp_path / f"{name}.pem").read_bytes()
        assert trellis_run(["certs", other, name, *place]) == 2
        assert f"is the certificate of a {role}; choose another name" in capsys.readouterr().err
        assert (tmp_path / f"{name}.pem").read_bytes() == before

    async def work() -> None:
        files = {one: f"{tmp_path}/{file}" for one, file in (("cert", "a.pem"), ("key", "a.key"), ("ca", "ca.pem"))}
        async with mesh("a", tls=TlsConfig(**files)) as (node,):
            ann = TlsConfig(cert=f"{tmp_path}/ann.pem", key=f"{tmp_path}/ann.key", ca=files["ca"])
            assert isinstance(await join_as(peer_address(node), "ann", ann), Refused)
            async with trellis.connect(client_address(node), tls=make_context(ann, server=False)) as client:
                await client.publish("t", b"hello")

    run(work())


def test_a_certificate_without_a_role_is_refused_as_a_node_and_the_text_says_how_to_renew(sign):
    before = ("extendedKeyUsage = serverAuth, clientAuth", "subjectAltName = DNS:b, DNS:localhost")

    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a"))) as (node,):
            answer = await join_as(peer_address(node), "b", sign("b", *before))
            assert isinstance(answer, Refused)
            assert "without a role (b)" in answer.text
            assert "trellis certs node b" in answer.text
            async with trellis.connect(client_address(node), tls=make_context(sign("b", *before), server=False)) as one:
                await one.publish("t", b"a client needs no role")

    run(work())


@pytest.mark.parametrize(
    ("common", "extensions", "authority", "told"),
    [
        ("a", node_of("b"), "ca", "a shows a certificate for node b, and may not join as a; make one with: trellis"),
        ("a", CLIENT, "ca", "is not accepted with .*unsuitable certificate purpose"),
        ("a", ("subjectAltName = DNS:a",), "ca", "a certificate without a role"),
        ("a", node_of("a"), "another", "is not accepted with .*ca.pem: .*unable to get local issuer certificate"),
    ],
)
def test_a_node_with_a_certificate_that_others_would_refuse_does_not_start(sign, common, extensions, authority, told):
    found, ours = sign(common, *extensions, authority=authority), sign("x", *node_of("x"))
    mixed = TlsConfig(cert=found.cert, key=found.key, ca=ours.ca)
    with pytest.raises(InputError, match=told):
        node_credentials(mixed, "a")


def test_a_node_refuses_a_seed_that_shows_the_certificate_of_another_and_tells_it(sign):
    """The seed says that it is b, and shows a certificate for c."""
    heard: list[object] = []

    async def seed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(pack_control(Hello(PROTOCOL, VERSION, "test", "omen", Address("b", 1, "127.0.0.1", 9))))
        heard.append(read_control(await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))))
        writer.close()

    async def work() -> None:
        context = make_context(sign("c", *node_of("c")), server=True)
        server = await asyncio.start_server(seed, "127.0.0.1", 0, ssl=context)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        node = LiveNode(config("a", (address,), tls=sign("a", *node_of("a"))))
        await node.start()
        try:
            await until(lambda: bool(heard))
            assert isinstance(heard[0], Refused)
            assert "b shows a certificate for node c" in heard[0].text
            assert not node.transport.peers
            assert "b shows a certificate for node c" in why_not(node)[address]
        finally:
            await node.stop(in_order=False)
            server.close()
            await server.wait_closed()

    run(work())


@pytest.mark.parametrize(
    ("certificate", "names"),
    [
        ({}, []),
        ({"subject": ((("commonName", "a"),),), "subjectAltName": (("DNS", "a"), ("IP Address", "::1"))}, []),
        ({"subjectAltName": (("URI", "trellis:node:a"), ("URI", "https://trellis:node:x"))}, ["a"]),
        ({"subjectAltName": (("URI", "trellis:node:a%20b"), ("URI", "trellis:client:c"))}, ["a b"]),
        ({"subjectAltName": (("DNS", "trellis:node:a"), ("email", "trellis:node:a"))}, []),
    ],
)
def test_only_uris_of_ours_name_nodes(certificate, names):
    assert names_of(certificate) == names
    assert all(why_not_node(certificate, name) == "" for name in names)
    assert describe(certificate)


def test_names_of_strangers_are_cut_short_and_have_no_line_ends():
    told = describe({"subject": ((("commonName", "x\n" + "y" * 10_000),),)})
    assert "\n" not in told
    assert len(told) < 300


# What both ends are told


def test_a_client_without_certificates_is_told_that_the_node_speaks_tls(sign, caplog, capsys):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a"))) as (node,):
            with pytest.raises(ClientError, match=r"this port speaks TLS: give --ca, --cert and --key"):
                async with trellis.connect(client_address(node)):
                    pass
            assert node.client_port.counters["cut tls"] == 1
            assert any("it does not speak TLS, and this port does" in one for one in caplog.messages)

    run(work())


def test_a_plain_node_that_dials_a_tls_seed_and_the_seed_both_log_why(sign, caplog):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a"))) as (seed,):
            node = LiveNode(config("b", (peer_address(seed), "127.0.0.1:1"), admin_listen="127.0.0.1:0"))
            await node.start()
            try:
                await until(lambda: len(node.transport.failures) == 2)
                assert "this port speaks TLS" in why_not(node)[peer_address(seed)]
                status, body = await get(f"127.0.0.1:{node.admin.port}", "/healthz", 30)
                assert status == 503
                assert "this port speaks TLS" in body.decode()
                assert "Seed 127.0.0.1:1 did not accept this node: " in body.decode()
            finally:
                await node.stop(in_order=False)
        at_seed = [one for one in caplog.messages if one.startswith(peer_address(seed))]
        assert len(at_seed) == 1, "the same reason is said once a minute"
        assert at_seed[0].endswith("failed: it does not speak TLS, and this port does")
        assert any(one.startswith("b: seed") and "this port speaks TLS" in one for one in caplog.messages)

    run(work())


def test_a_tls_node_that_dials_a_plain_seed_and_the_seed_both_log_why(sign, caplog):
    async def work() -> None:
        async with mesh("a") as (seed,):
            node = LiveNode(config("b", (peer_address(seed),), tls=sign("b", *node_of("b"))))
            await node.start()
            try:
                await until(lambda: bool(node.transport.failures))
                assert why_not(node)[peer_address(seed)] == "it does not speak TLS, and we do"
                await until(lambda: seed.transport.counters["cut tls"] >= 1)
            finally:
                await node.stop(in_order=False)
        assert any("a: refused a peer: it speaks TLS, and this node does not" in one for one in caplog.messages)

    run(work())


def test_a_client_with_certificates_is_told_that_the_node_speaks_no_tls(sign):
    async def work() -> None:
        async with mesh("a", admin_listen="127.0.0.1:0") as (node,):
            context = make_context(sign("ann", *CLIENT), server=False)
            with pytest.raises(ClientError, match="it does not speak TLS, and we do"):
                async with trellis.connect(client_address(node), tls=context, timeout_s=0.5):
                    pass
            with pytest.raises(ssl.SSLError, match="WRONG_VERSION"):
                await HttpClient(f"127.0.0.1:{node.admin.port}", context).get("/healthz", 30)

    run(work())


@pytest.mark.parametrize("how", ["another authority", "none at all"])
def test_a_certificate_that_is_not_accepted_is_logged_with_the_reason(sign, how, caplog):
    ours, theirs = sign("a", *node_of("a")), sign("ann", *CLIENT, authority="other")
    context = make_context(TlsConfig(cert=theirs.cert, key=theirs.key, ca=ours.ca), server=False)
    told = "its certificate is not accepted: unable to get local issuer certificate"
    if how == "none at all":
        context, told = ssl.create_default_context(cafile=ours.ca), "it shows no certificate"
        context.check_hostname = False

    async def work() -> None:
        async with mesh("a", tls=ours) as (node,):
            with pytest.raises(ClientError, match="perhaps it does not accept our certificate"):
                async with trellis.connect(client_address(node), tls=context, timeout_s=0.5):
                    pass
            assert any(one.endswith(f"failed: {told}") for one in caplog.messages), caplog.messages

    run(work())


def test_a_dashboard_without_certificates_says_what_is_missing(sign):
    async def work() -> None:
        async with mesh("a", tls=sign("a", *node_of("a")), admin_listen="127.0.0.1:0") as (node,):
            source, said = f"127.0.0.1:{node.admin.port}", []
            dashboard = Dashboard([source], on_trouble=said.append)
            dashboard.bind("127.0.0.1:0")
            dashboard.serve()
            try:
                await until(lambda: bool(said))
                told = "this port speaks TLS: use https, and show a certificate of the cluster (--ca, --cert, --key)"
                assert said == [f"{source} does not answer: {told}"]
                _, body = await get(f"127.0.0.1:{dashboard.port}", "/mesh.json", 30)
                assert f'"troubles":{{"{source}":"{told}"}}' in body.decode()
            finally:
                await dashboard.close()

    run(work())
