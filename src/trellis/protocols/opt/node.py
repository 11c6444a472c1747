"""An OPT node: links by greedy coverage, and events that travel among subscribers only.  [VI §IV; A-VIT-24]

The table: again and again the candidate that covers most topics that are not yet covered K times, until nothing is left
to cover or the table is full. There is no relay traffic by construction; what is missed is what G(t) does not connect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random

from trellis.errors import InputError
from trellis.protocols.coverage import Coverage
from trellis.protocols.descriptors import Entry
from trellis.protocols.effects import Contact, NodeId, Topic
from trellis.protocols.topics import TopicTable
from trellis.protocols.vitis.config import TableConfig
from trellis.protocols.vitis.overlay import OverlayNode


class OptConfig(TableConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bounded: bool = True
    """False: the table grows until every topic is covered, whatever `table_size` says.  [VI Fig. 11]"""

    coverage: int = 1
    """K: neighbours per topic. Raising it connects more; in a bounded table one topic takes the place of another."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.coverage < 1:
            raise InputError("", f"coverage is {self.coverage}", "give 1 or more")


class OptNode(OverlayNode):
    config: OptConfig

    def __init__(
        self,
        node: NodeId,
        topics: tuple[Topic, ...],
        random: Random,
        config: OptConfig,
        *,
        contacts: Iterable[Contact] = (),
        table: TopicTable | None = None,
        incarnation: int = 1,
    ) -> None:
        super().__init__(node, topics, random, config, contacts=contacts, table=table, incarnation=incarnation)
        self._bits = self.topic_table.bits(topics)

    def _table_size(self) -> int | None:
        return self.config.table_size if self.config.bounded else None

    def _choose(self, entries: Mapping[NodeId, Entry]) -> list[NodeId]:
        bits, wanted = self.topic_table.bits, self._bits
        left = {node: shared for node, entry in entries.items() if (shared := bits(entry[1].interest) & wanted)}
        most = self.config.table_size if self.config.bounded else len(left)
        covered, chosen = Coverage(), list[NodeId]()
        missing = wanted
        while left and missing and len(chosen) < most:
            # The first of equals is the one that is in the table already: entries stand in that order.
            best = max(left, key=lambda node: (left[node] & missing).bit_count())
            if not left[best] & missing:
                break
            chosen.append(best)
            covered.add(left.pop(best))
            missing = wanted & ~covered.at_least(self.config.coverage)
        return chosen

    def _topics_changed(self) -> None:
        self._bits = self.topic_table.bits(self.topics)
