"""Define interests: which nodes subscribe to which topics.  [OMen §2: (V, T, I)]

Inside, nodes and topics are dense ids, and both directions are kept in CSR form. The topics of node v are
`node_topics[node_offsets[v]:node_offsets[v + 1]]`, ascending. The nodes of topic t are found in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from trellis.errors import InputError
from trellis.model.names import IdArray, Names

OffsetArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Interests:
    """An instance (V, T, I). Create it with `from_pairs`, `from_ids` or `trellis.model.read_interests`."""

    nodes: Names
    topics: Names
    node_offsets: OffsetArray
    node_topics: IdArray
    rates: npt.NDArray[np.float64] | None = None  # publication rate of each topic; None: all are equal

    @classmethod
    def from_pairs(cls, pairs: Iterable[tuple[object, object]] | Mapping[Any, Iterable[object]]) -> Interests:
        """Make interests from (node, topic) pairs or {node: topics}. Names compare as text.

        For small instances and tests.
        """
        if isinstance(pairs, Mapping):
            pairs = [(node, topic) for node, topics in pairs.items() for topic in topics]
        rows = [(str(node), str(topic)) for node, topic in pairs]
        nodes, _ = Names.in_order(sorted({node for node, _ in rows}))
        topics, _ = Names.in_order(sorted({topic for _, topic in rows}))
        return cls.from_ids(
            nodes, topics, nodes.ids_of(node for node, _ in rows), topics.ids_of(topic for _, topic in rows)
        )

    @classmethod
    def from_ids(
        cls,
        nodes: Names,
        topics: Names,
        node_ids: npt.ArrayLike,
        topic_ids: npt.ArrayLike,
        rates: npt.NDArray[np.float64] | None = None,
    ) -> Interests:
        """Make interests from one (node id, topic id) per subscription, in any order.

        Raise InputError for a repeated one.
        """
        pairs = np.asarray(node_ids, np.int64) * max(len(topics), 1) + np.asarray(topic_ids, np.int64)
        if not np.all(pairs[1:] > pairs[:-1]):
            pairs = np.sort(pairs)
        repeated = np.flatnonzero(pairs[1:] == pairs[:-1])
        if len(repeated):
            node, topic = divmod(int(pairs[repeated[0]]), len(topics))
            raise InputError(
                "",
                f'node "{nodes[node]}" subscribes to topic "{topics[topic]}" twice',
                "give each subscription once",
            )
        owner, topic_of = np.divmod(pairs, max(len(topics), 1))
        offsets = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(np.bincount(owner, minlength=len(nodes)), out=offsets[1:])
        return cls(nodes, topics, offsets, topic_of.astype(np.int32), rates)

    def __repr__(self) -> str:
        return f"Interests({len(self.nodes)} nodes, {len(self.topics)} topics, {self.subscriptions} subscriptions)"

    @property
    def subscriptions(self) -> int:
        return len(self.node_topics)

    @property
    def sizes(self) -> OffsetArray:
        """Return the number of topics of each node."""
        return np.diff(self.node_offsets)

    @property
    def popularity(self) -> OffsetArray:
        """Return the number of subscribers of each topic."""
        return np.bincount(self.node_topics, minlength=len(self.topics)).astype(np.int64)

    @property
    def subscription_nodes(self) -> IdArray:
        """Return the node of each entry of `node_topics`."""
        return np.repeat(np.arange(len(self.nodes), dtype=np.int32), self.sizes)

    @cached_property
    def _by_topic(self) -> tuple[OffsetArray, IdArray]:
        matrix = sparse.csr_array(
            (np.ones(self.subscriptions, np.int8), self.node_topics, self.node_offsets),
            shape=(len(self.nodes), len(self.topics)),
        ).tocsc()
        return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)

    @property
    def topic_offsets(self) -> OffsetArray:
        return self._by_topic[0]

    @property
    def topic_nodes(self) -> IdArray:
        return self._by_topic[1]

    def topics_of(self, node: int) -> IdArray:
        return self.node_topics[self.node_offsets[node] : self.node_offsets[node + 1]]

    def nodes_of(self, topic: int) -> IdArray:
        return self.topic_nodes[self.topic_offsets[topic] : self.topic_offsets[topic + 1]]

    def to_table(self) -> pa.Table:
        """Return a table with columns node and topic: one row for each subscription, by node and then by topic."""
        return pa.table({"node": self.nodes.take(self.subscription_nodes), "topic": self.topics.take(self.node_topics)})

    def rates_table(self) -> pa.Table:
        """Return a table with columns topic and rate. If all rates are equal, each is 1."""
        rates = np.ones(len(self.topics)) if self.rates is None else self.rates
        return pa.table({"topic": self.topics.array, "rate": pa.array(rates)})
