"""Delivery over SpiderCast, Vitis and Magnet under drawn faults, as their nodes run live.

SpiderCast     delivery's promise, while a topic is connected
Vitis, Magnet  never is anything delivered twice, out of order or to strangers; what is published after the repair
               reaches every subscriber
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from trellis.protocols.delivery.messages import Push
from trellis.protocols.effects import Deliver
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.mesh import DrivenOverlay, MeshNode
from trellis.simulate.check import CheckConfig
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.seeds import CheckSummary, check_seeds
from trellis.simulate.systems.delivery import Delivery

SMALL = CheckConfig(instance=InstanceDraw(nodes=9, topics=5, subscriptions=2))
SPARSE = CheckConfig(instance=InstanceDraw(nodes=12, topics=8, subscriptions=2))  # clusters that only relays connect
PLAN = FaultPlan(start_ms=8_000, span_ms=15_000, duration_ms_max=6_000)
SHORT: dict[str, Any] = {"interest_ms": 4_000, "leave_ms_max": 5_000, "publish_timeout_ms": 9_000, "every_ms": 3_000}
# Tables and fingers are fewer than nodes, so that some must relay.
BELOW: dict[str, dict[str, Any]] = {
    "spidercast": {"gossip": GossipViewConfig(age_max=20)},
    "vitis": {"table_size": 3},
    "magnet": {"links": 6, "join_gap_ms": 50},
}
NAMES = tuple(BELOW)


def over(overlay: str, kind: type[Delivery] = Delivery, **more: Any) -> partial[Delivery]:
    options = {"plan": PLAN, "repair_ms": 40_000, **SHORT, **more}
    return partial(kind, overlay=overlay, below=BELOW[overlay], **options)


def checked(make: partial[Delivery], seeds: int, first_seed: int = 1, config: CheckConfig = SMALL) -> CheckSummary:
    return check_seeds(make, seeds=seeds, first_seed=first_seed, config=config, shrink_runs_max=0)


def assert_all_hold(summary: CheckSummary) -> None:
    assert summary.holds, "\n".join(summary.lines())


@pytest.mark.parametrize("seeds", [10, pytest.param(30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("overlay", NAMES)
def test_what_is_said_of_delivery_holds_over_many_seeds(overlay, seeds):
    summary = checked(over(overlay), seeds)
    assert_all_hold(summary)
    if overlay != "spidercast":
        assert summary.counts["relays at the end"] > 0
        assert summary.counts["deliveries due of them"] > 33 * seeds


@pytest.mark.parametrize("overlay", NAMES)
def test_messages_that_went_over_the_wire_change_nothing_of_that(overlay):
    config = CheckConfig(instance=SMALL.instance, encode=True)
    assert not checked(over(overlay), 3, first_seed=50, config=config).failures


# So long that nobody remembers anybody on the other side: 30 rounds of gossip, which Magnet's nodes do every 2 s.
LONG_CUTS = FaultPlan(
    kinds=("partition",), start_ms=8_000, span_ms=80_000, duration_ms_min=70_000, duration_ms_max=75_000, faults_max=3
)


@pytest.mark.parametrize("overlay", NAMES)
def test_halves_that_were_cut_apart_for_long_find_each_other_through_a_seed(overlay):
    # A publisher keeps what it publishes for others only as long as it is interested: longer than the cut.
    more = {"interest_ms": 80_000} if overlay == "spidercast" else {}
    summary = checked(over(overlay, plan=LONG_CUTS, **more), 1, config=SPARSE)
    assert_all_hold(summary)
    assert summary.injected["partition"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("overlay", NAMES)
def test_what_is_said_of_delivery_holds_over_three_hundred_seeds_of_larger_meshes(overlay):
    config = CheckConfig(instance=InstanceDraw(nodes=14, topics=6, subscriptions=3))
    make = partial(Delivery, overlay=overlay, below={**BELOW[overlay], **({"links": 8} if overlay == "magnet" else {})})
    assert_all_hold(check_seeds(make, seeds=300, first_seed=1_000, config=config))


# Bugs that somebody could make.


class ForgetsItsSeeds(Delivery):
    """Halves of a mesh that have forgotten each other stay apart."""

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[str, ...]) -> MeshNode:
        overlay.node.sampling.contacts.revisit_rounds = 0  # type: ignore[attr-defined]
        return super().make_mesh(overlay, topics)


class NothingOverRelayPaths(Delivery):
    """Relays of Vitis are asked for nothing: clusters of a topic stay apart."""

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[str, ...]) -> MeshNode:
        overlay.node.relays.shared_with = lambda neighbor: frozenset()  # type: ignore[attr-defined]
        return super().make_mesh(overlay, topics)


class ForwardersKeepNothing(Delivery):
    """Forwarders of Magnet take no part in what they do not want."""

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[str, ...]) -> MeshNode:
        bits = overlay._bits  # type: ignore[attr-defined]
        node: Any = overlay.node
        overlay._bits = lambda names: bits(set(names).intersection(node.topics))  # type: ignore[attr-defined]
        return super().make_mesh(overlay, topics)


class DeafToComparisons(Delivery):
    """What a new neighbour lacks is not sent to it."""

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[str, ...]) -> MeshNode:
        mesh = super().make_mesh(overlay, topics)
        mesh.delivery.comparison._send_what_is_lacking = lambda *_: None  # type: ignore[method-assign]
        return mesh


class HandsOverTwice(Delivery):
    """What an overlay brings twice is handed over twice."""

    def make_mesh(self, overlay: DrivenOverlay, topics: tuple[str, ...]) -> MeshNode:
        mesh = super().make_mesh(overlay, topics)
        push = mesh.delivery._handlers[Push]

        def on_push(peer: str, item: Push) -> None:
            topic = mesh.delivery.state.topics.get(item.topic)
            stream = topic.streams.get((item.origin, item.incarnation)) if topic is not None else None
            if stream is not None and topic.is_wanted and item.sequence in stream.seen:
                mesh.delivery.state.out.append(Deliver(item.topic, item.origin, item.sequence, item.payload))
            push(peer, item)

        mesh.delivery._handlers[Push] = on_push
        return mesh


def test_a_mesh_that_forgets_its_seeds_is_found():
    summary = checked(over("vitis", ForgetsItsSeeds, plan=LONG_CUTS), 1, config=SPARSE)
    assert summary.failures


@pytest.mark.parametrize(
    ("overlay", "kind", "words"),
    [
        ("vitis", NothingOverRelayPaths, "missing"),
        ("magnet", ForwardersKeepNothing, "missing"),
        ("spidercast", DeafToComparisons, "missing"),
        ("vitis", HandsOverTwice, "twice"),
        ("magnet", HandsOverTwice, "twice"),
    ],
)
def test_the_checker_finds_a_bug_within_twenty_seeds(overlay, kind, words):
    found = check_seeds(over(overlay, kind), seeds=20, config=SPARSE, failures_max=1, shrink_runs_max=0).failures
    assert [words for failure in found if words in (failure.result.failure or "")] == [words]
