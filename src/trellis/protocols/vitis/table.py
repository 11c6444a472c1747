"""The routing table: T-Man with a selection of its own, plugged in by Vitis, RVR and OPT.  [VI Alg. 2-3]

Alg. 2 selects from own table, own samples and the partner's buffer; T-Man alone leaves the own samples out. The own
descriptor is in every buffer (A-VIT-1), and ages travel with descriptors, so that the dead fade (A-VIT-9, A-SUB-2).
Candidates are handed to the selection as the table's entries: nothing is copied for each look at them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from trellis.protocols.descriptors import Descriptor, DescriptorTable, Entry
from trellis.protocols.effects import Effects, NodeId, Send
from trellis.protocols.sampling import Describe
from trellis.protocols.tman import TMan, TManConfig, TManRequest
from trellis.protocols.vitis.select import Filter
from trellis.protocols.wire import PEERS_MAX

Choose = Callable[[Mapping[NodeId, Entry]], list[NodeId]]
LAYER = "table"


class RoutingTable(TMan):
    def __init__(
        self,
        describe: Describe,
        choose: Choose,
        sampled: DescriptorTable,
        random: Random,
        config: TManConfig,
        size: int | None,
    ) -> None:
        """`sampled` is the view of the peer sampling service; `size` None: unbounded (OPT)."""
        super().__init__(LAYER, describe, lambda candidates: [], self._partners_without_table, random, config)
        self.choose, self.sampled, self.size = choose, sampled, size
        self.candidates: list[Descriptor] = []  # who else may be chosen
        self.filter: Filter | None = None  # who need not be looked at
        self.selections = 0  # how often it was chosen anew

    def __contains__(self, node: NodeId) -> bool:
        return node in self.table.entries

    def learn(self, descriptors: tuple[Descriptor, ...] | list[Descriptor]) -> None:
        """RT = selectNeighbors(RT, samples and what the partner sent).  [Alg. 2, l. 7-8; Alg. 3, l. 6-7]"""
        table, sampled, sieve = self.table, self.sampled, self.filter
        entries, later, oldest = table.entries, table.round - sampled.round, table.round - table.age_max
        if sieve is not None and not sieve.fits(entries):
            sieve = None
        # As `table.merge(sampled.describe())`, without a descriptor for each sample: that an entry was told at another
        # age does not matter, its birth does.
        samples = [told for node, (born, told) in sampled.entries.items() if node not in entries]
        others = [*descriptors, *self.candidates] if self.candidates else descriptors
        if sieve is not None:
            samples = sieve.admitted(samples)
            known = [one for one in others if one.node in entries]
            others = [*known, *sieve.admitted([one for one in others if one.node not in entries])]
        table.merge(others)
        for told in samples:
            born = sampled.entries[told.node][0] + later
            if born >= oldest and told.node not in entries:
                entries[told.node] = (born, told)
        if sieve is None or not sieve.fits(entries):
            table.keep(self.choose(entries))
            self.selections += 1

    def exchange_with(self, node: NodeId) -> Effects:
        """Not when it is due, but at once."""
        return [Send(node, TManRequest(self.layer, self._buffer([])))]

    def select_again(self) -> None:
        """The own interest has changed: look at what is known once more."""
        self.learn(())

    def heard(self, node: NodeId, rounds_ago: int, descriptor: Descriptor) -> None:
        """What a neighbour says of itself is younger than what others say.  [Alg. 7, l. 3]"""
        self.table.entries[node] = (self.table.round - rounds_ago, descriptor)

    def check(self) -> None:
        super().check()
        assert self.size is None or len(self.table) <= self.size, f"I-16: {len(self.table)} entries in the table"

    def _partners_without_table(self) -> list[Descriptor]:
        return [] if self.table.entries else self.sampled.describe()

    def _buffer(self, samples: list[Descriptor]) -> tuple[Descriptor, ...]:
        """The own descriptor, samples and the table, one hop older, each node once."""
        known = self.sampled.describe(hops=1)
        told = {one.node: one for one in known}
        told.update((one.node, one) for one in self.table.describe(hops=1))
        return (self.describe(), *list(told.values())[: PEERS_MAX - 1])
