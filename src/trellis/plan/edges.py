"""Run GM, MinMaxODA and LowODA on arrays: a set of nodes, their TC-components, their degrees.  [SH Alg. 2]

`trellis.plan.construction` calls this with whole instances. Maintenance calls it with the few nodes of a shadow set,
the TC-components that they have in the whole overlay, and their real degrees [A-LOW-3].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray
from trellis.plan.candidates import Candidates
from trellis.plan.kernel import choose_edges
from trellis.plan.light import choose_light_edges, weigh
from trellis.plan.state import ALL, COMPONENT, DEGREE_MAX, EDGES, GIANT, LEFT, LEVEL, LISTS, LOW, SIZE, TOPIC, State
from trellis.plan.tables import Shape, make_components, make_pairs, make_ties

Progress = Callable[[int, int], None]  # TC-components joined so far, and all that are to be joined
EDGES_PER_CALL = 4096  # few enough that a run can be interrupted and shows its progress


class Edges(NamedTuple):
    """Edges (i, j), i < j, in the order in which they were chosen, and the contribution of each."""

    i: IdArray
    j: IdArray
    contribution: IdArray
    split: IdArray  # topics that stay split, because no candidate joins them [A-LOW-4]


def low_edges(
    offsets: OffsetArray,
    topics: IdArray,
    topic_count: int,
    component: IdArray,
    degrees: npt.NDArray[np.integer],
    degree_max: int,
    *,
    rho: float = 3.0,
    light: bool = False,
    candidates: Candidates | None = None,
    form: int | None = None,
    progress: Progress | None = None,
) -> Edges:
    """Return E_new, which connects the nodes here in each of their topics.

    Nodes are given by rank (`trellis.plan.ties`), and the tie rule is "smallest (i, j), i < j". Lighter edges may be
    preferred before that. The uncovered topics of a node are then those in which it is a TC-component of its own.

    offsets, topics  the interests of these nodes in CSR form, topics ascending within a node
    component        for each entry of `topics` the entry that stands for its TC-component, as from
                     `trellis.plan.components`
    degree_max       D, the maximum degree that counts: of these nodes, or of the whole overlay
    rho              parameter of LowODA; with 1 it is GM, with infinity it always takes e2
    light            MinMaxODA: always e2, and lighter edges first (`trellis.plan.light`)
    candidates       E_pot; all pairs if not given
    form             how pairs are kept (`trellis.plan.tables`); it changes the time, not the result
    """
    nodes = len(offsets) - 1
    if form is None:
        form = LISTS if candidates is not None else Shape.of(offsets, topics, topic_count).best_form()
    components = make_components(offsets, topics, topic_count, component)
    pairs = make_pairs(form, components, candidates)
    degrees = np.array(degrees, np.int64)
    pairs.active[LOW, :nodes] = np.where(degrees < degree_max, pairs.active[ALL, :nodes], 0)
    cursors = np.zeros((2, 2), np.int64)
    cursors[:, LEVEL] = pairs.rows.max(initial=0)
    left = int(np.count_nonzero(components.slots[:, SIZE]) - np.count_nonzero(components.by_topic[:, GIANT] >= 0))
    totals = np.zeros(3, np.int64)
    totals[DEGREE_MAX], totals[LEFT] = degree_max, left
    state = State(degrees, cursors, totals, np.empty((left, 3), np.int32))
    ties = None
    if light:
        ties = make_ties(pairs)
        weigh(components, pairs, state, ties)
    done = False
    while not done:
        edges_max = totals[EDGES] + EDGES_PER_CALL
        if ties is None:
            done = choose_edges(components, pairs, state, float(rho), edges_max)
        else:
            done = choose_light_edges(components, pairs, state, ties, edges_max)
        if progress is not None:
            progress(left - int(totals[LEFT]), left)
    i, j, gain = np.ascontiguousarray(state.edges[: totals[EDGES]].T)
    return Edges(i, j, gain, still_split(components.slots) if totals[LEFT] else np.zeros(0, np.int32))


def still_split(slots: IdArray) -> IdArray:
    """Return the topics that have several TC-components."""
    several = np.unique(slots[:, [TOPIC, COMPONENT]], axis=0)[:, 0]
    return np.unique(several[1:][several[1:] == several[:-1]])
