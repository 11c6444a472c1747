"""Choose links that connect split topics again: constructLowEdges with findLowEdge(rho) on signatures.  [SH Alg. 2]

A link between u and w contributes one for each topic that both have and in which their components differ. That depends
only on their signatures. So nodes of equal signature form a class, and only pairs of classes are compared, largest
first. In a class, the node of lowest rank is taken. A pair of positive contribution is never linked already, and never
a node with itself. So E_pot needs no further exclusion (A-LOW-5).

Ties: among pairs of equal contribution the smallest (lower rank, higher rank) wins, for e1 and for e2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.jit import njit

_ONE = np.uint64(1)
_WORD = 64
_ODD, _PAIRS, _NIBBLES = np.uint64(0x5555555555555555), np.uint64(0x3333333333333333), np.uint64(0x0F0F0F0F0F0F0F0F)


@njit(cache=True)
def pick(has: Any, label: Any, parts: Any, degrees: Any, degree_max: Any, rho: Any, hub: Any) -> Any:
    """Return E_new. `has`, `label` and `parts` are changed. Topics whose `parts` stays above 1 could not be joined.

    has, label, parts  as in `mend_components.signatures`, rows by ascending rank
    degrees            of the rows, in the whole overlay
    degree_max         over the whole overlay (A-LOW-3)
    hub                the row that every link must have as an end, or -1  [SH Alg. 3, 10]
    returns            rows[2, links], in the order in which they were chosen
    """
    degrees = degrees.copy()
    missing = 0
    for bit in range(len(parts)):
        missing += parts[bit] - 1
    taken = np.empty((2, missing), np.int64)  # Each link joins at least two components.
    count = 0
    while True:
        if hub >= 0:
            a, b = _low_link_at(has, label, degrees, degree_max, rho, hub)
        else:
            a, b = _low_link(has, label, degrees, degree_max, rho)
        if a < 0:
            return taken[:, :count]
        taken[0, count], taken[1, count] = a, b
        count += 1
        _join(has, label, parts, a, b)
        degrees[a] += 1
        degrees[b] += 1
        degree_max = max(degree_max, degrees[a], degrees[b])


@njit(cache=True)
def _low_link(has: Any, label: Any, degrees: Any, degree_max: Any, rho: Any) -> Any:
    """Do findLowEdge(rho): return the rows of the link to take, or (-1, -1) if none contributes.

    e1 contributes most. e2 contributes most among the links that raise the maximum degree least. A link does not raise
    it if both ends have a smaller degree. If no contributing link is such, all raise it by 1 and e2 = e1 (A-LOW-1).
    """
    first, low, size = _classes(has, label, degrees, degree_max)
    e1, e1_low, e1_high = 0, -1, -1
    e2, e2_low, e2_high = 0, -1, -1
    for i in range(len(first)):
        if size[i] < e2:
            break  # All classes that follow are no larger, so none can contribute as much.
        for j in range(i + 1, len(first)):
            if size[j] < (e2 if low[i] >= 0 else e1):
                break
            gain = _gain(has, label, first[i], first[j])
            if gain == 0:
                continue
            a, b = min(first[i], first[j]), max(first[i], first[j])
            if gain > e1 or (gain == e1 and (a, b) < (e1_low, e1_high)):
                e1, e1_low, e1_high = gain, a, b
            if low[i] >= 0 and low[j] >= 0:
                a, b = min(low[i], low[j]), max(low[i], low[j])
                if gain > e2 or (gain == e2 and (a, b) < (e2_low, e2_high)):
                    e2, e2_low, e2_high = gain, a, b
    if e2 == 0 or e1 > rho * e2:
        return e1_low, e1_high
    return e2_low, e2_high


@njit(cache=True)
def _low_link_at(has: Any, label: Any, degrees: Any, degree_max: Any, rho: Any, hub: Any) -> Any:
    """Do findLowEdge(rho) among the links at `hub`. The other end of lower rank makes the smaller pair."""
    e1, e1_end, e2, e2_end = 0, -1, 0, -1
    for row in range(len(has)):
        gain = _gain(has, label, hub, row)
        if gain > e1:
            e1, e1_end = gain, row
        if gain > e2 and degrees[row] < degree_max and degrees[hub] < degree_max:
            e2, e2_end = gain, row
    end = e1_end if e2 == 0 or e1 > rho * e2 else e2_end
    return (min(hub, end), max(hub, end)) if end >= 0 else (-1, -1)


@njit(cache=True)
def _classes(has: Any, label: Any, degrees: Any, degree_max: Any) -> Any:
    """Group rows of equal signature, by decreasing number of topics. Rows without a split topic are in no class.

    returns  first, low, size: the lowest row of each class, its lowest row of a degree below the maximum or -1,
             and its number of split topics
    """
    slots = 4
    while slots < 2 * len(has):
        slots *= 2
    table = np.full(slots, -1, np.int64)  # open addressing, class numbers
    first, low, size = np.empty(len(has), np.int64), np.empty(len(has), np.int64), np.empty(len(has), np.int64)
    classes, largest = 0, 0
    for row in range(len(has)):
        topics = 0
        for word in range(has.shape[1]):
            topics += _bits(has[row, word])
        if topics == 0:
            continue
        slot = _hash(has, label, row) & (slots - 1)
        while table[slot] >= 0 and not _equal(has, label, first[table[slot]], row):
            slot = (slot + 1) & (slots - 1)
        if table[slot] < 0:
            table[slot] = classes
            first[classes], low[classes], size[classes] = row, -1, topics
            largest = max(largest, topics)
            classes += 1
        if low[table[slot]] < 0 and degrees[row] < degree_max:
            low[table[slot]] = row
    # A counting sort, largest first.
    starts = np.zeros(largest + 2, np.int64)
    for c in range(classes):
        starts[largest - size[c] + 1] += 1
    for step in range(largest + 1):
        starts[step + 1] += starts[step]
    sorted_first, sorted_low = np.empty(classes, np.int64), np.empty(classes, np.int64)
    sorted_size = np.empty(classes, np.int64)
    for c in range(classes):
        at = starts[largest - size[c]]
        starts[largest - size[c]] += 1
        sorted_first[at], sorted_low[at], sorted_size[at] = first[c], low[c], size[c]
    return sorted_first, sorted_low, sorted_size


@njit(cache=True)
def _join(has: Any, label: Any, parts: Any, a: Any, b: Any) -> None:
    """Rename row b's components to row a's, in every topic that the link (a, b) joins.

    Remove topics that are connected.
    """
    for word in range(has.shape[1]):
        joined = has[a, word] & has[b, word] & _differ(label, a, b, word)
        whole = np.uint64(0)
        for bit in range(_WORD if joined else 0):
            mask = _ONE << np.uint64(bit)
            if joined & mask == 0:
                continue
            parts[word * _WORD + bit] -= 1
            if parts[word * _WORD + bit] == 1:
                whole |= mask
                continue
            takes, gives = _name(label, a, word, mask), _name(label, b, word, mask)
            for row in range(len(has)):
                if has[row, word] & mask != 0 and _name(label, row, word, mask) == gives:
                    _rename(label, row, word, mask, takes)
        for row in range(len(has) if whole else 0):
            if has[row, word] & whole != 0:
                has[row, word] &= ~whole
                for plane in range(len(label)):
                    label[plane, row, word] &= ~whole  # so that it does not distinguish classes


@njit(cache=True)
def _name(label: Any, row: Any, word: Any, mask: Any) -> Any:
    """Return the label of a row's component in one topic."""
    name = 0
    for plane in range(len(label)):
        name |= (label[plane, row, word] & mask != 0) << plane
    return name


@njit(cache=True)
def _rename(label: Any, row: Any, word: Any, mask: Any, name: Any) -> None:
    for plane in range(len(label)):
        if name >> plane & 1:
            label[plane, row, word] |= mask
        else:
            label[plane, row, word] &= ~mask


@njit(cache=True)
def _gain(has: Any, label: Any, a: Any, b: Any) -> Any:
    """Return the contribution of a link between two rows."""
    gain = 0
    for word in range(has.shape[1]):
        both = has[a, word] & has[b, word]
        if both:
            gain += _bits(both & _differ(label, a, b, word))
    return gain


@njit(cache=True)
def _differ(label: Any, a: Any, b: Any, word: Any) -> Any:
    differ = label[0, a, word] ^ label[0, b, word]
    for plane in range(1, len(label)):
        differ |= label[plane, a, word] ^ label[plane, b, word]
    return differ


@njit(cache=True)
def _bits(x: Any) -> Any:
    """Return how many bits are set, by sums of adjacent fields. LLVM finds no shorter code without a multiplication."""
    x = (x & _ODD) + (x >> np.uint64(1) & _ODD)
    x = (x & _PAIRS) + (x >> np.uint64(2) & _PAIRS)
    x = (x & _NIBBLES) + (x >> np.uint64(4) & _NIBBLES)
    x += x >> np.uint64(8)
    x += x >> np.uint64(16)
    x += x >> np.uint64(32)
    return np.int64(x & np.uint64(0x7F))


@njit(cache=True)
def _hash(has: Any, label: Any, row: Any) -> Any:
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in range(has.shape[1]):
        mixed = _stir(mixed ^ has[row, word])
        for plane in range(len(label)):
            mixed = _stir(mixed ^ label[plane, row, word])
    return np.int64(mixed >> np.uint64(1))


@njit(cache=True)
def _stir(x: Any) -> Any:
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    return x


@njit(cache=True)
def _equal(has: Any, label: Any, a: Any, b: Any) -> Any:
    for word in range(has.shape[1]):
        if has[a, word] != has[b, word]:
            return False
        for plane in range(len(label)):
            if label[plane, a, word] != label[plane, b, word]:
                return False
    return True
