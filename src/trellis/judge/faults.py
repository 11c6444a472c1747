"""Which nodes and which paths between them a fault of the history touches."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import combinations

from trellis.judge.history import Disturbed

CUTS = ("cut", "partition", "split", "one-way")  # kinds that separate `nodes` from `peers`
STANDSTILLS = ("pause", "freeze", "hang")  # kinds in which the processes of `nodes` stand still
HARMLESS = ("clock", "disk")  # kinds that stop no message


def is_cut(fault: Disturbed) -> bool:
    """Tell whether the fault separates hosts from each other."""
    return fault.kind in CUTS


def is_between(fault: Disturbed, first: str, second: str) -> bool:
    """Tell whether the fault is on the path between two hosts.

    A cut without `peers` separates its nodes from all others. A fault that names no host may be anywhere, and so may a
    host without a name.
    """
    if fault.kind in HARMLESS or first == second:
        return False
    if not fault.nodes or not first or not second:
        return True
    if fault.peers:
        return (first in fault.nodes and second in fault.peers) or (second in fault.nodes and first in fault.peers)
    if is_cut(fault):
        return (first in fault.nodes) != (second in fault.nodes)
    return first in fault.nodes or second in fault.nodes


def is_cut_between(fault: Disturbed, first: str, second: str) -> bool:
    """Tell whether the fault separates two hosts."""
    return is_cut(fault) and is_between(fault, first, second)


def is_silent(fault: Disturbed, node: str, peer: str) -> bool:
    """Tell whether `peer` hears nothing of `node`, which is cut off or stands still."""
    stands_still = fault.kind in STANDSTILLS and (not fault.nodes or node in fault.nodes)
    return (stands_still and node != peer) or is_cut_between(fault, node, peer)


def is_among(fault: Disturbed, names: Collection[str]) -> bool:
    """Tell whether the fault stops one of the hosts `names`, or is on a path between two of them."""
    if fault.kind in HARMLESS:
        return False
    if not fault.nodes:
        return True
    if fault.peers or is_cut(fault):
        return any(is_between(fault, first, second) for first, second in combinations(sorted(names), 2))
    return not set(fault.nodes).isdisjoint(names)


def joined(spans: Iterable[tuple[float, float]], gap_s: float = 0.0) -> list[tuple[float, float]]:
    """Return the spans in order. Spans that are at most `gap_s` apart become one."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1] + gap_s:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged
