"""What is counted when events travel, on overlays small enough to count by hand."""

from __future__ import annotations

import msgspec
import pytest

from trellis.protocols.effects import Deliver, Send
from trellis.protocols.wire import Codec
from trellis.simulate.dissemination import Dissemination
from trellis.simulate.engine import Engine
from trellis.simulate.system import Carried, System
from trellis.simulate.systems.toys import Quiet


class Copy(msgspec.Struct, frozen=True, tag="copy"):
    topic: str
    origin: str
    sequence: int
    hops: int


class Chat(msgspec.Struct, frozen=True, tag="chat"):
    pass


class Line(Quiet):
    """Passes every event to all given neighbours, wanted or not; a stutterer delivers twice."""

    def __init__(self, node, topics, neighbors, stutters):
        super().__init__(node)
        self.topics, self.neighbors, self.stutters = set(topics), neighbors, stutters
        self.seen, self.published = set(), 0

    def start(self):
        return [Send(peer, Chat()) for peer in self.neighbors]

    def publish(self, topic, payload):
        self.published += 1
        return self._take(Copy(topic, self.id, self.published, 0))

    def on_message(self, sender, message):
        return self._take(message, sender) if isinstance(message, Copy) else []

    def _take(self, copy, sender=None):
        if (copy.origin, copy.sequence) in self.seen:
            return []
        self.seen.add((copy.origin, copy.sequence))
        mine = [Deliver(copy.topic, copy.origin, copy.sequence)] if copy.topic in self.topics else []
        onwards = Copy(copy.topic, copy.origin, copy.sequence, copy.hops + 1)
        return [*mine * (1 + self.stutters), *(Send(peer, onwards) for peer in self.neighbors if peer != sender)]


class Lines(System):
    name = "lines"

    def __init__(self, stutterers=()):
        self.codec, self.stutterers, self.asked = Codec(Copy | Chat), stutterers, []

    def make_node(self, node, topics, random, world):
        return Line(node, topics, world.first_neighbors(node), node in self.stutterers)

    def carried(self, message):
        self.asked.append(type(message))
        return Carried(*msgspec.structs.astuple(message)) if isinstance(message, Copy) else None


def line_of(interests, links, system=None, **more):
    """`line_of({"a": "x", "b": "y"}, "ab")`: who wants what, and who is linked."""
    system = system or Lines()
    wanted = {name: tuple(topics) for name, topics in interests.items()}
    engine = Engine(system, wanted, seed=1, overlay=[tuple(link) for link in links.split()], **more)
    return engine, Dissemination.attach(engine)


def test_hops_overhead_and_deliveries_on_a_line():
    """a - b - c - d, an event of a on x: b relays, c and d want it."""
    engine, seen = line_of({"a": "x", "b": "y", "c": "x", "d": "x"}, "ab bc cd")
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(30_000)
    found = seen.measure()
    assert (found.publications, found.deliveries, found.hits, found.missed) == (1, 2, 2, 0)
    assert found.hops == {2: 1, 3: 1}
    assert found.delay == 2.5
    assert found.hit_ratio == 1
    assert (found.wanted, found.unwanted) == (2, 1)
    assert found.overhead == pytest.approx(1 / 3)
    assert found.shares == {"b": 1.0, "c": 0.0, "d": 0.0}
    assert found.overhead_per_node == pytest.approx(1 / 3)
    assert found.share_of_nodes(above=0.2) == pytest.approx(1 / 3)
    assert found.overhead_histogram(2) == [2, 1]
    assert (found.messages, found.duplicates, found.unwanted_messages) == (3, 0, 1)
    assert found.load.maximum == 1
    assert dict(seen.sent) == {"a": 1, "b": 1, "c": 1}


def test_on_a_triangle_the_third_copy_is_a_duplicate():
    engine, seen = line_of({"a": "x", "b": "x", "c": "x"}, "ab bc ac")
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(30_000)
    found = seen.measure()
    assert (found.messages, found.duplicates, found.deliveries) == (4, 2, 2)  # b and c tell each other in vain
    assert found.hops == {1: 2}
    assert found.messages_per_delivery == 2
    assert found.duplicates_per_delivery == 1


def test_a_subscriber_that_is_not_reached_is_a_miss():
    engine, seen = line_of({"a": "x", "b": "x", "c": "x"}, "ab")
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(40_000)
    assert seen.measure().hit_ratio == 0.5
    assert [(one.topic, node) for one, node in seen.missed()] == [("x", "c")]


def test_who_came_less_than_ten_seconds_ago_is_not_expected_to_get_the_event():
    engine, seen = line_of({"a": "x", "b": "x", "c": "x"}, "ab", absent=["c"])
    engine.run(15_000)
    engine.join("c")
    engine.run(24_000)
    engine.publish("a", "x")
    engine.run(25_001)
    engine.publish("a", "x")
    engine.run(60_000)
    assert [one.expected for one in seen.publications] == [1, 2]
    assert seen.measure(until_ms=25_000).hit_ratio == 1
    assert seen.measure(since_ms=25_000).hit_ratio == 0.5


def test_who_goes_or_loses_interest_within_the_grace_is_no_miss_and_who_goes_later_is():
    for after_ms, missed in ((5_000, 0), (15_000, 2)):
        engine, seen = line_of({"a": "x", "b": "xy", "c": "x"}, "")
        engine.run(20_000)
        engine.publish("a", "x")
        engine.run(20_000 + after_ms)
        engine.crash("c")
        engine.unsubscribe("b", "x")
        engine.run(60_000)
        assert seen.measure().missed == missed


def test_a_new_subscriber_counts_from_ten_seconds_after_it_subscribed():
    engine, seen = line_of({"a": "x", "b": "y"}, "")
    engine.run(20_000)
    engine.subscribe("b", "x")
    engine.run(25_000)
    engine.publish("a", "x")
    engine.run(31_000)
    engine.publish("a", "x")
    engine.run(60_000)
    assert [one.expected for one in seen.publications] == [0, 1]


def test_an_application_that_gets_an_event_twice_is_noticed_and_a_new_life_is_a_new_application():
    engine, seen = line_of({"a": "x", "b": "x"}, "ab", Lines(stutterers=["b"]))
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(21_000)
    assert seen.measure().repeated == 1
    engine, seen = line_of({"a": "x", "b": "x"}, "ab")
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(21_000)
    engine.crash("b")
    engine.join("b")
    seen.on_deliver("b", Deliver("x", "a", 1))
    assert seen.measure().repeated == 0
    seen.on_deliver("b", Deliver("x", "a", 1))
    assert seen.measure().repeated == 1


def test_messages_of_types_that_carry_nothing_are_passed_over_unasked():
    system = Lines()
    system.publication_types = (Copy,)
    engine, seen = line_of({"a": "x", "b": "x"}, "ab", system)
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(30_000)
    assert set(system.asked) == {Copy}
    assert seen.measure().deliveries == 1


def test_an_event_that_nobody_announced_is_counted_apart():
    engine, seen = line_of({"a": "x", "b": "x"}, "ab")
    engine.run(20_000)
    seen.on_deliver("b", Deliver("x", "a", 7))
    assert (seen.unbound, seen.measure().deliveries) == (1, 0)


def test_attached_late_it_knows_who_is_there_and_since_when():
    engine, _ = line_of({"a": "x", "b": "x", "c": "x"}, "ab bc", absent=["c"])
    engine.run(15_000)
    engine.join("c")
    engine.run(18_000)
    seen = Dissemination.attach(engine)
    engine.publish("a", "x")
    engine.run(30_000)
    assert seen.publications[0].expected == 1


def test_events_can_be_told_apart_by_time_and_topic():
    engine, seen = line_of({"a": "xy", "b": "xy"}, "ab")
    engine.run(20_000)
    engine.publish("a", "x")
    engine.run(30_000)
    engine.publish("a", "y")
    engine.run(40_000)
    assert seen.measure(topics=["y"]).publications == 1
    assert seen.measure(since_ms=25_000).publications == 1
    assert seen.measure().metrics("all/")["all/publications"] == 2
    assert seen.measure().to_json()["hops"] == {"1": 2}
