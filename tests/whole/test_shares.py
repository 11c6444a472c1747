"""Shared subscriptions on whole nodes in the simulator: five members on three nodes, of which two are killed."""

from __future__ import annotations

import re
from collections import Counter

from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import Mesh
from trellis.simulate.whole.world import World

MEMBERS = {"one-a": "a", "two-a": "a", "one-b": "b", "two-b": "b", "one-c": "c"}
COUNT = 300


def receipts(world: World, what: str) -> list[tuple[str, str]]:
    """Return who received or published which message, as the history tells it."""
    return re.findall(rf"(\S+) {what} mq/x (writer/\d+/)", world.history.text())


def shared(world: World) -> Mesh:
    mesh = Mesh(world, "abc")
    mesh.start_all()
    for member, node in MEMBERS.items():
        mesh.mqtt_subscribe(member, node, ["$share/group/mq/#"])
    world.run_until(lambda: mesh.counters["subscribed"] == len(MEMBERS), 60)
    world.run_for(2)
    return mesh


def test_when_two_of_three_nodes_are_killed_nothing_that_was_acknowledged_is_lost():
    with World(4, keeps_lines=True) as world:
        mesh, faults = shared(world), Faults(world)
        mesh.mqtt_publish("writer", "c", "mq/x", every_s=0.01, count=COUNT)
        world.run_until(lambda: mesh.counters["received"] > COUNT // 3, 60)
        turns = Counter(receipts(world, "received"))
        assert max(turns.values()) == 1
        assert {member for member, _ in turns} == MEMBERS.keys()
        faults.crash("a")
        world.run_until(lambda: mesh.counters["acknowledged"] > COUNT * 2 // 3, 120)
        faults.crash("b")
        world.run_for(60)
        acknowledged = {payload for _, payload in receipts(world, "acknowledged")}
        found = receipts(world, "received")
        assert len(acknowledged) > COUNT * 2 // 3
        assert acknowledged <= {payload for _, payload in found}
        times = Counter(payload for _, payload in found)
        living = Counter(payload for member, payload in found if MEMBERS[member] == "c")
        assert max(living.values()) == 1
        assert sum(times.values()) - len(times) < COUNT // 10, "only what was under way at the two crashes came twice"
        assert not world.failures
