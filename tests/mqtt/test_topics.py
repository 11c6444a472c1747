"""Filters and overlay topics: nothing missed, nothing foreign, against a plain matcher."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reference import mqtt as plain
from trellis.protocols.mqtt.matcher import FilterTree
from trellis.protocols.mqtt.topics import (
    covers,
    has_wildcard,
    is_filter,
    is_topic,
    matches,
    overlay_topic,
    pattern_of,
)

LEVELS = st.sampled_from(["", "a", "b", "$", "$SYS", "ü", "北", " "])
TOPICS = st.lists(LEVELS, min_size=1, max_size=6).map("/".join).filter(bool)


@st.composite
def filters(draw: st.DrawFn) -> str:
    levels = draw(st.lists(LEVELS | st.just("+"), max_size=5))
    if draw(st.booleans()) or not levels:
        levels.append("#")
    text = "/".join(levels)
    assume(text)
    return text


@given(st.text(alphabet="a/+#$\0ü", max_size=8))
def test_a_filter_is_valid_as_the_standard_says(text):
    assert is_filter(text) == plain.is_filter(text)


@given(filters(), TOPICS)
def test_a_filter_matches_as_the_standard_says(filter_, topic):
    assert matches(filter_, topic) == plain.matches(filter_, topic)


@given(st.lists(filters(), max_size=12), st.lists(st.integers(0, 11), max_size=6), TOPICS)
def test_the_tree_finds_every_filter_that_matches_and_no_other(listed, removed, topic):
    tree: FilterTree[int, str] = FilterTree()
    for owner, filter_ in enumerate(listed):
        assert tree.put(filter_, owner, filter_)
    for owner in dict.fromkeys(removed):
        assert tree.remove(listed[owner], owner) if owner < len(listed) else True
    left = [owner for owner in range(len(listed)) if owner not in removed]
    found = list(tree.matching(topic))
    assert sorted(owner for owner, _ in found) == [one for one in left if plain.matches(listed[one], topic)]
    assert tree.count == len(left)
    for owner in left:
        tree.remove(listed[owner], owner)
    assert not tree._root.below


@given(filters(), TOPICS, st.integers(1, 4))
def test_a_filter_that_matches_a_topic_covers_its_overlay_topic(filter_, topic, depth):
    """T1. Filters that begin with `$` never become interests."""
    if plain.matches(filter_, topic):
        assert covers(pattern_of(filter_, depth), overlay_topic(topic, depth), depth)


@given(filters(), TOPICS, st.integers(1, 4))
def test_a_filter_covers_no_overlay_topic_in_which_it_matches_nothing(filter_, topic, depth):
    """T2, by a witness: the overlay topic's own levels, then what the filter asks for below them."""
    prefix = overlay_topic(topic, depth)
    if covers(pattern_of(filter_, depth), prefix, depth):
        levels = topic.split("/")[:depth]
        asked = filter_.split("/")[len(levels) :] if len(levels) == depth else []
        witness = "/".join([*levels, *("x" if one in ("+", "#") else one for one in asked)])
        shorter = "/".join(levels)
        assert plain.matches(filter_, witness) or plain.matches(filter_, shorter)


@given(TOPICS, TOPICS, st.integers(1, 4))
def test_two_topics_share_an_overlay_topic_when_they_share_their_first_levels(one, other, depth):
    assert (overlay_topic(one, depth) == overlay_topic(other, depth)) == (
        plain.prefix(one, depth) == plain.prefix(other, depth)
    )


@given(TOPICS, st.integers(1, 4))
def test_an_overlay_topic_has_a_name(topic, depth):
    assert 0 < len(overlay_topic(topic, depth)) <= len(topic)


@pytest.mark.parametrize(
    ("filter_", "depth", "pattern"),
    [
        ("a/b/c", 2, "a/b"),
        ("a/b/#", 2, "a/b"),
        ("a/b/+/d", 2, "a/b"),
        ("a", 2, "a"),
        ("a/#", 2, "a/#"),
        ("a/+", 2, "a/+"),
        ("a/+/c", 2, "a/+"),
        ("#", 2, "#"),
        ("a/b/#", 3, "a/b/#"),
        ("/x", 1, "/"),
        ("a/#", 1, "a"),
    ],
)
def test_what_a_filter_asks_of_overlay_topics(filter_, depth, pattern):
    assert pattern_of(filter_, depth) == pattern
    assert has_wildcard(pattern) == (pattern in ("a/#", "a/+", "#", "a/b/#"))


@pytest.mark.parametrize("text", ["", "a/+", "#", "a\0b", "$SYS/broker", "$share/g/a"])
def test_a_client_may_not_publish_there(text):
    assert not is_topic(text)
