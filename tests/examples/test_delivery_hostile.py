"""What a neighbor that lies may cost: no memory without bound, and no walk over the same numbers again and again."""

from __future__ import annotations

from itertools import combinations

import pytest

from examples.test_delivery_parts import mesh
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery import state as delivery_state
from trellis.protocols.delivery.compare import Comparison
from trellis.protocols.delivery.identities import pairs_of
from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.packets import Content
from trellis.protocols.mqtt.retained import RetainedMessages


def say(net, *items):
    """a says these to b, behind all that it has said."""
    session = net.nodes["a"].delivery.state.channels["b"].session
    number = net.nodes["b"].delivery.state.channels["a"].upto + 1
    net.carry_out("b", net.nodes["b"].on_message("a", m.Frame(session, number, 0, 0, items)))


def test_ranges_that_overlap_or_repeat_are_left_out():
    assert pairs_of((1, 5, 1, 5, 3, 9, 7, 8, 8, 8, 9, 12)) == [(1, 5), (7, 8), (9, 12)]


def test_publishers_that_a_neighbor_makes_up_are_bounded(monkeypatch):
    monkeypatch.setattr(delivery_state, "STREAMS_MAX", 50)
    net = mesh([("a", "b")])
    state = net.nodes["b"].delivery.state
    say(net, *(m.Announce("t", f"nobody{number}", 1, ()) for number in range(200)))
    assert not state.topics["t"].streams
    say(net, *(m.Announce("t", f"nobody{number}", 1, (1, 1)) for number in range(200)))
    say(net, *(m.Push("t", f"nobody{number}", 2, 1, 1, 0, 0, False, b"") for number in range(200)))
    assert len(state.topics["t"].streams) == 50
    net.publish("b", b"x")
    net.run(1_000)
    assert net.got("a") == [b"x"]


def test_messages_that_a_neighbor_only_announces_are_bounded_in_all():
    net = mesh([("a", "b")], missing_max=100)
    state = net.nodes["b"].delivery.state
    for origin in ("x", "y", "z"):
        say(net, m.Announce("t", origin, 1, (1, 2**40)))
    assert sum(len(topic.missing) for topic in state.topics.values()) == 100


def items_to(net, peer, *kinds):
    frames = [message for _, _, to, message in net.said if to == peer and isinstance(message, m.Frame)]
    return sum(isinstance(item, kinds) for frame in frames for item in frame.items)


@pytest.mark.parametrize(
    "question",
    [
        (m.Compare("t", (), False, False, False, False),),
        (m.Compare("t", (), False, False, True, False),),
        (m.Part("t"), m.Compare("t", (), False, False, False, False)),
        (m.Leaving("t"),),
    ],
    ids=["compares", "asks", "parts", "leaves"],
)
def test_a_neighbor_that_asks_for_a_comparison_again_and_again_is_answered_within_bounds(question):
    """Each answer tells all that is known of the topic, and may send all that is held of it."""
    net = mesh([("a", "b"), ("b", "c")])
    for number in range(500):
        net.publish("b", b"%d" % number)
    for number in range(100):
        say(net, m.Push("t", f"n{number}", 1, 1, 1, 0, 0, False, b""))
    net.run(2_000)
    looked = []
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_seen", "_send_what_is_lacking"):
            real = getattr(Comparison, name)
            patch.setattr(Comparison, name, lambda *of, real=real: looked.append(of[1]) or real(*of))
        for _ in range(100):
            say(net, *question * 10)
        net.carry_out("b", net.nodes["b"].on_timer("delivery/tick"))
    assert 0 < len(looked) < 200
    net.publish("b", b"the last")
    net.run(10_000)
    assert net.got("c")[-1] == b"the last"
    b = net.nodes["b"].delivery
    assert b.comparison.may_ask("a"), "it is answered again"
    assert b.state.topics["t"].links["a"].is_open
    assert not b.comparison._later


def test_a_neighbor_that_begins_session_after_session_is_compared_with_within_bounds():
    net = mesh([("a", "b")])
    for number in range(100):
        say(net, m.Push("t", f"n{number}", 1, 1, 1, 0, 0, False, b""))
    session = net.nodes["a"].delivery.state.channels["b"].session
    before = items_to(net, "a", m.Compare)
    for number in range(1, 2_000):
        net.carry_out("b", net.nodes["b"].on_message("a", m.Frame(session + number, 1, 0, 0)))
    assert items_to(net, "a", m.Compare) - before < 200


def test_streams_of_comparisons_that_never_end_are_bounded_for_all_topics_together():
    topics = tuple(f"t{number}" for number in range(3))
    net = mesh([("a", "b")], topics=topics)
    for topic in topics:
        for number in range(0, 65_000, 256):
            seen = tuple(m.Seen(f"n{number + one}", 1, 0, 0, ()) for one in range(256))
            say(net, m.Compare(topic, seen, False, False, False, True))
    assert sum(map(len, net.nodes["b"].delivery.comparison._parts.values())) <= 65_536


def test_an_answer_of_a_home_that_nobody_asked_is_ignored():
    net = mesh([("a", "b")], copies=3)
    net.publish("a", b"x")
    net.run(500)
    told = net.nodes["a"].on_message("b", m.HomeTells("t", 2**53, (), 0, True))
    assert not told
    assert not net.nodes["a"].outcomes


def test_properties_of_a_retained_message_count_as_well():
    kept = RetainedMessages(1_000, 100_000)
    content = Content(user=tuple((str(number), "x" * 100) for number in range(200)))
    messages = [Envelope(f"t{number}", b"x", 1, True, "c", 1, number, number, content=content) for number in range(20)]
    taken = [kept.put("a", message) for message in messages]
    assert 0 < sum(taken) < 5


def asks(net):
    frames = [message for *_, message in net.said if isinstance(message, m.Frame)]
    return sum(isinstance(item, m.Ask) for frame in frames for item in frame.items)


@pytest.mark.parametrize("copies", [2, 4])
def test_a_question_for_holders_is_passed_on_a_bounded_number_of_times(copies):
    """b to f are all linked with each other, so without a bound the questions multiply by four with every hop."""
    links = list(combinations("bcdef", 2))
    net = mesh([("a", "b"), *links], copies=copies)
    net.publish("c", b"x")
    net.run(3_000)
    life = net.nodes["c"].overlay.incarnation
    before = asks(net)
    for _ in range(20):
        say(net, m.Ask("t", "c", life, 1, 64, 6))
    net.run(500)
    # Each node asks each of its links at most once for each neighbor that asks it, and again for each further hop.
    assert 4 <= asks(net) - before < copies * 2 * len(links) * 4


def test_questions_about_many_messages_are_passed_on_within_bounds_in_a_tick():
    net = mesh([("a", "b"), ("b", "c")], copies=2, control_max=100)
    say(net, *(m.Push("t", "n", 1, number, 1, 0, 0, False, b"") for number in range(1, 301)))
    net.run(2_000)
    before = asks(net)
    for _ in range(3):
        say(net, *(m.Ask("t", "n", 1, number, 2, 2) for number in range(1, 301)))
    net.run(100)
    assert asks(net) - before == 50
    net.run(1_000)
    say(net, m.Ask("t", "n", 1, 300, 2, 2))
    net.run(100)
    assert asks(net) - before == 51, "it is passed on in a later tick"
