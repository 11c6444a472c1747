"""Every trace of every churn model can happen, over any instance."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from strategies import interests, overlays, seeds
from trellis.model.churn import Event, replay
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import CrashGroups, FlashCrowd, OnOff, RandomChurn

joiners = st.sampled_from(["popularity", "copy", "zipf:topics=9,subs=1:9,alpha=1.5", "low:topics=25,buckets=5,subs=10"])
joining_models = st.one_of(
    st.builds(RandomChurn, rounds=st.integers(1, 60), joiners=joiners),
    st.builds(
        OnOff,
        mean_up=st.floats(0.1, 100),
        mean_down=st.none() | st.floats(0.1, 100),
        duration=st.floats(0.01, 20),
        joiners=joiners,
    ),
    st.builds(
        FlashCrowd,
        joins=st.none() | st.integers(1, 30),
        fraction=st.floats(0.01, 3),
        window=st.floats(0, 5),
        joiners=joiners,
    ),
)


@given(interests(topics_max=8), joining_models, seeds)
def test_a_trace_with_joiners_replays_over_its_interests(base, config, seed):
    # The strategy names topics t0 .. t7; a workload's begin with t1. Only an instance of t0 alone shares none.
    if len(base.topics) == 1:
        config = msgspec.structs.replace(config, joiners="copy")
    trace = churn(config, base, seed)
    for event in replay(trace, base):
        assert (len(event.topics) > 0) == (event.event is Event.join)
    used = trace.topic[trace.topic >= 0]
    assert np.array_equal(np.unique(used), np.arange(len(trace.topics)))
    assert np.array_equal(np.unique(trace.node), np.arange(len(trace.nodes)))


@given(interests(nodes_max=12), joining_models, seeds)
def test_joiners_by_popularity_or_copy_only_have_topics_that_somebody_has(base, config, seed):
    for source in ("popularity", "copy"):
        trace = churn(msgspec.structs.replace(config, joiners=source), base, seed)
        assert set(trace.topics) <= set(base.topics)


@st.composite
def crash_cases(draw):
    base = draw(interests().filter(lambda instance: len(instance.nodes) > 1))
    size = draw(st.integers(1, len(base.nodes) - 1))
    config = CrashGroups(
        size=size,
        groups=draw(st.integers(1, (len(base.nodes) - 1) // size)),
        placement=draw(st.sampled_from(["uniform", "ring", "overlay", "hub"])),
        interval=draw(st.floats(0.1, 20)),
        window=draw(st.floats(0, 30)),
        rejoin_after=draw(st.none() | st.floats(0.1, 50)),
    )
    return base, config, draw(overlays(base))


@given(crash_cases(), seeds)
def test_crash_groups_replay_and_never_take_a_node_twice(case, seed):
    base, config, overlay = case
    events = list(replay(churn(config, base, seed, overlay), base))
    crashes = Counter(event.node for event in events if event.event is Event.crash)
    assert len(crashes) == config.size * config.groups
    assert set(crashes.values()) == {1}
    returns = Counter(event.node for event in events if event.event is Event.join)
    assert returns == ({} if config.rejoin_after is None else crashes)
    for event in events:
        if event.event is Event.join:
            own = base.topics_of(base.nodes.id_of(event.node))
            assert set(event.topics) == set(base.topics.take(own).to_pylist())
