"""OMen with `connectivity` 2 under drawn faults: when all is over, no node cuts a topic, and a broken OMen is found."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from trellis.live.config import LiveOMenConfig
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.schedule import FAULT_KINDS
from trellis.simulate.seeds import check_seeds
from trellis.simulate.systems.omen import REPAIRED, OMen

sys.path.insert(0, str(Path(__file__).parent))
from omen_mutants import NoBlocks

SMALL = CheckConfig(instance=InstanceDraw(nodes=14, topics=6, subscriptions=3))
CRASHES = [kind for kind in FAULT_KINDS if kind.startswith("crash")]
TWICE = partial(OMen, connectivity=2)
ALONE = partial(TWICE, net=False, cut_periods=0)  # Neither the root rendezvous nor a look at cuts helps.


def planned(*kinds):
    """From a two-connected plan, with these kinds of faults alone."""
    plan = msgspec.structs.replace(OMen().fault_plan, kinds=kinds)
    return msgspec.structs.replace(SMALL, plan=plan, planned=True)


def assert_all_hold(summary):
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_no_node_cuts_a_topic_after_all_kinds_of_faults(seeds):
    found = check_seeds(TWICE, seeds=seeds, config=SMALL)
    assert not found.failures, "\n".join(found.lines())


@pytest.mark.parametrize("seeds", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_repairs_after_crashes_keep_a_plan_two_connected_by_themselves(seeds):
    assert_all_hold(check_seeds(ALONE, seeds=seeds, config=planned(*CRASHES)))


@pytest.mark.parametrize("seeds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_no_node_cuts_a_topic_without_the_root_rendezvous(seeds):
    found = check_seeds(partial(TWICE, net=False), seeds=seeds, first_seed=200, config=planned(*REPAIRED))
    assert not found.failures, "\n".join(found.lines())


@pytest.mark.parametrize("seeds", [4, pytest.param(60, marks=pytest.mark.slow)])
def test_the_values_of_live_nodes_keep_topics_two_connected(seeds):
    live = partial(OMen, **msgspec.structs.asdict(LiveOMenConfig(connectivity=2)))
    found = check_seeds(live, seeds=seeds, first_seed=300, config=SMALL)
    assert not found.failures, "\n".join(found.lines())


def test_repairs_that_connect_topics_only_are_found():
    config = planned(*CRASHES)
    mutant = partial(NoBlocks, connectivity=2, net=False, cut_periods=0)
    assert "the loss of one node would split" in (check_seed(mutant, 1, config).failure or "nothing was found")
    assert check_seed(ALONE, 1, config).failure is None
