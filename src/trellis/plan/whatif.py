"""Compute what would happen if given nodes, or the worst ones, left. The answers are computed on a copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trellis.errors import InputError
from trellis.measure.connectivity import SplitTopic, connectivity, split_topics
from trellis.measure.cuts import pieces_without
from trellis.measure.induced import over_the_same_nodes
from trellis.model.costs import LinkCaps, LinkCosts
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay
from trellis.plan.construction import construct
from trellis.plan.excess import Excess
from trellis.plan.maintain import algorithm_for, expect_tco
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.naive import Everyone
from trellis.plan.shadows import Shadows

Link = tuple[str, str]


@dataclass(frozen=True)
class Degrees:
    """The maximum and mean degree of an overlay."""

    maximum: int
    mean: float


@dataclass(frozen=True)
class CostChange:
    """The cost of all links, if costs are known."""

    before: float
    lost: float  # of links that end with the nodes
    new: float  # of links that the repair adds
    after: float


@dataclass(frozen=True)
class LeaveAnswer:
    """What would split if `nodes` left at once, and how it would be repaired."""

    nodes: tuple[str, ...]
    splits: tuple[SplitTopic, ...]  # without repair; most components first
    extra_components: int  # over all topics, without repair
    links_lost: tuple[Link, ...]
    links_new: tuple[Link, ...]
    shadow_set: int
    before: Degrees
    after: Degrees
    degree_changes: tuple[tuple[str, int, int], ...]  # of the remaining nodes: node, before, after
    cost: CostChange | None = None  # None: no costs were given
    excess: tuple[Excess, ...] = ()  # nodes that would have more links than their cap allows


@dataclass(frozen=True)
class Loss:
    """What would happen if this node left alone, without repair."""

    node: str
    extra_components: int  # how many more components than before, over all topics
    split_topics: int
    degree: int
    subscriptions: int
    links_cost: float | None = None  # cost of all its links; None: no costs were given


def what_if_leave(
    interests: Interests,
    overlay: Overlay,
    nodes: Sequence[str],
    config: MaintainConfig | None = None,
    costs: LinkCosts | None = None,
    caps: LinkCaps | None = None,
) -> LeaveAnswer:
    """Return what `maintain` would do if this were its first event. Several nodes leave as one event.

    If they were repaired one after the other, a node could be judged connected through another that is leaving too. So
    the neighbors of all of them are required together. With costs or caps, the new links are chosen among the same
    nodes, but by the rule of `trellis.plan.priced`.
    """
    config = MaintainConfig() if config is None else config
    unknown = [name for name in nodes if name not in interests.nodes]
    if unknown or not nodes:
        what = f'there is no node "{unknown[0]}"' if unknown else "no node is named"
        raise InputError("", what, "name nodes of the interests")
    over_the_same_nodes(interests, overlay)
    leaving = tuple(dict.fromkeys(nodes))
    current = CurrentOverlay.of(interests, overlay, config.seed)
    expect_tco(current)
    ranks = [current.rank_of[name] for name in leaving]
    links, degrees = _links(current), current.degrees.copy()
    before = Degrees(current.degree_max, current.degree_mean)
    excess: tuple[Excess, ...] = ()
    if costs is None and caps is None:
        shadow_set = algorithm_for(current, config).leave(ranks, 1).shadow_set
    else:
        shadow_set, excess = _repair_within_limits(current, ranks, config, costs, caps)
    after = _links(current)
    changed = np.flatnonzero((degrees != current.degrees) & current.present)
    splits, extra = _unmended(interests, overlay, leaving)
    return LeaveAnswer(
        leaving,
        splits,
        extra,
        tuple(sorted(links - after)),
        tuple(sorted(after - links)),
        shadow_set,
        before,
        Degrees(current.degree_max, current.degree_mean),
        tuple(
            sorted((current.names[rank], int(degrees[rank]), int(current.degrees[rank])) for rank in changed.tolist())
        ),
        None if costs is None else _cost_change(costs, links, after),
        excess,
    )


def _repair_within_limits(
    current: CurrentOverlay,
    leaving: list[int],
    config: MaintainConfig,
    costs: LinkCosts | None,
    caps: LinkCaps | None,
) -> tuple[int, tuple[Excess, ...]]:
    """Let the nodes leave, and link nodes of their shadow set. Return its size, and the nodes with too many links then.

    The shadow set has all neighbors of the nodes, so links inside it can connect every topic again.
    """
    sets = (
        Everyone(current)
        if config.algorithm == "naive"
        else Shadows(current, config.backups, config.coverage_factor, config.seed)
    )
    shadow = sets.of_leavers(np.asarray(leaving, np.int32))
    for rank in leaving:
        current.dismiss(rank)
    left, base = current.interests(), current.overlay()
    us, ws = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for index, rank in enumerate(shadow.tolist()):
        others = shadow[index + 1 :]
        ws.append(others[current.shared_topics(rank, others) > 0])
        us.append(np.full(len(ws[-1]), rank, np.int32))
    of_rank = left.nodes.ids_of(current.names.array)
    among = Overlay.from_ids(left.nodes, of_rank[np.concatenate(us)], of_rank[np.concatenate(ws)])
    made = construct(
        left,
        "lowoda",
        rho=config.rho,
        existing=base,
        candidates=among,
        costs=None if costs is None else costs.over(left.nodes),
        caps=None if caps is None else caps.over(left.nodes),
        seed=config.seed,
    )
    assert not len(made.split_topics), "the shadow set cannot connect every topic: it lacks a neighbor"
    current.link_as(Overlay.from_ids(left.nodes, made.new_u, made.new_v))
    return len(shadow), made.excess


def _cost_change(costs: LinkCosts, before: set[Link], after: set[Link]) -> CostChange:
    sums = []
    for links in (before, before - after, after - before, after):
        ends = zip(*sorted(links), strict=True) if links else ((), ())
        sums.append(costs.total(*(costs.nodes.ids_of(names) for names in ends)))
    return CostChange(*sums)


def what_if_worst(
    interests: Interests, overlay: Overlay, count: int, costs: LinkCosts | None = None
) -> tuple[Loss, ...]:
    """Return the `count` nodes whose loss alone would split most, by the sum over topics of extra components.

    Equal nodes come in the order of the instance. Nodes whose loss splits nothing are left out.
    """
    if count < 1:
        raise InputError("", f"the {count} worst nodes were asked for", "ask for 1 or more")
    more = np.maximum(pieces_without(interests, overlay) - 1, 0)
    extra = np.bincount(interests.topic_nodes, more, minlength=len(interests.nodes)).astype(np.int64)
    splits = np.bincount(interests.topic_nodes, more > 0, minlength=len(interests.nodes)).astype(np.int64)
    worst = np.argsort(-extra, kind="stable")[:count]
    return tuple(
        Loss(
            interests.nodes[node],
            int(extra[node]),
            int(splits[node]),
            int(overlay.degrees[node]),
            int(interests.sizes[node]),
            None if costs is None else costs.total(np.full(overlay.degrees[node], node), overlay.neighbors_of(node)),
        )
        for node in worst
        if extra[node]
    )


def _unmended(interests: Interests, overlay: Overlay, leaving: Sequence[str]) -> tuple[tuple[SplitTopic, ...], int]:
    current = CurrentOverlay.of(interests, overlay, 0)
    for name in leaving:
        current.dismiss(current.rank_of[name])
    left = current.interests()
    result = connectivity(left, current.overlay())
    return tuple(split_topics(left, result)), result.missing


def _links(current: CurrentOverlay) -> set[Link]:
    """Return the links by name, with the ends of each in the order of their names."""
    us, ws = (current.names.take(ends).to_pylist() for ends in current.pairs())
    return {(min(u, w), max(u, w)) for u, w in zip(us, ws, strict=True)}
