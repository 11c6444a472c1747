"""A subscription is confirmed as fast as messages travel, and promises no less for it."""

from __future__ import annotations

import pytest

from examples.test_delivery import Story, all_want, chain
from trellis.protocols.delivery.meetings import MEET_MS, Meetings
from trellis.protocols.effects import SetTimer
from trellis.simulate.systems.delivery import mesh_of

# A message takes 5 to 15 ms here, and a tick is a second. Some steps follow each other: a batch, the home and its heir,
# the question who else subscribes, links, the comparison.
SOON_MS = 250
COLD_MS = 3_500  # nobody has a baseline: everybody begins `confirm_ms` after the last change, at a tick


class Mesh(Story):
    def step(self, duration_ms):
        self.engine.run(self.engine.world.now_ms + duration_ms)
        self.engine.check_always()

    def mesh(self, name):
        return mesh_of(self.engine.world, name)

    def is_confirmed(self, name, topic):
        found = self.mesh(name).delivery.state.topics.get(topic)
        return found is not None and found.was_confirmed

    def links(self, name):
        return len(self.mesh(name).overlay.neighbors())


NAMES = "abcdefgh"
RING = (*chain(*NAMES), ("a", "h"))


@pytest.fixture(scope="module")
def settled():
    """Everybody wants t. Each node has a topic of its own, and each of four pairs has one that only these two want."""
    interests = {name: ("t", f"own {name}", f"pair {NAMES.index(name) // 2}") for name in NAMES}
    story = Mesh(interests, RING)
    story.run(20_000)
    return story


@pytest.mark.parametrize("name", "adg")
def test_a_topic_that_nobody_wants_is_confirmed_at_once(settled, name):
    settled.engine.subscribe(name, f"new {name}")
    settled.step(SOON_MS)
    assert settled.is_confirmed(name, f"new {name}")


@pytest.mark.parametrize(("name", "other"), [("a", "b"), ("a", "e"), ("d", "h"), ("g", "c"), ("h", "f")])
def test_a_topic_of_one_other_node_is_confirmed_at_once_and_its_messages_come(settled, name, other):
    """The other node may be a neighbor, or one with which there is no link yet."""
    topic = f"own {other}"
    settled.engine.subscribe(name, topic)
    settled.step(SOON_MS)
    assert settled.is_confirmed(name, topic)
    payload = settled.publish(other, topic)
    settled.step(SOON_MS)
    assert settled.delivered(payload) >= {name, other}
    assert settled.copies(payload) == 2


def test_two_nodes_that_subscribe_at_the_same_moment_hear_each_other(settled):
    for number in range(4):
        topic = f"together {number}"
        settled.engine.subscribe("b", topic)
        settled.engine.subscribe("f", topic)
        settled.step(COLD_MS)
        assert settled.is_confirmed("b", topic)
        assert settled.is_confirmed("f", topic)
        payloads = [settled.publish("b", topic), settled.publish("f", topic)]
        settled.step(SOON_MS)
        assert [settled.delivered(one) for one in payloads] == [{"b", "f"}] * 2


def test_a_node_hears_what_it_publishes_right_after_it_has_subscribed(settled):
    settled.engine.subscribe("c", "echo")
    payload = settled.publish("c", "echo")
    settled.step(SOON_MS)
    assert settled.delivered(payload) == {"c"}


def test_a_publication_between_subscribing_and_unsubscribing_is_not_lost(settled):
    """It is published all the same, and the node takes part in the topic for that, as any publisher does."""
    settled.engine.subscribe("e", "short")
    payload = settled.publish("e", "short")
    settled.engine.unsubscribe("e", "short")
    settled.step(SOON_MS)
    assert settled.copies(payload) == 1
    assert settled.delivered(payload) == set()


class Named:
    """What `Meetings` needs of a state: an overlay that notes with whom links are asked for."""

    id = "x"

    def __init__(self):
        self.out, self.met, self.overlay = [], [], self

    def meet(self, names):
        self.met += names
        return []


def test_one_link_is_asked_for_where_one_node_has_all_topics():
    state = Named()
    meetings = Meetings(state, lambda topic, names: True)
    for number in range(100):
        meetings.note(f"t{number}", ("bcd"[number % 3], "a"))
    assert state.out == [SetTimer("delivery/meet", MEET_MS)]
    meetings.go()
    assert state.met == ["a"]
    meetings.note("late", ("e", "a"))  # a link to a is on its way
    meetings.note("other", ("e", "f"))
    meetings.go()
    assert len(state.met) == 2
    assert state.met[1] in ("e", "f")
    meetings.tick()
    meetings.note("late", ("a",))  # nothing came of it: it is asked for again
    meetings.go()
    assert state.met[2:] == ["a"]


def test_a_topic_that_has_found_neighbors_meanwhile_needs_no_link():
    state = Named()
    meetings = Meetings(state, lambda topic, names: topic == "open")
    meetings.note("open", ("b",))
    meetings.note("found", ("c",))
    meetings.go()
    assert state.met == ["b"]


def test_with_more_copies_than_subscribers_each_publication_has_its_proof_at_once():
    """The home's answer may come before the other subscriber's: then that one completes the proof."""
    story = Mesh(all_want("ab"), (("a", "b"),), copies=3)
    for _ in range(10):
        payload = story.publish("a")
        story.step(SOON_MS)
        if not story.copies(payload):  # the first one does not know yet that a proof will be needed
            assert story.numbers == 1
            story.step(2_000)
        assert story.copies(payload) == 2
