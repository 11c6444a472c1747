"""What one client can make a node do at once is bounded: the work is counted here, not the time that it takes."""

from __future__ import annotations

from collections import Counter, OrderedDict

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mqtt.desk import WALL_MS, Desk, Talker
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import Ask, Envelope, Introduce, unwrap
from trellis.protocols.mqtt.interests import Interests
from trellis.protocols.mqtt.introductions import Introductions
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.pattern_holders import PatternHolders
from trellis.protocols.mqtt.prefixes import Prefixes
from trellis.protocols.mqtt.retained import Retained
from trellis.protocols.mqtt.sorted_topics import SortedTopics
from trellis.protocols.mqtt.topics import covers, has_wildcard, matches, overlay_topic, pattern_of

ONCE_MAX = 1_000  # messages that one input may cause


@pytest.fixture
def lookups(monkeypatch) -> Counter[str]:
    """Count the overlay topics that are looked up among patterns."""
    counts: Counter[str] = Counter()
    matching = FilterTree.matching

    def count(tree, topic):
        counts["lookups"] += 1
        return matching(tree, topic)

    monkeypatch.setattr(FilterTree, "matching", count)
    return counts


def retain(desk: Desk, topics: list[str]) -> None:
    for number, topic in enumerate(topics, start=1):
        desk.host.recaller.put("n", Retained("n", Envelope(topic, b"old", 0, True, "w", 1, number, WALL_MS - 1)))
    desk.carry_out()


def publications(client: Talker) -> list[p.Publish]:
    found = [one for one in client.got if isinstance(one, p.Publish)]
    client.got.clear()
    return found


# Retained messages


def test_a_filter_that_stands_several_times_in_a_packet_counts_once_with_its_last_options():
    desk = Desk(subscriptions_max=2)
    retain(desk, ["r/1/a", "r/1/b"])
    client = desk.welcome()
    asked = [p.Asked("r/1/#", 0), *[p.Asked("r/1/#", 2)] * 100, p.Asked("$other/x", 1), p.Asked("r/1/#", 0)]
    codes = client.subscribe(*asked, p.Asked("r/1/#", 1))
    assert codes == (0, *[2] * 100, 0x8F, 0, 1)
    assert sorted(one.topic for one in publications(client)) == ["r/1/a", "r/1/b"]
    (session,) = desk.host.sessions.values()
    assert [(one, options.qos) for one, options in session.subscriptions.items()] == [("r/1/#", 1)]


def test_one_entry_that_wants_retained_messages_suffices():
    desk = Desk()
    retain(desk, ["r/1/a"])
    client = desk.welcome()
    client.subscribe(p.Asked("r/1/#", 1, retain_handling=1), p.Asked("r/1/#", 1, retain_handling=2))
    assert len(publications(client)) == 1
    client.subscribe(p.Asked("r/1/#", 1, retain_handling=1), p.Asked("r/1/#", 1, retain_handling=2))
    assert not publications(client)
    client.subscribe(p.Asked("r/1/#", 1, retain_handling=0), p.Asked("r/1/#", 1, retain_handling=2))
    assert len(publications(client)) == 1


def test_retained_messages_for_many_filters_are_sent_over_several_turns():
    desk = Desk()
    topics = [f"r/1/{number}" for number in range(1_500)]
    retain(desk, topics)
    greedy, modest = desk.welcome("greedy"), desk.welcome("modest")
    filters = ["r/1/#", "r/1/+", "r/1/+/#"]
    assert greedy.subscribe(*[p.Asked(one, 0) for one in filters]) == (0, 0, 0)
    assert isinstance(greedy.got[0], p.SubAck)
    found = publications(greedy)
    assert len(found) < ONCE_MAX, "all of them at once"
    for _ in range(8):
        greedy.subscribe(*[p.Asked(one, 0) for one in filters])
        found += publications(greedy)
    assert len(found) < ONCE_MAX, "each packet does more work within one turn"
    modest.subscribe("r/1/7")
    desk.pass_time(200)
    assert [one.topic for one in publications(modest)] == ["r/1/7"], "it waits for the other client"
    greedy.got.clear()
    desk.pass_time(20_000)
    times = Counter(one.topic for one in publications(greedy))
    assert times.keys() == set(topics)
    assert max(times.values()) <= len(filters)
    assert not desk.host.has_more


def test_a_message_that_a_client_got_meanwhile_is_not_sent_again_as_retained():
    desk = Desk()
    retain(desk, [f"r/1/{number:04}" for number in range(1_500)])
    client, writer = desk.welcome(), desk.welcome("w")
    client.subscribe(p.Asked("r/1/#", 0))
    writer.publish("r/1/1499", b"new", retain=True)
    writer.publish("r/1/1498", b"", retain=True)
    desk.pass_time(5_000)
    found = [(one.topic, one.payload) for one in publications(client)]
    assert [one for one in found if one[0] == "r/1/1499"] == [("r/1/1499", b"new")]
    assert [one for one in found if one[0] == "r/1/1498"] == [("r/1/1498", b"")]
    assert len(found) == 1_500


def test_messages_that_other_nodes_tell_are_matched_with_the_new_subscriptions_through_a_tree(lookups):
    """Each is looked up once, however many subscriptions are new."""
    desk = Desk()
    client = desk.welcome()
    client.subscribe(*[f"r/1/{number}" for number in range(900)])
    client.got.clear()
    lookups.clear()
    desk.host.deliveries.recollections.told(Retained("m", Envelope("r/1/7", b"x", 0, True, "w", 1, 1, WALL_MS)))
    desk.carry_out()
    assert [one.topic for one in publications(client)] == ["r/1/7"]
    assert lookups["lookups"] == 1


names = st.lists(st.sampled_from(["", "a", "a!", "b", "0", "$"]), min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.tuples(
    st.lists(st.sampled_from(["", "a", "a!", "b", "+", "$"]), max_size=4), st.sampled_from([[], ["#"], ["+"], ["a"]])
).map(lambda one: "/".join([*one[0], *one[1]]))


@given(topics=st.sets(names, max_size=12), gone=st.sets(names, max_size=6), filter_=filters.filter(bool))
def test_the_order_of_topics_finds_exactly_what_matches(topics, gone, filter_):
    found = SortedTopics()
    for topic in sorted(topics | gone, key=len):
        found.add(topic)
    for topic in gone - topics:
        found.discard(topic)
    matched = [one for one in found.walk(filter_) if one is not None]
    assert sorted(matched) == sorted(one for one in topics if matches(filter_, one))


def test_retained_messages_that_cannot_match_are_not_looked_at():
    desk = Desk()
    retain(desk, [f"r/{number % 50}/{number}" for number in range(2_000)])
    assert len(list(desk.host.retained.walk("r/7/#"))) <= 41
    assert len(list(desk.host.retained.walk("r/+/7"))) <= 51 + 50
    assert len(list(desk.host.retained.walk("r/7/+/+/+/#"))) <= 41
    assert len(list(desk.host.retained.walk("s/#"))) <= 1


# Wildcards


@given(topics=st.sets(names, max_size=12), pattern=filters.filter(bool), depth=st.integers(1, 5))
def test_the_lists_of_overlay_topics_find_exactly_what_a_pattern_covers(topics, pattern, depth):
    pattern = pattern_of(pattern, depth)
    if not has_wildcard(pattern):
        return
    found = Prefixes(depth)
    prefixes = {overlay_topic(one, depth) for one in topics}
    for prefix in sorted(prefixes):
        found.add(prefix)
    found.check()
    assert sorted(found.fitting(pattern)) == sorted(one for one in prefixes if covers(pattern, one, depth))
    for prefix in sorted(prefixes):
        found.discard(prefix)
    found.check()
    assert not len(found)


def test_the_end_of_many_patterns_looks_only_at_the_topics_that_they_cover(lookups):
    interests = Interests(2)
    interests.add("#")
    for number in range(5_000):
        interests.learn(f"u{number}/x", 1)
    interests.learn("u1/w7", 1)
    patterns = [f"+/w{number}" for number in range(300)]
    for pattern in patterns:
        interests.add(pattern)
    lookups.clear()
    for pattern in patterns:
        interests.remove(pattern)
    assert lookups["lookups"] <= 2 * len(patterns)
    assert len(interests.known) == 5_001
    interests.tick()
    interests.add("u1/+")
    lookups.clear()
    interests.remove("#")
    assert lookups["lookups"] <= 2_100, "all of them at once"
    interests.check()
    for _ in range(3):
        interests.tick()
    assert sorted(interests.known) == ["u1/w7", "u1/x"]
    interests.check()


@given(
    topics=st.sets(names, max_size=8),
    before=st.lists(filters.filter(bool), max_size=6),
    rest=st.integers(0, 6),
    depth=st.integers(1, 3),
)
@example(topics={"a"}, before=["#", "/#"], rest=0, depth=2)  # neither covers the other
def test_the_patterns_that_remain_decide_which_topics_stay_known(topics, before, rest, depth):
    interests = Interests(depth)
    for filter_ in before:
        interests.add(filter_)
    for topic in sorted(topics):
        interests.learn(overlay_topic(topic, depth), 1)
    known = list(interests.known)
    for filter_ in before[rest:]:
        interests.remove(filter_)
    interests.check()
    assert sorted(interests.known) == sorted(one for one in known if interests.is_covered(one))


def introduced(emits: list[tuple[str, bytes, str]]) -> list[str]:
    said = [unwrap(payload) for _, payload, _ in emits]
    emits.clear()
    return [prefix for one in said if isinstance(one, Introduce) for prefix in one.prefixes]


def test_a_new_pattern_looks_only_at_topics_in_use_that_fit_and_not_at_all_of_these_at_once(lookups):
    emits: list[tuple[str, bytes, str]] = []
    holders = PatternHolders(2)
    work = Introductions(MqttConfig(listen="127.0.0.1:0"), holders, emits)
    topics = [f"u{number}/x" for number in range(10_000)]
    for number, topic in enumerate([*topics, "u1/w"], start=1):
        work.publishes(topic, number, True, False)
    lookups.clear()
    holders.hear("m", Ask(1, 2, ("+/w",), (1,), 1), 0)
    work.on_new("m", ["+/w"])
    assert lookups["lookups"] == 0
    assert introduced(emits) == ["u1/w"]
    holders.hear("m", Ask(1, 2, ("#",), (2,), 2), 0)
    work.on_new("m", ["#"])
    found = introduced(emits)
    assert 0 < len(found) < 5_000, "all of them at once"
    assert lookups["lookups"] == 0
    assert work.publishes("u9999/x", 20_000, True, False)[0] == ("$mqtt/all",), "copies begin at once"
    for _ in range(10):
        work.tick()
        found += introduced(emits)
    assert sorted(found) == sorted([*topics, "u1/w"])
    work.check()


def test_a_tick_looks_only_at_the_topics_in_use_that_are_oldest():
    class Watched(OrderedDict):
        looks = 0

        def __iter__(self):
            for key in super().__iter__():
                self.looks += 1
                yield key

        def items(self):
            return [(key, self[key]) for key in self]

    work = Introductions(MqttConfig(listen="127.0.0.1:0", active_s=10), PatternHolders(2), [])
    work.active = active = Watched()
    for number in range(1, 1_001):
        work.now_ms = number
        work.publishes(f"u{number}/x", number, True, False)
    active.looks = 0
    work.tick()
    assert active.looks <= 2
    work.now_ms = 10_010
    work.tick()
    assert len(active) == 990
    assert active.looks <= 20
