"""The measures by their definitions, slow and readable: the twins of `trellis.measure`, imported by tests only.

An instance is a dictionary from node to its set of topics; an overlay is a networkx graph over the same nodes.
"""

from __future__ import annotations

from itertools import combinations

from lazy import nx
from trellis.model.interests import Interests

Wanted = dict[str, set[str]]


def wanted(interests: Interests) -> Wanted:
    return {
        name: set(interests.topics.take(interests.topics_of(node)).to_pylist())
        for node, name in enumerate(interests.nodes)
    }


def induced(overlay: nx.Graph, interest: Wanted, topic: str) -> nx.Graph:
    """G(t): the subgraph induced by t.nodes."""
    return overlay.subgraph([node for node in interest if topic in interest[node]])


def components(overlay: nx.Graph, interest: Wanted, topic: str) -> set[frozenset[str]]:
    """The TC-components of a topic."""
    return {frozenset(part) for part in nx.connected_components(induced(overlay, interest, topic))}


def is_tco(overlay: nx.Graph, interest: Wanted) -> bool:
    """For every t, G(t) has at most one component."""
    return all(len(components(overlay, interest, topic)) <= 1 for topic in set().union(*interest.values()))


def diameter_and_radius(overlay: nx.Graph, interest: Wanted, topic: str) -> tuple[int, int]:
    """The longest shortest path inside G(t), and the least that some node has; -1 if split or under two nodes."""
    graph = induced(overlay, interest, topic)
    if len(graph) < 2 or not nx.is_connected(graph):
        return -1, -1
    return nx.diameter(graph), nx.radius(graph)


def contribution(overlay: nx.Graph, interest: Wanted, u: str, v: str) -> int:
    """Topics that both want and in which u cannot reach v."""
    return sum(not nx.has_path(induced(overlay, interest, topic), u, v) for topic in interest[u] & interest[v])


def intersection(interest: Wanted, n: str, m: str) -> float:
    """In %, of the subscription lists of two nodes; 0 with an empty list."""
    smaller = min(len(interest[n]), len(interest[m]))
    return 100 * len(interest[n] & interest[m]) / smaller if smaller else 0.0


def tdi(interest: Wanted, d: int) -> float:
    """Mean over nodes of the mean intersection with the d nodes that have the highest."""
    total = 0.0
    for n in interest:
        best = sorted((intersection(interest, n, m) for m in interest if m != n), reverse=True)[:d]
        total += sum(best) / len(best) if best else 0.0
    return total / len(interest)


def gini(loads: list[int]) -> float:
    """Mean absolute difference of all ordered pairs, over twice the mean."""
    if not sum(loads):
        return 0.0
    differences = sum(abs(a - b) for a in loads for b in loads) / len(loads) ** 2
    return differences / (2 * sum(loads) / len(loads))


def fewest_links(interest: Wanted) -> int:
    """The least number of links of a TCO, by trying all overlays, small ones first."""
    pairs = list(combinations(sorted(interest), 2))
    for links in range(len(pairs) + 1):
        for chosen in combinations(pairs, links):
            if all(_connects(chosen, interest, topic) for topic in set().union(*interest.values())):
                return links
    raise AssertionError("the complete overlay is a TCO")


def _connects(links: tuple[tuple[str, str], ...], interest: Wanted, topic: str) -> bool:
    nodes = {node for node in interest if topic in interest[node]}
    reached: set[str] = set()
    ahead = [min(nodes)]
    while ahead:
        node = ahead.pop()
        reached.add(node)
        ahead += [
            b if a == node else a for a, b in links if node in (a, b) and {a, b} <= nodes and not {a, b} <= reached
        ]
    return reached == nodes
