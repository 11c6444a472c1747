"""A live mesh that starts from a plan has its links, whoever is up first; a restart and an old plan do no harm."""

from __future__ import annotations

from live.lives import config, peer_address, run, until
from trellis.live.config import PlannedConfig
from trellis.live.shell import LiveNode

TOPICS = {"a": "tu", "b": "tu", "c": "uv", "d": "tv", "e": "tw", "f": "wv"}
LINKS = ["ab", "bc", "cd", "bd", "de", "ef", "df"]


def planned(name: str) -> tuple[str, ...]:
    return tuple(other for link in LINKS for other in link if name in link and other != name)


def make(name: str, seeds: tuple[str, ...], neighbours: tuple[str, ...], wait_s: float) -> LiveNode:
    plan = PlannedConfig(neighbours=neighbours, wait_s=wait_s)
    return LiveNode(config(name, seeds, topics=tuple(TOPICS[name]), planned=plan))


def is_joined(node: LiveNode) -> bool:
    return not node.mesh.overlay.node.parts.is_joining  # type: ignore[attr-defined]


async def start_all(nodes: dict[str, LiveNode], neighbours: dict[str, tuple[str, ...]], wait_s: float) -> None:
    """One after the other; the first is the seed of the others, which have not all met then."""
    for name in TOPICS:
        seeds = tuple(peer_address(one) for one in list(nodes.values())[:1])
        nodes[name] = make(name, seeds, neighbours[name], wait_s)
        await nodes[name].start()


async def stop_all(nodes: dict[str, LiveNode]) -> None:
    for node in nodes.values():
        await node.stop(in_order=False)


def test_nodes_that_start_one_after_the_other_have_the_planned_links_and_no_others():
    async def work() -> None:
        nodes: dict[str, LiveNode] = {}
        try:
            await start_all(nodes, {name: planned(name) for name in TOPICS}, wait_s=600)
            await until(lambda: all(is_joined(node) for node in nodes.values()))
            assert {name: set(node.links) for name, node in nodes.items()} == {
                name: set(planned(name)) for name in TOPICS
            }
            assert not any(node.counters["bugs"] for node in nodes.values())
        finally:
            await stop_all(nodes)

    run(work())


def test_a_plan_with_nobody_in_it_delays_nobody_for_longer_than_its_time():
    async def work() -> None:
        nodes: dict[str, LiveNode] = {}
        try:
            await start_all(nodes, {name: ("nobody", name) for name in TOPICS}, wait_s=1)
            await until(lambda: all(is_joined(node) and node.links for node in nodes.values()))
            assert not any("nobody" in node.links for node in nodes.values())
        finally:
            await stop_all(nodes)

    run(work())


def test_a_node_that_restarts_does_not_wait_for_an_old_plan():
    async def work() -> None:
        nodes: dict[str, LiveNode] = {}
        try:
            await start_all(nodes, {name: planned(name) for name in TOPICS}, wait_s=600)
            await until(lambda: all(is_joined(node) for node in nodes.values()))
            old = nodes["b"]
            await old.stop(in_order=False)
            plan = PlannedConfig(neighbours=("gone", "long-gone"), wait_s=600)
            seeds = (peer_address(nodes["a"]),)
            # Lives count tenths of a second: for this one the others have been there for longer than its plan holds.
            late = config("b", seeds, topics=tuple(TOPICS["b"]), planned=plan)
            nodes["b"] = LiveNode(late, life=old.life + 10 * 600 + 100)
            await nodes["b"].start()
            await until(lambda: is_joined(nodes["b"]) and bool(nodes["b"].links))
        finally:
            await stop_all(nodes)

    run(work())
