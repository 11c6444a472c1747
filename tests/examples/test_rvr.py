"""RVR: trees on the ring, whatever nodes want."""

from __future__ import annotations

from random import Random

from trellis.ids import stream
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Deliver, Send
from trellis.protocols.ring import identifier
from trellis.protocols.rvr import RvrNode
from trellis.protocols.tman import TManReply
from trellis.protocols.vitis import TableConfig
from trellis.protocols.vitis.messages import Event, Notification, Profile, Relay


def node_of(name, topics="", **fields):
    return RvrNode(name, tuple(sorted(topics)), Random(stream(1, "node", name)), TableConfig(**fields))


def closest_first(topic, *names):
    place = identifier(topic)
    return sorted(names, key=lambda name: min((identifier(name) - place) % 2**160, (place - identifier(name)) % 2**160))


def profile(relays=""):
    return Profile(1, True, (), (), tuple(sorted(relays)))


def test_the_table_does_not_see_interests():
    names = [f"n{number}" for number in range(40)]
    tables = []
    for wants in ("x", "y"):
        node = node_of("me", "x", table_size=6)
        told = tuple(Descriptor(name, 1, 1, (wants,) if number % 2 else ()) for number, name in enumerate(names))
        node.on_message("n0", TManReply("table", told))
        tables.append(list(node.table.table.entries))
    assert tables[0] == tables[1]
    assert len(tables[0]) == 6


def test_every_subscriber_looks_up_its_topics_and_relays_for_others():
    root, me, child = closest_first("x", "a", "b", "c")
    node = node_of(me, "x")
    node.on_message(root, profile())
    node.on_message(child, profile())
    told = {effect.to: effect.message for effect in node.on_timer("profile/tick") if isinstance(effect, Send)}
    assert (told[root].relays, told[child].relays) == (("x",), ())
    assert node.on_message(child, Relay(("x",))) == []  # it is on the way already
    node.unsubscribe("x")
    assert node.relays.up == {"x": root}
    node.on_message(child, profile())
    assert node.relays.up == {}
    node.check()


def test_an_event_travels_the_tree_and_nothing_else():
    root, me, child, other = closest_first("x", "a", "b", "c", "d")
    node = node_of(me, "x")
    node.on_message(root, profile())
    node.on_message(child, profile())
    node.on_message(other, Profile(1, True, ("x",)))  # wants x, and is no neighbour in the tree
    node.on_timer("profile/tick")
    node.on_message(child, Relay(("x",)))
    effects = node.on_message(root, Event("x", "o", 1, 2))
    assert effects == [Deliver("x", "o", 1), Send(child, Notification("x", "o", 1, 3))]
