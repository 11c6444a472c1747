"""SpiderCast under drawn faults: the promises hold, and a SpiderCast with a bug is found out within 50 seeds."""

from __future__ import annotations

from functools import partial

import pytest

from trellis.protocols.effects import Send
from trellis.protocols.spidercast import SpiderCastNode
from trellis.protocols.spidercast.messages import Leave
from trellis.protocols.spidercast.neighbors import Neighbor
from trellis.simulate.check import CheckConfig
from trellis.simulate.draw import InstanceDraw, draw_interests
from trellis.simulate.engine import Engine
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.seeds import check_seeds
from trellis.simulate.systems.spidercast import RandomLinks, Similarity, SpiderCast

# Shorter than the plan of `trellis simulate --check`, with the same kinds of faults.
PLAN = FaultPlan(span_ms=15_000, duration_ms_max=5_000)
SMALL = CheckConfig(instance=InstanceDraw(nodes=16, topics=6, subscriptions=3), plan=PLAN)


def checked(make_system, seeds, config=SMALL, first_seed=1, **more):
    return check_seeds(make_system, seeds=seeds, first_seed=first_seed, config=config, **more)


def assert_all_hold(summary):
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_every_promise_holds_over_many_seeds(seeds):
    assert_all_hold(checked(SpiderCast, seeds))


@pytest.mark.parametrize(
    "make_system",
    [
        partial(SpiderCast, kg=2, kr=1),
        partial(SpiderCast, adaptive=True),
        partial(SpiderCast, drop_from="above-target", remember_refusals=False),
        partial(Similarity, x=3, y=1),
        partial(RandomLinks, y=3),
    ],
    ids=["both-tasks", "adaptive", "as-printed", "similarity", "random"],
)
def test_every_promise_holds_for_every_variant(make_system):
    assert not checked(make_system, 6, first_seed=100).failures


@pytest.mark.slow
@pytest.mark.parametrize("kr", [0, 1])
def test_every_promise_holds_over_a_thousand_seeds(kr):
    assert_all_hold(checked(partial(SpiderCast, kr=kr), 1_000 if kr == 0 else 200, config=CheckConfig(), jobs=2))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 0.6])
def test_every_promise_holds_with_partial_views(share):
    assert_all_hold(checked(SpiderCast, 100, config=CheckConfig(view_share=share), jobs=2))


@pytest.mark.slow
def test_messages_that_went_over_the_wire_keep_every_promise():
    assert_all_hold(checked(SpiderCast, 30, config=CheckConfig(encode=True), jobs=2))


def test_the_same_seed_is_the_same_run_and_the_wire_changes_nothing():
    def digests(seed, encode=False):
        interests = draw_interests(InstanceDraw(nodes=40, topics=20, subscriptions=6), 7)
        engine = Engine(SpiderCast(kr=1), interests, seed=seed, encode=encode)
        engine.run(15_000)
        return engine.hexdigest(), engine.overlay_digest()

    assert digests(1) == digests(1) == digests(1, encode=True)
    assert digests(1)[1] != digests(2)[1]


# Bugs that somebody could make. Each is a node with one handler bent.


class DeafToLeave(SpiderCastNode):
    """LEAVE is lost on it."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for task in self.tasks.values():
            task.on_leave = lambda sender: []


class TakesRedirectForConnectOk(SpiderCastNode):
    """REDIRECT handled wrongly: the sender is taken for a neighbour."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for task in self.tasks.values():
            task.on_redirect = partial(self._add, task)

    @staticmethod
    def _add(task, sender, message):
        if sender in task.neighbors:
            return []
        return task._add(sender, Neighbor(1, 1, 0, task.me.stamp))


class KeepsLinksOverTheLimit(SpiderCastNode):
    """A CONNECT-OK is taken although the table is full."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for task in self.tasks.values():
            task.on_connect_ok = partial(self._take, task)

    @staticmethod
    def _take(task, sender, message):
        if sender in task.neighbors:
            return []
        interest = task.me.table.bits(message.interest)
        return task._add(sender, Neighbor(message.degree, message.target, interest, message.stamp))


class LeavesHalfLinksAlone(SpiderCastNode):
    """A heartbeat of a node that is no neighbour is not answered."""

    def on_message(self, sender, message):
        effects = super().on_message(sender, message)
        if type(message).__name__ != "Heartbeat":
            return effects
        return [effect for effect in effects if not (isinstance(effect, Send) and isinstance(effect.message, Leave))]


class SuspectsNobody(SpiderCastNode):
    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.suspicion.silence_max = 10**9


class KeepsItsInterestToItself(SpiderCastNode):
    """A change of interest is not announced, and nobody can see that there was one."""

    def _change(self, interest):
        stamp = self.me.stamp
        effects = super()._change(interest)
        self.me.stamp, self._announce = stamp, False
        return effects


class PartsWhereItShouldNot(SpiderCastNode):
    """DISCONNECT is agreed to whether the link is needed or not, and the lost topic is not noticed."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for task in self.tasks.values():
            task.on_disconnect = partial(self._agree, task)

    @staticmethod
    def _agree(task, sender):
        effects = task._remove(sender)
        task.target = len(task.neighbors)
        return effects  # and DISCONNECT-OK is forgotten as well


class Bent(SpiderCast):
    """SpiderCast of bent nodes. A patient one suspects nobody: nothing else then mends what LEAVE should mend."""

    settle_ms_max = 90_000

    def __init__(self, kind, patient=False, **options):
        super().__init__(**options, **({"silence_max": 1_000} if patient else {}))
        self.kind = kind
        if patient:
            self.settle_ms = 15_000

    def node_type(self):
        return self.kind


LEAVING = FaultPlan(kinds=("leave", "join", "duplicate", "reorder", "slow"), span_ms=15_000)
LOSING = FaultPlan(kinds=("loss", "asymmetric-loss", "duplicate", "reorder", "interest"), span_ms=15_000, loss_max=0.2)
CHANGING = FaultPlan(kinds=("interest",), span_ms=15_000)
BUGS = [
    (DeafToLeave, {"patient": True}, LEAVING),
    (LeavesHalfLinksAlone, {"patient": True}, LOSING),
    (TakesRedirectForConnectOk, {"margin": 0}, PLAN),
    (KeepsLinksOverTheLimit, {"margin": 0}, PLAN),
    (SuspectsNobody, {}, PLAN),
    (KeepsItsInterestToItself, {}, CHANGING),
    (PartsWhereItShouldNot, {}, PLAN),
]


@pytest.mark.parametrize(("kind", "options", "plan"), BUGS, ids=[bug[0].__name__ for bug in BUGS])
def test_the_checker_finds_a_bug_within_fifty_seeds(kind, options, plan):
    config = CheckConfig(instance=SMALL.instance, plan=plan)
    summary = checked(partial(Bent, kind, **options), 50, config, failures_max=1, shrink_runs_max=0)
    assert summary.failures, f"{kind.__name__} went unnoticed for {summary.seeds} seeds"


@pytest.mark.parametrize(
    ("options", "plan"),
    [({"patient": True}, LEAVING), ({"patient": True}, LOSING), ({"margin": 0}, PLAN), ({}, CHANGING)],
    ids=["leaving", "losing", "no-margin", "changing"],
)
def test_under_the_same_faults_a_node_without_a_bug_is_not_blamed(options, plan):
    config = CheckConfig(instance=SMALL.instance, plan=plan)
    assert not checked(partial(Bent, SpiderCastNode, **options), 8, config).failures
