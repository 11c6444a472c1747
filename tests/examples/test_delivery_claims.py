"""A member that speaks in a publisher's name silences it for a window at most, and not at all where that one is near.

`x` publishes, `z` subscribes, `liar` is a neighbor of `z` and says things in the name of `x`. Where `x` is no neighbor
of `z`, its messages come through `w`.
"""

from __future__ import annotations

import pytest

from examples.test_delivery_parts import Mesh, Part
from trellis.protocols.delivery import Lost
from trellis.protocols.delivery import messages as m

WINDOW_MS = 5_000
CONFIG = {"window_ms": WINDOW_MS, "tombstone_ms": 60_000, "confirm_ms": 1_000}
NEAR = [("x", "z"), ("z", "liar")]
FAR = [("x", "w"), ("w", "z"), ("z", "liar")]


class Liar(Part):
    def say(self, *items):
        for item in items:
            self.delivery.state.put("z", item)
        return self.delivery._finish()


def make(links, **lives):
    names = sorted({name for link in links for name in link})
    kinds = {"liar": Liar}
    net = Mesh([kinds.get(name, Part)(name, life=lives.get(name, 1), **CONFIG) for name in names])
    net.start()
    for a, b in links:
        net.link(a, b)
    net.run(4_000)
    return net


def lie(net, *items):
    net.carry_out("liar", net.nodes["liar"].say(*items))


def push(sequence, *, floor=1, age_ms=0, life=1, pause_ms=0):
    return m.Push("t", "x", life, sequence, floor, age_ms, 0, True, b"forged", pause_ms)


def publish(net, *payloads):
    for payload in payloads:
        net.publish("x", payload)
        net.run(1_000)


def true(net):
    return [payload for payload in net.got("z") if payload != b"forged"]


NUMBERS = [5, 10**6, 2**43, 2**53]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("age_ms", [0, 2 * WINDOW_MS])
def test_a_forged_number_does_not_hide_what_a_neighbor_publishes(number, age_ms):
    net = make(NEAR)
    publish(net, b"1", b"2")
    lie(net, push(number, floor=number, age_ms=age_ms))
    net.run(100)
    publish(net, b"3")
    net.run(3 * WINDOW_MS)
    publish(net, b"4")
    assert true(net) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_forged_number_hides_for_one_window_at_most_what_comes_through_others(number):
    net = make(FAR)
    publish(net, b"1", b"2")
    lie(net, push(number, floor=number, age_ms=2 * WINDOW_MS))
    net.run(WINDOW_MS + 3_000)
    publish(net, b"3", b"4")
    assert true(net) == [b"1", b"2", b"3", b"4"]


def test_a_number_that_no_publisher_can_reach_has_no_effect_at_all():
    net = make(FAR)
    publish(net, b"1")
    lie(net, push(2**53, floor=2**53, age_ms=2 * WINDOW_MS), m.Announce("t", "x", 1, (2**53, 2**53)))
    net.run(3_000)
    publish(net, b"2")
    assert net.got("z") == [b"1", b"2"]
    assert net.nodes["z"].counters.forged == 2
    assert not net.nodes["z"].told(Lost)


def joined(number):
    """z subscribes, and the liar says that z has missed nothing of x up to this number."""
    net = make([("liar", "other")])
    net.nodes["liar"].delivery.comparison._seen = lambda topic: [m.Seen("x", 1, number, 1, ())]
    net.add(Part("z", **CONFIG))
    net.link("z", "liar")
    net.run(3_000)
    return net


@pytest.mark.parametrize("number", NUMBERS)
def test_a_publisher_corrects_over_its_own_link_what_a_new_subscriber_was_told_of_it(number):
    net = joined(number)
    net.add(Part("x", **CONFIG))
    net.link("x", "z")
    net.run(6_000)
    publish(net, b"1", b"2")
    assert true(net) == [b"1", b"2"]


@pytest.mark.parametrize("number", NUMBERS)
def test_what_a_new_subscriber_was_told_falsely_holds_for_one_window_at_most(number):
    net = joined(number)
    for name in "wx":
        net.add(Part(name, **CONFIG))
    net.link("x", "w")
    net.link("w", "z")
    net.run(WINDOW_MS + 1_000)
    publish(net, b"1", b"2")
    assert true(net) == [b"1", b"2"]


@pytest.mark.parametrize("links", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("life", [2, 10**6, 2**53])
def test_a_forged_incarnation_does_not_end_the_true_one(links, life):
    net = make(links)
    publish(net, b"1")
    lie(net, m.Announce("t", "x", life, (1, 1)), push(1, life=life))
    net.run(8 * WINDOW_MS)
    publish(net, b"2", b"3")
    assert true(net) == [b"1", b"2", b"3"]


def test_an_incarnation_that_speaks_itself_is_not_over():
    net = make(NEAR)
    net.nodes["z"].delivery.state.ended["x"] = (1, 0)  # as it was noted when x was no neighbor
    publish(net, b"1")
    assert true(net) == [b"1"]


def test_a_forged_floor_does_not_make_a_subscriber_skip_what_a_neighbor_is_about_to_publish():
    net = make(NEAR)
    publish(net, b"1")
    lie(net, push(3, floor=3))
    net.run(4_000)
    publish(net, b"2")
    assert true(net) == [b"1", b"2"]
    assert not net.nodes["z"].told(Lost)


def test_a_floor_that_others_tell_does_not_rise_above_what_has_come():
    net = make(FAR)
    publish(net, b"1")
    lie(net, push(2, floor=10**9), m.Compare("t", (m.Seen("x", 1, 0, 10**9, (1, 2)),), True, False, False, False))
    net.run(500)
    streams = net.nodes["z"].delivery.state.topics["t"].streams
    assert streams["x", 1].floor <= 3


def test_a_neighbor_is_heard_even_if_another_one_has_made_up_all_publishers_there_may_be(monkeypatch):
    from trellis.protocols.delivery import state

    net = make([("z", "liar")])
    monkeypatch.setattr(state, "STREAMS_MAX", 50)
    lie(net, *(m.Announce("t", f"nobody{number}", 1, (1, 1)) for number in range(200)))
    net.add(Part("x", **CONFIG))
    net.link("x", "z")
    net.run(3_000)
    publish(net, b"1")
    assert true(net) == [b"1"]


# What honest publishers do


def far_ahead(net, number):
    """As if x had published so much until now, and kept nothing of it."""
    delivery = net.nodes["x"].delivery
    stream = delivery.state.topics["t"].stream("x", delivery.overlay.incarnation, delivery.state.now_ms)
    stream.seen.add(1, number)
    stream.top = stream.handed = number


@pytest.mark.parametrize("links", [NEAR, FAR], ids=["near", "far"])
def test_a_new_subscriber_gets_what_a_publisher_with_great_numbers_publishes(links):
    rest = [link for link in links if "z" not in link]
    net = make(rest or [("x", "w")])
    far_ahead(net, 10**10)
    publish(net, b"before")
    net.add(Part("z", **CONFIG))
    for a, b in links:
        if "z" in (a, b) and "liar" not in (a, b):
            net.link(a, b)
    net.run(3_000)
    publish(net, b"1", b"2")
    assert net.got("z") == [b"1", b"2"]


def test_after_a_long_absence_a_subscriber_goes_on_with_the_messages_of_the_last_window():
    net = make(FAR[:2])
    publish(net, b"1")
    net.cut("w", "z")
    net.run(4 * WINDOW_MS)
    far_ahead(net, 10**9)
    far_w = net.nodes["w"].delivery.state.topics["t"].streams["x", 1]
    far_w.seen.add(1, 10**9)
    far_w.top = far_w.handed = 10**9
    publish(net, b"2", b"3")
    net.link("w", "z")
    net.run(3 * WINDOW_MS)
    publish(net, b"4", b"5")
    assert net.got("z") == [b"1", b"2", b"3", b"4", b"5"]
    assert [one.last for one in net.nodes["z"].told(Lost)] == [10**9]


def test_a_publisher_that_restarts_with_an_incarnation_of_its_clock_is_heard_at_once():
    net = make(FAR[:2], x=3)
    publish(net, b"1")
    net.kill("x")
    net.add(Part("x", life=9 * 10**8, **CONFIG))
    net.link("x", "w")
    net.run(2_000)
    publish(net, b"2", b"3")
    assert net.got("z") == [b"1", b"2", b"3"]


def test_a_fast_publisher_is_not_doubted():
    net = make([("x", "z"), ("x", "w"), ("w", "z")])
    for number in range(3_000):
        net.publish("x", str(number).encode())
        if number % 100 == 0:
            net.run(20)
    net.run(3_000)
    assert net.got("z") == [str(number).encode() for number in range(3_000)]
    assert net.nodes["z"].counters.forged == net.nodes["z"].counters.lost == 0
