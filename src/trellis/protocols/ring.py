"""The identifier ring: know the nodes that come next after this one, and next before it.  [docs/papers.md, parts]

Identifiers are SHA-1 hashes of names, numbers modulo 2^160. Each node keeps some nodes on either side, nearest first.
T-Man finds them: it prefers nearer nodes, and drops nodes whose descriptors grow old or that are reported down. A node
keeps a few more than its owner asks for. Otherwise the ring would take long to close, and would break if several
adjacent nodes failed together.

Special cases: a single node is its own successor. In a ring of two, each is the other's successor and predecessor. With
fewer than L + 1 nodes the lists of successors and predecessors overlap. No list has the node itself or a node twice.

R1  The kept nodes are in the order of the ring, clockwise from this node.
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
    """A cache of identifiers by name. It is cleared when it has `_KNOWN_MAX` entries."""

    def __missing__(self, name: str) -> int:
        if len(self) >= _KNOWN_MAX:
            self.clear()
        digest = sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest()
        position = self[name] = int.from_bytes(digest, "big")
        return position


_identifiers = _Identifiers()  # A subscript takes half the time of a call of an `lru_cache`.


def identifier(name: str) -> int:
    """Return the position of a node or a topic on the ring.  [VI §III: SHA-1]"""
    return _identifiers[name]


def place(name: str) -> float:
    """Return the same position as a fraction, from 0 to below 1, for pictures. It has 53 bits of the identifier."""
    return (identifier(name) * (1 << 53) // RING) / (1 << 53)


def clockwise(start: int, end: int) -> int:
    """Return the distance from `start` to `end` in clockwise direction."""
    return (end - start) % RING


def ring_distance(first: int, second: int) -> int:
    """Return the distance between two positions, in the shorter direction."""
    return min(clockwise(first, second), clockwise(second, first))


class Ring:
    """The nodes next to one node on the ring, as far as that node knows."""

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
        """Ask for `length` (L) successors and predecessors. `spare` more are kept on either side."""
        self.id = describe().node
        self.identifier = identifier(self.id)
        self.length, self.kept = length, length + spare
        self.tman = TMan("ring", describe, self._nearest, samples, random, config, select_names=self._nearest_names)
        self.tman.useful = self._near_enough

    @property
    def successors(self) -> list[NodeId]:
        """Return up to L successors, nearest first."""
        return self.tman.peers[: self.length]

    @property
    def predecessors(self) -> list[NodeId]:
        """Return up to L predecessors, nearest first."""
        return self.tman.peers[::-1][: self.length]

    @property
    def successor(self) -> NodeId:
        """Return the nearest successor, or this node if it knows no other."""
        return next(iter(self.successors), self.id)

    @property
    def predecessor(self) -> NodeId:
        """Return the nearest predecessor, or this node if it knows no other."""
        return next(iter(self.predecessors), self.id)

    def responsible(self, position: int, without: NodeId | None = None) -> NodeId:
        """Return the first known node at or after a position. This node counts, unless it is `without`."""
        known = [node for node in (self.id, *self.tman.peers) if node != without]
        return min(known, key=lambda node: clockwise(position, identifier(node)), default=self.id)

    def is_coordinator(self, node: NodeId) -> bool:
        """Return whether this node is the closest running successor of `node`, as far as it knows.  [OM §3.3]"""
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
        """Assert the invariant R1, and that not too many nodes are kept."""
        self.tman.check()
        peers = self.tman.peers
        assert len(peers) <= 2 * self.kept, f"{self.id} keeps more than {self.kept} on a side of the ring"
        assert peers == self._after(peers), f"R1: {self.id} keeps {peers}"

    def _after(self, nodes: list[NodeId]) -> list[NodeId]:
        """Return the nodes in the order of the ring, clockwise from this node."""
        return sorted(nodes, key=lambda node: clockwise(self.identifier, _identifiers[node]))

    def _near_enough(self, descriptors: Sequence[Descriptor]) -> Sequence[Descriptor]:
        """Return the descriptors of nodes that are kept or would be kept.

        Most nodes that are received are farther away than all that are kept.
        """
        entries = self.tman.table.entries
        if len(entries) < 2 * self.kept:
            return descriptors
        names = list(entries)  # in the order of the ring, by R1
        last, first = identifier(names[self.kept - 1]), identifier(names[self.kept])
        at = _identifiers
        if last < first:
            return [
                descriptor
                for descriptor in descriptors
                if not last < at[descriptor.node] < first or descriptor.node in entries
            ]
        return [
            descriptor
            for descriptor in descriptors
            if first <= at[descriptor.node] <= last or descriptor.node in entries
        ]

    def _nearest(self, candidates: list[Descriptor]) -> list[NodeId]:
        return self._nearest_of([descriptor.node for descriptor in candidates])

    def _nearest_names(self, table: DescriptorTable) -> list[NodeId]:
        return self._nearest_of(list(table.entries))

    def _nearest_of(self, nodes: list[NodeId]) -> list[NodeId]:
        """Return the `kept` nearest nodes on either side, in the order of the ring."""
        around = self._after(nodes)
        if len(around) <= 2 * self.kept:
            return around
        return around[: self.kept] + around[-self.kept :]
