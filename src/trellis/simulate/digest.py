"""Compute the digest of a run: blake2b over all that happened, in order. It is the same on any machine.

An event is five whole numbers: time in microseconds, kind, node, peer, and message type or tag. They are hashed as
64-bit little-endian words, in batches. Nodes, message types and tags are numbered in the order of their first use.
Their names go, in the same order, into a second hash, which is added to the first at the end. So a digest depends
neither on Python's `hash()` nor on memory addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct

from trellis.protocols.effects import NodeId

# Kinds of events. MESSAGE, TIMER and CALL are also the kinds of entries in the engine's queue; CALL is not hashed.
MESSAGE, TIMER, CALL = 0, 1, 2
LOSS, NOBODY = 3, 4  # LOSS: the network lost it. NOBODY: it was sent to, or arrived at, a node that is not there.
LINK_UP, LINK_DOWN, DELIVER = 5, 6, 7
NODE_UP, NODE_DOWN, SUBSCRIBE, UNSUBSCRIBE, PUBLISH, PAUSE, RESUME, PEER_DOWN = 8, 9, 10, 11, 12, 13, 14, 15

BATCH = 8192
pack = Struct("<5q").pack


class Digest:
    """The digest so far. Append packed events to `events`, and call `flush` before it holds many more than `BATCH`."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.count = 0
        self._hash = blake2b(digest_size=16)
        self._names = blake2b(digest_size=16)

    def name(self, text: str) -> None:
        """Hash a name, at the moment when it gets its number."""
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
    """Return the digest of the links alone. Their order makes no difference."""
    hashed = blake2b(digest_size=16)
    for u, v in sorted((min(link), max(link)) for link in links):
        for name in (u, v):
            text = name.encode("utf-8", "surrogatepass")
            hashed.update(len(text).to_bytes(4, "little") + text)
    return hashed.hexdigest()
