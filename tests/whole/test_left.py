"""A publisher's node leaves a topic to another node, and that one crashes."""

from __future__ import annotations

from msgspec.structs import replace

from trellis.live.config import NodeConfig
from trellis.protocols.delivery import DeliveryConfig
from trellis.simulate.whole.faults import Faults
from trellis.simulate.whole.whole import Mesh
from trellis.simulate.whole.world import World


def forgetful(name, fields):
    """Publishers lose interest after a second."""
    return NodeConfig(name=name, **fields, delivery=replace(DeliveryConfig(), interest_ms=1_000))


def test_what_a_publisher_left_to_a_node_that_crashed_holds_nobody_back():
    """Subscribers waited a whole window for messages that nobody had any more, and for all that followed them."""
    with World(1, keeps_lines=True) as world:
        mesh, faults = Mesh(world, "abc", forgetful, has_mqtt=False), Faults(world)
        mesh.start_all()
        world.run_for(20)
        mesh.subscribe("near", "b", ["news"])
        mesh.subscribe("far", "c", ["news"])
        world.run_until(lambda: mesh.counters["subscribed"] == 2)
        mesh.publish("writer1", "a", "news", every_s=0.1, count=1)
        world.run_until(lambda: mesh.counters["received"] == 2)
        cuts = faults.partition("ab", "c")
        world.run_for(8)  # `c` counts as gone for a while
        mesh.publish("writer2", "a", "news", every_s=0.1, count=3)
        world.run_until(lambda: mesh.counters["received"] == 5)
        world.run_until(lambda: not mesh.nodes["a"].mesh.overlay.interest)
        faults.crash("b")
        faults.heal(*cuts)
        mesh.start("b")
        world.run_for(10)
        mesh.publish("writer3", "a", "news", every_s=0.1, count=1)
        world.run_for(10)
        received = [line for line in world.history.text().splitlines() if "far received" in line]
        assert len(received) == 5, "one before the cut, three in it, and one after it"
