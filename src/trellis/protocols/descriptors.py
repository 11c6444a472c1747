"""Descriptors, by which nodes gossip about each other, and tables that keep the youngest one of each node.

A node makes a descriptor of itself with age 0. The age grows by one in every round of the node that holds a copy, and
with every hop. Without the hop a copy that is always forwarded just before the round ends would never age: the rounds
of different nodes are not aligned. Because the youngest copy wins, descriptors of crashed nodes would then stay young.

The table stores for each entry the round in which it was made, counted in the holder's own rounds. So a new round
changes no entry. If there are two descriptors of a node, the later incarnation wins, then the younger descriptor.

A crashed node makes no descriptors, so all copies of its last one grow old. A descriptor older than `age_max` is
dropped and not accepted again (A-SUB-2). `bury` is for a node that is known to have crashed or left. Descriptors of
that incarnation that were made before the call are then refused, even young ones.

D1  There is at most one entry for each node, none for the owner, none older than `age_max`, and none that is buried.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import msgspec
from msgspec import Meta

from trellis.protocols.effects import NodeId
from trellis.protocols.wire import PEERS_MAX, Count, NodeName, Topics

AGE_MAX = 1_000_000  # the greatest age that a message may have
_ANY_INCARNATION = 2**53  # Used if the incarnation of a buried node is not known: no `Count` is greater.


class Descriptor(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Describe a node to other nodes."""

    node: NodeName
    age: Annotated[int, Meta(ge=0, le=AGE_MAX)] = 0  # in rounds and hops, since the node made it
    incarnation: Count = 1
    interest: Topics = ()
    # further numbers of a protocol, for example the degree
    numbers: Annotated[tuple[Count, ...], Meta(max_length=16)] = ()


Descriptors = Annotated[tuple[Descriptor, ...], Meta(max_length=PEERS_MAX)]


# The holder's round in which the descriptor was made, and the descriptor as it was received.
Entry = tuple[int, Descriptor]


class DescriptorTable:
    """The descriptors that one node, the owner, knows of others: at most one for each node."""

    def __init__(self, owner: NodeId, age_max: int) -> None:
        self.owner, self.age_max = owner, age_max
        self.round = 0
        self.entries: dict[NodeId, Entry] = {}
        # node -> the round in which it was buried, and the latest incarnation that is refused
        self._buried: dict[NodeId, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, node: NodeId) -> bool:
        return node in self.entries

    def advance(self) -> list[NodeId]:
        """Begin the next round. Drop the entries that are too old now, and return their nodes."""
        self.round += 1
        oldest = self.round - self.age_max
        old = [node for node, (born, _) in self.entries.items() if born < oldest]
        for node in old:
            del self.entries[node]
        if self._buried:
            self._buried = {node: grave for node, grave in self._buried.items() if grave[0] >= oldest}
        return old

    def merge(self, descriptors: Iterable[Descriptor]) -> None:
        """Take in descriptors. For each node the better one is kept: of the later incarnation, or younger."""
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
        """Drop a node that has crashed or left, and refuse descriptors of it that were made before now."""
        known = self.entries.pop(node, None)
        self._buried[node] = (self.round, known[1].incarnation if known else _ANY_INCARNATION)

    def forget(self, node: NodeId) -> None:
        """Drop the entry of a node. The next descriptor of the node is accepted."""
        self.entries.pop(node, None)

    def keep(self, nodes: Iterable[NodeId]) -> None:
        """Keep only the entries of `nodes`, in the order of `nodes`. Given `entries` itself, change nothing."""
        entries = self.entries
        if nodes is not entries:
            self.entries = {node: entries[node] for node in nodes}

    def describe(self, nodes: Iterable[NodeId] | None = None, hops: int = 0) -> list[Descriptor]:
        """Return all entries, or those of `nodes`, with their present ages. Use `hops=1` to send them to others."""
        now = self.round + hops
        chosen = self.entries.values() if nodes is None else [self.entries[node] for node in nodes]
        return [
            Descriptor(descriptor.node, now - born, descriptor.incarnation, descriptor.interest, descriptor.numbers)
            for born, descriptor in chosen
        ]

    def told(self, nodes: Iterable[NodeId] | None = None) -> dict[NodeId, Descriptor]:
        """Return all entries, or the existing ones among `nodes`, as they are sent to others: one hop older."""
        now, entries = self.round + 1, self.entries
        chosen = entries if nodes is None else {node: entries[node] for node in nodes if node in entries}
        return {
            node: Descriptor(node, now - born, descriptor.incarnation, descriptor.interest, descriptor.numbers)
            for node, (born, descriptor) in chosen.items()
        }

    def age(self, node: NodeId) -> int:
        """Return the age of an entry that exists, in rounds and hops."""
        return self.round - self.entries[node][0]

    def check(self) -> None:
        """Assert the invariant D1."""
        assert self.owner not in self.entries, f"D1: {self.owner} describes itself"
        oldest = self.round - self.age_max
        old = [node for node, (born, _) in self.entries.items() if born < oldest]
        assert not old, f"D1: {old} are too old"

    def _is_dead(self, node: NodeId, born: int, incarnation: int) -> bool:
        """Return whether a descriptor must be refused, because its node was buried after it was made."""
        grave = self._buried.get(node)
        return grave is not None and incarnation <= grave[1] and born <= grave[0]
