"""Vitis, RVR and OPT under drawn faults: the promises hold, and a node with a bug is found out within 50 seeds."""

from __future__ import annotations

from functools import partial

import pytest

from trellis.protocols.effects import Deliver
from trellis.protocols.opt import OptNode
from trellis.protocols.rvr import RvrNode
from trellis.protocols.vitis import VitisNode
from trellis.protocols.vitis.messages import Event
from trellis.simulate.check import CheckConfig
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.seeds import check_seeds
from trellis.simulate.systems.opt import Opt
from trellis.simulate.systems.rvr import Rvr
from trellis.simulate.systems.vitis import Vitis

# Shorter than the plan of `trellis simulate --check`, with the same kinds of faults; tables far smaller than the world.
PLAN = FaultPlan(span_ms=20_000, duration_ms_max=6_000)
SMALL = CheckConfig(instance=InstanceDraw(nodes=18, topics=6, subscriptions=3), plan=PLAN)
VITIS = partial(Vitis, table_size=5)
RVR = partial(Rvr, table_size=4)
OPT = partial(Opt, table_size=3)


def checked(make_system, seeds, config=SMALL, first_seed=1, **more):
    return check_seeds(make_system, seeds=seeds, first_seed=first_seed, config=config, **more)


def assert_all_hold(summary):
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_vitis_keeps_every_promise_over_many_seeds(seeds):
    assert_all_hold(checked(VITIS, seeds))


@pytest.mark.parametrize("make_system", [RVR, OPT], ids=["rvr", "opt"])
def test_the_baselines_keep_every_promise(make_system):
    assert_all_hold(checked(make_system, 16))


@pytest.mark.parametrize(
    "options",
    [
        {"hop_limit": "below", "gateway_hops": 2},
        {"sw_neighbors": 2, "gateway_hops": 1},
        {"sw_neighbors": 5, "relays_flood": True},
        {"table_size": 15, "publications": 3},
    ],
    ids=["as-printed", "no-long-link", "no-friends", "everybody-in-the-table"],
)
def test_vitis_keeps_every_promise_with_other_parameters(options):
    assert not checked(partial(Vitis, **{"table_size": 5, **options}), 5, first_seed=200).failures


@pytest.mark.slow
@pytest.mark.parametrize("make_system", [VITIS, RVR, OPT], ids=["vitis", "rvr", "opt"])
def test_every_promise_holds_over_a_thousand_seeds(make_system):
    seeds = 1_000 if make_system is VITIS else 200
    assert_all_hold(checked(make_system, seeds, config=CheckConfig(instance=InstanceDraw(nodes=30)), jobs=2))


@pytest.mark.slow
def test_messages_that_went_over_the_wire_keep_every_promise():
    assert_all_hold(checked(VITIS, 30, config=CheckConfig(encode=True), jobs=2))


@pytest.mark.parametrize("make_system", [VITIS, RVR, OPT], ids=["vitis", "rvr", "opt"])
def test_the_same_seed_is_the_same_run_and_the_wire_changes_nothing(make_system):
    def digests(seed, encode=False):
        interests = draw_interests(InstanceDraw(nodes=20, topics=10, subscriptions=5), 7)
        engine = Engine(make_system(publications=2), interests, seed=seed, encode=encode)
        engine.run(45_000)
        return engine.hexdigest(), engine.overlay_digest()

    assert digests(1) == digests(1, encode=True)
    assert digests(1)[1] != digests(2)[1]


# Bugs that somebody could make. Each is a node with one thing bent.


class SuspectsNobody(VitisNode):
    def _exchange_profiles(self):
        for one in self.neighbors.all.values():
            one.heard = self.round
        return super()._exchange_profiles()


class KeepsOneTooMany(VitisNode):
    def _choose(self, entries):
        chosen = super()._choose(entries)
        return chosen + [name for name in entries if name not in chosen][:1]


class HasNoPredecessor(VitisNode):
    def _choose(self, entries):
        chosen = super()._choose(entries)
        return chosen[:1] + chosen[2:]


class LooksUpNothing(VitisNode):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.relays.look_up([])
        self.relays.look_up = lambda topics: None

    def check(self): ...


class RelaysUpwardsOnly(VitisNode):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.relays.links = lambda topic: [hop for hop in [self.relays.up.get(topic)] if hop is not None]


class FollowsAGatewayForEver(VitisNode):
    """Neither the hop limit nor the loop check: a gateway that is gone lives on in rumours."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.gateways.hops_max, self.gateways.take_back = 1_000, True


class KeepsItsTopicsToItself(VitisNode):
    """Profiles tell the topics of the first day."""

    def _profile(self, neighbor):
        now = self.topics
        self._first = getattr(self, "_first", now)
        try:
            self.topics = self._first
            return super()._profile(neighbor)
        finally:
            self.topics = now


class DeliversCopies(VitisNode):
    """An event that the network brings twice is handed to the application twice."""

    def on_message(self, sender, message):
        if isinstance(message, Event) and self.events.holds(message.origin, message.sequence):
            return [Deliver(message.topic, message.origin, message.sequence)] if message.topic in self.interest else []
        return super().on_message(sender, message)


class KeepsItsFirstPaths(RvrNode):
    """Its lookups go to whom they went first, living or not."""

    def _update(self):
        version = self.neighbors.version
        self.neighbors.version = self.relays._version if self.round > 8 else version
        try:
            return super()._update()
        finally:
            self.neighbors.version = version


class DeafToRelays(RvrNode):
    """Neither lists nor requests of others are taken."""

    def _on_profile(self, neighbor, profile):
        return []

    def _on_relay(self, sender, message):
        return []


class TellsEverybody(OptNode):
    def _targets(self, topic):
        return list(self.neighbors.all)


class TellsOneOnly(OptNode):
    def _targets(self, topic):
        return super()._targets(topic)[:1]


def bent(system, kind):
    """The system with nodes of this kind."""

    class Bent(system.func):
        def node_type(self):
            return kind

    return partial(Bent, **system.keywords)


CHANGING = FaultPlan(kinds=("interest",), span_ms=15_000)
DOUBLING = FaultPlan(kinds=("duplicate", "slow"), span_ms=60_000, duration_ms_min=20_000, duration_ms_max=30_000)
BUGS = [
    (VITIS, SuspectsNobody, PLAN),
    (VITIS, KeepsOneTooMany, PLAN),
    (VITIS, HasNoPredecessor, PLAN),
    (VITIS, LooksUpNothing, PLAN),
    (VITIS, RelaysUpwardsOnly, PLAN),
    (VITIS, FollowsAGatewayForEver, PLAN),
    (VITIS, KeepsItsTopicsToItself, CHANGING),
    (VITIS, DeliversCopies, DOUBLING),
    (RVR, KeepsItsFirstPaths, PLAN),
    (RVR, DeafToRelays, PLAN),
    (OPT, TellsEverybody, PLAN),
    (OPT, TellsOneOnly, PLAN),
]


@pytest.mark.parametrize(("system", "kind", "plan"), BUGS, ids=[bug[1].__name__ for bug in BUGS])
def test_the_checker_finds_a_bug_within_fifty_seeds(system, kind, plan):
    config = CheckConfig(instance=SMALL.instance, plan=plan)
    summary = checked(bent(system, kind), 50, config, failures_max=1, shrink_runs_max=0)
    assert summary.failures, f"{kind.__name__} went unnoticed for {summary.seeds} seeds"


@pytest.mark.parametrize("plan", [CHANGING, DOUBLING], ids=["changing", "doubling"])
def test_under_the_same_faults_a_node_without_a_bug_is_not_blamed(plan):
    assert not checked(VITIS, 5, CheckConfig(instance=SMALL.instance, plan=plan)).failures
