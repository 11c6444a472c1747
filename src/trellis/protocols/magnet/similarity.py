"""The similarity of two interests: shared topics over all topics of both, weighted by rate.  [MG §2.1; A-MAG-1]"""

from __future__ import annotations

from collections.abc import Mapping

from trellis.protocols.effects import Topic
from trellis.protocols.topics import TopicTable

Interest = tuple[Topic, ...]


class Similarity:
    """sim(p, .) for one node p. Without rates all topics have the same weight, and bitsets are enough.

    With rates, a topic that has none counts as 0, as in Vitis (A-MAG-1, A-VIT-5).
    """

    def __init__(self, interest: Interest, table: TopicTable, rates: Mapping[Topic, float] | None = None) -> None:
        self.table, self.rates = table, rates
        self.change(interest)

    def change(self, interest: Interest) -> None:
        """Set the interest of the node itself."""
        self._bits, self._mine = self.table.own_bits(interest), frozenset(interest)
        self._weight = sum(map(self._rate, interest))

    def of(self, interest: Interest) -> float:
        """Return the similarity to another interest, from 0 to 1."""
        if self.rates is None:
            bits = self.table.bits(interest)
            union = (bits | self._bits).bit_count()
            return (bits & self._bits).bit_count() / union if union else 0.0
        shared = others = 0.0
        for topic in interest:
            rate = self._rate(topic)
            if topic in self._mine:
                shared += rate
            else:
                others += rate
        union_weight = self._weight + others
        return shared / union_weight if union_weight else 0.0

    def _rate(self, topic: Topic) -> float:
        return 1.0 if self.rates is None else self.rates.get(topic, 0.0)
