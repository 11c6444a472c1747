"""An OSCAR ring in small: joining, mending, walks, fingers, leaving."""

from __future__ import annotations

from random import Random

import pytest

from conversation import Conversation
from trellis.errors import InputError
from trellis.ids import stream
from trellis.protocols.effects import LinkUp, Send
from trellis.protocols.oscar import Oscar, OscarConfig, Peer
from trellis.protocols.oscar.fingers import MEDIANS_MAX
from trellis.protocols.oscar.labels import hashed
from trellis.protocols.oscar.messages import (
    Beat,
    Connect,
    ConnectOk,
    Gone,
    Locate,
    Located,
    Neighbors,
    Stabilise,
    Unlink,
    Walk,
    Walked,
)

CONFIG = OscarConfig(links=8)


class RingNode:
    """A node that is nothing but a place on one ring; it knows one contact."""

    def __init__(self, name, contact, config=CONFIG, label=None, **more):
        self.id, self.contact, self.label = name, contact, label if label is not None else hashed(name)
        random = Random(stream(1, name))
        self.oscar = Oscar("ring", name, lambda: self.contact, random, config, claims=True, **more)

    def start(self):
        return self.oscar.enter(self.label, through=self.contact)

    def on_message(self, sender, message):
        return self.oscar.on_message(sender, message)

    def on_timer(self, tag):
        return self.oscar.on_timer(tag)

    def leave(self):
        return self.oscar.ring.leave()

    def check(self):
        self.oscar.check()


def grown(count, labels=None, **more):
    """Nodes that came one after the other, each knowing the first."""
    talk = Conversation([RingNode("n0", None, label=labels and labels[0], **more)])
    talk.start()
    for number in range(1, count):
        talk.run(100)
        talk.add(RingNode(f"n{number}", "n0", label=labels and labels[number], **more))
    talk.run(20_000)
    return talk


def assert_ring(talk):
    order = sorted(talk.nodes, key=lambda name: talk.nodes[name].oscar.me.label)
    for at, name in enumerate(order):
        table = talk.nodes[name].oscar.table
        assert table.successor.node == order[(at + 1) % len(order)]
        assert table.predecessor.node == order[at - 1]
        following = [order[(at + step) % len(order)] for step in range(1, min(5, len(order)))]
        assert [peer.node for peer in table.successors] == following


def test_nodes_that_join_one_after_the_other_are_a_ring_in_label_order():
    assert_ring(grown(20))


def test_a_ring_of_labels_that_crowd_in_a_corner_is_as_good():
    assert_ring(grown(20, labels=[bytes([0, 0, 0, 1 + number]) for number in range(20)]))


def test_links_stand_at_both_ends_and_there_are_as_many_as_asked_for():
    talk = grown(40)
    assert talk.half_links() == set()
    degrees = [len(peers) for peers in talk.claims.values()]
    assert 7 <= sum(degrees) / len(degrees) <= 8  # 2 (m + 1) with m = 3, less what coincides


def test_a_silent_successor_is_given_up_and_the_next_one_takes_its_place():
    talk = grown(12)
    for name in ("n3", "n7"):
        talk.crash(name)
    talk.run(30_000)
    assert_ring(talk)
    assert not any(name in peers for peers in talk.claims.values() for name in ("n3", "n7"))


def test_who_leaves_in_order_is_forgotten_at_once():
    talk = grown(12)
    talk.leave("n5")
    talk.run(1_200)
    assert_ring(talk)


def test_two_rings_that_were_apart_become_one():
    """A cut is open until both sides have given each other up; their random peers still know each other."""
    talk = grown(12)
    left = {f"n{number}" for number in range(6)}
    talk.lose = lambda sender, to, message: (sender in left) != (to in left)
    talk.run(30_000)
    for name in talk.nodes:  # nobody knows anybody on the other side
        assert all((peer.node in left) == (name in left) for peer in talk.nodes[name].oscar.table.around)
    talk.lose = lambda *_: False
    for name, node in talk.nodes.items():
        node.contact = "n1" if name not in left else "n9"
    talk.run(60_000)
    assert_ring(talk)


def test_a_node_alone_owns_the_whole_ring_and_two_share_it():
    alone = RingNode("a", None)
    alone.start()
    assert alone.oscar.owns(hashed("anything"))
    talk = Conversation([RingNode("a", None, label=b"\x40"), RingNode("b", "a", label=b"\x80")])
    talk.start()
    talk.run(5_000)
    a, b = (talk.nodes[name].oscar for name in "ab")
    assert b.owns(b"\x60")
    assert b.owns(b"\x80")
    assert not a.owns(b"\x60")
    assert a.owns(b"\xf0")  # across zero


def still(name, label, successor=None, predecessor=None, fingers=(), **more):
    node = RingNode(name, None, **more)
    table = node.oscar.table
    table.move(label)
    table.successors = [Peer(*successor)] if successor else []
    table.predecessor = Peer(*predecessor) if predecessor else None
    table.fingers = {peer[0]: Peer(*peer) for peer in fingers}
    table.touch()
    node.oscar.fingers._estimating = True  # nothing of its own is going on
    node.oscar._linked([])
    return node


def test_a_lookup_goes_to_the_closest_from_below_and_never_past_the_target():
    node = still("a", b"\x10", ("b", b"\x20"), ("z", b"\xf0"), [("c", b"\x50"), ("d", b"\x90")])
    seeker = Peer("x", b"\x70", 1, 1)
    assert node.on_message("x", Locate("ring", seeker)) == [Send("c", Locate("ring", seeker, 1))]


def test_who_is_next_below_answers_and_takes_the_newcomer_for_its_successor():
    node = still("a", b"\x10", ("b", b"\x20"), ("z", b"\xf0"))
    seeker, me = Peer("x", b"\x18", 1, 1), node.oscar.me
    effects = node.on_message("x", Locate("ring", seeker))
    answer = Located("ring", (me, Peer("b", b"\x20"), Peer("z", b"\xf0")))
    assert effects[:2] == [Send("x", answer), Send("x", Stabilise("ring", me))]
    assert node.oscar.table.successor == seeker
    assert LinkUp("x") in effects


def test_news_that_are_older_than_what_is_known_do_not_put_a_node_back():
    node = still("a", b"\x10", ("b", b"\x20", 1, 5), ("z", b"\xf0"))
    node.on_message("b", Neighbors("ring", Peer("b", b"\x30", 1, 6), node.oscar.me, ()))
    assert node.oscar.table.successor.label == b"\x30"
    node.oscar.table.learn_place(Peer("b", b"\x20", 1, 5))
    assert node.oscar.table.successor.label == b"\x30"


def test_a_walk_stays_on_its_arc_and_says_where_it_ended():
    node = still("a", b"\x20", ("b", b"\x30"), ("z", b"\x10"), [("c", b"\x90")])
    origin = Peer("o", b"\x18", 1, 1)
    for _ in range(20):
        (step,) = node.on_message("y", Walk("ring", origin, 7, b"\x40", 3))
        assert step == Send("b", Walk("ring", origin, 7, b"\x40", 2))  # c and z lie outside
    assert node.on_message("y", Walk("ring", origin, 7, b"\x40", 0)) == [Send("o", Walked("ring", 7, node.oscar.me))]


def test_of_two_nodes_with_the_same_label_the_one_with_the_larger_name_gives_way():
    node = still("b", b"\x20", ("c", b"\x30"), ("z", b"\x10"))
    node.on_message("z", Located("ring", (Peer("a", b"\x20", 1, 1),)))
    assert node.oscar.me.label == b"\x28"
    other = still("a", b"\x20", ("c", b"\x30"), ("z", b"\x10"))
    other.on_message("z", Located("ring", (Peer("b", b"\x20", 1, 1),)))
    assert other.oscar.me.label == b"\x20"


def test_heartbeats_forget_those_who_are_linked_no_more():
    node = still("a", b"\x20", ("b", b"\x30"), ("z", b"\x10"))
    for number in range(30):
        guest = Peer(f"g{number}", bytes([0x80, 1 + number]), 1, 1)
        node.on_message(guest.node, Connect("ring", guest))
        if number:
            node.on_message(guest.node, Unlink("ring", finger=True))
    node.on_timer("ring/beat")
    assert list(node.oscar.fingers._silence) == ["g0"]
    assert Send("g0", Beat("ring", node.oscar.me, False)) in node.on_timer("ring/beat")


def test_a_node_is_the_finger_of_a_limited_number_of_others_and_refuses_more():
    config = OscarConfig(links=8, guests_max=3)
    node = still("a", b"\x20", ("b", b"\x30"), ("z", b"\x10"), config=config)
    answers = {}
    for number in range(1_000):
        guest = Peer(f"g{number}", bytes([0x80, 1 + number // 200, 1 + number % 200]), 1, 1)
        (answers[guest.node],) = (
            effect.message for effect in node.on_message(guest.node, Connect("ring", guest)) if isinstance(effect, Send)
        )
    assert list(node.oscar.table.guests) == ["g0", "g1", "g2"]
    assert answers["g2"] == ConnectOk("ring", node.oscar.me)
    assert answers["g3"] == Unlink("ring", finger=False)
    again = node.on_message("g0", Connect("ring", node.oscar.table.guests["g0"]))  # It is known, so it is welcome.
    assert again == [Send("g0", ConnectOk("ring", node.oscar.me))]
    node.on_message("g0", Unlink("ring", finger=True))
    node.on_message("g9", Connect("ring", Peer("g9", b"\x90", 1, 1)))
    assert list(node.oscar.table.guests) == ["g1", "g2", "g9"]
    node.check()


def test_an_answer_to_connect_is_awaited_over_one_heartbeat_and_refused_after_two():
    node = still("a", b"\x20", ("b", b"\x30"), ("z", b"\x10"))
    peers = [Peer(name, label, 1, 1) for name, label in (("f", b"\x40"), ("g", b"\x50"))]
    node.oscar.fingers._asked = {peer.node: peer for peer in peers}
    node.on_timer("ring/beat")
    assert node.on_message("f", ConnectOk("ring", peers[0])) == [LinkUp("f")]
    assert list(node.oscar.table.fingers) == ["f"]
    node.on_timer("ring/beat")
    assert node.on_message("g", ConnectOk("ring", peers[1])) == [Send("g", Unlink("ring", finger=True))]
    node.check()


def test_a_limited_number_of_nodes_that_say_goodbye_is_remembered():
    node = still("a", b"\x20", ("b", b"\x30"), ("z", b"\x10"))
    for number in range(3_000):
        node.on_message(f"g{number}", Gone("ring"))
    assert len(node.oscar.ring._buried) == 1_024
    assert node.oscar.ring.is_buried("g2999")
    assert not node.oscar.ring.is_buried("g0")


def test_the_similar_one_of_two_candidates_becomes_the_finger():
    config = OscarConfig(links=4)
    node = still("a", b"\x00", ("b", b"\x10"), ("z", b"\xf0"), config=config, similarity=lambda _: 0.0)
    fingers = node.oscar.fingers
    fingers.medians = []
    chosen = []
    for _ in range(40):
        fingers._pool = [(Peer("liked", b"\x50"), 1.0), (Peer("other", b"\x60"), 0.0)]
        fingers._holder, fingers._asked = {}, {}
        chosen += [effect.to for effect in fingers._finish()]
    assert chosen.count("liked") > 25  # three of four draws of two
    assert chosen.count("other") > 3


@pytest.mark.parametrize(
    "fields", [{"links": 3}, {"walks": 0}, {"ring_ms": 0}, {"grid_bytes": 64}, {"label_bytes_max": 65}]
)
def test_parameters_without_sense_are_refused(fields):
    with pytest.raises(InputError):
        OscarConfig(**fields)


def told(node, ends):
    """Answer the walks of a node's estimate with these ends; return the messages that the node sends."""
    fingers, sent = node.oscar.fingers, 0
    fingers.stop()
    fingers.estimate()
    for end in ends:
        if not fingers._estimating:
            break
        for _ in range(fingers.config.walks):
            effects = node.on_message("liar", Walked("ring", fingers._query, end))
            sent += sum(isinstance(effect, Send) for effect in effects)
    node.check()
    return sent


def test_ends_of_walks_that_are_outside_of_the_arc_keep_no_estimate_going():
    """Two ends beyond each other would be medians in turn, for ever."""
    node = grown(12).nodes["n3"]
    first = node.oscar.table.successor.label
    near, far = Peer("x0", first + b"\x01"), Peer("x1", first + b"\x02")
    told(node, [near, far] * 500)
    assert len(node.oscar.fingers.medians) <= 2
    assert len(node.oscar.fingers._pool) <= 2 * CONFIG.walks


def test_ends_of_walks_that_come_nearer_for_ever_end_the_estimate():
    node = grown(12).nodes["n3"]
    first = node.oscar.table.successor.label  # A link of the node stays on the arc.
    ends = [Peer(f"x{number}", first + bytes([255 - number])) for number in range(200)]
    assert told(node, ends) < 100 * CONFIG.walks
    assert len(node.oscar.fingers.medians) == MEDIANS_MAX
    assert not node.oscar.fingers._estimating
