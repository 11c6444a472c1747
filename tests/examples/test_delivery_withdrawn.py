"""The answer to a registration that was withdrawn since does not confirm a new subscription."""

from __future__ import annotations

import pytest

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
    """What the home was told since the last call."""
    return [one for one in node.told("home") if isinstance(one, m.Register | m.Unregister)]


def registration(node):
    (one,) = [one for one in registrations(node) if isinstance(one, m.Register)]
    return one


def answers(node, *registrations):
    for one in registrations:
        node.hears("home", m.Registered(one.topics, number=one.number))


def test_an_answer_that_was_under_way_at_the_end_of_a_subscription_does_not_confirm_the_next_one():
    """The home hears: registered, withdrawn, registered. It has answered only the first when we subscribe again."""
    node = Publisher()
    subscribe(node)
    first = registration(node)
    unsubscribe(node)
    node.keep(node.delivery.want("t"))
    answers(node, first)
    assert not is_registered(node)
    node.keep(node.delivery.begin(["t"]))
    withdrawn, second = registrations(node)
    assert isinstance(withdrawn, m.Unregister)
    answers(node, first)
    assert not is_registered(node)
    answers(node, second)
    assert is_registered(node)


def test_the_answer_to_a_repetition_does_not_confirm_the_next_subscription_either():
    node = Publisher()
    subscribe(node)
    first = registration(node)
    node.ticks(1)
    repetition = registration(node)
    answers(node, first)
    assert is_registered(node)
    unsubscribe(node)
    node.keep(node.delivery.want("t"))
    answers(node, repetition)
    assert not is_registered(node)


@pytest.mark.parametrize("unanswered", [1, 7])
def test_lost_answers_delay_no_later_subscription(unanswered):
    node = Publisher()
    subscribe(node)
    node.ticks(unanswered - 1)
    for _ in range(20):
        unsubscribe(node)
        registrations(node)
        subscribe(node)
        answers(node, registration(node))
        assert is_registered(node)


def test_a_home_of_an_earlier_release_answers_without_a_number():
    node = Publisher()
    subscribe(node)
    unsubscribe(node)
    subscribe(node)
    node.hears("home", m.Registered(("t",)))
    assert is_registered(node)
