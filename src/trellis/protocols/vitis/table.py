"""The routing table: T-Man with a selection that Vitis, RVR or OPT provides.  [VI Alg. 2-3]

Alg. 2 selects from the own table, the own samples and the partner's buffer. Plain T-Man does not use the own samples.
The own descriptor is in every buffer (A-VIT-1). Ages travel with descriptors, so entries of crashed nodes disappear
(A-VIT-9, A-SUB-2). The selection gets its candidates as entries of the table, so nothing is copied.
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

Choose = Callable[[Mapping[NodeId, Entry]], list[NodeId]]  # Returns the nodes to keep among the entries.
LAYER = "table"


class RoutingTable(TMan):
    """The routing table of one node."""

    def __init__(
        self,
        describe: Describe,
        choose: Choose,
        sampled: DescriptorTable,
        random: Random,
        config: TManConfig,
        size: int | None,
    ) -> None:
        """Create the table. `sampled` is the view of peer sampling. `size` None: the table has no limit (OPT)."""
        super().__init__(LAYER, describe, lambda candidates: [], self._partners_without_table, random, config)
        self.choose, self.sampled, self.size = choose, sampled, size
        self.candidates: list[Descriptor] = []  # further nodes that may be chosen
        self.filter: Filter | None = None  # If set, finds candidates that cannot change the selection.
        self.selections = 0  # how often the entries were selected

    def __contains__(self, node: NodeId) -> bool:
        return node in self.table.entries

    def learn(self, descriptors: tuple[Descriptor, ...] | list[Descriptor]) -> None:
        """Select the table from itself, the samples and the received descriptors.  [Alg. 2, l. 7-8; Alg. 3, l. 6-7]"""
        table, sampled, sieve = self.table, self.sampled, self.filter
        entries, later, oldest = table.entries, table.round - sampled.round, table.round - table.age_max
        if sieve is not None and not sieve.fits(entries):
            sieve = None
        # This does the same as `table.merge(sampled.describe())` without creating a descriptor for each sample. Only
        # the round in which an entry was made matters, and not the age with which it was received.
        samples = [descriptor for node, (born, descriptor) in sampled.entries.items() if node not in entries]
        others = [*descriptors, *self.candidates] if self.candidates else descriptors
        if sieve is not None:
            samples = sieve.admitted(samples)
            known = [descriptor for descriptor in others if descriptor.node in entries]
            others = [*known, *sieve.admitted([descriptor for descriptor in others if descriptor.node not in entries])]
        table.merge(others)
        for descriptor in samples:
            born = sampled.entries[descriptor.node][0] + later
            if born >= oldest and descriptor.node not in entries:
                entries[descriptor.node] = (born, descriptor)
        if sieve is None or not sieve.fits(entries):
            table.keep(self.choose(entries))
            self.selections += 1

    def exchange_with(self, node: NodeId) -> Effects:
        """Exchange tables with this node at once, beside the periodic exchanges."""
        return [Send(node, TManRequest(self.layer, self._buffer([])))]

    def select_again(self) -> None:
        """Select the table again from what is known, because the own interest has changed."""
        self.learn(())

    def heard(self, node: NodeId, rounds_ago: int, descriptor: Descriptor) -> None:
        """Replace an entry by what the neighbor says of itself, which is younger than other news.  [Alg. 7, l. 3]"""
        self.table.entries[node] = (self.table.round - rounds_ago, descriptor)

    def check(self) -> None:
        """Assert the invariants D1 and I-16: the table has at most `size` entries."""
        super().check()
        assert self.size is None or len(self.table) <= self.size, f"I-16: {len(self.table)} entries in the table"

    def _partners_without_table(self) -> list[Descriptor]:
        """Return the samples if the table is empty, as partners for an exchange."""
        return [] if self.table.entries else self.sampled.describe()

    def _buffer(self, samples: list[Descriptor]) -> tuple[Descriptor, ...]:
        """Return what an exchange sends: the own descriptor, samples and the table, one hop older, each node once."""
        known = self.sampled.describe(hops=1)
        descriptors = {descriptor.node: descriptor for descriptor in known}
        descriptors.update((descriptor.node, descriptor) for descriptor in self.table.describe(hops=1))
        return (self.describe(), *list(descriptors.values())[: PEERS_MAX - 1])
