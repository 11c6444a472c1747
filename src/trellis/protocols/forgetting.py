"""Which topics a node still needs: a conservative mark, as by a garbage collector that cannot tell what is a pointer.

Bitsets of topics are plain ints, in many parts of a node. Rather than asking each part for its own, and forgetting one,
everything that can be reached from the given roots is looked at. Each int that is found counts as a bitset and as a
place, whatever it is: a counter that is none makes a few names stay that nobody needs. So nothing that is held
can be missed, and what is kept beyond that is bounded by the ints in the node's state.

G1  every bitset that can be reached from the roots is a part of the answer.

Messages and descriptors are passed over: names travel, bits do not.
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

_SMALL = 1 << 192  # most ints are: they are put together apart from the long ones, which costs less


def held_bits(roots: Iterable[object], places: int) -> int:
    """Return every bit of every int that can be reached from the roots. Ints below `places` count as places, too."""
    marks = bytearray(places)
    found = small = 0
    seen: set[int] = set()
    waiting: list[Any] = list(roots)
    while waiting:
        one = waiting.pop()
        if isinstance(one, int):
            # A negative one is a set of all but a few: new topics are in it as well, whatever place they get.
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
    """Return what an object holds."""
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
            return ()  # its own names are what is asked about
    found = list(getattr(one, "__dict__", {}).values())
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else slots
        found += [getattr(one, name) for name in names if hasattr(one, name)]
    return found


def _has(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # it is empty
        return False


def _packed(marks: bytearray) -> bytes:
    """Eight marks to a byte, the first in the lowest bit."""
    packed = bytearray(len(marks) // 8 + 1)
    place = marks.find(1)
    while place >= 0:
        packed[place >> 3] |= 1 << (place & 7)
        place = marks.find(1, place + 1)
    return bytes(packed)
