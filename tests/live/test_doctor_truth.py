"""`trellis doctor` calls nothing good that is not, and names the true cause: names taken twice, and TLS that fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import trellis
from live.lives import client_address, config, mesh, peer_address, run, until
from live.signing import CLIENT, Sign, node_of
from live.test_admin import ADMIN, admin_address
from live.test_doctor import said
from trellis.live.client import ClientError
from trellis.live.config import NodeConfig, TlsConfig
from trellis.live.doctor import examine, examine_running
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context

EXPIRED = ("20200101000000Z", "20210101000000Z")


@asynccontextmanager
async def started(*given: NodeConfig) -> AsyncIterator[list[LiveNode]]:
    async with AsyncExitStack() as stack:
        nodes = [LiveNode(one, life=100 + place) for place, one in enumerate(given)]
        for node in nodes:
            await node.start()
            stack.push_async_callback(node.stop, in_order=False)
        yield nodes


def of_running(node: LiveNode, *seeds: str, **more: Any) -> NodeConfig:
    """Return a configuration with the ports of a node that runs."""
    ports = {"listen": peer_address(node), "client_listen": client_address(node), "admin_listen": admin_address(node)}
    return config(more.pop("name", node.name), seeds, **{**ports, **more})


# Names that are taken twice


def test_a_name_that_two_running_nodes_have_is_told_for_either():
    async def work() -> None:
        async with started(config("s"), config("a", **ADMIN), config("a", **ADMIN)) as (seed, one, other):
            for mine, theirs in ((one, other), (other, one)):
                found = await examine(of_running(mine, peer_address(seed), peer_address(theirs)))
                told = said(found)
                assert f"seed {peer_address(theirs)}: The name a is taken: another node is named a" in told
                assert "Give each node a name of its own" in told

    run(work())


def test_a_running_node_that_peers_refuse_is_not_called_connected():
    """A seed cannot say which node of the name it is connected with; the node itself knows that it is refused."""

    async def work() -> None:
        async with mesh("s", "a", **ADMIN) as (seed, node):
            given = of_running(node, peer_address(seed))
            await until(lambda: not node.health.complaints())
            found = await examine(given)
            assert not said(found)
            assert f"seed {peer_address(seed)}: It is connected with this node, which runs." in said(found, "good")
            assert "a runs and is healthy." in said(found, "good")
            node.transport.dialing.note_name_refused("b")
            found = await examine(given)
            assert "Another node named a runs" in said(found)
            assert "It is connected with a node named a: with this one, or with another." in said(found, "note")
            silent = await examine(of_running(node, peer_address(seed), admin_listen=""))
            assert "which runs. The ports" in said(silent, "note")
            assert "admin_listen: The node runs, and has no fixed port where it says how it is." in said(silent, "note")
            assert "connected with this node" not in said(silent, "good")

    run(work())


def test_a_seed_that_is_this_node_under_another_name_is_not_another_node():
    async def work() -> None:
        async with started(config("a", **ADMIN)) as (node,):
            again = f"localhost:{node.transport.port}"
            found = await examine(of_running(node, again))
            assert not said(found)
            assert f"seed {again}: It is this node itself." in said(found, "note")

    run(work())


# TLS


def files_of(sign: Sign, name: str, **more: Any) -> TlsConfig:
    return sign(name, *node_of(name), **more)


def test_the_ports_of_a_running_node_are_its_own_while_its_files_are_bad(sign, tmp_path):
    good, bad = files_of(sign, "a"), files_of(sign, "a", dates=EXPIRED)
    broken = TlsConfig(cert=good.cert, key=good.key, ca=str(tmp_path / "ca.pem"))
    Path(broken.ca).write_text("nothing")

    async def work() -> None:
        async with started(config("a", tls=good, **ADMIN)) as (node,):
            found = await examine(of_running(node, tls=bad))
            assert f"listen: {peer_address(node)} is taken by this node, which runs." in said(found, "note")
            assert "The node runs, and was not asked how it is. Correct the certificates first." in said(found, "note")
            assert said(found).startswith("tls.cert: It has expired on 2021-01-01")
            assert "another program" not in said(found)
            found = await examine(of_running(node, tls=broken))
            assert f"listen: {peer_address(node)} is taken, perhaps by this node." in said(found, "note")
            assert f"admin_listen: {admin_address(node)} is taken, perhaps by this node." in said(found, "note")
            assert "another program" not in said(found)
            other = await examine(of_running(node, tls=files_of(sign, "b", dates=EXPIRED), name="b"))
            assert f"listen: {peer_address(node)} is taken by another program." in said(other)

    run(work())


def test_a_seed_of_another_authority_is_told_with_the_true_remedy_and_its_log_stays_true(sign, tmp_path, caplog):
    async def work() -> None:
        stranger = files_of(sign, "a", authority="next")
        mixed = TlsConfig(cert=stranger.cert, key=stranger.key, ca=files_of(sign, "a").ca)
        async with started(config("b", tls=files_of(sign, "b"))) as (seed,):
            told = said(await examine(config("a", (peer_address(seed),), tls=stranger)))
            assert f"seed {peer_address(seed)}: TLS with it fails: its certificate is not accepted: " in told
            assert "Name the authority that has signed its certificate" in told
            assert "Start it" not in told
            (tmp_path / "both.pem").write_text(Path(stranger.ca).read_text() + Path(mixed.ca).read_text())
            ahead = TlsConfig(cert=stranger.cert, key=stranger.key, ca=str(tmp_path / "both.pem"))
            told = said(await examine(config("a", (peer_address(seed),), tls=ahead)))
            assert "it closes the connection when it has seen our certificate. Show a certificate that its" in told
            for files in (stranger, mixed):
                client = trellis.connect(client_address(seed), tls=make_context(files, server=False), timeout_s=0.3)
                with pytest.raises(ClientError) as error:
                    await client.__aenter__()
                assert "start the node" not in str(error.value)
            assert "show a certificate that its authority has signed" in str(error.value)
        assert not [one for one in caplog.messages if "does not speak TLS" in one]

    run(work())


def test_an_admin_port_with_which_tls_fails_is_told_with_the_reason(sign):
    good = files_of(sign, "a")
    theirs = sign("ben", *CLIENT, authority="next")
    mixed = TlsConfig(cert=theirs.cert, key=theirs.key, ca=good.ca)
    cases = {
        "its certificate is not accepted: ": (theirs, "Name the authority that has signed its certificate"),
        "it closes the connection when it has seen our": (mixed, "Show a certificate that its authority has signed"),
    }

    async def work() -> None:
        async with started(config("a", tls=good, **ADMIN)) as (node,):
            for why, (files, remedy) in cases.items():
                (found,) = await examine_running(admin_address(node), make_context(files, server=False), None)
                assert found.what.startswith(f"TLS with it fails: {why}")
                assert found.remedy.startswith(remedy)

    run(work())


def test_a_mesh_port_is_told_as_such_where_an_admin_port_was_named(sign, caplog):
    ann = make_context(sign("ann", *CLIENT), server=False)

    async def work() -> None:
        async with started(config("a", tls=files_of(sign, "a")), config("b")) as (safe, plain):
            caplog.clear()
            for node, tls in ((safe, ann), (plain, None)):
                (found,) = await examine_running(peer_address(node), tls, None)
                assert found.what == "It is the mesh port (listen) of a node, not an admin port."
            assert not [one for one in caplog.records if one.levelname == "WARNING"]
            (found,) = await examine_running(peer_address(safe), None, None)
            assert found.what == "It is the mesh port (listen) of a node, not an admin port."

    run(work())
