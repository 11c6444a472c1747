"""What nodes gossip about each other: descriptors that know their age, and tables that keep the youngest.

A descriptor is made by its subject at age 0 and grows older by one with every round of whoever holds it, and with every
hop: rounds of different nodes are not aligned, so a copy that is handed on at the right moments would otherwise miss
round after round, and as the youngest copy wins the dead would stay young. The table keeps the round in which an entry
was born by the holder's own count, so that a round costs nothing. Of two descriptors of a node the later incarnation
wins, then the younger one.

Dead nodes make no descriptors, so what is said about them grows old everywhere: above `age_max` a descriptor is
dropped and not taken back (A-SUB-2). `bury` is for a node that is known to be gone: nothing of that life that was born
before the burial is taken back, however young its copies elsewhere.

D1  at most one entry per node, none for the owner, none above `age_max`, none that is buried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.effects import NodeId
from trellis.protocols.wire import PEERS_MAX, Count, NodeName, Topics

AGE_MAX = 1_000_000
_ANY_LIFE = 2**53


class Descriptor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    node: NodeName
    age: Annotated[int, Meta(ge=0, le=AGE_MAX)] = 0  # rounds and hops
    incarnation: Count = 1
    interest: Topics = ()
    numbers: Annotated[tuple[Count, ...], Meta(max_length=16)] = ()  # whatever else a system counts: a degree, ...


Descriptors = Annotated[tuple[Descriptor, ...], Meta(max_length=PEERS_MAX)]


Entry = tuple[int, Descriptor]  # the round of the holder in which it was born, and the descriptor as it was told


class DescriptorTable:
    def __init__(self, owner: NodeId, age_max: int) -> None:
        self.owner, self.age_max = owner, age_max
        self.round = 0
        self.entries: dict[NodeId, Entry] = {}
        self._buried: dict[NodeId, tuple[int, int]] = {}  # node -> (round, incarnation) of the burial

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, node: NodeId) -> bool:
        return node in self.entries

    def advance(self) -> list[NodeId]:
        """A round has passed: all grow older. Those that grew too old are dropped, and named."""
        self.round += 1
        oldest = self.round - self.age_max
        old = [node for node, (born, _) in self.entries.items() if born < oldest]
        for node in old:
            del self.entries[node]
        if self._buried:
            self._buried = {node: grave for node, grave in self._buried.items() if grave[0] >= oldest}
        return old

    def merge(self, descriptors: Iterable[Descriptor]) -> None:
        """The youngest of what is known and what is told."""
        now, entries, age_max = self.round, self.entries, self.age_max
        for descriptor in descriptors:
            node, born = descriptor.node, now - descriptor.age
            known = entries.get(node)
            if known is not None:
                if born <= known[0]:
                    if descriptor.incarnation <= known[1].incarnation:
                        continue
                elif descriptor.incarnation < known[1].incarnation:
                    continue
            elif node == self.owner or (self._buried and self._is_dead(node, born, descriptor.incarnation)):
                continue
            if descriptor.age <= age_max:
                entries[node] = (born, descriptor)

    def bury(self, node: NodeId) -> None:
        """The node is gone: forget it, and do not believe those who have not noticed."""
        known = self.entries.pop(node, None)
        self._buried[node] = (self.round, known[1].incarnation if known else _ANY_LIFE)

    def forget(self, node: NodeId) -> None:
        """Drop the entry; the next one to speak of the node is believed."""
        self.entries.pop(node, None)

    def keep(self, nodes: Iterable[NodeId]) -> None:
        """Drop all others, and take on the order of `nodes`. `entries` itself keeps all as they are."""
        entries = self.entries
        if nodes is not entries:
            self.entries = {node: entries[node] for node in nodes}

    def describe(self, nodes: Iterable[NodeId] | None = None, hops: int = 0) -> list[Descriptor]:
        """The entries, all of them or those of `nodes`; with `hops=1` as they are told to others."""
        now = self.round + hops
        chosen = self.entries.values() if nodes is None else [self.entries[node] for node in nodes]
        return [Descriptor(one.node, now - born, one.incarnation, one.interest, one.numbers) for born, one in chosen]

    def told(self, nodes: Iterable[NodeId] | None = None) -> dict[NodeId, Descriptor]:
        """The entries as they are told to others; all of them, or those of `nodes` that there are."""
        now, entries = self.round + 1, self.entries
        chosen = entries if nodes is None else {node: entries[node] for node in nodes if node in entries}
        return {
            node: Descriptor(node, now - born, one.incarnation, one.interest, one.numbers)
            for node, (born, one) in chosen.items()
        }

    def age(self, node: NodeId) -> int:
        return self.round - self.entries[node][0]

    def check(self) -> None:
        assert self.owner not in self.entries, f"D1: {self.owner} describes itself"
        oldest = self.round - self.age_max
        old = [node for node, (born, _) in self.entries.items() if born < oldest]
        assert not old, f"D1: {old} are too old"

    def _is_dead(self, node: NodeId, born: int, incarnation: int) -> bool:
        grave = self._buried.get(node)
        return grave is not None and incarnation <= grave[1] and born <= grave[0]
