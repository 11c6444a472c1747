"""Pulls over a link that takes few messages at a time: which topics and which messages come first."""

from __future__ import annotations

import pytest

from examples.test_delivery_parts import Mesh, Part, messages
from trellis.protocols.delivery import messages as m

TIGHT = {"queue_max": 1, "pull_max": 1}
BUSY = ("busy0", "busy1", "busy2")


def make(*names, topics, **config):
    net = Mesh([Part(name, topics, **{**TIGHT, **config}) for name in names])
    net.start()
    return net


def got(net, name, topic):
    return [delivery.payload for node, delivery in net.delivered if node == name and delivery.topic == topic]


def pulled(net, asker, count_of):
    """Return what a node has pulled, in order, as `count_of` names it."""
    frames = [message for _, sender, _, message in net.said if sender == asker and isinstance(message, m.Frame)]
    return [count_of(item) for frame in frames for item in frame.items if isinstance(item, m.Pull)]


def test_topics_with_many_missing_messages_do_not_hold_up_one_with_few():
    """Two nodes meet again. One has 100 messages of each busy topic for the other, and three of a quiet one."""
    net = make("a", "b", topics=(*BUSY, "quiet"))
    net.link("a", "b")
    net.run(4_000)
    net.cut("a", "b")
    for topic in BUSY:
        for payload in messages(100, topic):
            net.publish("a", payload, topic)
    for payload in messages(3):
        net.publish("a", payload, "quiet")
    net.link("a", "b")
    net.run(4_000)
    assert got(net, "b", "quiet") == messages(3)
    net.run(40_000)
    assert all(got(net, "b", topic) == messages(100, topic) for topic in BUSY)


@pytest.mark.parametrize("pull_max", [1, 4])
def test_a_node_pulls_no_more_over_a_link_than_its_neighbor_answers(pull_max):
    """A neighbor does not answer pulls for which it has no space. So none of them is ever repeated."""
    net = make("a", "b", topics=BUSY, pull_max=pull_max)
    net.link("a", "b")
    net.run(4_000)
    net.cut("a", "b")
    for topic in BUSY:
        for payload in messages(30, topic):
            net.publish("a", payload, topic)
    net.link("a", "b")
    net.run(20_000)
    assert all(got(net, "b", topic) == messages(30, topic) for topic in BUSY)
    pulls = pulled(net, "b", lambda item: (item.topic, item.ranges))
    assert pulls
    assert len(pulls) == len(set(pulls))


def test_a_joiner_pulls_what_its_application_gets_before_what_it_only_keeps():
    """A node joins a topic with 100 older messages. It hands over a new one at once, and gets the older ones later."""
    net = make("a", "b", topics=("t",))
    net.link("a", "b")
    net.run(4_000)
    for payload in messages(100, "old"):
        net.publish("a", payload)
        net.run(20)
    net.run(20_000)
    net.add(Part("c", **TIGHT))
    net.link("a", "c")
    net.run(100)
    for payload in messages(5, "new"):
        net.publish("a", payload)
    net.run(3_000)
    assert net.got("c") == messages(5, "new")
    net.run(20_000)
    assert len(net.nodes["c"].delivery.state.topics["t"].streams["a", 1].entries) == 105


def test_a_neighbor_that_announces_and_sends_nothing_holds_up_one_pull_at_a_time():
    """`b` and `c` announce the same 60 messages to `d`, `b` first. `b` answers no pull."""
    net = make("a", "b", "c", "d", topics=("t",), retry_rounds=40)
    for one, other in (("a", "b"), ("a", "c"), ("d", "b"), ("d", "c")):
        net.link(one, other)
    net.run(4_000)
    for peer in "bc":
        net.cut("d", peer)
    for payload in messages(60):
        net.publish("a", payload)
        net.run(100)
    net.nodes["b"].delivery._handlers[m.Pull] = lambda peer, item: None
    for peer in "bc":
        net.link("d", peer)
    net.run(15_000)
    assert net.got("d") == messages(60)
