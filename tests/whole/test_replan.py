"""`trellis replan` on whole nodes with far more links than a plan, under traffic, in the simulator."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations
from random import Random

import pytest

from trellis.cli.replan import read_fleet
from trellis.live.relink import Fleet
from trellis.plan.replan import replan
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import ADMIN, Mesh, plain_config
from trellis.simulate.whole.world import World

SECRET = "a secret of thirty-two letters...".replace(" ", "-")
NAMES = [f"n{number}" for number in range(8)]


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "admin.token"
    path.write_text(f"{SECRET}\n")
    return path


def started(world, wanted, secret):
    """A mesh whose nodes have all joined within a moment."""
    mesh = Mesh(
        world,
        list(wanted),
        lambda name, fields: plain_config(name, {**fields, "topics": wanted[name], "admin_token": str(secret)}),
        has_mqtt=False,
    )
    mesh.start_all(0.02)
    world.run_for(25)
    assert mesh.is_linked()
    return mesh


def links_of(mesh):
    """Links that stand at both ends."""
    claims = {name: set(mesh.nodes[name].links) for name in mesh.names if mesh.is_running(name)}
    return {
        (one, peer) for one, peers in claims.items() for peer in peers if one < peer and one in claims.get(peer, ())
    }


def split(mesh, wanted):
    """Topics whose subscribers are not connected through each other."""
    near = {}
    for one, other in links_of(mesh):
        near.setdefault(one, set()).add(other)
        near.setdefault(other, set()).add(one)
    found = set()
    for topic in {topic for topics in wanted.values() for topic in topics}:
        members = {name for name in wanted if topic in wanted[name] and mesh.is_running(name)}
        seen, stack = set(), [min(members)]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += near.get(node, set()) & members
        if seen != members:
            found.add(topic)
    return found


def followed(world, mesh, wanted, task, limit_s=120):
    """Run until a task is done, and look at every topic ten times in a simulated second and more."""
    for _ in range(limit_s * 20):
        if task.done():
            return task.result()
        world.run_for(0.05)
        assert not split(mesh, wanted)
    raise AssertionError("it takes too long")


def operator(world, work):
    """Start a command of an operator, each on a host of its own."""
    return world.host(f"operator-{len(world.hosts)}").start(work)


def addresses(mesh):
    return [mesh.address(name, ADMIN) for name in mesh.names]


async def link_all(mesh, wanted, given=SECRET):
    """Open every link that serves a topic: three times the links of a plan and more."""
    async with Fleet(addresses(mesh), token=given) as fleet:
        await fleet.look()
        return await fleet.apply([("add", *pair) for pair in pairs_of(wanted)])


async def carry_out(mesh, given=SECRET):
    async with Fleet(addresses(mesh), token=given) as fleet:
        await fleet.look()
        made = replan(*read_fleet(fleet))
        return made, await fleet.apply([(one.do, one.u, one.v) for one in made.changes()]), fleet.links


def pairs_of(wanted):
    return [pair for pair in combinations(sorted(wanted), 2) if set(wanted[pair[0]]) & set(wanted[pair[1]])]


def wanted_by(names, seed=3):
    chance = Random(seed)
    return {name: tuple(sorted(chance.sample(["s", "t", "u"], 2))) for name in names}


def test_a_mesh_with_too_many_links_comes_near_the_plan_under_traffic(secret):
    wanted = wanted_by(NAMES)
    with World(3, keeps_lines=True) as world:
        mesh = started(world, wanted, secret)
        before = links_of(mesh)
        for given in ("", SECRET[:-1]):
            applied = world.run(operator(world, link_all(mesh, wanted, given)), 60)
            assert "does not accept this secret" in applied.stopped
        assert links_of(mesh) == before
        applied = world.run(operator(world, link_all(mesh, wanted)), 60)
        assert links_of(mesh) == set(pairs_of(wanted))
        assert [applied.refused, applied.left, applied.stopped] == [[], [], ""]

        for name in NAMES:
            mesh.subscribe(f"reader-{name}", name, wanted[name])
        world.run_until(lambda: mesh.counters["subscribed"] == 2 * len(NAMES), 60)
        for name in NAMES[:4]:
            mesh.publish(f"writer-{name}", name, wanted[name][0], every_s=0.02, count=100)
        world.run_for(0.5)
        made, applied, links = followed(world, mesh, wanted, operator(world, carry_out(mesh)))
        assert mesh.counters["publishes"] < 400, "messages were published to the end"
        assert len(made.present) > 2.5 * made.plan_links
        assert [applied.refused, applied.left, applied.stopped] == [[], [], ""]
        assert links == links_of(mesh)
        assert len(links) <= 1.1 * made.plan_links
        world.run_until(lambda: mesh.counters["acknowledged"] == 400, 120)
        world.run_for(25)
        assert links_of(mesh) == links, "nobody opens again what was dropped"
        assert not split(mesh, wanted)
        got = Counter(re.findall(r"(reader-\S+) received \S+ \S+ (\S+)$", world.history.text(), re.MULTILINE))
        owed = {
            (f"reader-{name}", f"writer-{writer}/{number}/")
            for writer in NAMES[:4]
            for number in range(100)
            for name in NAMES
            if wanted[writer][0] in wanted[name]
        }
        assert got.keys() == owed, "nothing is missing"
        assert set(got.values()) == {1}, "nothing comes twice"
        assert not any(node.counters["bugs"] for node in mesh.nodes.values())


def test_a_node_that_crashes_stops_it_and_what_was_not_done_is_told(secret):
    names = NAMES[:5]
    wanted = wanted_by(names)
    with World(3) as world:
        mesh = started(world, wanted, secret)
        world.run(operator(world, link_all(mesh, wanted)), 60)
        task = operator(world, carry_out(mesh))
        asked = sum(len(node.mesh.overlay.node.requests.latest) for node in mesh.nodes.values())

        def is_begun():
            return sum(len(one.mesh.overlay.node.requests.latest) for one in mesh.nodes.values()) > asked

        world.run_until(is_begun, 10)
        Faults(world).crash(names[-1])
        made, applied, _ = world.run(task, 120)
        assert "does not answer any more" in applied.stopped
        assert len(applied.done) + len(applied.refused) + len(applied.left) == len(made)
        assert applied.left
        world.run_for(20)
        assert not split(mesh, {name: topics for name, topics in wanted.items() if name != names[-1]})
