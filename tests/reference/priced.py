"""Plans with costs and caps, word for word: everything is computed anew for every edge.

interest   {node: topics}
cost       {frozenset of two nodes: cost}
links_max  {node: cap}; nodes that are not there have none
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import inf

from lazy import nx
from reference.lowoda import Edge, Interest, all_topics, by_rank, contribution, tc_components

SAFE, WITHIN, ONE, BOTH = range(4)


def priced_edges(
    interest: Interest,
    existing: Iterable[tuple[str, str]],
    cost: dict[frozenset[str], float],
    links_max: dict[str, int],
    *,
    rho: float,
    seed: int | str,
) -> list[Edge]:
    """The edges in the order chosen: by value, in four phases."""
    overlay = nx.Graph()
    overlay.add_nodes_from(interest)
    overlay.add_edges_from(existing)
    pairs = list(combinations(by_rank(interest, seed), 2))  # the first of several equals wins
    new: list[Edge] = []
    phase = SAFE
    while phase <= BOTH:
        components = {topic: tc_components(overlay, interest, topic) for topic in all_topics(interest)}
        values = {}
        for u, v in pairs:
            gain = contribution(components, interest, u, v)
            if gain > 0 and allowed(overlay, interest, links_max, u, v, phase):
                values[u, v] = gain / max(cost[frozenset((u, v))], 2.0**-990)
        if not values:
            phase += 1
            continue
        degree_max = max(degree for _, degree in overlay.degree)
        low = [pair for pair in values if max(overlay.degree[pair[0]], overlay.degree[pair[1]]) < degree_max]
        first = max(values, key=values.__getitem__)
        second = max(low, key=values.__getitem__) if low else first
        u, v = first if values[first] > rho * values[second] * (1 + 1e-12) else second
        new.append(Edge(u, v, contribution(components, interest, u, v)))
        overlay.add_edge(u, v)
    return new


def room(overlay: nx.Graph, links_max: dict[str, int], node: str) -> float:
    return max(links_max.get(node, inf) - overlay.degree[node], 0)


def allowed(overlay: nx.Graph, interest: Interest, links_max: dict[str, int], u: str, v: str, phase: int) -> bool:
    full = sum(room(overlay, links_max, end) == 0 for end in (u, v))
    if phase != SAFE:
        return full <= phase - WITHIN
    if full:
        return False
    for end, other in ((u, v), (v, u)):
        alone = {topic for topic in interest[end] if is_alone(overlay, interest, end, topic)}
        left = room(overlay, links_max, end)
        if left < inf and len(alone & interest[other]) * left < len(alone) and len(alone) >= left:
            return False  # a link that this end should keep for a better use
    after = overlay.copy()
    after.add_edge(u, v)
    return all(
        deficit(after, interest, links_max, topic) <= deficit(overlay, interest, links_max, topic)
        for topic in interest[u] | interest[v]
    )


def is_alone(overlay: nx.Graph, interest: Interest, node: str, topic: str) -> bool:
    others = {other for other in interest if other != node and topic in interest[other]}
    return bool(others) and not others & set(overlay[node])


def deficit(overlay: nx.Graph, interest: Interest, links_max: dict[str, int], topic: str) -> float:
    """How many ends beyond their caps connect the topic by itself: a tree of its components needs so many more."""
    induced = overlay.subgraph(node for node in interest if topic in interest[node])
    rooms = [sum(room(overlay, links_max, node) for node in part) for part in nx.connected_components(induced)]
    return max(rooms.count(0), 2 * (len(rooms) - 1) - sum(rooms), 0) if len(rooms) > 1 else 0
