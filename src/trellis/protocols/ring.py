"""The identifier ring: who comes after me, and who before.  [docs/papers.md, parts]

Identifiers are SHA-1 hashes of names, numbers modulo 2^160. Each node keeps some nodes on either side, nearest first,
found and kept up to date by T-Man: what is nearer is selected, and what is dead grows old or is reported down. A few
more are kept than are asked for, or the ring would take long to close and break when neighbours fail together.

Corner cases: a node alone is its own successor; of two each is the other's successor and predecessor; with fewer than
L + 1 nodes the lists wrap, and neither holds the node itself or a repetition.

R1  what is kept stands in the order of the ring, clockwise from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha1
from random import Random

import msgspec

from trellis.protocols.descriptors import Descriptor, DescriptorTable
from trellis.protocols.effects import Effects, NodeId
from trellis.protocols.sampling import Describe
from trellis.protocols.tman import Samples, TMan, TManConfig

RING = 1 << 160
_KNOWN_MAX = 100_000


class _Identifiers(dict[str, int]):
    def __missing__(self, name: str) -> int:
        if len(self) >= _KNOWN_MAX:
            self.clear()
        digest = sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
        found = self[name] = int.from_bytes(digest, "big")
        return found


_identifiers = _Identifiers()  # subscripts cost half of what a call of an `lru_cache` costs


def identifier(name: str) -> int:
    """Where a node or a topic is on the ring.  [VI §III: SHA-1]"""
    return _identifiers[name]


def place(name: str) -> float:
    """The same from 0 to below 1, as a picture needs it: 53 bits of the identifier, which a float holds."""
    return (identifier(name) * (1 << 53) // RING) / (1 << 53)


def clockwise(start: int, end: int) -> int:
    """How far it is from `start` to `end`, clockwise."""
    return (end - start) % RING


def ring_distance(one: int, other: int) -> int:
    return min(clockwise(one, other), clockwise(other, one))


class Ring:
    """One's place on the ring, as far as one knows."""

    def __init__(
        self,
        describe: Describe,
        samples: Samples,
        random: Random,
        *,
        length: int = 1,
        spare: int = 4,
        config: TManConfig | None = None,
    ) -> None:
        """`length` is L, the successors and predecessors that are asked for; `spare` more are kept on either side."""
        self.id = describe().node
        self.identifier = identifier(self.id)
        self.length, self.kept = length, length + spare
        self.tman = TMan("ring", describe, self._nearest, samples, random, config, select_names=self._nearest_names)
        self.tman.useful = self._near_enough

    @property
    def successors(self) -> list[NodeId]:
        """Up to L, nearest first."""
        return self.tman.peers[: self.length]

    @property
    def predecessors(self) -> list[NodeId]:
        """Up to L, nearest first."""
        return self.tman.peers[::-1][: self.length]

    @property
    def successor(self) -> NodeId:
        return next(iter(self.successors), self.id)

    @property
    def predecessor(self) -> NodeId:
        return next(iter(self.predecessors), self.id)

    def responsible(self, place: int, without: NodeId | None = None) -> NodeId:
        """Return the first known node at or after a place of the ring, this one included. A node alone is its own."""
        known = [node for node in (self.id, *self.tman.peers) if node != without]
        return min(known, key=lambda node: clockwise(place, identifier(node)), default=self.id)

    def is_coordinator(self, node: NodeId) -> bool:
        """Am I the closest living successor of `node`, as far as I know?  [OM §3.3]"""
        return self.responsible(identifier(node), without=node) == self.id

    def start(self) -> Effects:
        return self.tman.start()

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        return self.tman.on_message(sender, message)

    def on_timer(self, tag: str) -> Effects:
        return self.tman.on_timer(tag)

    def on_peer_down(self, peer: NodeId) -> Effects:
        return self.tman.on_peer_down(peer)

    def check(self) -> None:
        self.tman.check()
        peers = self.tman.peers
        assert len(peers) <= 2 * self.kept, f"{self.id} keeps more than {self.kept} on a side of the ring"
        assert peers == self._after(peers), f"R1: {self.id} keeps {peers}"

    def _after(self, nodes: list[NodeId]) -> list[NodeId]:
        return sorted(nodes, key=lambda node: clockwise(self.identifier, _identifiers[node]))

    def _near_enough(self, descriptors: Sequence[Descriptor]) -> Sequence[Descriptor]:
        """Those who are kept already or would be: most of what is heard is farther away than all that are kept."""
        entries = self.tman.table.entries
        if len(entries) < 2 * self.kept:
            return descriptors
        names = list(entries)  # R1
        last, first = identifier(names[self.kept - 1]), identifier(names[self.kept])
        at = _identifiers
        if last < first:
            return [one for one in descriptors if not last < at[one.node] < first or one.node in entries]
        return [one for one in descriptors if first <= at[one.node] <= last or one.node in entries]

    def _nearest(self, candidates: list[Descriptor]) -> list[NodeId]:
        return self._nearest_of([descriptor.node for descriptor in candidates])

    def _nearest_names(self, table: DescriptorTable) -> list[NodeId]:
        return self._nearest_of(list(table.entries))

    def _nearest_of(self, nodes: list[NodeId]) -> list[NodeId]:
        around = self._after(nodes)
        if len(around) <= 2 * self.kept:
            return around
        return around[: self.kept] + around[-self.kept :]
