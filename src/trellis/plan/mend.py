"""Repair an overlay: find the links that make it topic-connected again after a loss, or that connect a new node.

Every repair has two halves. `mend_components` finds which topics fell apart, and `mend_pick` chooses links by the rule
of LowODA. The candidates are the nodes that may be ends of new links: the shadow set, or all nodes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.model.names import IdArray
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.mend_components import newcomer_signatures, required, signatures
from trellis.plan.mend_pick import pick


class NewLinks(NamedTuple):
    """Ends of E_new by rank, in the order in which they were chosen, the lower end in `us`."""

    us: IdArray
    ws: IdArray


class Required(NamedTuple):
    """For each topic, the nodes that must end in one component. A node may be listed twice."""

    topics: IdArray
    offsets: npt.NDArray[np.int64]
    nodes: IdArray


NO_LINKS = NewLinks(np.empty(0, np.int32), np.empty(0, np.int32))


def required_after(current: CurrentOverlay, gone: npt.ArrayLike, only_topic: int = -1) -> Required:
    """Return the nodes that the loss of `gone` (or of one of their topics) may separate. Call this before the loss.

    The loss of several nodes is one event, and the neighbors of all of them are required together. If they were
    repaired one by one, a repair could rely on links through another lost node.
    """
    lost = np.asarray(gone, np.int32)
    return Required(
        *required(
            *current.topics_of.arrays, *current.neighbors.arrays, len(current.topic_names), lost, np.int64(only_topic)
        )
    )


def reconnect(
    current: CurrentOverlay, apart: Required, candidates: IdArray, *, rho: float, components: str = "overlay"
) -> NewLinks:
    """Return E_new after a loss: Alg. 4 with all nodes as candidates, Alg. 7 with the shadow set.

    `candidates` are ascending.

    `components` says what counts as connected (A-SHD-11). `overlay`: components of the whole overlay. `shadow`:
    components of the part that the candidates induce, and all candidates must be connected. `neighbors`: components of
    that part as well, but only the required nodes must be connected. Deviation: the listing says `shadow`; only
    `overlay` comes near the paper's figures, and is the default.
    """
    if components == "shadow":
        apart = _all_candidates(current, apart.topics, candidates)
    has, label, parts = signatures(
        *current.neighbors.arrays,
        *current.members.arrays,
        *apart,
        candidates,
        components != "overlay",
        components == "neighbors",
    )
    return _picked(current, has, label, parts, candidates, rho, hub=-1)


def connect_newcomer(
    current: CurrentOverlay,
    node: int,
    topics: IdArray,
    candidates: IdArray,
    *,
    rho: float,
    components: str = "overlay",
) -> NewLinks:
    """Return links from `node` until it is connected on `topics`, on which it has no neighbor yet.  [SH Alg. 3, 10]

    `node` is present with its topics. `candidates` are ascending and include it. A topic without another subscriber
    needs no link. For every other topic the candidates must include a subscriber.
    """
    if components == "shadow":
        apart = _all_candidates(current, topics, candidates)
        has, label, parts = signatures(
            *current.neighbors.arrays, *current.members.arrays, *apart, candidates, True, False
        )
    else:
        shared = topics[current.members.length[topics] > 1]
        has, label, parts = newcomer_signatures(
            *current.topics_of.arrays, len(current.topic_names), node, shared, candidates
        )
    return _picked(current, has, label, parts, candidates, rho, hub=int(np.searchsorted(candidates, node)))


def _picked(
    current: CurrentOverlay,
    has: npt.NDArray[np.uint64],
    label: npt.NDArray[np.uint64],
    parts: npt.NDArray[np.int64],
    candidates: IdArray,
    rho: float,
    hub: int,
) -> NewLinks:
    if not len(parts):
        return NO_LINKS
    rows = pick(has, label, parts, current.degrees[candidates], current.degree_max, float(rho), hub)
    assert np.all(parts == 1), "the candidates cannot connect every topic: they lack a required node or a subscriber"
    return NewLinks(candidates[rows[0]], candidates[rows[1]])


def _all_candidates(current: CurrentOverlay, topics: IdArray, candidates: IdArray) -> Required:
    """Require, as Alg. 7 and 10 literally say, that all of the shadow set is connected on every topic."""
    nodes = [current.subscribers_among(candidates, topic) for topic in topics]
    offsets = np.zeros(len(topics) + 1, np.int64)
    np.cumsum([len(subscribers) for subscribers in nodes], out=offsets[1:])
    return Required(topics, offsets, np.concatenate(nodes) if nodes else np.empty(0, np.int32))
