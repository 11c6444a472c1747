"""Vitis node by node: what is said, to whom, and when."""

from __future__ import annotations

from random import Random

import pytest

from conversation import Conversation
from trellis.errors import InputError
from trellis.ids import stream
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Deliver, LinkDown, LinkUp, Send
from trellis.protocols.ring import identifier
from trellis.protocols.tman import TManReply
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis import VitisConfig, VitisNode
from trellis.protocols.vitis.messages import (
    CODEC,
    Event,
    Handover,
    Leave,
    Notification,
    Profile,
    Proposal,
    Pull,
    Relay,
    Unlink,
)
from trellis.protocols.vitis.select import Utility


def vine(name, topics="", contacts=(), incarnation=1, **fields):
    """`vine("a", "xy")`: a node that wants the topics x and y."""
    return VitisNode(
        name,
        tuple(sorted(topics)),
        Random(stream(1, "node", name, incarnation)),
        VitisConfig(**fields),
        contacts=contacts,
        incarnation=incarnation,
    )


def profile(topics="", linked=True, relays="", incarnation=1, **proposals):
    """`profile("x", x=("g", "p", 2))`: a neighbour that wants x and proposes g for it."""
    wanted = tuple(sorted(topics))
    told = tuple(Proposal(*proposals.get(topic, ("?", "?", 0))) for topic in wanted) if proposals else ()
    return Profile(incarnation, linked, wanted, told, tuple(sorted(relays)))


def tick(node):
    return node.on_timer("profile/tick")


def sent(effects, kind):
    return [
        (effect.to, effect.message)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, kind)
    ]


def receivers(effects, kind):
    return [to for to, _ in sent(effects, kind)]


# Utility.


def test_the_worked_example_of_the_paper():
    """VI III-A2: "utility(p, q) = 0.25, utility(p, r) = 0.125, and utility(q, r) = 0.33"."""
    p, q, r = ("A", "B", "C"), ("C", "D"), ("C", "D", "E", "F", "G", "H")
    table = TopicTable()
    assert Utility(table, p).of(q) == 1 / 4
    assert Utility(table, p).of(r) == 1 / 8
    assert Utility(table, q).of(r) == 1 / 3


def test_a_topic_that_nobody_publishes_on_is_ignored_and_a_hot_one_counts_more():
    rates = {"A": 1.0, "B": 0.0, "C": 8.0}
    mine = Utility(TopicTable(), ("A", "B", "C"), rates)
    assert mine.of(("A", "C")) == 1.0  # B is practically ignored
    assert mine.of(("C",)) == 8 / 9 > mine.of(("A", "B"))


def test_two_nodes_without_topics_have_no_utility_for_each_other():
    assert Utility(TopicTable(), ()).of(()) == 0.0


# The table.


def test_a_table_has_successor_predecessor_long_link_and_friends_by_utility():
    node = vine("me", "wxyz", table_size=5)
    names = [f"n{number}" for number in range(12)]
    wants = {name: tuple("wxyz"[: number % 5]) for number, name in enumerate(names)}
    node.on_message("n0", TManReply("table", tuple(Descriptor(name, 1, 1, wants[name]) for name in names)))
    table = list(node.table.table.entries)
    around = sorted(names, key=lambda name: (identifier(name) - identifier("me")) % 2**160)
    assert table[:2] == [around[0], around[-1]] == list(node.beside)
    rest = [name for name in names if name not in table[:3]]
    best = sorted((len(wants[name]) for name in rest), reverse=True)[:2]
    assert [len(wants[name]) for name in table[3:]] == best
    assert len(table) == 5
    node.check()


def test_one_other_node_is_successor_and_predecessor():
    node = vine("me", "x")
    effects = node.on_message("a", TManReply("table", (Descriptor("a", 0, 1, ("x",)), Descriptor("me", 3, 1, ("x",)))))
    assert list(node.table.table.entries) == ["a"]
    assert effects == [LinkUp("a")]


def test_without_strangers_slots_stay_empty():
    told = tuple(Descriptor(f"n{number}", 1, 1, ("y",)) for number in range(9))
    for strangers, size in ((True, 9), (False, 3)):
        node = vine("me", "x", strangers=strangers)
        node.on_message("n0", TManReply("table", told))
        assert len(node.table.table) == size


# Links.


def test_a_profile_of_a_stranger_that_has_us_in_its_table_makes_it_a_neighbour_and_is_answered_in_the_next_round():
    node = vine("me", "x")
    assert node.on_message("a", profile("x")) == [LinkUp("a")]
    assert sent(tick(node), Profile) == [("a", Profile(1, False, ("x",), (Proposal("me", "me", 0),)))]
    assert len(node.table.table) == 0


def test_a_profile_of_somebody_that_only_believes_to_be_in_our_table_is_answered_with_unlink():
    node = vine("me", "x")
    assert node.on_message("a", profile("x", linked=False)) == [Send("a", Unlink())]
    node.on_message("b", profile("x"))
    assert node.on_message("b", profile("x", linked=False)) == [Send("b", Unlink()), LinkDown("b")]


def test_a_link_that_parts_carries_events_until_both_ends_have_elected_without_it():
    node = vine("me", "x", linger_rounds=3)
    node.on_message("a", profile("x"))
    assert node.on_message("a", Unlink()) == [LinkDown("a")]
    assert receivers(node.publish("x", b""), Notification) == ["a"]
    for _ in range(3):
        assert receivers(tick(node), Profile) == []
        assert receivers(node.publish("x", b""), Notification) == ["a"]
    tick(node)
    assert receivers(node.publish("x", b""), Notification) == []


def test_without_lingering_a_link_that_parts_carries_nothing_after_the_round():
    node = vine("me", "x", linger_rounds=0)
    node.on_message("a", profile("x"))
    node.on_message("a", Unlink())
    assert receivers(node.publish("x", b""), Notification) == ["a"]
    tick(node)
    assert receivers(node.publish("x", b""), Notification) == []
    node.check()


def test_without_lingering_a_relay_path_that_is_not_renewed_ends_with_the_round():
    for rounds, lingers in ((6, True), (0, False)):
        root, me, one, other = closest_first("x", "a", "b", "c", "d")
        node = vine(me, linger_rounds=rounds)
        node.on_message(root, profile())
        tick(node)
        for name in (one, other):
            node.on_message(name, profile())
            node.on_message(name, Relay(("x",)))
        node.on_message(one, profile())
        tick(node)
        assert sorted(node.relays.links("x")) == sorted({one, other, root} if lingers else {other, root})


def test_a_neighbour_is_dropped_after_threshold_silent_rounds_and_not_taken_back_on_hearsay():
    node = vine("me", "x", silence_max=3)
    node.on_message("a", TManReply("table", (Descriptor("a", 0, 1, ("x",)),)))
    for _ in range(3):
        assert receivers(tick(node), Profile) == ["a"]
    assert LinkDown("a") in tick(node)
    node.on_message("b", TManReply("table", (Descriptor("b"), Descriptor("a", 1, 1, ("x",)))))
    assert "a" not in node.table
    node.on_message("b", TManReply("table", (Descriptor("a", 0, 2, ("x",)),)))
    assert "a" in node.table


def test_a_neighbour_that_leaves_is_gone_at_once():
    node = vine("me", "x")
    node.on_message("a", profile("x"))
    assert node.on_message("a", Leave()) == [LinkDown("a")]
    assert node.leave() == []


def test_a_node_that_leaves_tells_its_neighbours():
    node = vine("me", "x")
    node.on_message("a", profile("x"))
    assert node.leave() == [Send("a", Leave())]


def test_the_profile_of_an_earlier_life_is_ignored_and_a_new_life_has_forgotten_its_relay_paths():
    node = vine("me")
    node.on_message("a", profile("x", relays="x", incarnation=2))
    node.on_message("a", profile("x", relays="", incarnation=1))
    assert node.relays.relays("x")
    node.on_message("a", profile("x", incarnation=3))
    assert not node.relays.relays("x")


def test_a_link_that_neither_end_holds_after_a_restart_parts():
    """The old incarnation held us. The new one has us as a neighbor that held it, which we did only until just now."""
    node = vine("me", "x")
    node.on_message("a", profile("x"))
    effects = node.on_message("a", profile("x", linked=False, incarnation=2))
    assert effects == [Send("a", Unlink()), LinkDown("a")]
    node.check()
    assert not receivers(tick(node), Profile)


def test_profiles_that_say_nothing_new_are_the_very_same_message():
    node = vine("me", "x")
    node.on_message("a", profile("x"))
    first = sent(tick(node), Profile)[0][1]
    assert sent(tick(node), Profile)[0][1] is first
    node.subscribe("y")
    assert sent(tick(node), Profile)[0][1].topics == ("x", "y")


# Gateways and relay paths.


def closest_first(topic, *names):
    place = identifier(topic)
    return sorted(names, key=lambda name: min((identifier(name) - place) % 2**160, (place - identifier(name)) % 2**160))


def test_the_gateway_closest_to_the_topic_is_taken_over_and_no_relay_path_is_asked_for():
    near, me = closest_first("x", "a", "b")
    node = vine(me, "x")
    assert node.gateways.mine() == ["x"]
    node.on_message(near, profile("x", x=(near, near, 0)))
    tick(node)
    assert node.gateways.proposals == {"x": Proposal(near, near, 1)}
    assert node.relays.up == {}
    node.check()


def test_a_gateway_further_than_d_hops_is_not_taken():
    near, via, me = closest_first("x", "a", "b", "c")
    for limit, hops, taken in (("at-most", 4, True), ("at-most", 5, False), ("below", 3, True), ("below", 4, False)):
        node = vine(me, "x", gateway_hops=5, hop_limit=limit)
        node.on_message(via, profile("x", x=(near, "far", hops)))
        tick(node)
        assert (node.gateways.proposals["x"].gateway == near) == taken, (limit, hops)


def test_what_a_neighbour_has_from_us_is_not_taken_back():
    near, via, me = closest_first("x", "a", "b", "c")
    for take_back, gateway in ((False, me), (True, near)):
        node = vine(me, "x", take_back=take_back)
        node.on_message(via, profile("x", x=(near, me, 2)))
        tick(node)
        assert node.gateways.proposals["x"].gateway == gateway


def test_a_gateway_without_anybody_closer_is_the_rendezvous_node_itself():
    far, me = reversed(closest_first("x", "a", "b"))
    node = vine(me, "x")
    node.on_message(far, profile("y"))
    tick(node)
    assert node.relays.up == {"x": None}


def test_a_lookup_goes_on_at_once_and_rides_on_profiles_from_then_on():
    root, me, child = closest_first("x", "a", "b", "c")
    node = vine(me)
    node.on_message(root, profile())
    node.on_message(child, profile())
    tick(node)
    assert node.on_message(child, Relay(("x",))) == [Send(root, Relay(("x",)))]
    assert node.on_message(child, Relay(("x",))) == []
    told = dict(sent(tick(node), Profile))
    assert (told[root].relays, told[child].relays) == (("x",), ())
    assert node.relays.links("x") == [child, root]


def test_a_lookup_stops_at_a_subscriber():
    root, me, child = closest_first("x", "a", "b", "c")
    node = vine(me, "x")
    node.on_message(root, profile("x", x=(root, root, 0)))
    node.on_message(child, profile())
    tick(node)
    assert node.on_message(child, Relay(("x",))) == []
    assert node.relays.up == {}
    assert node.relays.links("x") == [child]
    node.unsubscribe("x")
    assert node.relays.up == {"x": root}
    node.check()


def test_a_path_that_is_not_renewed_lingers_for_as_many_rounds_as_it_is_told():
    root, me, child = closest_first("x", "a", "b", "c")
    node = vine(me, linger_rounds=4)
    for other in (root, child):
        node.on_message(other, profile())
    tick(node)
    node.on_message(child, profile(relays="x"))
    assert node.on_message(child, profile()) == []
    assert not node.relays.relays("x")  # nothing goes up any more
    for _ in range(4):
        tick(node)
        for other in (root, child):
            node.on_message(other, profile())
        assert node.relays.links("x") == [child]
    tick(node)
    assert node.relays.links("x") == []


def test_a_relay_path_moves_to_a_neighbour_that_is_closer():
    closer, hop, me = closest_first("x", "a", "b", "c")
    node = vine(me, "x")
    node.on_message(hop, profile())
    tick(node)
    assert node.relays.up == {"x": hop}
    node.on_message(closer, profile())
    told = dict(sent(tick(node), Profile))
    assert (told[closer].relays, told[hop].relays) == (("x",), ())


# Events.


def test_an_event_is_notified_pulled_delivered_and_notified_on():
    node = vine("me", "x")
    for other in "abc":
        node.on_message(other, profile("x" if other != "c" else "y"))
    notice = Notification("x", "o", 1, 3)
    assert node.on_message("a", notice) == [Send("a", Pull("x", "o", 1, 3))]
    assert node.on_message("b", notice) == []
    effects = node.on_message("a", Event("x", "o", 1, 3, b"hi"))
    assert effects == [Deliver("x", "o", 1, b"hi")]  # a and b have it, c does not want it
    node.on_message("d", profile("x"))
    effects = node.on_message("a", Event("x", "o", 2, 3, b"ho"))
    assert effects == [
        Deliver("x", "o", 2, b"ho"),
        Send("b", Notification("x", "o", 2, 4)),
        Send("d", Notification("x", "o", 2, 4)),
    ]
    assert node.on_message("d", Pull("x", "o", 2, 4)) == [Send("d", Event("x", "o", 2, 4, b"ho"))]


def test_an_event_is_handled_once():
    node = vine("me", "x")
    node.on_message("a", profile("x"))
    event = Event("x", "o", 1, 1)
    assert any(isinstance(effect, Deliver) for effect in node.on_message("a", event))
    assert node.on_message("a", event) == []
    assert node.on_message("a", Notification("x", "o", 1, 1)) == []


def test_a_pull_that_is_not_answered_is_repeated_with_the_next_one_and_given_up_in_the_end():
    node = vine("me", "x", silence_max=3)
    node.on_message("a", Notification("x", "o", 1, 1))
    node.on_message("b", Notification("x", "o", 1, 2))
    pulled = [receivers(tick(node), Pull) for _ in range(7)]
    assert [one for one in pulled if one] == [["b"], ["a"]]
    assert node.events.given_up == 1
    assert receivers(node.on_message("c", Notification("x", "o", 1, 1)), Pull) == ["c"]


def test_a_relay_passes_events_along_relay_links_only_unless_relays_flood():
    root, me, child, far = closest_first("x", "a", "b", "c", "d")
    for flood, told in ((False, [child, root]), (True, [far, child, root])):
        node = vine(me, relays_flood=flood)
        node.on_message(far, profile("x"))
        for other in (child, root):
            node.on_message(other, profile())
        tick(node)
        node.on_message(child, Relay(("x",)))
        effects = node.on_message("?", Event("x", "o", 1, 1))
        assert sorted(receivers(effects, Notification)) == sorted(told)
        assert not any(isinstance(effect, Deliver) for effect in effects)


def test_a_publisher_that_neither_wants_nor_relays_hands_its_event_over():
    root, hop, me = closest_first("x", "a", "b", "c")
    node = vine(me)
    node.on_message(hop, profile())
    tick(node)
    event = node.publish("x", b"hi")[0].message
    assert event == Handover("x", me, (1 << 32) + 1, 1, b"hi")
    between = vine(hop)
    between.on_message(root, profile())
    tick(between)
    (onwards,) = between.on_message(me, event)
    assert (onwards.to, onwards.message.hops) == (root, 2)
    last = vine(root, "x")
    assert last.on_message(hop, onwards.message) == [Deliver("x", me, (1 << 32) + 1, b"hi")]


def test_a_new_life_does_not_repeat_the_identities_of_the_one_before():
    one = vine("me", "x").publish("x", b"")[0]
    other = vine("me", "x", incarnation=2).publish("x", b"")[0]
    assert one.sequence != other.sequence


# Together.


def test_five_nodes_with_one_contact_find_each_other_and_every_event():
    names = ["a", "b", "c", "d", "e"]
    talk = Conversation([vine(name, "x" if name != "c" else "y", names[:1], table_size=3) for name in names])
    talk.start()
    talk.run(20_000)
    talk.carry_out("a", talk.nodes["a"].publish("x", b"hi"))
    talk.run(2_000)
    assert sorted(name for name, _ in talk.delivered) == ["a", "b", "d", "e"]
    talk.crash("b")
    talk.run(20_000)
    talk.carry_out("e", talk.nodes["e"].publish("x", b"ho"))
    talk.run(2_000)
    assert sorted(name for name, event in talk.delivered if event.payload == b"ho") == ["a", "d", "e"]


def test_messages_survive_the_wire():
    for message in (
        profile("xy", x=("g", "p", 2)),
        Relay(("x",)),
        Unlink(),
        Leave(),
        Notification("x", "o", 1, 3),
        Event("x", "o", 1, 3, b"hi"),
        Handover("x", "o", 1, 3, b"hi"),
    ):
        assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"table_size": 1}, "table_size is 1; give 2 or more"),
        ({"sw_neighbors": 16}, "sw_neighbors is 16; give 2"),
        ({"gateway_hops": 0}, "gateway_hops is 0; give 1 or more"),
        ({"table_size": 1_020}, "keep both together below 1024"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(fields, what):
    with pytest.raises(InputError, match=what):
        VitisConfig(**fields)


def test_an_unknown_message_is_counted_and_ignored():
    node = vine("me")
    assert node.on_message("a", Descriptor("a")) == []
    assert node.on_message("me", Unlink()) == []
    assert node.unknown == 2
