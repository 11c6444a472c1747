"""The answer to a registration that was withdrawn since does not confirm a new subscription."""

from __future__ import annotations

from examples.test_delivery_proofs import Publisher
from trellis.protocols.delivery import messages as m


def subscribe(node):
    node.keep(node.delivery.want("t"))
    node.keep(node.delivery.begin(["t"]))


def unsubscribe(node):
    node.keep(node.delivery.unwant("t"))


def is_registered(node):
    return node.delivery.state.topics["t"].is_registered


def registrations(node):
    return [type(one) for one in node.told("home") if isinstance(one, m.Register | m.Unregister)]


def test_an_answer_that_was_under_way_at_the_end_of_a_subscription_does_not_confirm_the_next_one():
    """The home hears: registered, withdrawn, registered. It has answered only the first when we subscribe again."""
    node = Publisher()
    subscribe(node)
    unsubscribe(node)
    node.keep(node.delivery.want("t"))
    node.hears("home", m.Registered(("t",)))
    assert not is_registered(node)
    node.keep(node.delivery.begin(["t"]))
    assert registrations(node) == [m.Register, m.Unregister, m.Register]
    node.hears("home", m.Registered(("t",)))
    assert is_registered(node)


def test_a_lost_answer_to_a_withdrawn_registration_costs_one_tick():
    node = Publisher()
    subscribe(node)
    unsubscribe(node)
    subscribe(node)
    node.hears("home", m.Registered(("t",)))  # the answer to the second one: the first was lost
    assert not is_registered(node)
    node.told("home")
    node.ticks(1)
    assert m.Register in registrations(node)
    node.hears("home", m.Registered(("t",)))
    assert is_registered(node)


def test_an_answer_long_after_a_subscription_ended_confirms_the_next_one():
    node = Publisher()
    subscribe(node)
    unsubscribe(node)
    node.ticks(4)
    subscribe(node)
    node.hears("home", m.Registered(("t",)))
    assert is_registered(node)
