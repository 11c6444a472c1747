"""GM, MinMaxODA and LowODA word for word: everything is computed anew for every edge.  [SH Alg. 1, Alg. 2]

interest   {node: topics}
overlay    a networkx graph over the nodes
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

from lazy import nx
from trellis import ids

Interest = dict[str, set[str]]


class Edge(NamedTuple):
    u: str  # of lower rank than v
    v: str
    contribution: int


def low_edges(
    interest: Interest,
    existing: Iterable[tuple[str, str]] = (),
    *,
    rho: float,
    light: bool = False,
    seed: int | str,
    candidates: Iterable[tuple[str, str]] | None = None,
) -> list[Edge]:
    """E_new in the order chosen.

    rho 1: GM, an e1, one that is an e2 if there is one. rho infinite and light: MinMaxODA, always e2, and of several
    the lightest [A-LOW-2].
    """
    overlay = nx.Graph()
    overlay.add_nodes_from(interest)
    overlay.add_edges_from(existing)
    allowed = None if candidates is None else {frozenset(pair) for pair in candidates}
    # In the order of the tie rule, so that the first of several equals wins.
    pairs = [
        (u, v) for u, v in combinations(by_rank(interest, seed), 2) if allowed is None or frozenset((u, v)) in allowed
    ]
    new: list[Edge] = []
    uncovered = {node: uncovered_topics(overlay, interest, node) for node in interest}
    while True:
        components = {topic: tc_components(overlay, interest, topic) for topic in all_topics(interest)}
        edges = [
            Edge(u, v, contribution(components, interest, u, v))
            for u, v in pairs
            if not overlay.has_edge(u, v)  # [A-LOW-5]
        ]
        edges = [edge for edge in edges if edge.contribution > 0]  # [A-LOW-1]
        if not edges:
            return new
        first = max(edges, key=lambda edge: edge.contribution)
        degree_max = max(degree for _, degree in overlay.degree)
        raised = {edge: max(degree_max, overlay.degree[edge.u] + 1, overlay.degree[edge.v] + 1) for edge in edges}
        lowest = min(raised.values())
        least = [edge for edge in edges if raised[edge] == lowest]
        if lowest > degree_max:
            uncovered = {node: uncovered_topics(overlay, interest, node) for node in interest}
        second = max(least, key=lambda edge: edge.contribution)
        if light:
            second = min(least, key=lambda edge: (-edge.contribution, *weight(uncovered, edge)))
        taken = first if first.contribution > rho * second.contribution else second
        overlay.add_edge(taken.u, taken.v)
        new.append(taken)


def by_rank(names: Iterable[str], seed: int | str) -> list[str]:
    return sorted(names, key=lambda name: (ids.key(seed, name), name))


def all_topics(interest: Interest) -> set[str]:
    return set().union(*interest.values())


def tc_components(overlay: nx.Graph, interest: Interest, topic: str) -> dict[str, int]:
    """For each node of the topic the number of its component in the subgraph that these nodes induce."""
    induced = overlay.subgraph(node for node in interest if topic in interest[node])
    return {node: number for number, component in enumerate(nx.connected_components(induced)) for node in component}


def contribution(components: dict[str, dict[str, int]], interest: Interest, u: str, v: str) -> int:
    """Topics of both u and v in which they are in different TC-components."""
    return sum(components[topic][u] != components[topic][v] for topic in interest[u] & interest[v])


def uncovered_topics(overlay: nx.Graph, interest: Interest, node: str) -> int:
    """How many topics of the node none of its neighbours has; 255 stands for more."""
    return min(255, len(interest[node].difference(*(interest[other] for other in overlay[node]))))


def weight(uncovered: dict[str, int], edge: Edge) -> tuple[int, ...]:
    """By the lighter end; where the edge joins one topic only, also by the other."""
    ends = sorted((uncovered[edge.u], uncovered[edge.v]))
    return tuple(ends) if edge.contribution == 1 else (ends[0],)


def split_topics(interest: Interest, links: Iterable[tuple[str, str]]) -> set[str]:
    """Topics with more than one TC-component; an overlay without any is a TCO."""
    overlay = nx.Graph()
    overlay.add_nodes_from(interest)
    overlay.add_edges_from(links)
    return {topic for topic in all_topics(interest) if max(tc_components(overlay, interest, topic).values()) > 0}
