"""OMen: which nodes of the ring are watched, and how long names that a peer has invented keep their places there."""

from __future__ import annotations

from random import Random

from conversation import Conversation
from trellis.live.config import LiveOMenConfig
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.detector import Ping
from trellis.protocols.omen import OMenNode
from trellis.protocols.ring import clockwise, identifier
from trellis.protocols.tman import TManRequest

CONFIG = LiveOMenConfig(resilience=2)
NAMES = ("a", "b", "c")


def mesh(names=NAMES):
    """Return live nodes that know each other, after some periods."""
    others = {name: [one for one in names if one != name] for name in names}
    talk = Conversation(
        OMenNode(name, ("t",), Random(name), CONFIG, contacts=peers, neighbors=peers) for name, peers in others.items()
    )
    talk.start()
    talk.run(10 * CONFIG.period_ms)
    return talk


def before(node, count):
    """Return `count` names that nobody has, between a node and its predecessor."""
    start, found = identifier(node.ring.predecessor), []
    for number in range(10_000):
        name = f"invented{number}"
        if clockwise(start, identifier(name)) < clockwise(start, node.ring.identifier):
            found.append(name)
    return found[:count]


def test_names_that_a_peer_has_invented_leave_the_ring_together():
    talk = mesh()
    node = talk.nodes["b"]
    true, invented = node.ring.predecessor, before(node, 6)
    talk.carry_out("b", node.on_message("liar", TManRequest("ring", tuple(map(Descriptor, invented)))))
    assert node.ring.predecessor in invented
    talk.run((CONFIG.silence_max + 3) * CONFIG.period_ms)  # one period until they are watched, one until all have it
    assert [one.ring.predecessor in invented for one in talk.nodes.values()] == [False] * 3
    assert node.ring.predecessor == true


def test_a_node_of_the_ring_table_that_has_answered_is_watched_only_by_its_neighbors():
    names = tuple(f"n{number}" for number in range(8))
    talk = mesh(names)
    begun = len(talk.said)
    talk.run(10 * CONFIG.period_ms)
    asked = {(sender, to) for _, sender, to, message in talk.said[begun:] if isinstance(message, Ping)}
    rings = [one.ring for one in talk.nodes.values()]
    assert all(len(ring.tman.peers) == 7 for ring in rings)
    assert asked == {(ring.id, peer) for ring in rings for peer in (*ring.successors, *ring.predecessors)}
