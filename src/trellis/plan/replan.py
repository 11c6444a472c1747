"""Find few link changes that bring an existing overlay near a plan, in an order that never splits a topic.

A mesh whose nodes all joined at once has up to three times the links of a plan. `replan` looks for a *target* that
keeps many present links. It has at most `within` times the links of a fresh LowODA plan. Its maximum degree is not
greater than that of the present overlay or of that plan. The target is planned with costs: a new link costs a
*surcharge* more than one that exists. Among several surcharges the largest that meets both bounds is taken, by LowODA's
rule or by GM's, whichever needs fewer changes. If none does, the fresh plan itself is the target. For instances that
are too large to compare all pairs of nodes, links are chosen among the existing ones and those of the fresh plan.

All new links come first, then links are removed. So the overlay contains all present links until the last link is
added, and the whole target from then on:

R1  After each change, no topic has more parts than at the start. After the last addition none is split.
R2  With connectivity 2, the loss of any one node splits no topic after the last addition.

This is an option of ours; the papers do not have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trellis.errors import InputError
from trellis.measure.check import check_overlay
from trellis.model.costs import LinkCosts
from trellis.model.interests import Interests
from trellis.model.names import IdArray
from trellis.model.overlay import Overlay
from trellis.plan.api import plan
from trellis.plan.construction import construct
from trellis.plan.edges import Progress
from trellis.plan.tables import Shape

RULES = ("lowoda", "gm")
SURCHARGES = (2.0, 1.0, 0.5, 0.25, 0.1)  # additional cost of a new link, in units of an existing link
WITHIN = 1.05  # most links of a target, as a multiple of those of a fresh plan

Keys = npt.NDArray[np.int64]


class Change(NamedTuple):
    """One link to add or to remove."""

    do: Literal["add", "remove"]
    u: str
    v: str


@dataclass(frozen=True, eq=False)
class Replan:
    """A target, and the changes that lead to it. Ids are those of the interests."""

    present: Overlay
    target: Overlay
    plan_links: int  # links of LowODA's plan for these interests
    surcharge: float | None  # the surcharge that gave the target; None: it was given, or is the fresh plan
    add_u: IdArray  # new links, in the order in which they are to be added
    add_v: IdArray
    remove_u: IdArray  # links to remove, in this order, after all additions
    remove_v: IdArray

    def __len__(self) -> int:
        """Return the number of changes."""
        return len(self.add_u) + len(self.remove_u)

    def changes(self) -> Iterator[Change]:
        """Yield the changes in their order: all additions, then all removals."""
        name = self.present.nodes.__getitem__
        for u, v in zip(self.add_u.tolist(), self.add_v.tolist(), strict=True):
            yield Change("add", name(u), name(v))
        for u, v in zip(self.remove_u.tolist(), self.remove_v.tolist(), strict=True):
            yield Change("remove", name(u), name(v))


def replan(
    interests: Interests,
    present: Overlay,
    *,
    target: Overlay | None = None,
    within: float = WITHIN,
    connectivity: int = 1,
    rho: float = 3.0,
    seed: int | str = 0,
    progress: Progress | None = None,
) -> Replan:
    """Return the changes that lead from `present` to an overlay with few links. New links come first.

    target        use this overlay as the target; it must connect every topic
    within        most links of the target, as a multiple of those of LowODA's plan: 1 or more. A higher value saves
                  changes
    connectivity  2: a target in which the loss of any one node splits no topic
    progress      called with the progress of the fresh plan
    """
    if not within >= 1:
        raise InputError("--within", f"it is {within:g}", "give 1 or more")
    if present.nodes != interests.nodes:
        raise InputError("", "the overlay is over other nodes", "give one over the nodes of the interests")
    fresh = plan(interests, rho=rho, connectivity=connectivity, seed=seed, progress=progress).overlay
    surcharge = None
    if target is None:
        target, surcharge = _target(interests, present, fresh, within, connectivity, rho, seed)
    else:
        _expect_connected(interests, target, connectivity)
    here, there = _keys(present), _keys(target)
    added, removed = there[~np.isin(there, here)], here[~np.isin(here, there)]
    degrees = present.degrees + np.bincount(_ends(added, present).ravel(), minlength=len(present.nodes))
    add, remove = (_in_order(keys, present, degrees) for keys in (added, removed))
    return Replan(present, target, len(fresh), surcharge, *add, *remove)


def changes_table(changes: Sequence[Change]) -> pa.Table:
    """Return a table with columns do, u and v: one row for each change, in their order."""
    return pa.table({name: pa.array([getattr(one, name) for one in changes], pa.string()) for name in Change._fields})


def without_departed(interests: Interests, links: Overlay) -> tuple[Overlay, list[Change]]:
    """Return the links between nodes that have interests, and the removal of the others.

    Telemetry tells when a node has left or has unsubscribed from its last topic. No topic needs its links any more.
    """
    place = interests.nodes.ids_of(links.nodes.array)
    u, v = place[links.u], place[links.v]
    stays = (u >= 0) & (v >= 0)
    name = links.nodes.__getitem__
    ends = zip(links.u[~stays].tolist(), links.v[~stays].tolist(), strict=True)
    return Overlay.from_ids(interests.nodes, u[stays], v[stays]), [Change("remove", name(u), name(v)) for u, v in ends]


def _target(
    interests: Interests,
    present: Overlay,
    fresh: Overlay,
    within: float,
    connectivity: int,
    rho: float,
    seed: int | str,
) -> tuple[Overlay, float | None]:
    """Return the target, and the surcharge that gave it."""
    here = _keys(present)
    shape = Shape.of(interests.node_offsets, interests.node_topics, len(interests.topics))
    is_large = shape.prefers_sampling(is_limited=True) and connectivity == 1
    among = _overlay(np.union1d(here, _keys(fresh)), present) if is_large else None
    degree_max = max(present.degrees.max(initial=0), fresh.degrees.max(initial=0))
    best, chosen = fresh, None
    for rule in RULES:
        for surcharge in SURCHARGES:
            costs = _costs(present, surcharge)
            if among is not None:
                candidate = construct(interests, rule, rho=rho, candidates=among, costs=costs, seed=seed).overlay
            else:
                candidate = plan(interests, rule, rho=rho, connectivity=connectivity, costs=costs, seed=seed).overlay
            if len(candidate) > within * len(fresh) or candidate.degrees.max(initial=0) > degree_max:
                continue
            if len(np.setxor1d(_keys(candidate), here)) < len(np.setxor1d(_keys(best), here)):
                best, chosen = candidate, surcharge
            break  # Smaller surcharges need more changes.
    return best, chosen


def _costs(present: Overlay, surcharge: float) -> LinkCosts:
    keys = _keys(present)
    place = np.arange(len(present.nodes), dtype=np.int32)
    return LinkCosts(present.nodes, place, present.nodes, keys, np.ones(len(keys)), 1 + surcharge)


def _expect_connected(interests: Interests, target: Overlay, connectivity: int) -> None:
    if target.nodes != interests.nodes:
        raise InputError("", "the target is over other nodes", "give one over the nodes of the interests")
    checked = check_overlay(interests, target, diameters=False, connectivity=connectivity)
    if not checked.is_tco:
        what = f"the target splits {len(checked.split):,} topics: {checked.split[0]}"
        raise InputError("--target", what, "make it with trellis plan")
    if checked.is_two_connected is False:
        what = "the loss of a single node would split a topic of the target"
        raise InputError("--target", what, "make it with trellis plan --connectivity 2, or leave --connectivity out")


def _in_order(keys: Keys, overlay: Overlay, degrees: npt.NDArray[np.int64]) -> tuple[IdArray, IdArray]:
    """Return the links with most other links at their ends first, to relieve the most loaded nodes soonest."""
    u, v = _ends(keys, overlay)
    order = np.lexsort([keys, -(degrees[u] + degrees[v])])
    return u[order].astype(np.int32), v[order].astype(np.int32)


def _keys(overlay: Overlay) -> Keys:
    """Return a number for each link, ascending."""
    return overlay.u.astype(np.int64) * len(overlay.nodes) + overlay.v


def _ends(keys: Keys, overlay: Overlay) -> npt.NDArray[np.int64]:
    return np.stack(np.divmod(keys, max(len(overlay.nodes), 1)))


def _overlay(keys: Keys, like: Overlay) -> Overlay:
    return Overlay.from_ids(like.nodes, *_ends(keys, like))
