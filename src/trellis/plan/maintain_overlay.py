"""Keep TCO_cur: the present nodes with their topics and links, while nodes join and leave.  [SH Struct 5]

Inside, a node is its *rank*: its index when all nodes that ever occur are ordered by (key, name). Ties between links go
to the smaller (lower rank, higher rank). So kernels only compare ids, and other nodes do not change how a tie ends.
Topics are ids of `topics`.

I1  An absent node has no topics and no links, and is in no list.
I2  `members[t]` holds v iff `topics_of[v]` holds t; `neighbors[v]` holds w iff `neighbors[w]` holds v.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from trellis.jit import njit
from trellis.model.interests import Interests
from trellis.model.names import IdArray, Names
from trellis.model.overlay import Overlay
from trellis.plan.maintain_rows import Rows
from trellis.plan.ties import in_rank_order


class CurrentOverlay:
    """The present overlay, over all nodes and topics that occur in a run."""

    def __init__(self, nodes: Iterable[str], topics: Names, seed: int | str) -> None:
        given = Names(nodes)
        self.names, self.topic_names = Names(given.take(in_rank_order(given, seed))), topics
        self.rank_of = {name: rank for rank, name in enumerate(self.names)}
        self.present = np.zeros(len(self.names), bool)
        self.topics_of = Rows(len(self.names))
        self.members = Rows(len(topics))
        self.neighbors = Rows(len(self.names))
        self.links = 0

    @classmethod
    def of(cls, interests: Interests, overlay: Overlay, seed: int | str) -> CurrentOverlay:
        """Return an overlay in which all nodes of an instance are present, with the links of `overlay`."""
        current = cls(interests.nodes, interests.topics, seed)
        current.admit_all(interests, interests.nodes)
        current.link_as(overlay)
        return current

    def admit_all(self, interests: Interests, names: Iterable[str]) -> None:
        """Add the named nodes of an instance with their topics. All names must be known here."""
        id_of = np.full(len(self.names), -1, np.int64)
        for name in names:
            id_of[self.rank_of[name]] = interests.nodes.id_of(name)
        ranks = np.flatnonzero(id_of >= 0).astype(np.int32)  # ascending, so that lists grow at their end
        topic_of = np.array([self.topic_names.id_of(name) for name in interests.topics], np.int32)
        wanted = [topic_of[interests.topics_of(id_of[rank])] for rank in ranks]
        owners = np.repeat(ranks, [len(topics) for topics in wanted])
        topics = np.concatenate(wanted) if wanted else np.empty(0, np.int32)
        self.present[ranks] = True
        self.topics_of.insert(owners, topics)
        self.members.insert(topics, owners)

    def link_as(self, overlay: Overlay) -> None:
        """Add the links of an overlay, whose names must be known here."""
        rank = np.array([self.rank_of[name] for name in overlay.nodes], np.int32)
        self.link(rank[overlay.u], rank[overlay.v])

    # Changes

    def admit(self, node: int, topics: npt.ArrayLike) -> None:
        assert not self.present[node]
        self.present[node] = True
        self.add_topics(node, topics)

    def dismiss(self, node: int) -> None:
        """Remove the node and all its links."""
        self.unlink(node, self.neighbors[node])
        self.members.remove(self.topics_of[node], node)
        self.topics_of.clear(node)
        self.present[node] = False

    def add_topics(self, node: int, topics: npt.ArrayLike) -> None:
        self.topics_of.insert(node, topics)
        self.members.insert(topics, node)

    def drop_topic(self, node: int, topic: int) -> None:
        self.topics_of.remove(node, [topic])
        self.members.remove([topic], node)

    def link(self, us: IdArray, ws: IdArray) -> None:
        self.neighbors.insert(np.concatenate([us, ws]), np.concatenate([ws, us]))
        self.links += len(us)

    def unlink(self, node: int, others: IdArray) -> None:
        self.neighbors.remove(others, node)
        self.neighbors.remove(node, others)
        self.links -= len(others)

    def unlink_all(self) -> None:
        self.neighbors.length[:] = 0
        self.links = 0

    # Properties

    @property
    def nodes(self) -> int:
        return int(np.count_nonzero(self.present))

    @property
    def everyone(self) -> IdArray:
        return np.flatnonzero(self.present).astype(np.int32)

    @property
    def degrees(self) -> npt.NDArray[np.int64]:
        """Return the degrees of all nodes, 0 for absent ones."""
        return self.neighbors.length

    @property
    def degree_max(self) -> int:
        """Return D(V, E), over the whole overlay (A-LOW-3)."""
        return int(self.degrees.max(initial=0))

    @property
    def degree_mean(self) -> float:
        """Return d(V, E) = 2|E| / |V|."""
        return 2 * self.links / self.nodes if self.links else 0.0

    def shared_topics(self, node: int, others: IdArray) -> npt.NDArray[np.int64]:
        """Return how many topics each of `others` shares with `node`."""
        return _shared(*self.topics_of.arrays, node, others)

    def subscribers_among(self, nodes: IdArray, topic: int) -> IdArray:
        """Return those of `nodes` that subscribe to the topic, ascending."""
        return np.intersect1d(nodes, self.members[topic], assume_unique=True)

    def interests(self) -> Interests:
        """Return the interests of the present nodes.

        A node that dropped its last topic is among them, without topics.
        """
        everyone = self.everyone
        nodes, ids = Names.in_order(self.names.take(everyone))
        sizes = self.topics_of.length[everyone]
        wanted = [self.topics_of[node] for node in everyone]
        topics = np.concatenate(wanted) if wanted else np.empty(0, np.int32)
        return Interests.from_ids(nodes, self.topic_names, np.repeat(ids, sizes), topics)

    def overlay(self) -> Overlay:
        """Return the overlay over the same nodes as `interests()`."""
        everyone = self.everyone
        nodes, ids = Names.in_order(self.names.take(everyone))
        id_of = np.full(len(self.names), -1, np.int32)
        id_of[everyone] = ids
        us, ws = self.pairs()
        return Overlay.from_ids(nodes, id_of[us], id_of[ws])

    def pairs(self) -> tuple[IdArray, IdArray]:
        """Return all links by the ranks of their ends, the lower one first."""
        return _pairs(*self.neighbors.arrays, self.links)


@njit(cache=True)
def _shared(data: Any, start: Any, length: Any, node: Any, others: Any) -> Any:
    shared = np.zeros(len(others), np.int64)
    for o in range(len(others)):
        i, i_end = start[node], start[node] + length[node]
        j, j_end = start[others[o]], start[others[o]] + length[others[o]]
        while i < i_end and j < j_end:
            shared[o] += data[i] == data[j]
            if data[i] <= data[j]:
                i += 1
            else:
                j += 1
    return shared


@njit(cache=True)
def _pairs(data: Any, start: Any, length: Any, links: Any) -> Any:
    us, ws = np.empty(links, np.int32), np.empty(links, np.int32)
    count = 0
    for u in range(len(start)):
        for at in range(start[u], start[u] + length[u]):
            if u < data[at]:
                us[count], ws[count] = u, data[at]
                count += 1
    assert count == links
    return us, ws
