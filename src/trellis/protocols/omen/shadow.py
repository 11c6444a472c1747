"""Alg. 1 of OMen: links among a shadow set that connect what a departure has split.  [OM Alg. 1; SH Alg. 2, 7, 10]

`low_edges` is LowODA's rule on few nodes, in plain Python: each pair has the bitset of topics that a link would join,
and merging two parts of a topic clears its bit for all pairs across. Pairs stand in the order of the tie rule of
`plan` (keys of both ends), so the first of the greatest is the winner.

Only parts that hold a *required* node count: all of them must end in one part, backups are offered as ends of links
but need not be joined (docs/omen.md, "One repair", step 5). The maximum degree is that of the
shadow set: a coordinator sees no other (A-LOW-3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places

Pair = tuple[NodeId, NodeId]
LowEdges = Callable[..., list[Pair]]  # `low_edges`, or whatever times it
Parts = Mapping[int, Iterable[Collection[NodeId]]]  # the bit of a topic -> its parts


def low_edges(
    parts: Parts,
    degrees: Mapping[NodeId, int],
    keys: Mapping[NodeId, int],
    *,
    linked: Collection[Pair] = (),
    rho: float = 3.0,
    centre: NodeId | None = None,
) -> list[Pair]:
    """E_new. `parts`: for each topic the parts that must become one, as sets of candidates for the ends of links.

    `linked` are pairs that have a link, as (lower key, higher key); `centre`: all new links end there (a join,
    A-OMN-21). A topic whose parts no pair can join stays as it is (A-LOW-4).
    """
    everybody = {node for groups in parts.values() for group in groups for node in group}
    nodes = sorted(everybody, key=lambda node: (keys[node], node))
    place = {node: number for number, node in enumerate(nodes)}
    have = set(linked)
    part_of: dict[int, dict[int, list[int]]] = {}
    split = [0] * len(nodes)  # topics of each node that are in several parts
    together = [[0] * len(nodes) for _ in nodes]  # topics on which two nodes are in the same one
    for bit, groups in parts.items():
        members = [[place[node] for node in group] for group in groups]
        part_of[bit] = {node: group for group in members for node in group}
        for group in members:
            for i in group:
                split[i] |= bit
                row = together[i]
                for j in group:
                    row[j] |= bit
    pairs: list[tuple[int, int]] = []
    joins: list[int] = []  # topics that the pair would join
    number_of = [[-1] * len(nodes) for _ in nodes]
    for i, u in enumerate(nodes):
        for j in range(i + 1, len(nodes)):
            joined = split[i] & split[j] & ~together[i][j]
            if joined and (centre is None or centre in (u, nodes[j])) and (u, nodes[j]) not in have:
                number_of[i][j] = number_of[j][i] = len(pairs)
                pairs.append((i, j))
                joins.append(joined)
    counts = [bits.bit_count() for bits in joins]
    degree = [degrees[node] for node in nodes]
    chosen: list[Pair] = []
    while True:
        number = _low_edge(counts, pairs, degree, rho, number_of)
        if number is None:
            return chosen
        i, j = pairs[number]
        chosen.append((nodes[i], nodes[j]))
        degree[i] += 1
        degree[j] += 1
        for position in places(joins[number]):
            _merge(1 << position, part_of[1 << position], i, j, number_of, joins, counts)


def _low_edge(
    counts: list[int], pairs: list[tuple[int, int]], degree: list[int], rho: float, number_of: list[list[int]]
) -> int | None:
    """findLowEdge: the greatest contribution if it is more than rho times that of what raises D least.  [SH Alg. 2]"""
    greatest = max(counts, default=0)
    if not greatest:
        return None
    first, largest = counts.index(greatest), max(degree)
    i, j = pairs[first]
    if degree[i] < largest > degree[j]:  # e1 is e2
        return first
    low = counts.copy()
    for node, links in enumerate(degree):
        if links == largest:
            for number in number_of[node]:
                if number >= 0:
                    low[number] = 0
    best = max(low)
    # Where nothing leaves D as it is, every edge raises it by one and e2 = e1 (A-LOW-1).
    return low.index(best) if best and greatest <= rho * best else first


def _merge(
    bit: int,
    part: dict[int, list[int]],
    i: int,
    j: int,
    number_of: list[list[int]],
    joins: list[int],
    counts: list[int],
) -> None:
    one, other = part[i], part[j]
    for a in one:
        numbers = number_of[a]
        for b in other:
            number = numbers[b]
            if number >= 0 and joins[number] & bit:
                joins[number] ^= bit
                counts[number] -= 1
    if len(one) < len(other):
        one, other = other, one
    one += other
    for node in other:
        part[node] = one
