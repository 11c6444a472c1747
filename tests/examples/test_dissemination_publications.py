"""Publications as faults of a schedule: who publishes what when."""

from __future__ import annotations

from collections import Counter

import pytest

from trellis.errors import InputError
from trellis.simulate.publications import by_rates, one_per_topic, together
from trellis.simulate.schedule import Fault, Schedule

INTERESTS = {"a": ("x", "y"), "b": ("x",), "c": ("z",)}


def test_every_topic_is_published_on_once_by_one_of_its_subscribers_within_the_span():
    faults = one_per_topic(INTERESTS, start_ms=1_000, span_ms=900, seed=1)
    assert sorted(fault.topics[0] for fault in faults) == ["x", "y", "z"]
    assert [fault.time_ms for fault in faults] == [1_000, 1_300, 1_600]
    for fault in faults:
        assert fault.kind == "publish"
        assert fault.topics[0] in INTERESTS[fault.nodes[0]]


def test_the_same_seed_gives_the_same_publications_and_another_one_others():
    def drawn(seed):
        wants = {f"n{i}": tuple(f"t{(i * 7 + j) % 20}" for j in range(5)) for i in range(20)}
        return one_per_topic(wants, start_ms=0, span_ms=1_000, seed=seed)

    assert drawn(1) == drawn(1) != drawn(2)


def test_topics_are_drawn_by_their_rates():
    faults = by_rates(INTERESTS, {"x": 9.0, "y": 1.0, "z": 0.0}, count=1_000, start_ms=0, span_ms=1_000, seed=1)
    counts = Counter(fault.topics[0] for fault in faults)
    assert set(counts) == {"x", "y"}
    assert 850 < counts["x"] < 950
    with pytest.raises(InputError, match="rate above 0"):
        by_rates(INTERESTS, {"x": 0.0}, count=1, start_ms=0, span_ms=0, seed=1)


def test_only_those_publish_that_are_there_and_want_the_topic_at_that_moment():
    churn = Schedule(
        (
            Fault(100, "leave", ("a",)),
            Fault(200, "join", ("d",), topics=("y",)),
            Fault(300, "subscribe", ("c",), topics=("x",)),
            Fault(300, "unsubscribe", ("b",), topics=("x",)),
            Fault(400, "restart", ("c",), duration_ms=100),
        ),
        absent=("d",),
    )
    late = one_per_topic(INTERESTS, start_ms=350, span_ms=0, seed=1, churn=churn)
    assert {fault.topics[0]: fault.nodes[0] for fault in late} == {"x": "c", "y": "d", "z": "c"}
    down = one_per_topic(INTERESTS, start_ms=450, span_ms=0, seed=1, churn=churn)
    assert {fault.topics[0] for fault in down} == {"y"}
    back = one_per_topic(INTERESTS, start_ms=500, span_ms=0, seed=1, churn=churn)
    assert {fault.topics[0]: fault.nodes[0] for fault in back} == {"y": "d", "z": "c"}


def test_anybody_or_a_given_publisher_may_publish():
    given = one_per_topic(INTERESTS, start_ms=0, span_ms=0, seed=1, publisher=dict.fromkeys("xyz", "c"))
    assert {fault.nodes[0] for fault in given} == {"c"}
    anybody = one_per_topic(INTERESTS, start_ms=0, span_ms=0, seed=3, publisher="anybody", events=20)
    assert {fault.nodes[0] for fault in anybody if fault.topics[0] == "z"} == {"a", "b", "c"}


def test_schedules_come_together_in_time_order():
    both = together(Schedule((Fault(5, "leave", ("a",)),), ("b",)), [Fault(3, "publish", ("c",), topics=("z",))])
    assert [fault.kind for fault in both.faults] == ["publish", "leave"]
    assert both.absent == ("b",)


def test_times_before_the_start_are_refused():
    with pytest.raises(InputError, match="not negative"):
        one_per_topic(INTERESTS, start_ms=-1, span_ms=0, seed=1)
