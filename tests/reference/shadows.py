"""Maintenance under churn, word for word and slowly: sets of names, networkx, no cleverness.  [SH V]

The twin of `trellis.plan.mend*` and `trellis.plan.backups*`. Interests are {node: topics}; an overlay is a networkx
graph whose nodes are those present.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping
from itertools import combinations

from lazy import nx
from trellis import ids
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

Topics = Mapping[str, Collection[str]]
Pair = tuple[str, str]


def rank(seed: int | str, name: str) -> tuple[int, str]:
    return ids.key(seed, name), name


def ordered(seed: int | str, u: str, w: str) -> Pair:
    return (u, w) if rank(seed, u) < rank(seed, w) else (w, u)


def topic_graph(graph: nx.Graph, interest: Topics, topic: str) -> nx.Graph:
    return graph.subgraph([node for node in graph if topic in interest[node]])


def split_topics(graph: nx.Graph, interest: Topics) -> dict[str, int]:
    """The topics with more than one component, and how many they have."""
    topics = {topic for node in graph for topic in interest[node]}
    counts = {topic: nx.number_connected_components(topic_graph(graph, interest, topic)) for topic in topics}
    return {topic: count for topic, count in counts.items() if count > 1}


def component_of(graph: nx.Graph, interest: Topics, topic: str) -> dict[str, int]:
    """For each subscriber of the topic the number of its TC-component."""
    pieces = nx.connected_components(topic_graph(graph, interest, topic))
    return {node: number for number, piece in enumerate(pieces) for node in piece}


def contributions(graph: nx.Graph, interest: Topics, topics: Collection[str], pairs: Iterable[Pair]) -> dict[Pair, int]:
    """For each pair, of `topics` those that both have and in which they are not connected.  [SH Alg. 2, l. 2-3]"""
    components = [component_of(graph, interest, topic) for topic in topics]
    return {
        (u, w): sum(u in component and w in component and component[u] != component[w] for component in components)
        for u, w in pairs
    }


def low_links(
    graph: nx.Graph, interest: Topics, topics: Collection[str], pairs: Iterable[Pair], rho: float, seed: int | str
) -> list[Pair]:
    """constructLowEdges: E_new out of `pairs`, in the order taken. Adds the links to `graph`.  [SH Alg. 2]"""
    candidates = sorted((ordered(seed, u, w) for u, w in pairs), key=lambda pair: [rank(seed, end) for end in pair])
    taken = []
    while True:
        gains = {pair: gain for pair, gain in contributions(graph, interest, topics, candidates).items() if gain > 0}
        if not gains:
            return taken
        top = max((degree for _, degree in graph.degree), default=0)
        e1 = max(gains, key=lambda pair: gains[pair])  # the first of equals: the smallest pair of ranks
        flat = [pair for pair in gains if graph.degree[pair[0]] < top and graph.degree[pair[1]] < top]
        e2 = max(flat or gains, key=lambda pair: gains[pair])
        chosen = e1 if gains[e1] > rho * gains[e2] else e2
        graph.add_edge(*chosen)
        taken.append(chosen)


def mend_leave(
    graph: nx.Graph, interest: Topics, gone: Collection[str], shadow: Iterable[str], rho: float, seed: int | str
) -> list[Pair]:
    """[SH Alg. 7] with S given; Alg. 4 with S = V'. Several nodes go as one event."""
    topics = {topic for node in gone for topic in interest[node]}
    graph.remove_nodes_from(list(gone))
    return low_links(graph, interest, topics, combinations(sorted(shadow), 2), rho, seed)


def mend_join(
    graph: nx.Graph, interest: Topics, node: str, shadow: Iterable[str], rho: float, seed: int | str
) -> list[Pair]:
    """[SH Alg. 10] with S given; Alg. 3 with S = V'."""
    graph.add_node(node)
    return low_links(graph, interest, interest[node], [(node, other) for other in shadow], rho, seed)


def mend_subscribe(
    graph: nx.Graph, interest: Topics, node: str, topic: str, shadow: Iterable[str], rho: float, seed: int | str
) -> list[Pair]:
    """`interest` has the new topic already."""
    return low_links(graph, interest, [topic], [(node, other) for other in shadow], rho, seed)


def mend_unsubscribe(
    graph: nx.Graph, interest: Topics, node: str, topic: str, shadow: Iterable[str], rho: float, seed: int | str
) -> list[Pair]:
    """`interest` lacks the topic already. Links that served it alone go first."""
    idle = [
        other for other in graph[node] if topic in interest[other] and not set(interest[node]) & set(interest[other])
    ]
    graph.remove_edges_from([(node, other) for other in idle])
    return low_links(graph, interest, [topic], combinations(sorted(shadow), 2), rho, seed)


class Chance:
    """Marsaglia's xorshift64, and a number below a bound from its upper half."""

    def __init__(self, state: int) -> None:
        self.state = state

    def below(self, bound: int) -> int:
        x = self.state
        x ^= x << 13 & (2**64 - 1)
        x ^= x >> 7
        x ^= x << 17 & (2**64 - 1)
        self.state = x
        return (x >> 32) * bound >> 32


def build_backups(
    routine: str,
    node: str,
    covers: int,
    interest: Topics,
    weight: Mapping[str, int],
    chance: Chance,
    seed: int | str,
    topics: Collection[str] | None = None,
    already: Collection[str] = (),
) -> list[set[str]]:
    """The covers of one backup set.  [SH Alg. 11, 12; OMen §4.2] `weight` is that of every present node before."""
    chosen: set[str] = {node, *already}
    wanted = interest[node] if topics is None else topics
    left = dict(weight)
    result = []
    for _ in range(covers):
        if routine != "primal-dual-carry":
            left = dict(weight)
        rest, cover = set(wanted), set()
        while rest:
            candidates = [u for u in sorted(interest, key=lambda u: rank(seed, u)) if u not in chosen]
            if routine.startswith("primal-dual"):
                topic = shortlex(rest)[chance.below(len(rest))]
                candidates = [u for u in candidates if topic in interest[u]]
            gain = {u: len(rest & set(interest[u])) for u in candidates if rest & set(interest[u])}
            if not gain:
                if not routine.startswith("primal-dual"):
                    break
                rest.remove(topic)  # A-SHD-6
                continue
            if routine in ("primal-dual", "primal-dual-carry"):
                positive = [u for u in candidates if left[u] > 0]
                if positive:
                    best = min(positive, key=lambda u: left[u])
                    least = left[best]
                    for u in positive:
                        left[u] -= least
                else:
                    best = candidates[chance.below(len(candidates))]  # A-SHD-4
            elif routine == "greedy-weighted":
                best = min(gain, key=lambda u: weight[u] / gain[u])
            else:
                best = max(gain, key=lambda u: gain[u])
            chosen.add(best)
            cover.add(best)
            rest -= set(interest[best])
        if not cover:
            break
        result.append(cover)
    return result


def shortlex(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda name: (len(name.encode()), name.encode()))


def any_tco(interests: Interests, seed: int) -> Overlay:
    """Some TCO: a random tree over the subscribers of each topic, and a few links more."""
    chance = random.Random(seed)
    links = set()
    for topic in range(len(interests.topics)):
        members = interests.nodes_of(topic).tolist()
        chance.shuffle(members)
        for place in range(1, len(members)):
            links.add(tuple(sorted((members[place], members[chance.randrange(place)]))))
    count = len(interests.nodes)
    for _ in range(chance.randrange(count)):
        u, v = chance.randrange(count), chance.randrange(count)
        if u != v:
            links.add((min(u, v), max(u, v)))
    return Overlay.from_ids(interests.nodes, [u for u, _ in links], [v for _, v in links])


def named_topics(interests: Interests) -> dict[str, set[str]]:
    return {
        name: set(interests.topics.take(interests.topics_of(node)).to_pylist())
        for node, name in enumerate(interests.nodes)
    }
