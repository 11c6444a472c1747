"""Delivery over OMen, by name: the schedules of docs/delivery.md, and what clients see."""

from __future__ import annotations

from itertools import pairwise

import pytest

from trellis.errors import InputError
from trellis.simulate.check import _planned
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.network import Latency, NetworkConfig
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.delivery import Delivery, mesh_of

READY_MS = 30_000  # links stand, subscriptions are confirmed, homes are sure


class Story:
    """A run whose publications and faults are told one by one."""

    def __init__(self, interests, links=(), *, absent=(), overlay="omen", seed=1, broken_stream_ms=None, **options):
        self.system = Delivery(overlay=overlay, every_ms=0, **options)
        network = NetworkConfig(latency=Latency("uniform", 5, 15))
        self.engine = Engine(
            self.system,
            interests,
            seed=seed,
            overlay=links,
            absent=absent,
            network=network,
            encode=True,
            broken_stream_ms=broken_stream_ms,
        )
        self.numbers = 0
        self.run(READY_MS)

    def run(self, duration_ms):
        for _ in range(duration_ms // 1000):
            self.engine.run(self.engine.world.now_ms + 1000)
            self.engine.check_always()

    def publish(self, name, topic="t"):
        self.numbers += 1
        payload = f"{name}/{self.numbers}".encode()
        assert self.engine.publish(name, topic, payload)
        return payload

    def delivered(self, payload):
        return set(self.system.ledger.publications[payload].delivered)

    def copies(self, payload):
        return self.system.ledger.publications[payload].copies

    def end(self, duration_ms=60_000):
        """Let it settle; then all that was promised must be there."""
        self.run(duration_ms)
        self.system.ledger.judge()

    def counters(self, name):
        return mesh_of(self.engine.world, name).delivery.state.counters


def chain(*names):
    return tuple(pairwise(names))


def all_want(names, *topics):
    return dict.fromkeys(names, topics or ("t",))


def test_the_publisher_whose_only_neighbour_died():
    story = Story(all_want("pnx"), chain(*"pnx"))
    story.engine.crash("n")
    payload = story.publish("p")
    story.run(1_000)
    assert not story.copies(payload)  # nobody else holds it: no acknowledgement
    story.run(29_000)
    assert story.copies(payload) == 2
    assert story.delivered(payload) == {"p", "x"}


def test_the_joiner_between_two_old_nodes():
    story = Story(all_want("ucxN"), chain(*"ucx"), absent=("N",))
    before = story.publish("u")
    story.engine.crash("c")
    meanwhile = story.publish("u")
    story.engine.join("N")
    story.run(30_000)
    after = story.publish("u")
    story.end()
    assert all(story.delivered(one) >= {"u", "x"} for one in (before, meanwhile))  # N may get them: x had not, either
    assert story.delivered(after) == {"u", "x", "N"}


def test_the_node_paused_longer_than_the_window():
    """It misses what nobody keeps any more, and says so; nothing comes twice."""
    story = Story(all_want("abcd"), chain(*"abcd"), window=5.0)
    first = story.publish("a")
    story.run(1_000)
    story.engine.pause("d")
    story.run(8_000)  # its neighbour has given it up
    missed = [story.publish("a") for _ in range(5)]
    story.run(20_000)
    story.engine.resume("d")
    story.run(20_000)
    last = story.publish("a")
    story.run(20_000)
    assert story.delivered(first) == story.delivered(last) == set("abcd")
    lost = [one for one in missed if "d" not in story.delivered(one)]
    assert len(lost) == story.counters("d").lost > 0  # it knows exactly what it has missed


def test_two_neighbours_that_leave_at_once():
    """`copies` is one: only the order of leaving keeps what the first of them has just published."""
    story = Story(all_want("aLMb"), chain(*"aLMb"), copies=1)
    payload = story.publish("L")
    story.engine.leave("L")
    story.engine.leave("M")
    story.end()
    assert story.delivered(payload) >= {"a", "b"}
    assert story.engine.world.living == ["a", "b"]


def test_the_publisher_that_restarts():
    story = Story(all_want("abc"), chain(*"abc"))
    first = [story.publish("b") for _ in range(3)]
    story.run(1_000)
    story.engine.crash("b")
    story.run(2_000)
    story.engine.join("b", ("t",))
    story.run(30_000)
    second = [story.publish("b") for _ in range(3)]
    story.end()
    publications = story.system.ledger.publications
    assert [(publications[one].incarnation, publications[one].sequence) for one in first + second] == [
        (life, sequence) for life in (1, 2) for sequence in (1, 2, 3)
    ]
    assert all(story.delivered(one) >= {"a", "c"} for one in first + second)


def test_a_partition_that_heals_within_the_window_loses_nothing():
    story = Story(all_want("abcdef"), chain(*"abcdef"))
    Injector(story.engine, Schedule((Fault(READY_MS, "partition", tuple("abc"), duration_ms=8_000),)))
    story.run(2_000)
    left, right = story.publish("b"), story.publish("e")
    story.end()
    assert story.delivered(left) == story.delivered(right) == set("abcdef")


@pytest.mark.parametrize(("is_cut", "seconds"), [(True, 10), (False, 2)])
def test_a_node_that_leaves_waits_for_a_neighbor_that_is_cut_off(is_cut, seconds):
    """The neighbor's registration has run out, so the topic's home names nobody. It may still be back in time."""
    story = Story(all_want("ab"), chain(*"ab"), copies=1, registered_ms=8_000, broken_stream_ms=50)
    if is_cut:
        Injector(story.engine, Schedule((Fault(READY_MS, "partition", ("b",), duration_ms=25_000),)))
    else:
        story.engine.crash("b")
        mesh_of(story.engine.world, "a").on_peer_ended("b")
    story.run(1_000)
    payload = story.publish("a")
    story.run(16_000)
    assert story.copies(payload) == 1
    story.engine.leave("a")
    story.run(seconds * 1_000)
    assert ("a" in story.engine.world.living) is is_cut
    story.run(8_000)
    assert "a" not in story.engine.world.living
    assert story.delivered(payload) == ({"a", "b"} if is_cut else {"a"})


def test_one_subscriber_alone_is_acknowledged_by_proof_of_its_topics_home():
    story = Story({**all_want("abc"), "d": ("t", "rare")}, chain(*"abcd"))
    payload = story.publish("d", "rare")
    assert not story.copies(payload)
    story.run(5_000)
    assert story.copies(payload) == 1


def test_a_subscriber_that_cannot_be_reached_yet_is_waited_for():
    """Two subscribers, the other one paused: its home knows of it, and one copy is not enough."""
    story = Story(all_want("ab") | {"c": ("other",)}, (("a", "b"),), publish_timeout_ms=60_000)
    story.engine.pause("b")
    payload = story.publish("a")
    story.run(8_000)
    assert not story.copies(payload)
    story.engine.resume("b")
    story.run(30_000)
    assert story.copies(payload) == 2


def test_a_publisher_that_does_not_subscribe_finds_the_topic_and_is_forgotten_again():
    interests = {**all_want("abcd"), "p": ("other",), "q": ("other",)}
    story = Story(interests, (*chain(*"abcd"), ("p", "q")))
    payload = story.publish("p")
    story.run(15_000)
    assert story.copies(payload) >= 2
    assert story.delivered(payload) == set("abcd")  # and p, which published it, does not get it
    assert not mesh_of(story.engine.world, "q").delivery.state.topics.get("t")
    story.run(90_000)
    assert mesh_of(story.engine.world, "p").overlay.interest == story.engine.world.topics.bits(("other",))


def test_publishers_that_know_only_each_other_are_no_copies():
    """They were, until the topic's home found them, 18 s later: what they had acknowledged died with them."""
    story = Story({**all_want("abc"), **all_want("fg", "u")}, (*chain(*"abc"), ("f", "g")))
    Injector(story.engine, Schedule((Fault(READY_MS, "partition", ("f", "g"), duration_ms=3_000),)))
    story.run(1_000)
    payloads = [story.publish("f"), story.publish("g")]
    story.run(1_000)
    assert [story.copies(one) for one in payloads] == [0, 0]
    story.run(15_000)
    story.engine.crash("f")
    story.engine.crash("g")
    story.end()
    assert [story.copies(one) for one in payloads] == [2, 2]
    assert [story.delivered(one) for one in payloads] == [set("abc")] * 2


def test_what_nobody_subscribes_to_is_acknowledged_at_once_when_that_is_known():
    """f and g have linked to each other on it: the home is asked with the publication, not after a second."""
    story = Story({**all_want("abc"), **all_want("fg", "u"), "z": ("rare",)}, (*chain(*"abc"), ("f", "g")), absent="z")
    story.publish("f", "rare")
    story.publish("g", "rare")
    story.run(5_000)
    payload = story.publish("f", "rare")
    story.engine.run(story.engine.world.now_ms + 200)
    assert story.copies(payload) == 1


def test_who_unsubscribes_passes_on_what_it_holds_and_gets_nothing_more():
    story = Story(all_want("abc", "t", "u"), chain(*"abc"), copies=1)
    before = story.publish("b")
    story.engine.unsubscribe("b", "t")
    after = story.publish("a")
    story.end()
    assert story.delivered(before) >= {"a", "c"}
    assert story.delivered(after) == {"a", "c"}
    topics = mesh_of(story.engine.world, "b").delivery.state.topics.values()
    assert {stream.id.origin for topic in topics for stream in topic.streams.values() if stream.entries} <= {"b"}


def test_who_subscribes_again_gets_nothing_twice():
    story = Story(all_want("abc", "t", "u"), chain(*"abc"))
    before = [story.publish("a") for _ in range(3)]
    story.run(1_000)
    story.engine.unsubscribe("b", "t")
    story.run(10_000)
    meanwhile = story.publish("a")
    story.engine.subscribe("b", "t")
    story.run(20_000)
    after = story.publish("a")
    story.end()  # the ledger raises where something comes twice
    assert all("b" in story.delivered(one) for one in [*before, after])
    assert "b" not in story.delivered(meanwhile)


def test_many_changes_of_subscriptions_are_one_change_of_the_overlay():
    topics = [f"t{number}" for number in range(20)]
    story = Story({"a": ("x",), "b": ("x", *topics), "c": ("x", "y")}, chain(*"abc"))
    omen = mesh_of(story.engine.world, "c").overlay.node
    before = omen.repairs._numbers
    for topic in topics:
        story.engine.subscribe("c", topic)
    story.engine.unsubscribe("c", topics[0])  # within the same batch: as if nothing had been said
    story.run(20_000)
    assert omen.repairs._numbers - before <= 1
    assert set(omen.me.topics) == {"x", "y", *topics[1:]}
    story.run(30_000)
    payload = story.publish("b", "t7")
    story.run(2_000)
    assert story.delivered(payload) == {"b", "c"}
    before = omen.repairs._numbers
    for topic in topics[1:]:
        story.engine.unsubscribe("c", topic)
    story.run(30_000)
    assert omen.repairs._numbers - before <= 2  # t7, of which something is held, may take longer than the others
    assert omen.me.topics == ("x", "y")


def test_a_quiet_mesh_sends_each_message_about_once_per_delivery():
    interests = draw_interests(InstanceDraw(nodes=16, topics=4, subscriptions=3), 5)
    story = Story(interests, _planned(interests, 5, 1))
    for name, topics in interests.items():  # trees form
        story.publish(name, topics[0])
        story.run(1_000)
    before = {name: (story.counters(name).pushes_in, story.counters(name).delivered) for name in interests}
    published = 0
    for _ in range(4):
        for name, topics in interests.items():
            story.publish(name, topics[-1])
            published += 1
            story.run(1_000)
    story.run(2_000)
    pushes = sum(story.counters(name).pushes_in - before[name][0] for name in interests)
    deliveries = sum(story.counters(name).delivered - before[name][1] for name in interests) - published
    assert deliveries > 200
    assert pushes / deliveries <= 1.3


@pytest.mark.parametrize("overlay", ["spidercast", "vitis", "magnet"])
def test_the_other_overlays_deliver_as_well(overlay):
    story = Story(all_want("abcdefgh"), overlay=overlay)
    payloads = [story.publish(name) for name in "abcdefgh"]
    story.run(2_000)
    story.engine.crash("a")
    story.run(20_000)
    payloads += [story.publish(name) for name in "bcdefgh"]
    story.run(20_000)
    assert all(story.copies(one) >= 2 and story.delivered(one) >= set("bcdefgh") for one in payloads)


@pytest.mark.parametrize("options", [{"overlay": "scribe"}, {"copies": 0}, {"window": 0.0}, {"windw_ms": 3}])
def test_parameters_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError):
        Delivery(**options)


def test_a_link_that_is_never_idle_announces_what_is_lazy_on_it():
    """One topic always has something waiting for the link; what another one only announces must get through."""
    story = Story(all_want("ab", "busy", "quiet"), chain(*"ab"), flight_bytes=600, copies=1)
    link = mesh_of(story.engine.world, "a").delivery.state.channels["b"]
    topic_links = mesh_of(story.engine.world, "a").delivery.state.topics["quiet"].links
    topic_links["b"].is_eager = False
    payload = story.publish("a", "quiet")
    was_idle = 0
    for _ in range(300):
        for _ in range(12):
            story.publish("a", "busy")
        story.engine.run(story.engine.world.now_ms + 20)
        was_idle += not link.waiting
        if story.delivered(payload) == {"a", "b"}:
            break
    assert not was_idle
    assert story.delivered(payload) == {"a", "b"}


def test_a_topic_that_always_announces_does_not_keep_others_from_it():
    """Both are lazy on the only link; "busy" is looked at first, and has news in every round."""
    story = Story(all_want("ab", "busy", "quiet"), chain(*"ab"), copies=1, announce_rounds=4)
    topics = mesh_of(story.engine.world, "a").delivery.state.topics
    assert next(iter(topics)) == "busy"
    payload = None
    for number in range(50):
        for topic in topics.values():
            topic.links["b"].is_eager = False  # a pull makes it eager again
        story.publish("a", "busy")
        if number == 10:
            payload = story.publish("a", "quiet")
        story.engine.run(story.engine.world.now_ms + 40)
    assert story.delivered(payload) == {"a", "b"}
