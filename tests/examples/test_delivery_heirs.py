"""Homes and their heirs: who subscribes is known although a home has crashed, and nobody is sure too early."""

from __future__ import annotations

import pytest

from examples.test_delivery import READY_MS, Story
from trellis.protocols.delivery import Delivery, DeliveryConfig
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.heirs import LEASE_TICKS
from trellis.protocols.effects import Send
from trellis.protocols.topics import TopicTable
from trellis.simulate.systems.delivery import mesh_of


class Ring:
    """An overlay without links: `before`, then this node, then `after` stand on the ring, and it is home of all."""

    has_homes, relays, incarnation, interest = True, False, 1, 0

    def __init__(self, name, before, after):
        self.id, self.before, self.after, self.table = name, before, after, TopicTable()

    def neighbors(self):
        return {}

    def is_gone(self, node):
        return False

    def is_home(self, topic):
        return True

    def home_range(self):
        return self.before

    def heir(self):
        return self.after

    def toward_home(self, topic, message, without=()):
        return [Send(self.id, message)]

    def meet(self, names):
        return []


class Node:
    def __init__(self, name, before, after, **config):
        self.overlay = Ring(name, before, after)
        self.delivery = Delivery(self.overlay, DeliveryConfig(**config))
        self.sent = []
        self.keep(self.delivery.start())

    def keep(self, effects):
        self.sent += [(one.to, one.message) for one in effects if isinstance(one, Send)]

    def ticks(self, count):
        for _ in range(count):
            self.keep(self.delivery.on_timer("delivery/tick"))

    def hears(self, sender, message):
        self.keep(self.delivery.on_message(sender, message))

    def told(self, to):
        found = [message for name, message in self.sent if name == to]
        self.sent = [one for one in self.sent if one[0] != to]
        return found

    def names(self, topic):
        """Return the subscribers that the home names, and whether it is sure."""
        self.delivery.homes.on_ask(m.AskHome("asker", topic, 1))
        self.keep(self.delivery._finish())
        tells = self.told("asker")[-1]
        return tells.names, tells.is_sure


def home_with_heir():
    """A home that is sure, and whose heir has everything."""
    home = Node("home", "before", "heir")
    home.ticks(16)
    home.hears("z", m.Register("z", ("t",)))
    home.hears("heir", m.Registered(("t",), "z"))
    home.ticks(1)
    home.sent.clear()
    return home


def test_a_new_subscriber_is_told_that_it_is_registered_when_the_heir_knows_it_too():
    home = home_with_heir()
    home.hears("y", m.Register("y", ("t",)))
    assert home.told("heir") == [m.Register("y", ("t",), m.HOPS_MAX, "before")]
    assert home.told("y") == []
    home.hears("heir", m.Registered(("t",), "y"))
    assert home.told("y") == [m.Registered(("t",))]


def test_a_home_waits_for_its_heir_no_longer_than_the_heir_may_believe_that_it_has_everything():
    home = home_with_heir()
    home.hears("y", m.Register("y", ("t",)))
    home.ticks(LEASE_TICKS)
    assert home.told("y") == []
    home.ticks(3)
    assert home.told("y") == [m.Registered(("t",))]
    assert m.Register("home", (), m.HOPS_MAX, "before") not in home.told("heir")


def test_a_home_whose_heir_has_never_answered_keeps_nobody_waiting():
    home = Node("home", "before", "heir")
    home.ticks(16)
    home.hears("y", m.Register("y", ("t",)))
    assert home.told("y") == [m.Registered(("t",))]


def heir_with_registry():
    heir = Node("heir", "home", "after")
    heir.ticks(14)
    heir.hears("home", m.Register("z", ("t",), m.HOPS_MAX, "before"))
    heir.hears("home", m.Register("home", ("t",), m.HOPS_MAX, "before"))
    assert heir.told("home") == [m.Registered(("t",), "z"), m.Registered(("t",), "home")]
    heir.ticks(2)
    return heir


def test_an_heir_is_sure_at_once_who_subscribes_where_its_home_has_ended():
    heir = heir_with_registry()
    heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
    heir.ticks(1)
    heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    heir.overlay.before = "before"
    assert heir.names("t") == (("z",), True)


def test_an_heir_whose_range_grew_before_the_end_was_proven_is_sure_as_well():
    heir = heir_with_registry()
    heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
    heir.overlay.before = "before"
    assert not heir.names("t")[1]
    heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    assert heir.names("t") == (("z",), True)


def test_an_heir_keeps_what_it_has_of_an_ended_home_when_another_home_takes_that_place():
    heir = heir_with_registry()
    heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
    heir.overlay.before = "before"
    heir.hears("before", m.Register("y", ("u",), m.HOPS_MAX, "heir"))
    heir.hears("before", m.Register("before", (), m.HOPS_MAX, "heir"))
    heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    assert heir.names("t") == (("z",), True)


def test_the_heir_of_an_heir_is_sure_only_with_what_the_heir_has_inherited():
    """The home ends, then its heir, one tick later."""
    heir, next_heir = heir_with_registry(), Node("after", "heir", "last")
    next_heir.ticks(16)

    def tick():
        heir.ticks(1)
        for message in heir.told("after"):
            next_heir.hears("heir", message)
        for message in next_heir.told("heir"):
            heir.hears("after", message)
        next_heir.ticks(1)

    for _ in range(6):
        heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
        tick()
    heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    heir.overlay.before = "before"
    assert heir.names("t") == (("z",), True)
    tick()
    tick()
    next_heir.keep(next_heir.delivery.peer_ended("heir", is_alone=False))
    next_heir.overlay.before = "before"
    assert next_heir.names("t") == (("z",), True)


@pytest.mark.parametrize("case", ["no word", "old word", "other range", "silence", "stood still", "restarted"])
def test_an_heir_that_may_not_know_all_is_not_sure(case):
    heir = heir_with_registry()
    if case != "no word":
        heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
    if case == "old word":
        heir.ticks(LEASE_TICKS + 1)
    if case == "stood still":
        heir.keep(heir.delivery.stood_still(4_000))
    if case != "silence":
        heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    if case == "restarted":
        heir.hears("home", m.AskHome("home", "t", 1))
    heir.overlay.before = "another" if case == "other range" else "before"
    assert not heir.names("t")[1]


def test_an_heir_takes_copies_from_its_predecessor_only():
    heir = heir_with_registry()
    heir.hears("liar", m.Register("y", ("t",), m.HOPS_MAX, "before"))
    heir.hears("liar", m.Register("liar", (), m.HOPS_MAX, "before"))
    assert heir.told("liar") == []
    assert {home: list(kept.registry["t"]) for home, kept in heir.delivery.homes.heirs.kept.items()} == {
        "home": ["z", "home"]
    }


def test_a_home_that_stood_still_is_not_sure_for_that():
    home = Node("home", "before", "heir")
    home.ticks(5)
    home.keep(home.delivery.stood_still(60_000))
    assert not home.names("t")[1]
    home.ticks(11)
    assert home.names("t")[1]


def test_what_a_home_knows_is_not_forgotten_because_it_stood_still():
    home = Node("home", "before", "heir")
    home.ticks(16)
    home.hears("z", m.Register("z", ("t",)))
    home.keep(home.delivery.stood_still(60_000))
    home.ticks(1)
    assert home.names("t") == (("z",), True)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_publication_whose_home_and_other_subscriber_crashed_is_acknowledged_within_two_seconds(seed):
    """All want `all`, so everybody is linked. The crashed node is home of some topics, and wants them."""
    topics = [f"t{number}" for number in range(12)]
    interests = {"a": ("all", *topics), "b": ("all",), "c": ("all", *topics), "d": ("all",)}
    links = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "c"), ("d", "b"), ("d", "a")]
    story = Story(interests, links, seed=seed, broken_stream_ms=20)
    moved = [topic for topic in topics if mesh_of(story.engine.world, "c").overlay.is_home(topic)]
    assert moved
    assert story.engine.world.now_ms == READY_MS
    story.engine.crash("c")
    story.run(1_000)
    published = [story.publish("a", topic) for topic in moved]
    story.run(2_000)
    assert [story.copies(one) for one in published] == [1] * len(moved)
