"""The dashboard's server: what it sees of a mesh, what it tells, and how it bears bad nodes and bad readers."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from live.lives import config, mesh, peer_address, run, until
from live.test_admin import ADMIN, admin_address
from live.test_transport import make_tls  # noqa: F401  a fixture
from trellis.errors import InputError
from trellis.live import dashboard as module
from trellis.live.dashboard import Dashboard, pages
from trellis.live.http_client import get
from trellis.live.shell import LiveNode
from trellis.live.tls import make_context
from trellis.live.view import SNAPSHOT, LinkTold, MeshView, ReportedRepair, Snapshot, split_topics
from trellis.protocols.wire import NAME_LETTERS_MAX


def told(name: str, topics: str = "t", links: str = "", **fields: Any) -> Snapshot:
    given = {"node": name, "incarnation": 1, "overlay": "omen", "topics": tuple(topics.split())}
    return Snapshot(**{**given, "links": tuple(LinkTold(one) for one in links.split()), **fields})


def view_of(*snapshots: Snapshot, at_ms: int = 0) -> MeshView:
    view = MeshView()
    for one in snapshots:
        view.take(one, at_ms)
    view.settle(at_ms)
    return view


def kinds(view: MeshView) -> list[tuple[Any, ...]]:
    keys = {"node": ("name", "state"), "link": ("u", "v", "state"), "mend": ("by", "cause", "node", "state")}
    return [(kind, *(data[key] for key in keys[kind])) for kind, data in view.drain()]


# What is seen


def test_a_link_stands_when_both_ends_claim_it():
    view = view_of(told("a", links="b c"), told("b", links="a"), told("c"))
    assert view.links == {("a", "b"): "up"}
    view.take(told("c", links="a"), 1)
    view.settle(1)
    assert view.links == {("a", "b"): "up", ("a", "c"): "up"}


def test_a_link_to_a_node_that_is_down_is_broken_until_its_end_lets_go():
    view = view_of(told("a", links="b"), told("b", links="a"))
    view.drain()
    view.down("b", "down", 1)
    view.settle(1)
    assert kinds(view) == [("node", "b", "down"), ("link", "a", "b", "broken")]
    view.take(told("a"), 2)
    view.settle(2)
    assert kinds(view) == [("link", "a", "b", "gone")]


def test_a_node_that_is_only_known_by_its_neighbours_is_shown_as_unknown():
    view = view_of(told("a", links="x"))
    assert view.nodes["x"].state == "unknown"
    assert view.links == {("a", "x"): "up"}
    assert view.sample(0)["nodes"] == 1


def test_a_new_life_between_two_looks_is_a_crash_and_a_start():
    view = view_of(told("a"))
    view.drain()
    view.take(told("a", incarnation=2), 1)
    assert kinds(view) == [("node", "a", "down"), ("node", "a", "up")]


def test_a_repair_is_told_when_it_begins_and_when_it_ends_and_once_each():
    view = view_of(told("a"))
    view.drain()
    running = told("a", mending=(ReportedRepair("crash", 1, "b", 100),))
    over = told("a", mends=(ReportedRepair("crash", 1, "b", 100, 40), ReportedRepair("join", 2, "c", 150, 0)))
    for one in (running, running, over, over):
        view.take(one, 200)
    assert kinds(view) == [
        ("mend", "a", "crash", "b", "began"),
        ("mend", "a", "crash", "b", "ended"),
        ("mend", "a", "join", "c", "ended"),
    ]


def test_a_repair_that_ends_after_a_later_one_is_told_all_the_same():
    view = view_of(told("a"))
    view.drain()
    crash, join = ReportedRepair("crash", 1, "b", 100), ReportedRepair("join", 2, "c", 150, 0)
    view.take(told("a", mending=(crash,), mends=(join,)), 200)
    view.take(told("a", mends=(join, ReportedRepair("crash", 1, "b", 100, 140))), 300)
    assert kinds(view) == [
        ("mend", "a", "crash", "b", "began"),
        ("mend", "a", "join", "c", "ended"),
        ("mend", "a", "crash", "b", "ended"),
    ]


def test_rates_survive_a_restart_that_sets_counters_back():
    view = view_of(told("a", counters={"delivered": 1_000}), at_ms=0)
    view.sample(0)
    view.take(told("a", counters={"delivered": 1_020}), 1_000)
    assert view.sample(1_000)["delivered_s"] == 20
    view.take(told("a", incarnation=2, counters={"delivered": 3}), 2_000)
    assert view.sample(2_000)["delivered_s"] == 0
    view.take(told("a", incarnation=2, counters={"delivered": 8}), 3_000)
    assert view.sample(3_000)["delivered_s"] == 5


def test_why_a_node_is_not_healthy_is_shown_with_it_until_it_is_well_or_gone():
    why = "The broker at 127.0.0.1:1883 is away: connection refused."
    view = view_of(told("a", complaints=(why,)), told("b"))
    assert {one["name"]: one["complaints"] for one in view.whole(0)["nodes"]} == {"a": (why,), "b": ()}
    assert view.sample(1)["numbers"]["a"]["complaints"] == (why,)
    view.take(told("a"), 2)
    assert view.sample(3)["numbers"]["a"]["complaints"] == ()
    view.take(told("a", complaints=(why,)), 4)
    view.down("a", "down", 5)
    assert {one["name"]: one["complaints"] for one in view.whole(6)["nodes"]} == {"a": (), "b": ()}


def test_nodes_that_are_gone_are_forgotten_after_a_while():
    view = view_of(told("a"), told("b"))
    view.down("b", "left", 0)
    view.settle(60_000)
    assert "b" in view.nodes
    view.settle(121_000)
    assert "b" not in view.nodes


def naive_split(view: MeshView) -> tuple[int, int]:
    """The definition: a topic is split if some two of its members cannot reach each other through members."""
    members = {name: set(seen.topics) for name, seen in view.nodes.items() if seen.state in ("up", "leaving")}
    topics = {topic for wanted in members.values() for topic in wanted}
    split = 0
    for topic in topics:
        inside = {name for name, wanted in members.items() if topic in wanted}
        reached = {min(inside)}
        for _ in inside:
            reached |= {
                other
                for u, v in [pair for pair, state in view.links.items() if state == "up"]
                for one, other in ((u, v), (v, u))
                if one in reached and other in inside
            }
        split += reached != inside
    return split, len(topics)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_split_topics_are_counted_as_they_are_defined(seed):
    chance = random.Random(seed)
    names = [f"n{number}" for number in range(chance.randrange(1, 9))]
    view = MeshView()
    for name in names:
        topics = chance.sample("tuvw", chance.randrange(0, 4))
        state: Any = chance.choice(["up", "up", "up", "joining", "leaving", "down"])
        view.put(name, topics, 0, state=state)
    for _ in range(chance.randrange(0, 12)):
        if len(names) > 1:
            u, v = sorted(chance.sample(names, 2))
            view.link(u, v, chance.choice(["up", "up", "broken"]), 0)  # type: ignore[arg-type]
    assert split_topics(view) == naive_split(view)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_whoever_applies_the_events_has_what_the_view_has(seed):
    chance, view = random.Random(seed), MeshView()
    nodes: dict[str, str] = {}
    links: dict[tuple[str, str], str] = {}
    for step in range(30):
        name = chance.choice("abcde")
        if chance.random() < 0.2:
            view.down(name, chance.choice(["down", "left", "silent"]), step * 10_000)  # type: ignore[arg-type]
        else:
            peers = " ".join(chance.sample("abcde", 2))
            view.take(told(name, links=peers, incarnation=chance.choice([1, 1, 1, 2])), step * 10_000)
        view.settle(step * 10_000)
        for kind, data in view.drain():
            if kind == "node":
                nodes[data["name"]] = data["state"]
                if data["state"] == "forgotten":
                    del nodes[data["name"]]
            elif kind == "link":
                links[data["u"], data["v"]] = data["state"]
                if data["state"] == "gone":
                    del links[data["u"], data["v"]]
        assert nodes == {seen.name: seen.state for seen in view.nodes.values()}
        assert links == view.links


# What is served


class Reader:
    """Reads /events."""

    def __init__(self, stream: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stream, self.writer = stream, writer

    async def __call__(self, kind: str, **wanted: Any) -> dict[str, Any]:
        """The next event of this kind with these fields."""
        while True:
            text = (await self.stream.readuntil(b"\n\n")).decode()
            name, _, data = text.strip().partition("\n")
            found = json.loads(data.removeprefix("data: "))
            if name == f"event: {kind}" and all(found[key] == value for key, value in wanted.items()):
                return dict(found)


async def events(dashboard: Dashboard) -> Reader:
    reader, writer = await asyncio.open_connection("127.0.0.1", dashboard.port, limit=1 << 22)
    writer.write(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    return Reader(reader, writer)


def serving(sources: Any) -> Dashboard:
    dashboard = Dashboard(sources)
    dashboard.bind("127.0.0.1:0")
    dashboard.serve()
    return dashboard


async def mesh_json(dashboard: Dashboard) -> Any:
    status, body = await get(f"127.0.0.1:{dashboard.port}", "/mesh.json")
    assert status == 200
    return json.loads(body)


def test_a_crash_and_its_mend_are_told_as_they_happen(monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.05)

    async def work() -> None:
        async with mesh("a", "b", "c", topics=("t",), **ADMIN) as nodes:
            dashboard = serving(lambda: [admin_address(node) for node in nodes if node.admin is not None])
            try:
                await until(lambda: sum(one == "up" for one in dashboard.view.links.values()) >= 2)
                await until(lambda: all(seen.state == "up" for seen in dashboard.view.nodes.values()))
                read = await events(dashboard)
                whole = await read("mesh")
                assert sorted(one["name"] for one in whole["nodes"]) == ["a", "b", "c"]
                await nodes[1].stop(in_order=False)
                assert (await read("node"))["name"] == "b"
                assert (await read("mend", state="ended", cause="crash"))["node"] == "b"
                row = await read("sample", nodes=2, links=1, split_topics=0, topics=1)
                assert row["degree_max"] == 1
                assert {one["name"]: one["state"] for one in (await mesh_json(dashboard))["nodes"]}["b"] == "down"
                again = nodes[1] = LiveNode(config("b", (peer_address(nodes[0]),), topics=("t",), **ADMIN))
                await again.start()
                assert (await read("node", name="b", state="up"))["incarnation"] == again.life
                read.writer.close()
            finally:
                await dashboard.close()

    run(work())


def test_sources_may_change_while_it_runs(monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.05)

    async def work() -> None:
        async with mesh("a", "b", **ADMIN) as nodes:
            sources = [admin_address(nodes[0])]
            dashboard = serving(lambda: sources)
            try:
                await until(lambda: "a" in dashboard.view.nodes)
                sources.append(admin_address(nodes[1]))
                await until(lambda: "b" in dashboard.view.nodes)
                sources.pop(0)
                await until(lambda: dashboard.view.nodes["a"].state == "down")
                assert dashboard.view.nodes["b"].state in ("joining", "up")
            finally:
                await dashboard.close()

    run(work())


def test_a_node_that_talks_nonsense_is_no_harm(monkeypatch):
    monkeypatch.setattr(module, "POLL_S", 0.05)

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = b'{"node": "evil", "incarnation": -1, "topics": 7}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        writer.write(random.Random(1).randbytes(5_000))
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with mesh("a", **ADMIN) as nodes:
            dashboard = serving([f"127.0.0.1:{port}", "127.0.0.1:9", admin_address(nodes[0])])
            try:
                await until(lambda: "a" in dashboard.view.nodes)
                read = await events(dashboard)
                await read("sample")
                await read("sample")
                assert list(dashboard.view.nodes) == ["a"]
                read.writer.close()
            finally:
                await dashboard.close()
                server.close()

    run(work())


def test_with_tls_an_admin_port_answers_only_who_has_a_certificate(make_tls, monkeypatch):  # noqa: F811
    monkeypatch.setattr(module, "POLL_S", 0.05)
    ours = make_tls("ours")

    async def work() -> None:
        async with mesh("a", tls=ours, **ADMIN) as nodes:
            status, body = await get(admin_address(nodes[0]), "/healthz")
            assert (status, body[:20]) == (400, b"this port speaks TLS")
            dashboard = Dashboard([admin_address(nodes[0])], tls=make_context(ours, server=False))
            dashboard.bind("127.0.0.1:0")
            dashboard.serve()
            try:
                await until(lambda: "a" in dashboard.view.nodes)
            finally:
                await dashboard.close()

    run(work())


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=600),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(field=st.sampled_from(Snapshot.__struct_fields__), junk=JUNK, rest=st.binary(max_size=3))
def test_a_snapshot_is_within_its_limits_or_refused(field, junk, rest):
    body = json.dumps({**msgspec.to_builtins(told("a", "t u", "b c")), field: junk}).encode() + rest
    try:
        found = SNAPSHOT.decode(body)
    except ValueError:
        return  # what the dashboard takes for a node that is down
    assert 0 < len(found.node) <= NAME_LETTERS_MAX
    assert all(0 < len(topic) <= NAME_LETTERS_MAX for topic in found.topics)
    assert msgspec.json.encode(view_of(found).whole(0))


def test_the_page_is_served_with_a_strict_policy_and_asks_nobody_else():
    found = pages()
    assert {"index.html", "style.css", "app.js", "favicon.svg"} <= found.keys()
    for name, page in found.items():
        headers = dict(page.headers)
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        text = page.body.decode()
        allowed = ("http://www.w3.org/2000/svg",)
        addresses = [word for word in text.replace('"', " ").replace("'", " ").split() if "://" in word]
        assert [one for one in addresses if not one.startswith(allowed)] == [], name
        for trap in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="):
            assert trap not in text, f"{name} uses {trap}"


def test_nothing_but_the_page_and_its_data_is_served():
    async def work() -> None:
        dashboard = serving([])
        try:
            address = f"127.0.0.1:{dashboard.port}"
            assert (await get(address, "/"))[0] == (await get(address, "/app.js"))[0] == 200
            for path in ("/../config.py", "/%2e%2e/config.py", "/web/app.js", "/replay.json", "//etc/passwd"):
                assert (await get(address, path))[0] == 404
        finally:
            await dashboard.close()

    run(work())


# The command


def test_the_command_serves_a_running_node_and_ends_on_sigterm(tmp_path):
    command = [sys.executable, "-m", "trellis", "dashboard", "127.0.0.1:9", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip().removeprefix("dashboard: http://").removesuffix("/")

        async def work() -> None:
            assert json.loads((await get(address, "/mesh.json", timeout_s=30))[1])["nodes"] == []

        run(work())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "nothing to show, or two things"),
        (["127.0.0.1:9", "--replay", "x"], "nothing to show, or two things"),
        (["nowhere"], '"nowhere" is no address'),
        (["127.0.0.1:9", "--listen", "0.0.0.0:0"], "beyond loopback and the page has no password"),
        (["--replay", "no/such"], "cannot be read"),
    ],
    ids=str,
)
def test_a_wrong_command_is_one_clear_line(arguments, line, capfd):
    from trellis.cli.main import run as run_command

    assert run_command(["dashboard", *arguments]) == 2
    told_line = capfd.readouterr().err
    assert line in told_line
    assert told_line.count("\n") == 1


# A recorded run


def recording(tmp_path: Any, lines: list[dict[str, Any]]) -> Any:
    header = {"trellis": "recording", "version": 1, "protocol": "omen", "seed": 7, "parameters": {}}
    path = tmp_path / "recording.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(json.dumps(one).encode() + b"\n" for one in (header, *lines))))
    return path


LINES = [
    {"t": 0, "e": "up", "n": "a", "topics": ["t"]},
    {"t": 0, "e": "up", "n": "b", "topics": ["t"]},
    {"t": 10, "e": "link", "u": "a", "v": "b"},
    {"t": 1_500, "e": "deliver", "n": "b", "topic": "t", "origin": "a", "seq": 1},
    {"t": 2_500, "e": "down", "n": "b", "how": "crash"},
    {"t": 3_100, "e": "fault", "kind": "pause", "nodes": ["a"], "text": "pause a"},
    {"t": 4_000, "e": "up", "n": "b", "topics": ["t"]},
    {"t": 5_200, "e": "sent", "types": {"Connect": 12}},
    {"t": 6_000, "e": "end", "digest": "", "overlay": ""},
]


def test_a_film_tells_a_recording_as_events_and_a_series(tmp_path):
    from trellis.lab.film import film

    path = recording(tmp_path, LINES)
    found = json.loads(film(tmp_path))
    assert film(tmp_path) == film(path)
    told_events = [(kind, data["at_ms"], data.get("state", "")) for kind, data in found["events"]]
    assert told_events == [
        ("node", 0, "up"),
        ("node", 0, "up"),
        ("link", 10, "up"),
        ("node", 2_500, "down"),
        ("link", 2_500, "gone"),
        ("fault", 3_100, ""),
        ("node", 4_000, "up"),
    ]
    assert [row["split_topics"] for row in found["series"]] == [0, 0, 0, 1, 1, 1]
    assert [row["nodes"] for row in found["series"]] == [2, 2, 1, 2, 2, 2]
    assert [row["delivered_s"] for row in found["series"]] == [0, 1, 0, 0, 0, 0]
    assert [row["sent_s"] for row in found["series"]] == [0, 0, 0, 0, 0, 12]


def test_a_folder_without_a_recording_says_so(tmp_path):
    from trellis.lab.film import film

    with pytest.raises(InputError, match="simulate with --record"):
        film(tmp_path)
