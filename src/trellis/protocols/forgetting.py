"""Find the topics that a node still needs, in the way of a conservative garbage collector.

Bitsets of topics are plain ints, in many parts of a node. If each part had to report its own, one could be left out. So
this module visits all objects that can be reached from given roots. Each int counts as a bitset, and also as the index
of one bit, although it may be neither. A counter, for example, may keep some names that nobody needs. No bitset in use
is missed, and the number of names kept in excess is bounded by the ints in the node's state.

G1  The result has every bit of every bitset that can be reached from the roots.

Messages and descriptors are skipped: they have names of topics, never bits.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable
from functools import partial
from random import Random
from typing import Any

import msgspec

from trellis.protocols.topics import TopicTable

_NOTHING_BELOW = (str, bytes, bytearray, float, type(None), type, types.ModuleType, types.BuiltinFunctionType, Random)

_SMALL = 1 << 192  # Most ints are below this. They are joined apart from the long ones, which is faster.


def held_bits(roots: Iterable[object], places: int) -> int:
    """Return every bit of every int that can be reached from the roots.

    An int below `places` may be the index of a bit, so that bit is returned as well.
    """
    marks = bytearray(places)
    bits_held = small = 0
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        value = waiting.pop()
        if isinstance(value, int):
            # A negative int is the set of all topics but a few. It also has topics that get a bit later, whichever bit.
            bits = value if value >= 0 else ~value
            if bits < places:
                marks[bits] = 1
            if bits < _SMALL:
                small |= bits
            else:
                bits_held |= bits
            continue
        if isinstance(value, _NOTHING_BELOW) or id(value) in seen:
            continue
        seen.add(id(value))
        waiting.extend(_below(value))
    return bits_held | small | int.from_bytes(_packed(marks), "little")


def _below(value: Any) -> Iterable[Any]:
    """Return the objects that an object refers to."""
    match value:
        case dict():
            return [*value.keys(), *value.values()]
        case list() | tuple() | set() | frozenset() | deque():
            return value
        case msgspec.Struct():
            is_message = type(value).__struct_config__.tag is not None or type(value).__struct_config__.array_like
            return () if is_message else [getattr(value, name) for name in value.__struct_fields__]
        case types.MethodType():
            return value.__self__, value.__func__
        case types.FunctionType():
            return [
                *(value.__defaults__ or ()),
                *(cell.cell_contents for cell in value.__closure__ or () if _has(cell)),
            ]
        case partial():
            return value.func, *value.args, *value.keywords.values()
        case TopicTable():
            return ()  # The table's own names are what the caller wants to clean up.
    below = list(getattr(value, "__dict__", {}).values())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        below += [getattr(value, name) for name in names if hasattr(value, name)]
    return below


def _has(cell: types.CellType) -> bool:
    """Return whether a cell of a closure has a value other than None."""
    try:
        return cell.cell_contents is not None
    except ValueError:  # The cell is empty.
        return False


def _packed(marks: bytearray) -> bytes:
    """Return the marks as bits, eight to a byte, with the first mark in the lowest bit."""
    packed = bytearray(len(marks) // 8 + 1)
    index = marks.find(1)
    while index >= 0:
        packed[index >> 3] |= 1 << (index & 7)
        index = marks.find(1, index + 1)
    return bytes(packed)
