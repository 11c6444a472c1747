"""Nodes that crash together: how a group is placed."""

from __future__ import annotations

from collections import Counter
from hashlib import sha1

import pytest

from lazy import stats
from trellis.errors import InputError
from trellis.model.churn import Event, replay
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.workloads.churn import churn
from trellis.workloads.churn_configs import CrashGroups

LEVEL = 1e-4
TEN = Interests.from_pairs({f"n{node}": ["t1", f"t{node}"] for node in range(10, 20)})


def chain_and_star() -> Overlay:
    """A chain n10 - ... - n14, and n15 linked to n16 .. n19, of which n16 and n17 are linked."""
    links = [("n10", "n11"), ("n11", "n12"), ("n12", "n13"), ("n13", "n14")]
    links += [("n15", leaf) for leaf in ("n16", "n17", "n18", "n19")] + [("n16", "n17")]
    return Overlay.from_pairs(TEN.nodes, links)


def crashed(config, seed=1, overlay=None):
    events = list(replay(churn(config, TEN, seed, overlay), TEN))
    return [event.node for event in events if event.event is Event.crash]


def test_any_group_is_equally_likely():
    config = CrashGroups(size=2)
    groups = Counter(frozenset(crashed(config, seed)) for seed in range(4500))
    assert len(groups) == 45
    assert stats.chisquare(list(groups.values())).pvalue > LEVEL


def test_a_ring_group_is_consecutive_by_the_sha1_of_the_names():
    ring = sorted(TEN.nodes, key=lambda name: sha1(name.encode()).hexdigest())
    runs = [{ring[(start + step) % 10] for step in range(3)} for start in range(10)]
    seen = {frozenset(crashed(CrashGroups(size=3, placement="ring"), seed)) for seed in range(100)}
    assert seen == {frozenset(run) for run in runs}


def test_the_second_ring_group_is_consecutive_among_those_that_are_left():
    ring = sorted(TEN.nodes, key=lambda name: sha1(name.encode()).hexdigest())
    for seed in range(30):
        order = crashed(CrashGroups(size=3, groups=2, placement="ring"), seed)
        left = [name for name in ring if name not in order[:3]]
        start = min(range(7), key=lambda at: {left[(at + step) % 7] for step in range(3)} != set(order[3:]))
        assert {left[(start + step) % 7] for step in range(3)} == set(order[3:])


def test_an_overlay_group_is_a_node_and_those_nearest_to_it():
    overlay = chain_and_star()
    seen = {frozenset(crashed(CrashGroups(size=3, placement="overlay"), seed, overlay)) for seed in range(300)}
    chain = [{"n10", "n11", "n12"}, {"n11", "n12", "n13"}, {"n12", "n13", "n14"}]
    star = [{"n15", a, b} for a in ("n16", "n17", "n18", "n19") for b in ("n16", "n17", "n18", "n19") if a < b]
    assert seen == {frozenset(group) for group in chain + star}


def test_an_overlay_group_larger_than_its_component_goes_on_elsewhere():
    for seed in range(20):
        group = set(crashed(CrashGroups(size=7, placement="overlay"), seed, chain_and_star()))
        assert len(group) == 7
        assert {"n10", "n11", "n12", "n13", "n14"} <= group or {"n15", "n16", "n17", "n18", "n19"} <= group


def test_a_hub_group_is_the_highest_degree_with_its_highest_neighbours():
    overlay = chain_and_star()
    assert crashed(CrashGroups(size=3, placement="hub"), overlay=overlay) == ["n15", "n16", "n17"]
    # n15 has four neighbours; the sixth is the next highest degree.
    assert set(crashed(CrashGroups(size=6, placement="hub"), overlay=overlay)) == {
        "n15", "n16", "n17", "n18", "n19", "n11"
    }  # fmt: skip


def test_the_second_hub_group_takes_the_next_hub():
    order = crashed(CrashGroups(size=3, groups=2, placement="hub"), overlay=chain_and_star())
    assert order == ["n15", "n16", "n17", "n11", "n12", "n10"]


def test_groups_follow_at_intervals_and_crash_within_their_window():
    config = CrashGroups(size=2, groups=3, start=5.0, interval=100.0, window=4.0)
    events = list(replay(churn(config, TEN, seed=3), TEN))
    groups = [events[at : at + 2] for at in (0, 2, 4)]
    for number, group in enumerate(groups):
        for event in group:
            assert 5 + 100 * number <= event.time <= 9 + 100 * number
    assert len({event.time for event in events}) == 6
    at_once = [event.time for event in replay(churn(CrashGroups(size=4), TEN, seed=3), TEN)]
    assert at_once == [60.0] * 4


def test_a_node_that_returns_has_its_old_interests():
    config = CrashGroups(size=3, rejoin_after=7.5)
    events = list(replay(churn(config, TEN, seed=4), TEN))
    assert [event.event for event in events] == [Event.crash] * 3 + [Event.join] * 3
    for event in events[3:]:
        assert event.time == 67.5
        assert set(event.topics) == {"t1", f"t{event.node[1:]}"}


@pytest.mark.parametrize(
    ("config", "overlay", "message"),
    [
        (CrashGroups(size=10), None, "--size 10 --groups 1: crashes of 10 nodes leave none of 10; "),
        (CrashGroups(size=4, groups=3), None, "--size 4 --groups 3: crashes of 12 nodes leave none of 10; "),
        (CrashGroups(size=2, placement="overlay"), None, "--placement overlay: .* give --overlay too"),
        (CrashGroups(size=2, placement="hub"), None, "--placement hub: .* give --overlay too"),
        (
            CrashGroups(size=2, placement="hub"),
            Overlay.from_pairs(Interests.from_pairs({"a": ["t"], "b": ["t"]}).nodes, [("a", "b")]),
            "--overlay: its nodes are not those of the interests",
        ),
    ],
)
def test_a_group_that_cannot_be_placed_is_refused(config, overlay, message):
    with pytest.raises(InputError, match=message):
        churn(config, TEN, 1, overlay)
