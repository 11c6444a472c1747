"""OMen under drawn faults: the promises hold, with the net and without it, and an OMen with a bug is found out."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import msgspec
import pytest

from trellis.live.config import LiveOMenConfig
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.seeds import check_seeds
from trellis.simulate.systems.omen import REPAIRED, OMen

sys.path.insert(0, str(Path(__file__).parent))
from omen_mutants import NoClosure, OldProof

SMALL = CheckConfig(instance=InstanceDraw(nodes=14, topics=6, subscriptions=3))
CRASHES = REPAIRED[:4]


def planned(*kinds, base=SMALL):
    """From LowODA's overlay, with these kinds of faults alone."""
    plan = msgspec.structs.replace(OMen().fault_plan, kinds=kinds)
    return msgspec.structs.replace(base, plan=plan, planned=True)


def assert_all_hold(summary):
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [12, pytest.param(25, marks=pytest.mark.slow)])
def test_every_promise_holds_over_many_seeds_of_all_faults(seeds):
    assert_all_hold(check_seeds(OMen, seeds=seeds, config=SMALL))


def test_a_report_of_a_living_node_long_after_a_partition_leaves_no_event_open():
    assert check_seed(OMen, 1_533, CheckConfig()).failure is None


@pytest.mark.parametrize("seeds", [12, pytest.param(25, marks=pytest.mark.slow)])
def test_repairs_alone_keep_every_topic_connected_over_many_seeds(seeds):
    found = check_seeds(partial(OMen, net=False), seeds=seeds, config=planned(*REPAIRED))
    assert_all_hold(found)
    assert found.counts["of them closures over more than one dead node"] > 0, "no two nodes ever died together"


def test_a_record_is_found_though_the_ring_has_not_noticed_yet_who_else_is_dead():
    """Two ring neighbours die while the repair of a third node, linked to one of them, is under way."""
    assert check_seed(partial(OMen, net=False), 123, planned(*REPAIRED, base=CheckConfig())).failure is None


@pytest.mark.parametrize("knowledge", ["neighbours", "global"])
def test_every_knowledge_keeps_the_promises(knowledge):
    make = partial(OMen, knowledge=knowledge, net=False)
    assert not check_seeds(make, seeds=4, first_seed=50, config=planned(*CRASHES)).failures


@pytest.mark.parametrize("resilience", [1, 2, 5])
def test_every_resilience_keeps_the_promises(resilience):
    assert not check_seeds(partial(OMen, resilience=resilience), seeds=3, first_seed=70, config=SMALL).failures


LIVE = partial(OMen, **msgspec.structs.asdict(LiveOMenConfig()))


def test_repairs_that_wait_for_nobody_as_live_nodes_do_keep_the_promises():
    assert_all_hold(check_seeds(LIVE, seeds=8, first_seed=110, config=SMALL))


def test_repairs_of_live_nodes_need_no_net_where_streams_lose_nothing():
    """They wait half a second for a record's holder, for a required node or for a coordinator that says nothing."""
    kinds = [kind for kind in REPAIRED if kind != "loss"]
    assert_all_hold(check_seeds(partial(LIVE, net=False), seeds=10, first_seed=400, config=planned(*kinds)))


def test_messages_may_go_through_their_wire_form():
    config = msgspec.structs.replace(SMALL, encode=True)
    assert not check_seeds(OMen, seeds=2, first_seed=90, config=config).failures


# The seeds were found by the slow test below.
@pytest.mark.parametrize(("mutant", "seed"), [(NoClosure, 1), (OldProof, 5)])
def test_an_omen_that_leaves_out_a_condition_is_found(mutant, seed):
    config = planned(*CRASHES, base=CheckConfig())
    assert "no TCO" in (check_seed(partial(mutant, net=False), seed, config).failure or "nothing was found")
    assert check_seed(partial(OMen, net=False), seed, config).failure is None


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [NoClosure, OldProof])
def test_every_mutant_is_found_within_two_hundred_seeds(mutant):
    config = planned(*CRASHES, base=CheckConfig())
    summary = check_seeds(partial(mutant, net=False), seeds=200, config=config, failures_max=1, jobs=2)
    assert summary.failures


@pytest.mark.slow
def test_every_promise_holds_over_two_thousand_seeds():
    assert_all_hold(check_seeds(OMen, seeds=2_000, jobs=2))


@pytest.mark.slow
def test_repairs_alone_hold_over_five_hundred_seeds():
    config = planned(*REPAIRED, base=CheckConfig())
    assert_all_hold(check_seeds(partial(OMen, net=False), seeds=500, config=config, jobs=2))
