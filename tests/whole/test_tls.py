"""TLS in the simulator: OpenSSL decides who is accepted, and the bytes are the same in every run."""

from __future__ import annotations

import asyncio
import shutil
import ssl

import pytest

import trellis
from live.signing import CLIENT, node_of, signer
from trellis.live.client import ClientError
from trellis.live.config import NodeConfig
from trellis.live.tls import make_context
from trellis.simulate.whole.whole import CLIENTS, PEERS, Mesh
from trellis.simulate.whole.world import World


@pytest.fixture(scope="module")
def sign(tmp_path_factory):
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which signs, is not installed")
    return signer(tmp_path_factory.mktemp("signed"))


@pytest.fixture(scope="module")
def nodes(sign):
    return {name: sign(name, *node_of(name)) for name in "ab"}


def secured(world, nodes):
    def configure(name, fields):
        return NodeConfig(name=name, tls=nodes[name], **{**fields, "insecure": False})

    return Mesh(world, "ab", configure, has_mqtt=False)


async def publish(address, context):
    async with trellis.connect(address, tls=context, timeout_s=8) as client:
        return await client.publish("news", b"hello")


def test_nodes_with_certificates_form_a_mesh_and_a_client_with_one_publishes(sign, nodes):
    with World(1) as world:
        mesh = secured(world, nodes)
        mesh.start_all()
        world.run_for(10)
        assert list(mesh.nodes["a"].transport.peers) == ["b"]
        context = make_context(sign("ann", *CLIENT), server=False)
        receipt = world.run(world.host("ann").start(publish(mesh.address("a", CLIENTS), context)))
        assert receipt.copies >= 1
        assert not world.failures


def test_a_client_of_another_authority_is_refused_by_openssl(sign, nodes):
    with World(1) as world:
        mesh = secured(world, nodes)
        mesh.start_all()
        world.run_for(5)
        stranger = make_context(sign("eve", *CLIENT, authority="other"), server=False)
        with pytest.raises(ClientError, match="certificate"):
            world.run(world.host("eve").start(publish(mesh.address("a", CLIENTS), stranger)))
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it accepts the node, and has no certificate to show
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        with pytest.raises(ClientError, match=r"alert|certificate"):
            world.run(world.host("mallory").start(publish(mesh.address("a", CLIENTS), trusting)))
        assert mesh.nodes["a"].client_port.counters["cut tls"] > 1
        assert not mesh.nodes["a"].client_port.clients


def test_a_port_with_tls_tells_a_peer_without_it(nodes):
    async def talk(host):
        reader, writer = await asyncio.open_connection(host, PEERS)
        writer.write(b"\0\0\0\1x")
        answer = await reader.read()
        writer.close()
        return answer

    with World(1) as world:
        mesh = secured(world, nodes)
        mesh.start_all()
        world.run_for(5)
        assert b"[tls] cert, key and ca" in world.run(world.host("plain").start(talk("a")))


def test_a_client_with_tls_finds_out_that_the_port_has_none(sign):
    with World(1) as world:
        mesh = Mesh(world, "a", has_mqtt=False)
        mesh.start_all()
        world.run_for(5)
        context = make_context(sign("ann", *CLIENT), server=False)
        with pytest.raises(ClientError, match="does not speak TLS"):
            world.run(world.host("ann").start(publish(mesh.address("a", CLIENTS), context)))


def test_two_runs_with_tls_have_the_same_history(sign, nodes):
    context = make_context(sign("ann", *CLIENT), server=False)

    def run():
        with World(1) as world:
            mesh = secured(world, nodes)
            mesh.start_all()
            world.run_for(5)
            world.run(world.host("ann").start(publish(mesh.address("a", CLIENTS), context)))
            return world.history.hexdigest()

    assert run() == run()
