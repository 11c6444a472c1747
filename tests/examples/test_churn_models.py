"""Churn models: who comes and goes, when, and with which interests.

Statistical checks are at level LEVEL with fixed seeds: a correct model fails one seed in ten thousand.
"""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest

from lazy import stats
from trellis.errors import InputError
from trellis.model.churn import Event, replay
from trellis.model.interests import Interests
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import FlashCrowd, OnOff, RandomChurn, churn_named
from trellis.workloads.configs import Uniform, Zipf
from trellis.workloads.generate import generate
from trellis.workloads.sizes import Sizes

LEVEL = 1e-4


@pytest.fixture(scope="module")
def base() -> Interests:
    return generate(Zipf(200, 50, Sizes(3, 10), alpha=1.0), seed=1)


def joins(trace, interests):
    return [event for event in replay(trace, interests) if event.event is Event.join]


def test_random_churn_joins_or_leaves_once_a_round_with_equal_chance(base):
    events = list(replay(churn(RandomChurn(rounds=2000), base, seed=2), base))
    assert [event.time for event in events] == list(range(1, 2001))
    kinds = Counter(event.event for event in events)
    assert kinds.keys() == {Event.join, Event.leave}
    assert stats.binomtest(kinds[Event.join], 2000, 0.5).pvalue > LEVEL


def test_the_leaver_is_any_present_node():
    """The second event of three rounds, where the first was a join: old nodes and the new one alike."""
    four = Interests.from_pairs({f"n{node}": ["t1"] for node in range(4)})
    leavers: Counter[str] = Counter()
    for seed in range(3000):
        first, second = replay(churn(RandomChurn(rounds=2, joiners="copy"), four, seed), four)
        if (first.event, second.event) == (Event.join, Event.leave):
            leavers[second.node] += 1
    assert leavers.keys() == {"n0", "n1", "n2", "n3", "j1"}
    assert stats.chisquare(list(leavers.values())).pvalue > LEVEL


def test_a_joiner_is_always_new(base):
    events = list(replay(churn(RandomChurn(rounds=1000), base, seed=3), base))
    newcomers = [event.node for event in events if event.event is Event.join]
    assert newcomers == [f"j{number}" for number in range(1, len(newcomers) + 1)]


def test_a_joiner_never_takes_the_name_of_an_initial_node():
    named_alike = Interests.from_pairs({"j1": ["a"], "j3": ["a"], "x": ["b"]})
    trace = churn(FlashCrowd(joins=3), named_alike, seed=1)
    assert [event.node for event in joins(trace, named_alike)] == ["j2", "j4", "j5"]


def test_the_last_node_does_not_leave():
    alone = Interests.from_pairs({"a": ["t"]})
    present = 1
    for event in replay(churn(RandomChurn(rounds=500), alone, seed=4), alone):
        present += 1 if event.event is Event.join else -1
        assert present >= 1


def test_joiners_copy_an_initial_node(base):
    known = {tuple(base.topics.take(base.topics_of(node)).to_pylist()) for node in range(len(base.nodes))}
    copied = [event.topics for event in joins(churn(FlashCrowd(joins=300, joiners="copy"), base, seed=5), base)]
    assert set(copied) <= known
    assert len(set(copied)) > 100


def test_joiners_by_popularity_have_sizes_and_topics_as_the_initial_nodes_do():
    base = generate(Uniform(300, 20, Sizes(1, 1)), seed=6)
    base = Interests.from_ids(base.nodes, base.topics, np.arange(300), (np.arange(300) ** 2 // 6000))
    crowd = joins(churn(FlashCrowd(joins=20_000), base, seed=7), base)
    counts = Counter(topic for event in crowd for topic in event.topics)
    observed = [counts[name] for name in base.topics]
    expected = base.popularity / base.popularity.sum() * 20_000
    assert all(len(event.topics) == 1 for event in crowd)
    assert [count for count, wanted in zip(observed, expected, strict=True) if wanted == 0] == [0] * 5
    assert stats.chisquare(*(np.array(side)[expected > 0] for side in (observed, expected))).pvalue > LEVEL


def test_joiners_by_popularity_have_the_sizes_of_initial_nodes(base):
    crowd = joins(churn(FlashCrowd(joins=10_000), base, seed=8), base)
    sizes = np.bincount([len(event.topics) for event in crowd], minlength=11)[3:]
    initial = np.bincount(base.sizes, minlength=11)[3:]
    assert stats.chisquare(sizes, initial / 200 * 10_000).pvalue > LEVEL


def test_joiners_from_a_workload_are_its_next_nodes(base):
    config = Zipf(200, 50, Sizes(3, 10), alpha=1.0)
    longer = generate(Zipf(240, 50, Sizes(3, 10), alpha=1.0), seed=1)
    crowd = joins(churn(FlashCrowd(joins=40, joiners=config), base, seed=1), base)
    expected = [tuple(longer.topics.take(longer.topics_of(node)).to_pylist()) for node in range(200, 240)]
    assert [event.topics for event in crowd] == expected
    same = churn(FlashCrowd(joins=40, joiners="zipf:topics=50,subs=3:10,alpha=1"), base, seed=1)
    assert [event.topics for event in joins(same, base)] == expected


def test_joiners_with_foreign_topics_are_refused():
    social = Interests.from_pairs({"ann": ["bob"], "bob": ["ann"]})
    with pytest.raises(InputError, match="--joiners zipf: its topics t1 to t200 are none of those in the interests"):
        churn(FlashCrowd(joins=1, joiners="zipf"), social, seed=1)


def test_onoff_nodes_are_up_four_fifths_of_the_time_from_the_very_start():
    base = Interests.from_pairs({f"n{node}": ["t1"] for node in range(3000)})
    trace = churn(OnOff(mean_up=100.0, duration=400.0, joiners="copy"), base, seed=9)
    events = list(replay(trace, base))
    first_event: dict[str, Event] = {}
    for event in events:
        first_event.setdefault(event.node, event.event)
    present = 3000 - sum(event is Event.join for event in first_event.values())
    checkpoints = {0.0: present}
    for event in events:
        present += 1 if event.event is Event.join else -1
        for time in (100.0, 200.0, 300.0, 400.0):
            if event.time <= time:
                checkpoints[time] = present
    assert len(checkpoints) == 5
    for count in checkpoints.values():
        assert stats.binomtest(count, 3000, 0.8).pvalue > LEVEL


def test_onoff_times_up_and_down_are_exponential_with_means_m_and_a_quarter_of_m():
    base = Interests.from_pairs({f"n{node}": ["t1"] for node in range(1500)})
    trace = churn(OnOff(mean_up=10.0, duration=300.0, joiners="copy"), base, seed=10)
    at: dict[str, list[tuple[float, Event]]] = defaultdict(list)
    for event in replay(trace, base):
        at[event.node].append((event.time, event.event))
    up, down = [], []
    for times in at.values():  # the second and third event of each node: far from both ends of the trace
        (begin, kind), (middle, _), (end, _) = times[1:4]
        first, second = middle - begin, end - middle
        up.append(first if kind is Event.join else second)
        down.append(second if kind is Event.join else first)
    assert stats.kstest(up, "expon", args=(0, 10.0)).pvalue > LEVEL
    assert stats.kstest(down, "expon", args=(0, 2.5)).pvalue > LEVEL


def test_an_onoff_node_that_is_away_at_the_start_joins_even_behind_the_end():
    """Without its join it would count as present: a trace has no other way to say that it is away."""
    base = Interests.from_pairs({f"n{node}": ["t1"] for node in range(2000)})
    events = list(replay(churn(OnOff(mean_up=100.0, duration=1.0, joiners="copy"), base, seed=11), base))
    behind = [event for event in events if event.time > 1.0]
    assert behind
    assert {event.event for event in behind} == {Event.join}
    assert stats.binomtest(sum(event.event is Event.join for event in events), 2000, 0.2).pvalue > LEVEL


def test_an_onoff_node_returns_with_new_interests_each_time(base):
    config = OnOff(mean_up=50.0, duration=1000.0, joiners="zipf:topics=50,subs=5,alpha=0")
    returns: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for event in joins(churn(config, base, seed=12), base):
        returns[event.node].append(event.topics)
    assert all(len(topics) == len(set(topics)) for topics in returns.values())
    assert max(len(topics) for topics in returns.values()) > 10


def test_one_onoff_node_does_not_depend_on_the_others():
    few = Interests.from_pairs({f"n{node}": ["t1"] for node in range(5)})
    many = Interests.from_pairs({f"n{node}": ["t1"] for node in range(50)})
    config = OnOff(joiners="copy")
    mine, theirs = (
        [(event.time, event.event) for event in replay(churn(config, over, seed=1), over) if event.node == "n3"]
        for over in (few, many)
    )
    assert mine == theirs != []


def test_a_flash_crowd_is_half_as_many_again_within_its_window(base):
    crowd = joins(churn(FlashCrowd(), base, seed=13), base)
    assert len(crowd) == 100
    times = np.array([event.time for event in crowd])
    assert stats.kstest((times - 60) / 10, "uniform").pvalue > LEVEL
    at_once = joins(churn(FlashCrowd(joins=7, window=0.0, start=5.0), base, seed=13), base)
    assert [event.time for event in at_once] == [5.0] * 7


def test_the_same_seed_gives_the_same_trace_and_another_seed_does_not(base):
    for name in ("random", "onoff", "flash-crowd", "crash-groups"):
        config = churn_named(name)
        table = churn(config, base, seed=1).to_table()
        assert table.equals(churn(config, base, seed=1).to_table())
        assert not table.equals(churn(config, base, seed=2).to_table())


def test_the_short_names_of_the_experiments_are_aliases():
    assert churn_named("coin") == churn_named("random")
    assert churn_named("crash-k") == churn_named("crash-groups")


def test_churn_of_nobody_is_refused():
    with pytest.raises(InputError, match="the interests have no nodes"):
        churn(RandomChurn(), Interests.from_pairs([]), seed=1)
