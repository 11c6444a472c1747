"""A planned start of OMen: staggered, with neighbours that stay away or die, under all faults: every promise holds."""

from __future__ import annotations

from functools import partial
from random import Random

import msgspec
import pytest

from trellis.model import Interests
from trellis.plan import construct
from trellis.protocols.omen.links.planned import Plan, Planned
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.draw import InstanceDraw, draw_interests, draw_schedule
from trellis.simulate.run import link_names
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.delivery import Delivery
from trellis.simulate.systems.omen import OMen

START_MS = 20_000  # between the first node and the last
INSTANCE = InstanceDraw(nodes=20, topics=12, subscriptions=5)


class PlannedOMen(OMen):
    """Every life of a node believes the plan, a restart too: live nodes are more careful."""

    def __init__(self, links, **fields):
        super().__init__(**fields)
        self.links = links

    def make_node(self, node, topics, random, world):
        made = super().make_node(node, topics, random, world)
        peers = [one if other == node else other for one, other in self.links if node in (one, other)]
        made.planned = Planned(made.parts, Plan(neighbours=(*peers, node, "nobody"), periods=30))
        return made


def planned_links(interests, seed):
    return tuple(link_names(construct(Interests.from_pairs(interests), "lowoda", seed=seed).overlay))


def staggered(interests, seed, *, never=0):
    """All but one come later, one after the other; some never."""
    random = Random(f"start {seed}")
    first, *others = random.sample(sorted(interests), len(interests))
    joins = [Fault(random.randrange(START_MS), "join", nodes=(name,)) for name in others[never:]]
    return Schedule(tuple(sorted(joins, key=lambda fault: fault.time_ms)), tuple(others)), first


def delivering(links, foreign=0.15):
    """With delivery above, which looks for subscribers by itself unless it is told to wait for the plan."""
    system = Delivery(first_ms=START_MS, foreign=foreign)
    system.below = PlannedOMen(links)
    return system


def start(seed, *, never=0, faults=False, make=PlannedOMen, changed=False):
    interests = draw_interests(INSTANCE, seed)
    links = planned_links(interests, seed)
    plan = msgspec.structs.replace(OMen().fault_plan, start_ms=2_000, span_ms=40_000, down_share_max=0.95)
    schedule, _ = staggered(interests, seed, never=never)
    if faults:
        drawn = draw_schedule(plan, list(interests), seed).faults
        both = sorted([*schedule.faults, *drawn], key=lambda fault: fault.time_ms)
        schedule = Schedule(tuple(both), schedule.absent)
    if changed:  # since the plan was made
        interests = draw_interests(INSTANCE, seed + 1)
    config = CheckConfig(plan=plan)
    return check_seed(partial(make, links), seed, config, interests=interests, schedule=schedule), set(links)


def unplanned(links, **fields):
    return OMen(**fields)


@pytest.mark.parametrize("seed", [1, 2])
def test_nodes_that_start_one_after_the_other_end_with_the_planned_links_and_hardly_any_other(seed):
    result, links = start(seed)
    assert result.failure is None
    found = {tuple(sorted(link)) for link in result.links}
    assert {tuple(sorted(link)) for link in links} <= found
    assert len(found) <= 1.15 * len(links)
    joined, _ = start(seed, make=unplanned)
    assert len(joined.links) > len(found)


@pytest.mark.parametrize("seed", [10, 11])
def test_planned_neighbours_that_never_come_leave_no_topic_split(seed):
    result, _ = start(seed, never=4)
    assert result.failure is None
    assert result.tco


@pytest.mark.parametrize("seed", [20, 21])
def test_a_plan_for_other_interests_does_no_harm(seed):
    result, _ = start(seed, changed=True)
    assert result.failure is None
    assert result.tco
    wants = dict(result.interests)
    assert all(set(wants[one]) & set(wants[other]) for one, other in result.links)


@pytest.mark.parametrize("seed", [30, 31, 32])
def test_faults_during_a_planned_start_leave_every_promise_kept(seed):
    result, _ = start(seed, never=seed % 3, faults=True)
    assert result.failure is None, result.failure
    assert sum(result.faults.values()) > 19


def test_delivery_above_a_planned_start_opens_no_other_links():
    result, links = start(40, make=partial(delivering, foreign=0))
    assert result.failure is None, result.failure
    assert len(result.links) <= 1.15 * len(links)


@pytest.mark.parametrize("seed", [50, 51])
def test_delivery_keeps_its_promises_under_faults_during_a_planned_start(seed):
    result, _ = start(seed, never=seed % 3, faults=True, make=delivering)
    assert result.failure is None, result.failure


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2_000, 2_060))
def test_delivery_keeps_its_promises_under_faults_during_a_planned_start_over_many_seeds(seed):
    assert start(seed, never=seed % 4, faults=True, make=delivering)[0].failure is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_200))
def test_faults_during_a_planned_start_leave_every_promise_kept_over_many_seeds(seed):
    assert start(seed, never=seed % 4, faults=True)[0].failure is None
