"""Keys and streams of chance that depend on names and seeds only, never on the order of anything.

Both are blake2b digests of what they stand for, so they are the same on every machine and in every
process (Python's own hash() is not). Standard library only: live nodes import this.
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
    """The 64-bit key of a node: whoever has the smaller key wins a tie."""
    return _digest((seed, name), 8)


def stream(seed: int | str, *labels: int | str) -> int:
    """A 128-bit seed for one purpose: `random.Random(stream(seed, "gossip", node))`.

    One stream per purpose, so that a new draw in one part does not shift the draws of another.
    """
    return _digest((seed, *labels), 16)
