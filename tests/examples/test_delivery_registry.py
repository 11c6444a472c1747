"""Homes with too many registrations: nodes with few topics get in, and nobody is sure of what was turned away."""

from __future__ import annotations

import random

import pytest

from examples.test_delivery_heirs import Node
from trellis.live.registrations import Registrations
from trellis.protocols.delivery import heirs, homes
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.registry import Registry

MADE_UP = tuple(f"made up {number}" for number in range(100))


def full_home(monkeypatch, **bounds):
    """A home that is sure, without an heir, and with little room."""
    for name, bound in bounds.items():
        monkeypatch.setattr(homes, name, bound)
    home = Node("home", "before", None)
    home.ticks(16)
    return home


@pytest.mark.parametrize("bound", ["HOMES_MAX", "REGISTRATIONS_MAX"])
@pytest.mark.parametrize("names", [1, 100], ids=["one name", "many names"])
def test_a_node_that_registers_made_up_topics_does_not_keep_out_others(monkeypatch, bound, names):
    home = full_home(monkeypatch, **{bound: 50})
    home.hears("z", m.Register("z", ("t", "u")))
    for _ in range(3):
        for number, topic in enumerate(MADE_UP):
            home.hears("evil", m.Register(f"evil{number % names}", (topic,)))
        home.hears("y", m.Register("y", ("t", "new")))
        assert home.told("y") == [m.Registered(("t", "new"))]
        home.ticks(1)
    assert home.names("t")[0] == ("z", "y")
    assert home.names("u") == (("z",), True)
    assert home.names("new") == (("y",), True)
    assert len(home.delivery.homes.registry) <= 50
    assert home.delivery.metrics()["registrations_turned_away"] >= 150


def test_a_registration_that_was_passed_on_is_safe_when_its_node_has_repeated_it_itself(monkeypatch):
    home = full_home(monkeypatch, HOMES_MAX=50)
    home.hears("evil", m.Register("y", ("t",), 1))
    home.hears("y", m.Register("y", ("t",)))
    home.hears("evil", m.Register("evil", MADE_UP))
    assert home.names("t") == (("y",), True)


def test_a_home_is_not_sure_of_a_topic_whose_registration_it_has_dropped_or_turned_away(monkeypatch):
    home = full_home(monkeypatch, HOMES_MAX=50, SUBSCRIBERS_MAX=2)
    home.hears("evil", m.Register("evil", MADE_UP))
    assert home.names(MADE_UP[0]) == ((), False)
    assert home.names(MADE_UP[-1]) == (("evil",), True)
    for name in "xyz":
        home.hears(name, m.Register(name, ("t",)))
    assert home.told("z") == []
    assert home.names("t") == (("x", "y"), False)
    home.ticks(15)
    assert not home.names("t")[1]
    home.ticks(17)
    assert home.names("t") == ((), True)


def test_a_home_that_has_turned_a_registration_away_does_not_tell_its_heir_that_it_has_all(monkeypatch):
    monkeypatch.setattr(homes, "HOMES_MAX", 50)
    home = Node("home", "before", "heir")
    home.ticks(16)
    all_of_it = m.Register("home", (), m.HOPS_MAX, "before")
    home.hears("heir", m.Registered(("t",), "z"))
    home.ticks(1)
    assert all_of_it in home.told("heir")
    home.hears("evil", m.Register("evil", MADE_UP))
    home.hears("heir", m.Registered(MADE_UP, "evil"))
    home.ticks(1)
    assert all_of_it not in home.told("heir")


def test_an_heir_that_had_no_room_for_all_copies_is_not_sure(monkeypatch):
    monkeypatch.setattr(heirs, "COPIES_MAX", 50)
    heir = Node("heir", "home", "after")
    heir.ticks(16)
    heir.hears("home", m.Register("z", ("t",), m.HOPS_MAX, "before"))
    heir.hears("home", m.Register("evil", MADE_UP, m.HOPS_MAX, "before"))
    heir.hears("home", m.Register("home", (), m.HOPS_MAX, "before"))
    assert list(heir.delivery.homes.heirs.kept["home"].registry["t"]) == ["z"]
    heir.keep(heir.delivery.peer_ended("home", is_alone=False))
    heir.overlay.before = "before"
    assert not heir.names("t")[1]


def test_a_registry_gives_up_the_oldest_registration_of_the_account_with_most():
    draw = random.Random(1)
    table = Registry(20, 4, 40, 1_000)
    for now_ms in range(3_000):
        topic, node = f"t{draw.randrange(40)}", f"n{draw.randrange(9)}"
        if draw.random() < 0.2:
            table.remove(topic, node)
        else:
            table.add(topic, node, draw.choice((node, "relay")), now_ms, now_ms)
        if draw.random() < 0.01:
            table.forget_old(now_ms - 30)
        sizes = {account: len(keys) for account, keys in table._accounts.items()}
        assert table.count == sum(map(len, table.topics.values())) == sum(sizes.values()) <= 40
        assert len(table.topics) <= 20
        assert table._largest == max(sizes.values(), default=0)
        assert all(nodes and len(nodes) <= 4 for nodes in table.topics.values())
    assert table.turned_away


def test_health_says_that_registrations_were_turned_away_and_when_that_is_over(monkeypatch):
    home = full_home(monkeypatch, HOMES_MAX=50)
    clock = [0.0]
    health = Registrations(home.delivery.homes, lambda: clock[0])
    for second, count in ((1, 50), (20, 150), (49, 150)):
        if second < 30:
            home.hears("evil", m.Register("evil", MADE_UP))
        clock[0] = second
        health.look()
        text = f"{count} registrations of subscribers were turned away: this node is home of too many topics."
        assert health.complaints() == [text]
    clock[0] = 50
    health.look()
    assert health.complaints() == []
