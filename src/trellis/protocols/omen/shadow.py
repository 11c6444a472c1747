"""Alg. 1 of OMen: chooses links in a shadow set that connect the parts of split topics.  [OM Alg. 1; SH Alg. 2, 7, 10]

The shadow set are the nodes of a repair that may be ends of new links: required nodes and backups. `low_edges` is
LowODA's rule for few nodes, in plain Python. Each pair of nodes has the bitset of topics on which a link would connect
two parts: its contribution is their number. When two parts of a topic become one, the topic's bit is cleared for all
pairs between them. Pairs are in the order of the tie rule of `plan` (the keys of both ends), so the first of several
greatest contributions wins.

The parts that are passed have a required node each, and all parts of a topic must become one. Backups are members of
these parts as possible ends of links (docs/omen.md, "One repair", step 6). The maximum degree is that of the shadow
set, because a coordinator knows no other nodes (A-LOW-3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from trellis.protocols.effects import NodeId
from trellis.protocols.topics import places

Pair = tuple[NodeId, NodeId]
LowEdges = Callable[..., list[Pair]]  # `low_edges`, or a wrapper that measures its time.
TopicParts = Mapping[int, Iterable[Collection[NodeId]]]  # bit of a topic -> its parts


def low_edges(
    parts: TopicParts,
    degrees: Mapping[NodeId, int],
    keys: Mapping[NodeId, int],
    *,
    linked: Collection[Pair] = (),
    rho: float = 3.0,
    centre: NodeId | None = None,
) -> list[Pair]:
    """Return the new links (E_new of the paper), each as (lower key, higher key).

    `parts`     for each topic the parts that must become one, as sets of possible link ends
    `degrees`   the present degree of each node
    `keys`      break ties
    `linked`    pairs that have a link already, as (lower key, higher key)
    `rho`       see `OMenConfig.rho`
    `centre`    a node at which all new links must end (the joiner, A-OMN-21)

    Parts that no pair can connect stay as they are (A-LOW-4).
    """
    everybody = {node for groups in parts.values() for group in groups for node in group}
    nodes = sorted(everybody, key=lambda node: (keys[node], node))
    index_of = {node: number for number, node in enumerate(nodes)}
    have = set(linked)
    part_of: dict[int, dict[int, list[int]]] = {}
    split = [0] * len(nodes)  # For each node the split topics that it has.
    together = [[0] * len(nodes) for _ in nodes]  # For each pair the topics on which both are in the same part.
    for bit, groups in parts.items():
        members = [[index_of[node] for node in group] for group in groups]
        part_of[bit] = {node: group for group in members for node in group}
        for group in members:
            for i in group:
                split[i] |= bit
                row = together[i]
                for j in group:
                    row[j] |= bit
    pairs: list[tuple[int, int]] = []
    joins: list[int] = []  # For each pair the topics on which a link would connect two parts.
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
        number = next_edge(counts, pairs, degree, rho, number_of)
        if number is None:
            return chosen
        i, j = pairs[number]
        chosen.append((nodes[i], nodes[j]))
        degree[i] += 1
        degree[j] += 1
        for position in places(joins[number]):
            _merge(1 << position, part_of[1 << position], i, j, number_of, joins, counts)


def next_edge(
    counts: list[int], pairs: list[tuple[int, int]], degree: list[int], rho: float, number_of: list[list[int]]
) -> int | None:
    """Return the index of the pair to link next. None: no pair contributes.  [SH Alg. 2, findLowEdge]

    e1 is the pair of greatest contribution, e2 the best pair that does not raise the maximum degree D. The result is e1
    if it contributes more than rho times as much as e2, else e2.
    """
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
    # If every pair raises D, each raises it by one, and e2 is e1 (A-LOW-1).
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
    """Merge the parts of nodes `i` and `j` on one topic, and lower the contributions of all pairs between them."""
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
