"""Magnet and the strawman under drawn faults: the promises hold, and a Magnet with a bug is found out within 50 seeds.

After healing every publication must come down to every subscriber, there is no circle, and nobody hangs on a parent
that has no way from the root: `check_settled` of the system says so from the world.
"""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from trellis.protocols.magnet import MagnetNode
from trellis.protocols.oscar.messages import Peer
from trellis.simulate.check import CheckConfig
from trellis.simulate.dissemination import Dissemination
from trellis.simulate.draw import InstanceDraw, draw_interests, draw_schedule
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.seeds import check_seeds
from trellis.simulate.systems.magnet import Magnet
from trellis.simulate.systems.scribe import Scribe

# Partitions of up to 8 s are longer than it takes to give a neighbour up: rings split, and have to merge again.
PLAN = FaultPlan(start_ms=8_000, span_ms=20_000, duration_ms_max=8_000)
SMALL = CheckConfig(instance=InstanceDraw(nodes=16, topics=6, subscriptions=3), plan=PLAN)
# So long that nobody knows anybody on the other side any more, but for the sampling of random peers.
LONG_CUTS = CheckConfig(
    instance=SMALL.instance,
    plan=FaultPlan(
        kinds=("partition",), start_ms=8_000, span_ms=30_000, duration_ms_min=20_000, duration_ms_max=25_000
    ),
)
FEW_LINKS = {"links": 8, "join_gap_ms": 50}  # with 19 links, 16 nodes would all know each other


def checked(make_system, seeds, config=SMALL, first_seed=1, **more):
    return check_seeds(make_system, seeds=seeds, first_seed=first_seed, config=config, **more)


def assert_all_hold(summary):
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_every_promise_holds_over_many_seeds(seeds):
    assert_all_hold(checked(partial(Magnet, **FEW_LINKS), seeds))


@pytest.mark.parametrize(
    "make_system",
    [
        partial(Magnet, tree="greedy-path", **FEW_LINKS),
        partial(Magnet, sampling="uniform", samples=3, rejoin_changes=2, **FEW_LINKS),
        partial(Magnet, two_choices=False, improve_rounds=4, **FEW_LINKS),
        partial(Scribe, **FEW_LINKS),
    ],
    ids=["greedy-path", "uniform-samples", "improving", "scribe"],
)
def test_every_promise_holds_for_every_variant(make_system):
    assert not checked(make_system, 6, first_seed=200).failures


def test_rings_that_were_cut_apart_for_long_are_one_again():
    assert_all_hold(checked(partial(Magnet, **FEW_LINKS), 6, config=LONG_CUTS))


@pytest.mark.slow
@pytest.mark.parametrize("make_system", [Magnet, partial(Magnet, tree="greedy-path")], ids=["graft", "greedy-path"])
def test_every_promise_holds_over_a_thousand_seeds(make_system):
    many = 1_000 if make_system is Magnet else 200
    assert_all_hold(checked(partial(make_system, **FEW_LINKS), many, config=CheckConfig(), jobs=2))


@pytest.mark.slow
def test_messages_that_went_over_the_wire_keep_every_promise():
    config = CheckConfig(instance=SMALL.instance, plan=PLAN, encode=True)
    assert_all_hold(checked(partial(Magnet, **FEW_LINKS), 30, config=config))


def test_the_same_seed_is_the_same_run_and_the_wire_changes_nothing():
    def digests(seed, encode=False):
        interests = draw_interests(InstanceDraw(nodes=30, topics=12, subscriptions=4), 7)
        engine = Engine(Magnet(**FEW_LINKS), interests, seed=seed, encode=encode)
        engine.run(12_000)
        return engine.hexdigest(), engine.overlay_digest()

    assert digests(1) == digests(1) == digests(1, encode=True)
    assert digests(1)[1] != digests(2)[1]


@pytest.mark.parametrize("system", [Magnet, Scribe])
@pytest.mark.parametrize("seed", [3, 4])
def test_after_faults_every_subscriber_gets_every_publication_once(system, seed):
    """Really published, not read off the trees."""
    interests = draw_interests(SMALL.instance, seed)
    engine = Engine(system(**FEW_LINKS), interests, seed=seed)
    injector = Injector(engine, draw_schedule(PLAN, list(interests), seed), down_share_max=0.5)
    engine.at(PLAN.start_ms + PLAN.span_ms, injector.heal)
    engine.run(120_000)
    watched = Dissemination.attach(engine)
    world = engine.world
    for topic in sorted({topic for name in world.living for topic in world.topics_of(name)}):
        engine.publish(world.living[0], topic)
    engine.run(140_000)
    measured = watched.measure()
    assert measured.hit_ratio == 1.0, watched.missed()
    assert measured.repeated == 0


# Bugs that somebody could make. Each is a node with one thing bent.


class DeafToOrphan(MagnetNode):
    """It does not hear that it is nobody's child, by message or by heartbeat."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.trees.on_orphan = lambda sender, topics: []
        self.trees.on_pong = lambda sender, pong: []
        self.trees.config = type(self.config)(tree=self.config.tree, root_silence_max=10**6)
        self._handlers = self._dispatch()


class KeepsTreeLinksWithoutLinks(MagnetNode):
    """A tree link outlives the link of the ring under it."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.trees.on_relinked = lambda: []


class TakesTwoParents(MagnetNode):
    """A forwarder that is met by a second route does not say that it has a parent already."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        descend = self.trees.on_descend

        def on_descend(sender, message):
            return [effect for effect in descend(sender, message) if type(effect.message).__name__ != "Prune"]

        self.trees.on_descend = on_descend
        self.trees.on_timer = lambda timer=self.trees.on_timer: [self._forget(), *timer()][1:]
        self._handlers = self._dispatch()

    def _forget(self):
        for tree in self.trees.forest.trees.values():
            for child in tree.children:
                tree.children[child] = 0


class NeverLooksItselfUp(MagnetNode):
    """Pieces of a ring do not find each other again."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for oscar in (self.control, self.skewed):
            oscar.ring.config = type(oscar.config)(locate_rounds=10**9, bury_ms=12_000)


class TakesAMovedRootForTheSame(MagnetNode):
    """It does not see that the root has moved, and orders its tree as seen from the old place."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        descend, first_places = self.trees.on_descend, {}

        def on_descend(sender, message):
            root = first_places.setdefault(message.root.node, message.root)
            return descend(sender, replace(message, root=root))

        self.trees.on_descend = on_descend
        self._handlers = self._dispatch()


class StaysRootForEver(MagnetNode):
    """The home of a topic has changed; it does not notice."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        self.trees._abdicate = lambda tree: []


class ForgetsWhoAskedForAPlace(MagnetNode):
    """Concurrent joins at one node get the same label, and do not give way."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        learn, oscar = self.skewed.ring.learn, self.skewed

        def forgetful(peers, direct=False):
            kept = [peer for peer in peers if oscar.me is None or peer.label != oscar.me.label]
            return [] if direct and any(isinstance(peer, Peer) for peer in peers) else learn(kept, direct)

        self.skewed.ring.learn = forgetful
        self.skewed._handlers = self.skewed._dispatch()


@pytest.mark.parametrize(
    "mutant",
    [
        DeafToOrphan,
        KeepsTreeLinksWithoutLinks,
        TakesTwoParents,
        NeverLooksItselfUp,
        TakesAMovedRootForTheSame,
        StaysRootForEver,
        ForgetsWhoAskedForAPlace,
    ],
)
def test_a_bug_is_found_within_fifty_seeds(mutant):
    class Bent(Magnet):
        settle_ms_max = 120_000

        def node_type(self):
            return mutant

    config = LONG_CUTS if mutant is NeverLooksItselfUp else SMALL
    for seed in range(1, 51):
        if checked(partial(Bent, **FEW_LINKS), 1, config, first_seed=seed, shrink_runs_max=0).failures:
            return
    pytest.fail(f"{mutant.__name__} went through 50 seeds")
