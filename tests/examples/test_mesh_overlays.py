"""Overlays below a mesh node: who takes part in a topic, over which links, and what happens when that changes."""

from __future__ import annotations

from random import Random

import pytest

from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.delivery.outcome import NotAcknowledged, Published
from trellis.protocols.effects import Deliver, Left, Send
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet import MagnetConfig, MagnetNode
from trellis.protocols.magnet.messages import Publish, ToHome
from trellis.protocols.mesh import CODECS, MeshNode
from trellis.protocols.mesh.magnet import MagnetOverlay
from trellis.protocols.mesh.node import TOPIC_BYTES
from trellis.protocols.mesh.spidercast import SURE_ROUNDS, SpiderCastOverlay
from trellis.protocols.mesh.vitis import VitisOverlay
from trellis.protocols.oscar import Peer
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.spidercast import SpiderCastConfig, SpiderCastNode
from trellis.protocols.spidercast.messages import Connect, Stamp
from trellis.protocols.vitis import VitisConfig, VitisNode
from trellis.protocols.vitis.messages import Event, Profile, Relay
from trellis.protocols.wire import TOPICS_BYTES_MAX, TOPICS_MAX, WireError


def vitis(topics=("t",)):
    node = VitisNode("me", topics, Random(1), VitisConfig())
    overlay = VitisOverlay(node)
    mesh = MeshNode(overlay, topics, DeliveryConfig())
    mesh.start()
    return mesh, overlay


def shared(overlay, peer):
    return overlay.table.topics(overlay.neighbors().get(peer, 0))


def test_a_vitis_node_takes_part_in_what_it_relays_and_over_relay_links_only():
    mesh, overlay = vitis(("t",))
    mesh.on_message("wants", Profile(1, True, ("t", "x")))
    mesh.on_message("asks", Profile(1, True, ("y",)))
    assert shared(overlay, "wants") == ("t",)
    assert shared(overlay, "asks") == ()
    mesh.on_message("asks", Relay(("x",)))
    assert overlay.table.topics(overlay.interest) == ("t", "x")
    assert "x" in shared(overlay, "asks")
    assert mesh.delivery.state.topics["x"].takes_part
    mesh.on_message("asks", Profile(1, True, ("y",), relays=()))  # its path goes elsewhere now
    assert overlay.table.topics(overlay.interest) == ("t",)
    assert not mesh.delivery.state.topics["x"].takes_part


def test_a_relay_that_unsubscribes_goes_on_relaying_and_vouches_for_what_it_holds():
    mesh, overlay = vitis(("t",))
    mesh.on_message("asks", Profile(1, True, ("t",)))
    mesh.on_message("asks", Relay(("t",)))
    mesh.unsubscribe("t")
    mesh.on_timer("mesh/batch")
    assert overlay.node.topics == ()
    topic = mesh.delivery.state.topics["t"]
    assert (topic.takes_part, topic.is_wanted, topic.is_leaving) == (True, False, False)
    assert not mesh.draining
    assert not mesh.parting
    mesh.check()


def magnet(topics=("t",)):
    node = MagnetNode("me", topics, Random(1), MagnetConfig())
    mesh = MeshNode(MagnetOverlay(node), topics, DeliveryConfig())
    mesh.start()
    for tag in ("join/inquire", "join/inquire", "join/enter", "join/open"):
        mesh.on_timer(tag)
    return mesh, node


def test_a_publisher_without_subscription_joins_the_tree_and_keeps_its_place_on_the_ring():
    mesh, node = magnet()
    moves = node.placement.changes
    mesh.publish("other", b"x")
    mesh.on_timer("mesh/first")
    assert "other" in node.trees.forest.trees
    assert node.topics == ("t",)
    assert node.placement.changes == moves
    mesh.subscribe("other")  # now it matters where it stands
    mesh.on_timer("mesh/batch")
    assert node.topics == ("other", "t")


def test_several_subscriptions_at_once_are_one_change_of_place():
    mesh, node = magnet()
    before = node._version
    for topic in "abc":
        mesh.subscribe(topic)
    mesh.on_timer("mesh/batch")
    assert (node.topics, node._version) == (("a", "b", "c", "t"), before + 1)


def test_a_view_is_no_proof_before_gossip_had_time_to_go_round():
    node = SpiderCastNode("me", ("t",), Random(1), SpiderCastConfig(), contacts=["seed"], gossip=GossipViewConfig())
    overlay = SpiderCastOverlay(node)
    mesh = MeshNode(overlay, ("t",), DeliveryConfig())
    mesh.start()
    for _ in range(SURE_ROUNDS):
        assert overlay.subscribers("t") == 1  # somebody unknown, perhaps
        mesh.on_timer("newscast/exchange")
    assert overlay.subscribers("t") == 0
    mesh.subscribe("later")
    mesh.on_timer("mesh/batch")
    assert (overlay.subscribers("later"), overlay.subscribers("t")) == (1, 0)


def test_a_view_is_no_proof_either_when_a_neighbour_has_just_been_lost():
    """Found by seed 1179: a partition made its side believe that nobody else subscribes."""
    node = SpiderCastNode("me", ("t",), Random(1), SpiderCastConfig(), contacts=["seed"], gossip=GossipViewConfig())
    overlay = SpiderCastOverlay(node)
    mesh = MeshNode(overlay, ("t",), DeliveryConfig())
    mesh.start()
    mesh.on_message("other", Connect("greedy", 0, 3, ("t",), Stamp(1, 0)))
    for _ in range(SURE_ROUNDS):
        mesh.on_timer("newscast/exchange")
    assert overlay.subscribers("t") == 0
    mesh.on_peer_down("other")
    assert overlay.subscribers("t") == 1


def test_a_seed_is_spoken_to_again_now_and_then():
    node = SpiderCastNode("me", ("t",), Random(1), SpiderCastConfig(), contacts=["seed"], gossip=GossipViewConfig())
    SpiderCastOverlay(node)
    assert node.membership is not None
    node.membership.sampling.contacts.heard("seed")
    partners = []
    for _ in range(40):
        node.membership.sampling.learn([node._describe().__class__("other", 0)])
        node.membership.sampling.silent_rounds = 0
        sent = [one for one in node.on_timer("newscast/exchange") if isinstance(one, Send)]
        partners += [one.to for one in sent]
    assert (partners.count("seed"), partners.count("other")) == (2, 38)


def test_nothing_but_delivery_hands_anything_over():
    """Overlays have publications of their own. Those of Vitis and Magnet are no messages of a mesh."""
    event = Event("t", "a", 1, 1, b"x")
    with pytest.raises(WireError):
        CODECS["vitis"].decode(CODECS["vitis"].encode(event))
    mesh, _ = vitis()
    assert not any(isinstance(one, Deliver) for one in mesh.on_message("a", event))
    mesh, _ = magnet()
    assert not any(isinstance(one, Deliver) for one in mesh.on_message("a", ToHome("t", Publish("a", 1, b"x"))))


@pytest.mark.parametrize("make", [vitis, magnet])
def test_who_leaves_alone_is_gone_when_its_home_has_said_that_nobody_else_is_there(make):
    mesh, _ = make()
    effects = mesh.leave()
    for _ in range(40):
        effects += mesh.on_timer("delivery/tick")
    assert Left() in effects


def test_the_way_to_a_home_comes_nearer_from_above_and_never_goes_around_the_ring():
    """Who stands right behind a place, and has just learnt that another is its home, sends it back, not on."""
    _, node = magnet()
    overlay, table, place = MagnetOverlay(node), node.control.table, hashed("t")
    ring = sorted(
        ["me", *(f"n{number}" for number in range(40))], key=lambda name: (hashed(name) < place, hashed(name))
    )
    peers = {name: Peer(name, hashed(name)) for name in ring}

    def next_hop(name, *around, without=()):
        table.clear()
        table.node, table.me = name, peers[name]
        at = ring.index(name)
        table.predecessor = peers[ring[at - 1]]
        table.set_successors([peers[ring[(at + step) % len(ring)]] for step in (1, 2)], 4)
        table.fingers = {other: peers[other] for other in around}
        table.touch()
        (sent,) = overlay.toward_home("t", Publish("a", 1), without)
        return sent.to

    home = ring[0]
    assert next_hop(ring[2], ring[30]) == ring[1]  # not to 30, the nearest from below
    assert next_hop(ring[30], ring[20], ring[5]) == ring[5]
    assert next_hop(ring[30], ring[20], ring[5], without=[ring[5]]) == ring[20]
    assert next_hop(ring[40]) == home  # its successor
    for start in ring[1:]:
        hops = [start]
        while hops[-1] != home:
            hops.append(next_hop(hops[-1], ring[(ring.index(hops[-1]) + 8) % 41]))
        assert [ring.index(one) for one in hops] == sorted(map(ring.index, hops), reverse=True)


def test_topics_are_counted_with_their_bytes_from_the_wish_until_they_are_left():
    mesh, _ = vitis(("t",))
    mesh.subscribe("\u00e4\u00f6")
    mesh.subscribe("t")
    mesh.publish("published on", b"")
    assert (mesh.topics_count, mesh.topics_bytes) == (3, 1 + 4 + 12 + 3 * TOPIC_BYTES)
    mesh.on_timer("mesh/batch")
    mesh.on_timer("delivery/tick")
    assert (mesh.topics_count, mesh.topics_bytes) == (3, 1 + 4 + 12 + 3 * TOPIC_BYTES)
    mesh.unsubscribe("t")
    mesh.on_timer("mesh/batch")
    assert mesh.topics_count == 3
    for _ in range(3):
        mesh.on_timer("delivery/tick")
    assert (mesh.topics_count, mesh.topics_bytes) == (2, 4 + 12 + 2 * TOPIC_BYTES)


@pytest.mark.parametrize(
    ("count", "size", "reason"),
    [
        (TOPICS_MAX, 0, f"this node takes part in {TOPICS_MAX} topics, and {TOPICS_MAX} is the limit"),
        (0, TOPICS_BYTES_MAX, f"would have {TOPICS_BYTES_MAX + 11} bytes, and {TOPICS_BYTES_MAX} is the limit"),
    ],
    ids=["number", "bytes"],
)
def test_a_publication_on_one_topic_more_than_others_can_be_told_of_is_not_acknowledged(count, size, reason):
    mesh, _ = vitis(("t",))
    mesh.topics_count, mesh.topics_bytes = count, size
    (refused,) = mesh.publish("new", b"x", ("client", 1))
    assert isinstance(refused, NotAcknowledged)
    assert reason in refused.reason
    assert refused.client_id == ("client", 1)
    assert "new" not in mesh.interested
    assert any(isinstance(one, Published) for one in mesh.publish("t", b"x", ("client", 2))), "it takes part in t"


def test_of_a_burst_on_new_topics_only_those_beyond_the_limit_are_not_acknowledged():
    mesh, _ = vitis(("t",))
    mesh.topics_count = TOPICS_MAX - 1
    mesh.publish("last", b"1", ("client", 1))
    (refused,) = mesh.publish("beyond", b"2", ("client", 2))
    mesh.publish("last", b"3", ("client", 3))
    assert isinstance(refused, NotAcknowledged)
    assert refused.client_id == ("client", 2)
    published = [one.client_id for one in mesh.on_timer("mesh/first") if isinstance(one, Published)]
    assert published == [("client", 1), ("client", 3)]
    assert "beyond" not in mesh.interested
