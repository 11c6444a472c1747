"""Labels: identifiers on a ring as exact binary fractions of any length.  [MG §2.1, Alg. 1]

A label is a fraction in [0, 1) as bytes, most significant first, without zero bytes at its end; b"" is 0. Bytes compare
as the fractions do, so order and arcs need no arithmetic. A midpoint needs at most one more bit, so nothing is ever
rounded (A-MAG-7). Labels grow where many nodes join at one point. Beyond `GRID_BYTES`, a part of the ring is spread out
(`respace.py`). So no label in a message exceeds `LABEL_BYTES_MAX`.

Arcs are clockwise. "From below" means on the arc that ends at the target (A-MAG-11).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha1
from typing import Annotated

from msgspec import Meta

LABEL_BYTES_MAX = 64
GRID_BYTES = 56  # Re-spaced labels are multiples of 256^-56: 64 halvings fit between two of them.

Label = bytes
LabelField = Annotated[bytes, Meta(max_length=LABEL_BYTES_MAX)]


@lru_cache(maxsize=200_000)
def hashed(name: str) -> Label:
    """Return the position of a name on a ring of uniform identifiers."""
    return sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).digest().rstrip(b"\0")


def between(label: Label, start: Label, end: Label) -> bool:
    """Return whether `label` is on the arc (start, end]. The arc from a label to itself is the whole circle."""
    if start < end:
        return start < label <= end
    return label > start or label <= end


def inside(label: Label, start: Label, end: Label) -> bool:
    """Return whether `label` is on the open arc (start, end)."""
    if start < end:
        return start < label < end
    return label != start and (label > start or label < end)


def after(start: Label) -> Callable[[Label], tuple[bool, Label]]:
    """Return a key that sorts labels clockwise from `start`. `start` itself comes last."""
    return lambda label: (label <= start, label)


def midpoint(start: Label, end: Label) -> Label:
    """Return the middle of the arc from `start` to `end`, or the opposite point if they are equal (A-MAG-6)."""
    width = max(len(start), len(end)) + 1  # one byte for the bit that halving adds
    circle = 1 << 8 * width
    first, last = (int.from_bytes(label.ljust(width, b"\0"), "big") for label in (start, end))
    arc = (last - first) % circle or circle
    return ((first + arc // 2) % circle).to_bytes(width, "big").rstrip(b"\0")


def grid(label: Label, grid_bytes: int = GRID_BYTES) -> int:
    """Return the last grid point at or before a label."""
    return int.from_bytes(label[:grid_bytes].ljust(grid_bytes, b"\0"), "big")


def grid_label(point: int, grid_bytes: int = GRID_BYTES) -> Label:
    """Return the label of a grid point."""
    return (point % (1 << 8 * grid_bytes)).to_bytes(grid_bytes, "big").rstrip(b"\0")
