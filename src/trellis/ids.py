"""Keys of nodes and seeds of random streams, which depend on names and seeds only, never on an order.

Both are blake2b digests of their arguments, so they are the same on every machine and in every process (Python's own
hash() is not). Standard library only, because live nodes import this module.
"""

from __future__ import annotations

from hashlib import blake2b

_SEPARATOR = b"\x1f"


def _digest(parts: tuple[int | str, ...], size: int) -> int:
    # Each part is preceded by its length, so that ("ab", "c") and ("a", "bc") differ.
    text = [str(part).encode("utf-8", "surrogatepass") for part in parts]
    message = b"".join(str(len(part)).encode() + _SEPARATOR + part for part in text)
    return int.from_bytes(blake2b(message, digest_size=size).digest(), "big")


def key(seed: int | str, name: str) -> int:
    """Return the 64-bit key of a node. In a tie the node with the smaller key wins."""
    return _digest((seed, name), 8)


def stream(seed: int | str, *labels: int | str) -> int:
    """Return a 128-bit seed for one purpose: `random.Random(stream(seed, "gossip", node))`.

    Each purpose has a stream of its own, so a new draw in one part does not shift the draws of another.
    """
    return _digest((seed, *labels), 16)
