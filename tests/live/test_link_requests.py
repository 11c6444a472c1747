"""Links that are opened and dropped at the admin port of nodes on loopback: by whom, and which."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from live.lives import config, mesh, run, until
from trellis.errors import InputError
from trellis.live.config import NodeConfig
from trellis.live.http_client import HttpClient
from trellis.live.link_requests import read_admin_token
from trellis.live.shell import LiveNode

SECRET = "0123456789abcdef" * 2
ADMIN = {"admin_listen": "127.0.0.1:0", "topics": ("t",)}


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "admin.token"
    path.write_text(f"{SECRET}\n")
    return path


async def ask(node: LiveNode, method: str, path: str, token: str = SECRET) -> tuple[int, str]:
    assert node.admin is not None
    client = HttpClient(f"127.0.0.1:{node.admin.port}")
    try:
        status, body = await client.ask(method, path, 30, token)
    finally:
        client.close()
    return status, body.decode()


def links(nodes: list[LiveNode]) -> set[str]:
    return {f"{one.name}{peer}" for one in nodes for peer in one.links if one.name < peer}


def state(node: LiveNode) -> tuple[str, str, str]:
    last = node.mesh.overlay.node.requests.latest[-1]  # type: ignore[attr-defined]
    return last.change, last.peer, last.state


def test_a_link_is_opened_and_dropped_and_a_needed_one_is_kept(secret):
    async def work() -> None:
        async with mesh("a", "b", "c", admin_token=str(secret), **ADMIN) as nodes:
            a, _, c = nodes
            await until(lambda: all(node.links for node in nodes) and not any(node.repairs.open for node in nodes))
            for peer in "bc":
                status, body = await ask(a, "PUT", f"/links/{peer}")
                assert status == 202
                assert json.loads(body)["change"] == "open"
            status, _ = await ask(c, "PUT", "/links/b")
            assert status == 202
            await until(lambda: links(nodes) == {"ab", "ac", "bc"})

            async def drop(peer: str, wanted: str) -> None:
                """Ask until nothing stands in its way, such as the repair of a join."""
                while True:
                    await ask(a, "DELETE", f"/links/{peer}?via=c,nobody%20there")
                    await until(lambda: state(a)[2] != "under way")
                    if state(a) == ("drop", peer, wanted):
                        return

            await drop("b", "done")
            await until(lambda: links(nodes) == {"ac", "bc"})
            await drop("c", "refused")
            told: Any = json.loads((await ask(a, "GET", "/overlay.json"))[1])
            assert told["requests"][-1]["state"] == "refused"
            assert links(nodes) == {"ac", "bc"}

    run(work())


def test_only_the_secret_lets_a_link_be_changed_and_it_can_be_changed_itself(secret):
    async def work() -> None:
        async with mesh("a", "b", admin_token=str(secret), **ADMIN) as nodes:
            a, _ = nodes
            await until(lambda: links(nodes) == {"ab"})
            for wrong in ("", "x", SECRET[:-1], SECRET + "x", "é" * 32):
                assert (await ask(a, "DELETE", "/links/b", wrong))[0] == 401
            assert a.counters["link_requests_refused"] == 5
            secret.write_text("f" * 32)
            assert (await ask(a, "DELETE", "/links/b"))[0] == 401
            assert (await ask(a, "DELETE", "/links/b", "f" * 32))[0] == 202
            secret.unlink()
            status, body = await ask(a, "DELETE", "/links/b", "f" * 32)
            assert status == 503
            assert "no such file" in body
            await until(lambda: state(a) == ("drop", "b", "refused"))
            assert links(nodes) == {"ab"}

    run(work())


def test_names_that_no_node_has_are_refused(secret):
    async def work() -> None:
        async with mesh("a", admin_token=str(secret), **ADMIN) as (a,):
            for path in ("/links/", "/links/%0A", "/links/" + "x" * 300, "/links/b?via=%00", "/links/%FF%FE%0D"):
                assert (await ask(a, "DELETE", path))[0] == 400, path
            assert await ask(a, "PUT", "/links/nobody") == (404, "this node does not know where nobody listens\n")
            assert (await ask(a, "PUT", "/healthz"))[0] == 404
            assert (await ask(a, "POST", "/links/b"))[0] == 405

    run(work())


def test_without_a_secret_the_admin_port_only_reads():
    async def work() -> None:
        async with mesh("a", **ADMIN) as (a,):
            for method in ("PUT", "DELETE"):
                status, body = await ask(a, method, "/links/b")
                assert (status, body) == (405, "only GET and HEAD are answered\n")

    run(work())


def test_overlays_that_choose_their_links_by_themselves_say_so(secret):
    async def work() -> None:
        async with mesh("a", admin_token=str(secret), overlay="spidercast", **ADMIN) as (a,):
            assert (await ask(a, "PUT", "/links/b")) == (409, "spidercast chooses its links by itself\n")

    run(work())


def test_a_secret_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    short, odd = tmp_path / "short", tmp_path / "odd"
    short.write_text("secret\n")
    odd.write_text("with a space, and long enough to count\n")
    for path, told in ((short, "7 bytes"), (odd, "a space"), (tmp_path / "none", "no such file")):
        with pytest.raises(InputError, match=told):
            read_admin_token(str(path))

        async def work(path: Path = path) -> None:
            node = LiveNode(config("a", admin_token=str(path), **ADMIN))
            with pytest.raises(InputError, match="admin_token"):
                await node.start()

        run(work())
    with pytest.raises(InputError, match="no admin port"):
        NodeConfig(name="a", admin_token=str(short))
