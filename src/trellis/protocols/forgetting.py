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
    found = small = 0
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        one = waiting.pop()
        if isinstance(one, int):
            # A negative int is the set of all topics but a few. It also has topics that get a bit later, whichever bit.
            bits = one if one >= 0 else ~one
            if bits < places:
                marks[bits] = 1
            if bits < _SMALL:
                small |= bits
            else:
                found |= bits
            continue
        if isinstance(one, _NOTHING_BELOW) or id(one) in seen:
            continue
        seen.add(id(one))
        waiting.extend(_below(one))
    return found | small | int.from_bytes(_packed(marks), "little")


def _below(one: Any) -> Iterable[Any]:
    """Return the objects that an object refers to."""
    match one:
        case dict():
            return [*one.keys(), *one.values()]
        case list() | tuple() | set() | frozenset() | deque():
            return one
        case msgspec.Struct():
            is_message = type(one).__struct_config__.tag is not None or type(one).__struct_config__.array_like
            return () if is_message else [getattr(one, name) for name in one.__struct_fields__]
        case types.MethodType():
            return one.__self__, one.__func__
        case types.FunctionType():
            return [*(one.__defaults__ or ()), *(cell.cell_contents for cell in one.__closure__ or () if _has(cell))]
        case partial():
            return one.func, *one.args, *one.keywords.values()
        case TopicTable():
            return ()  # The table's own names are what the caller wants to clean up.
    found = list(getattr(one, "__dict__", {}).values())
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [getattr(one, name) for name in names if hasattr(one, name)]
    return found


def _has(cell: types.CellType) -> bool:
    """Return whether a cell of a closure has a value other than None."""
    try:
        return cell.cell_contents is not None
    except ValueError:  # The cell is empty.
        return False


def _packed(marks: bytearray) -> bytes:
    """Return the marks as bits, eight to a byte, with the first mark in the lowest bit."""
    packed = bytearray(len(marks) // 8 + 1)
    place = marks.find(1)
    while place >= 0:
        packed[place >> 3] |= 1 << (place & 7)
        place = marks.find(1, place + 1)
    return bytes(packed)
