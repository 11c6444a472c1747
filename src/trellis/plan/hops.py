"""Add links to a topic-connected overlay that bound the largest topic diameter.

This is an option of ours (GooPS asks for three hops; the papers here bound no diameter). Each topic whose diameter
exceeds H is shortened. Topics of few subscribers come first, because their links also serve larger topics.

H = 1      Every two subscribers are linked.
H even     The *center* is the subscriber with most others within r = H / 2 hops. With caps, nodes to which it could
           still be linked count as well. A node is far if it is more than r hops from the center. Repeatedly, the far
           node with most far nodes around it is linked to a node that is less than r hops from the center. The partner
           is the one that brings most far nodes near for its cost. Then it is the one that shares most topics, then the
           one with fewer links. If no node is far, any two are within 2 r hops.
H odd      The same with r = (H - 1) / 2 and two centers that are linked to each other.

Without caps, every topic can meet any bound H of 1 or more. A node with a cap takes no link beyond it. A topic that
then cannot meet the bound keeps the links that it had, and is reported.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError
from trellis.measure.diameters import topic_diameters
from trellis.model.interests import Interests, OffsetArray
from trellis.model.names import IdArray
from trellis.model.overlay import Overlay
from trellis.plan import hops_kernel as kernel
from trellis.plan.edges import Progress
from trellis.plan.priced import Limits
from trellis.plan.priced_kernel import UNCAPPED


@dataclass(frozen=True)
class Short:
    """What a bound of hops has cost, and where it is not met."""

    hops_max: int
    links_before: int
    links_added: int
    degree_max_before: int
    diameter_before: int  # the largest topic diameter without the added links
    diameter: int  # the largest topic diameter with them
    topics_shortened: int
    unmet: tuple[tuple[str, int], ...]  # topics that stay longer because caps forbid the links, with their diameters


def expect_hops(hops_max: int) -> None:
    """Raise InputError if no topic could meet the bound."""
    if hops_max < 1:
        what = f"{hops_max} cannot be met by any topic of two subscribers or more"
        raise InputError("--hops-max", what, "give 1 or more; 3 is a common choice")


def shorten(
    interests: Interests,
    overlay: Overlay,
    hops_max: int,
    limits: Limits,
    offsets: OffsetArray,
    topics: IdArray,
    *,
    progress: Progress | None = None,
) -> tuple[IdArray, IdArray, Short]:
    """Return both ends (ids) of the links to add to a topic-connected overlay, and what they change.

    limits           costs and caps by rank
    offsets, topics  the interests in CSR form, the nodes by rank
    """
    expect_hops(hops_max)
    before = topic_diameters(interests, overlay)
    long = np.flatnonzero(before.diameter > hops_max)
    order = long[np.lexsort((long, interests.popularity[long]))]
    links = _Links(overlay, limits, offsets, topics)
    for done, topic in enumerate(order.tolist()):
        links.shorten(np.sort(links.rank[interests.nodes_of(topic)]), hops_max)
        if progress is not None and done % 64 == 0:
            progress(done, len(order))
    u, v = links.new()
    longer = Overlay.from_ids(interests.nodes, np.concatenate([overlay.u, u]), np.concatenate([overlay.v, v]))
    after = topic_diameters(interests, longer)
    unmet = np.flatnonzero(after.diameter > hops_max)
    worst = unmet[np.lexsort((unmet, -after.diameter[unmet]))]
    assert len(unmet) <= links.unmet, "a topic is longer than the kernel says"
    return (
        u,
        v,
        Short(
            hops_max,
            len(overlay),
            len(u),
            int(overlay.degrees.max(initial=0)),
            before.maximum or 0,
            after.maximum or 0,
            len(long) - len(unmet),
            tuple((interests.topics[topic], int(after.diameter[topic])) for topic in worst.tolist()),
        ),
    )


class _Links:
    """All links as lists that the kernel reads and extends. Nodes are given by rank."""

    def __init__(self, overlay: Overlay, limits: Limits, offsets: OffsetArray, topics: IdArray) -> None:
        nodes = len(overlay.nodes)
        self.order = limits.order
        self.rank = np.empty(nodes, np.int32)
        self.rank[self.order] = np.arange(nodes, dtype=np.int32)
        self.before = self.count = len(overlay)
        self.unmet = self.stamp = 0
        self.head = np.full(nodes, -1, np.int64)
        self.following, self.to = np.empty(2 * self.count, np.int64), np.empty(2 * self.count, np.int32)
        kernel.link_list(self.rank[overlay.u], self.rank[overlay.v], self.head, self.following, self.to)
        degrees = overlay.degrees[self.order].astype(np.int64)
        room = np.where(limits.links_max >= UNCAPPED, UNCAPPED, np.maximum(limits.links_max - degrees, 0))
        self.limits = (room.astype(np.int64), np.asarray(offsets, np.int64), topics, degrees, *_prices(limits))
        self.scratch = tuple(np.zeros((3, nodes), np.int64))
        self.mark = np.zeros(nodes, np.int64)

    def shorten(self, nodes: IdArray, hops_max: int) -> None:
        """Bring one topic within its bound, if the caps allow it."""
        most = len(nodes) * (len(nodes) - 1) // 2 if hops_max == 1 else len(nodes) + 1
        self._make_space(self.count + most)
        self.stamp += 1
        verdict, self.count = kernel.shorten_topic(
            nodes,
            hops_max,
            (self.head, self.following, self.to),
            self.limits,
            self.count,
            self.mark,
            self.stamp,
            *self.scratch,
        )
        self.unmet += verdict == kernel.UNMET

    def new(self) -> tuple[IdArray, IdArray]:
        """Return both ends of each added link, as ids."""
        ends = self.order[self.to[2 * self.before : 2 * self.count]].reshape(-1, 2)
        return ends[:, 1].copy(), ends[:, 0].copy()

    def _make_space(self, links: int) -> None:
        if 2 * links > len(self.to):
            more = max(2 * links, 2 * len(self.to)) - len(self.to)
            self.following = np.concatenate([self.following, np.empty(more, np.int64)])
            self.to = np.concatenate([self.to, np.empty(more, np.int32)])


def _prices(limits: Limits) -> tuple[npt.NDArray[np.generic], ...]:
    """Return the arguments of `cost_between`: the place of each rank and the number of places, keys, costs, default."""
    costs = limits.costs
    if costs is None:
        return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0), np.ones(1)
    place = np.append(costs.place[limits.order].astype(np.int64), len(costs.places))
    return place, costs.keys, costs.values, np.array([np.nan if costs.default is None else costs.default])
