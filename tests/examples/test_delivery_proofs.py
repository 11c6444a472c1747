"""Proofs of homes that few subscribe: every publication gets its own, also where many wait or the window is small."""

from __future__ import annotations

from examples.test_delivery import Story, all_want, chain
from examples.test_delivery_heirs import Node, Ring
from trellis.protocols.delivery import Acknowledged, Delivery, DeliveryConfig, NotAcknowledged
from trellis.protocols.delivery import messages as m
from trellis.protocols.effects import Send


class Far(Ring):
    """An overlay whose node takes part in "t" and has one neighbor on it. The node `home` is home of all topics."""

    def __init__(self, name, before, after):
        super().__init__(name, before, after)
        self.interest = self.table.bits(("t", "other"))

    def neighbors(self):
        return {"neighbor": self.interest}

    def is_home(self, topic):
        return False

    def toward_home(self, topic, message, without=()):
        return [Send("home", message)]


class Publisher(Node):
    def __init__(self, **config):
        self.overlay = Far("publisher", "before", "after")
        self.delivery = Delivery(self.overlay, DeliveryConfig(**config))
        self.sent, self.outcomes = [], []
        self.keep([*self.delivery.start(), *self.delivery.overlay_changed()])

    def keep(self, effects):
        super().keep(effects)
        self.outcomes += [one for one in effects if isinstance(one, Acknowledged | NotAcknowledged)]

    def publish(self, payload=b"x", topic="t"):
        self.keep(self.delivery.publish(topic, payload))

    def questions(self):
        return [one.number for one in self.told("home") if isinstance(one, m.AskHome)]

    def home_tells(self, number, *, total=0, is_sure=True):
        self.hears("home", m.HomeTells("t", number, (), total, is_sure))

    def acknowledged(self):
        found = [one.sequence for one in self.outcomes if isinstance(one, Acknowledged)]
        self.outcomes.clear()
        return found


def publisher_without_subscribers(**config):
    """A publisher whose last publication was acknowledged by proof."""
    publisher = Publisher(**config)
    publisher.publish()
    publisher.ticks(2)
    publisher.home_tells(publisher.questions()[-1])
    assert publisher.acknowledged() == [1]
    return publisher


def test_a_publication_that_follows_another_one_asks_when_the_answer_to_that_one_is_there():
    publisher = publisher_without_subscribers()
    for _ in range(3):
        publisher.publish()
    (first,) = publisher.questions()
    publisher.home_tells(first)
    assert publisher.acknowledged() == [2]
    (second,) = publisher.questions()
    publisher.home_tells(second)
    assert publisher.acknowledged() == [3, 4]
    assert publisher.questions() == []


def test_a_home_that_is_not_sure_or_names_enough_subscribers_is_not_asked_again_at_once():
    publisher = publisher_without_subscribers()
    for _ in range(2):
        publisher.publish()
    (first,) = publisher.questions()
    publisher.home_tells(first, is_sure=False)
    publisher.home_tells(first, total=2)
    assert publisher.questions() == []
    assert publisher.acknowledged() == []


def test_after_a_publication_that_its_window_did_not_keep_the_next_one_asks_at_once():
    """Otherwise no publication gets its proof where windows are full of others within `ask_ms`."""
    publisher = Publisher(window_bytes=4_096)
    publisher.publish(bytes(3_000))
    assert publisher.questions() == []  # it has a neighbor on the topic, which may subscribe
    push = m.Push("other", "neighbor", 1, 1, 1, 0, 0, True, bytes(3_000))
    publisher.hears("neighbor", m.Frame(1, 1, 0, 0, (push,)))
    publisher.ticks(1)
    assert [type(one) for one in publisher.outcomes] == [NotAcknowledged]
    publisher.publish(bytes(3_000))
    (number,) = publisher.questions()
    publisher.home_tells(number)
    assert publisher.acknowledged() == [2]


def test_publications_in_quick_succession_do_not_wait_for_the_next_tick():
    story = Story({**all_want("abc"), **all_want("fg", "u"), "z": ("rare",)}, (*chain(*"abc"), ("f", "g")), absent="z")
    story.publish("f", "rare")
    story.publish("g", "rare")
    story.run(5_000)
    payloads = []
    for _ in range(3):
        payloads.append(story.publish("f", "rare"))
        story.engine.run(story.engine.world.now_ms + 5)
    story.engine.run(story.engine.world.now_ms + 200)
    assert [story.copies(one) for one in payloads] == [1, 1, 1]
