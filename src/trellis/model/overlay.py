"""Define overlays: which nodes are linked.

A simple undirected graph over an instance's nodes.  [OMen §2: G = (V, E)]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trellis.errors import InputError
from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray, Names

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, eq=False)
class Overlay:
    """Links (u, v) with u < v, each once, ascending. Create it with `from_ids` or `from_pairs`."""

    nodes: Names
    u: IdArray
    v: IdArray

    @classmethod
    def from_ids(cls, nodes: Names, u: npt.ArrayLike, v: npt.ArrayLike) -> Overlay:
        """Make an overlay from the ids of both ends of each link, in any order and direction."""
        ends = np.sort(np.stack([np.asarray(u, np.int64).ravel(), np.asarray(v, np.int64).ravel()]), axis=0)
        loops = np.flatnonzero(ends[0] == ends[1])
        if len(loops):
            raise InputError("", f'node "{nodes[ends[0, loops[0]]]}" is linked to itself', "remove the self-loop")
        links = np.sort(ends[0] * len(nodes) + ends[1])
        repeated = np.flatnonzero(links[1:] == links[:-1])
        if len(repeated):
            low, high = divmod(int(links[repeated[0]]), len(nodes))
            raise InputError("", f'the link "{nodes[low]}" - "{nodes[high]}" is repeated', "give each link once")
        low_ends, high_ends = np.divmod(links, max(len(nodes), 1))
        return cls(nodes, low_ends.astype(np.int32), high_ends.astype(np.int32))

    @classmethod
    def from_pairs(cls, nodes: Names, pairs: Iterable[tuple[object, object]]) -> Overlay:
        """Make an overlay from pairs of names. For small overlays and tests."""
        rows = [(str(u), str(v)) for u, v in pairs]
        return cls.from_ids(nodes, [nodes.id_of(u) for u, _ in rows], [nodes.id_of(v) for _, v in rows])

    def __repr__(self) -> str:
        return f"Overlay({len(self.nodes)} nodes, {len(self)} links)"

    def __len__(self) -> int:
        """Return the number of links."""
        return len(self.u)

    @cached_property
    def _adjacency(self) -> tuple[OffsetArray, IdArray]:
        tail, head = np.concatenate([self.u, self.v]), np.concatenate([self.v, self.u])
        order = np.argsort(tail.astype(np.int64) * max(len(self.nodes), 1) + head)
        offsets = np.zeros(len(self.nodes) + 1, np.int64)
        np.cumsum(np.bincount(tail, minlength=len(self.nodes)), out=offsets[1:])
        return offsets, head[order]

    @property
    def offsets(self) -> OffsetArray:
        return self._adjacency[0]

    @property
    def neighbors(self) -> IdArray:
        """Return all neighbors in CSR form: those of v are `neighbors[offsets[v]:offsets[v + 1]]`, ascending."""
        return self._adjacency[1]

    def neighbors_of(self, node: int) -> IdArray:
        return self.neighbors[self.offsets[node] : self.offsets[node + 1]]

    @property
    def degrees(self) -> OffsetArray:
        return np.diff(self.offsets)

    def to_table(self) -> pa.Table:
        """Return a table with columns u and v: one row for each link."""
        return pa.table({"u": self.nodes.take(self.u), "v": self.nodes.take(self.v)})

    def to_networkx(self) -> networkx.Graph:
        """Return a networkx graph with names as nodes, including nodes without links."""
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(self.nodes)
        graph.add_edges_from(zip(self.nodes.take(self.u).to_pylist(), self.nodes.take(self.v).to_pylist(), strict=True))
        return graph
