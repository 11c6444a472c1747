"""Schedules and interests: the same for every system, by the seed."""

from __future__ import annotations

import gzip
from itertools import pairwise

import pytest
from benchmarks.fire import interests
from benchmarks.fire.schedule import SCHEDULES, TAIL_S, Times, Unfit, make


@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_same_seed_gives_the_same_faults_in_the_order_of_time(kind):
    one = make(kind, 12, 120.0, 7)
    assert one == make(kind, 12, 120.0, 7)
    assert [fault.at_s for fault in one] == sorted(fault.at_s for fault in one)
    assert all(set(fault.sites) <= set(range(12)) for fault in one)
    assert bool(one) == (kind != "quiet")


def test_another_seed_gives_other_victims():
    assert make("kills", 12, 120.0, 7) != make("kills", 12, 120.0, 8)


def test_kills_come_every_five_seconds_and_never_hit_a_broker_twice_in_a_row():
    faults = make("kills", 3, 200.0, 1)
    assert all(later.at_s - one.at_s == 5.0 and later.sites != one.sites for one, later in pairwise(faults))
    assert {fault.sites for fault in faults} == {(0,), (1,), (2,)}
    assert faults[-1].at_s + faults[-1].for_s <= 200.0 - TAIL_S


def test_groups_are_of_three_and_leave_half_of_the_brokers_up():
    assert all(len(set(fault.sites)) == 3 for fault in make("groups", 12, 120.0, 1))
    with pytest.raises(Unfit, match="6 brokers"):
        make("groups", 5, 120.0, 1)


def test_a_rolling_restart_takes_every_broker_once():
    faults = make("rolling", 12, 30.0, 1)
    assert [fault.sites for fault in faults] == [(place,) for place in range(12)]


def test_a_partition_lasts_thirty_seconds_and_is_refused_where_there_is_no_time_for_it():
    (fault,) = make("partition", 12, 60.0, 1)
    assert (fault.kind, fault.for_s, len(fault.sites)) == ("cut", 30.0, 4)
    with pytest.raises(Unfit, match="30 s"):
        make("partition", 12, 40.0, 1)
    assert make("partition", 12, 40.0, 1, Times(cut_s=10.0))[0].for_s == 10.0


def test_an_unknown_schedule_is_refused_with_the_names_of_all():
    with pytest.raises(Unfit, match="quiet, kills"):
        make("earthquake", 3, 60.0, 1)


def test_generated_interests_name_the_publishing_broker_in_every_topic(monkeypatch):
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    made = interests.make(12, 96, 1)
    assert made == interests.make(12, 96, 1) != interests.make(12, 96, 2)
    assert len(made.topics) == 96
    assert all(one.name.startswith(f"s{one.publisher}/") and one.readers for one in made.topics)
    assert {one.publisher for one in made.topics} == set(range(12))
    assert set(made.filters(3)) == {one.name for one in made.topics if 3 in one.readers}
    assert 0 < made.crossing < 96 * 12


def test_interests_of_a_trace_are_friends_that_two_brokers_share(tmp_path, monkeypatch):
    folder = tmp_path / "ego-facebook"
    folder.mkdir()
    pairs = [(one, other) for one in range(80) for other in range(one) if (one + other) % 3 or not other]
    with gzip.open(folder / "facebook_combined.txt.gz", "wt") as file:
        file.write("".join(f"{one} {other}\n" for one, other in pairs))
    monkeypatch.setenv("TRELLIS_DATA", str(tmp_path))
    made = interests.make(6, 20, 1)
    assert made.source.startswith("ego-Facebook")
    assert len(made.topics) == 20
    assert all(len(one.readers) >= 2 for one in made.topics)
    assert interests.make(6, 20, 1, source="made").source.startswith("generated")


def test_a_trace_that_is_not_at_hand_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.delenv("TRELLIS_DATA", raising=False)
    with pytest.raises(SystemExit, match="--interests made"):
        interests.make(3, 24, 1, source="trace")
