"""`trellis replan` on whole nodes that joined at once, under traffic, in the simulator."""

from __future__ import annotations

import re
from collections import Counter
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


async def carry_out(mesh, given=SECRET):
    async with Fleet([mesh.address(name, ADMIN) for name in mesh.names], token=given) as fleet:
        await fleet.look()
        made = replan(*read_fleet(fleet))
        return made, await fleet.apply([(one.do, one.u, one.v) for one in made.changes()]), fleet.links


def wanted_by(names, seed=3):
    chance = Random(seed)
    return {name: tuple(sorted(chance.sample(["s", "t", "u"], 2))) for name in names}


def test_a_mesh_that_joined_at_once_comes_near_the_plan_under_traffic(secret):
    wanted = wanted_by(NAMES)
    with World(3, keeps_lines=True) as world:
        mesh = started(world, wanted, secret)
        for name in NAMES:
            mesh.subscribe(f"reader-{name}", name, wanted[name])
        world.run_until(lambda: mesh.counters["subscribed"] == 2 * len(NAMES), 60)
        for name in NAMES[:4]:
            mesh.publish(f"writer-{name}", name, wanted[name][0], every_s=0.02, count=400)
        world.run_for(1)
        made, applied, links = followed(world, mesh, wanted, world.host("operator").start(carry_out(mesh)))
        assert len(made.present) > 1.1 * made.plan_links, "else there was nothing to do"
        assert not applied.refused
        assert not applied.left
        assert not applied.stopped
        assert links == links_of(mesh)
        assert len(links) <= 1.1 * made.plan_links
        world.run_until(lambda: mesh.counters["acknowledged"] == 1_600, 120)
        world.run_for(40)
        assert links_of(mesh) == links, "nobody opens again what was dropped"
        assert not split(mesh, wanted)
        got = Counter(re.findall(r"(reader-\S+) received \S+ \S+ (\S+)$", world.history.text(), re.MULTILINE))
        owed = {
            (f"reader-{name}", f"writer-{writer}/{number}/")
            for writer in NAMES[:4]
            for number in range(400)
            for name in NAMES
            if wanted[writer][0] in wanted[name]
        }
        assert got.keys() == owed, "nothing is missing"
        assert set(got.values()) == {1}, "nothing comes twice"
        assert not any(node.counters["bugs"] for node in mesh.nodes.values())


def test_a_node_that_crashes_stops_it_and_what_was_not_done_is_told(secret):
    wanted = wanted_by(NAMES)
    with World(3) as world:
        mesh = started(world, wanted, secret)
        task = world.host("operator").start(carry_out(mesh))
        world.run_until(lambda: task.done() or mesh.nodes["n0"].mesh.overlay.node.requests.latest, 10)
        Faults(world).crash("n7")
        made, applied, _ = world.run(task, 120)
        assert "does not answer any more" in applied.stopped
        assert len(applied.done) + len(applied.refused) + len(applied.left) == len(made)
        assert applied.left
        world.run_for(30)
        assert not split(mesh, {name: topics for name, topics in wanted.items() if name != "n7"})


def test_without_the_secret_nothing_is_changed(secret):
    wanted = wanted_by(NAMES[:4])
    with World(3) as world:
        mesh = started(world, wanted, secret)
        before = links_of(mesh)

        async def drop_all(given):
            async with Fleet([mesh.address(name, ADMIN) for name in mesh.names], token=given) as fleet:
                await fleet.look()
                return await fleet.apply([("add", "n0", "n1"), ("remove", *min(before))])

        for given in ("", "another secret of 32 letters".replace(" ", "-")):
            applied = world.run(world.host(f"operator{len(given)}").start(drop_all(given)), 60)
            assert "does not accept this secret" in applied.stopped
            assert not applied.done
        assert links_of(mesh) == before
        assert sum(node.counters["link_requests_refused"] for node in mesh.nodes.values()) == 2
