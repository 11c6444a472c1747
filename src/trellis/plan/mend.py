"""Mending: which links make the overlay topic-connected again after a loss, or connect a newcomer.

The two halves of every repair: `mend_components` says what fell apart, `mend_pick` takes links by the rule of
LowODA. The candidates are whoever may be an end of a new link: the shadow set, or everybody.
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
    """Ends of E_new by rank, in the order they were taken, the lower end in `us`."""

    us: IdArray
    ws: IdArray


class Required(NamedTuple):
    """For each topic, the nodes that must end in one component; a node may stand there twice."""

    topics: IdArray
    offsets: npt.NDArray[np.int64]
    nodes: IdArray


NO_LINKS = NewLinks(np.empty(0, np.int32), np.empty(0, np.int32))


def required_after(current: CurrentOverlay, gone: npt.ArrayLike, only_topic: int = -1) -> Required:
    """Whom the loss of `gone` may tear apart (or of one topic of theirs). Ask before they go.

    Several nodes are one event: the neighbours of all of them are required together. Mended one by one, each could
    count on links through another that is gone too.
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
    """E_new after a loss: Alg. 4 with everybody as candidates, Alg. 7 with the shadow set. `candidates` ascend.

    `components` says what counts as connected (A-SHD-11): `overlay`, components of the whole overlay; `shadow`, of
    the part that the candidates induce, all of which must be connected; `neighbors`, of that part as well, but only
    the required nodes must be connected.
    Deviation: the listing says `shadow`; only `overlay` comes near the paper's figures, and is the default.
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
    """Links from `node` until it is connected on `topics`, on which it has no neighbour yet.  [SH Alg. 3, 10]

    `node` is present with its topics; `candidates` ascend and hold it. A topic without another subscriber needs
    nothing; for every other one the candidates must hold a subscriber.
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
    """The literal Alg. 7 and 10: all of the shadow set must be connected on every topic."""
    nodes = [current.subscribers_among(candidates, topic) for topic in topics]
    offsets = np.zeros(len(topics) + 1, np.int64)
    np.cumsum([len(found) for found in nodes], out=offsets[1:])
    return Required(topics, offsets, np.concatenate(nodes) if nodes else np.empty(0, np.int32))
