"""The digest of a run: blake2b over everything that happened, in order, the same on any machine.

An event is five whole numbers (time in microseconds, kind, node, peer, message type or tag), fed as 64-bit words,
little-endian, in batches. Nodes, message types and tags are numbers in order of first use; their names are fed, in
the order of their numbers, to a second hash that ends the first: a digest never depends on hash() or on addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from trellis.protocols.effects import NodeId

# Kinds of events. The first two are also the kinds of entries on the engine's heap.
MESSAGE, TIMER, CALL = 0, 1, 2
LOSS, NOBODY = 3, 4  # lost on the way; sent to or arrived at a node that is not there
LINK_UP, LINK_DOWN, DELIVER = 5, 6, 7
NODE_UP, NODE_DOWN, SUBSCRIBE, UNSUBSCRIBE, PUBLISH, PAUSE, RESUME, PEER_DOWN = 8, 9, 10, 11, 12, 13, 14, 15

BATCH = 8192
pack = Struct("<5q").pack


class Digest:
    """`events` takes what `pack` makes; `flush` must be called before it holds many more than a `BATCH`."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.count = 0
        self._hash = blake2b(digest_size=16)
        self._names = blake2b(digest_size=16)

    def name(self, text: str) -> None:
        """A name gets its number here."""
        data = text.encode("utf-8", "surrogatepass")
        self._names.update(len(data).to_bytes(4, "little") + data)

    def flush(self) -> None:
        if self.events:
            self._hash.update(b"".join(self.events))
            self.count += len(self.events)
            self.events.clear()

    def hexdigest(self) -> str:
        self.flush()
        both = self._hash.copy()
        both.update(self._names.digest())
        return both.hexdigest()


def overlay_digest(links: Iterable[tuple[NodeId, NodeId]]) -> str:
    """Of the links alone, in whatever order they are given."""
    hashed = blake2b(digest_size=16)
    for u, v in sorted((min(link), max(link)) for link in links):
        for name in (u, v):
            text = name.encode("utf-8", "surrogatepass")
            hashed.update(len(text).to_bytes(4, "little") + text)
    return hashed.hexdigest()
