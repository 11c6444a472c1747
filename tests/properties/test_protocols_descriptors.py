"""Descriptor tables against a slow reading of the rule: latest life, then youngest; no old or buried ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trellis.protocols.descriptors import Descriptor, DescriptorTable

AGE_MAX = 5
descriptors = st.builds(
    Descriptor,
    st.sampled_from(["me", "a", "b", "c"]),
    st.integers(0, 8),
    st.integers(1, 3),
    st.sampled_from([(), ("x",), ("x", "y")]),
)
steps = st.lists(
    st.one_of(st.lists(descriptors, max_size=4), st.just("round"), st.sampled_from(["bury a", "bury b"])), max_size=25
)


@given(steps)
def test_a_table_keeps_the_latest_life_and_of_that_the_youngest(script):
    table = DescriptorTable("me", AGE_MAX)
    now, known, graves = 0, {}, {}  # known: node -> (incarnation, born)
    for step in script:
        if step == "round":
            now += 1
            table.advance()
            known = {node: news for node, news in known.items() if now - news[1] <= AGE_MAX}
            graves = {node: grave for node, grave in graves.items() if now - grave[0] <= AGE_MAX}
        elif isinstance(step, str):
            node = step.split()[1]
            table.bury(node)
            graves[node] = (now, known.pop(node, (10**9,))[0])
        else:
            table.merge(step)
            for descriptor in step:
                node, news = descriptor.node, (descriptor.incarnation, now - descriptor.age)
                dead = node in graves and news[0] <= graves[node][1] and news[1] <= graves[node][0]
                fresh = node not in known and not dead
                newer = node in known and news > known[node]
                if node != "me" and descriptor.age <= AGE_MAX and (fresh or newer):
                    known[node] = news
        table.check()
        told = {item.node: (item.incarnation, table.round - item.age) for item in table.describe()}
        assert told == known


@given(st.lists(descriptors, max_size=10))
def test_the_order_of_news_does_not_matter(news):
    forth, back = DescriptorTable("me", AGE_MAX), DescriptorTable("me", AGE_MAX)
    forth.merge(news)
    back.merge(reversed(news))
    ages = [{(item.node, item.incarnation, item.age) for item in table.describe()} for table in (forth, back)]
    assert ages[0] == ages[1]


def test_what_the_dead_left_behind_fades_although_others_repeat_it():
    """A-SUB-2: two nodes tell each other about a third that is gone; neither believes it for longer than age_max."""
    one, other = DescriptorTable("one", AGE_MAX), DescriptorTable("other", AGE_MAX)
    one.merge([Descriptor("dead")])
    for _ in range(AGE_MAX + 1):
        assert "dead" in one
        other.merge(one.describe())
        one.merge(other.describe())
        one.advance()
        other.advance()
    assert "dead" not in one
    assert "dead" not in other


def test_a_buried_node_comes_back_by_its_own_word_or_in_a_new_life_only():
    table = DescriptorTable("me", AGE_MAX)
    table.merge([Descriptor("a", age=3)])
    table.bury("a")
    table.merge([Descriptor("a", age=0)])  # somebody heard of it right before it went
    assert "a" not in table
    table.merge([Descriptor("a", age=0, incarnation=2)])
    assert "a" in table
    table.bury("a")
    table.advance()
    table.merge([Descriptor("a", age=0, incarnation=2)])  # made after we buried it: it lives
    assert "a" in table


def test_a_hop_costs_as_much_as_a_round():
    """Otherwise a copy that always moves on to somebody who has just had a round would never grow old."""
    table = DescriptorTable("me", AGE_MAX)
    table.merge([Descriptor("a", age=2)])
    assert table.describe(hops=1) == [Descriptor("a", age=3)]
