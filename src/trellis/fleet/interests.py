"""Who wants what on a live mesh: drawn here, or read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from trellis import ids
from trellis.errors import InputError

NODES_MAX = 200  # processes on one machine; each takes about 45 MB

InterestsByNode = Mapping[str, tuple[str, ...]]


def draw_interests(nodes: int, topics: int, subscriptions: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Each node wants `subscriptions` topics, the popular ones more often (Zipf 1); every topic has a pair of nodes."""
    if subscriptions > topics:
        raise InputError("--subscriptions", f"{subscriptions} of {topics} topics", "give at most --topics")
    if nodes * subscriptions < 2 * topics:
        remedy = "give fewer --topics, or more --subscriptions"
        raise InputError("--topics", f"{topics} are too many for two subscribers each", remedy)
    random = Random(ids.stream(seed, "fleet interests"))
    width = len(str(nodes - 1))
    names = [f"n{place:0{width}}" for place in range(nodes)]
    labels = [f"t{place:0{len(str(topics - 1))}}" for place in range(topics)]
    wanted: dict[str, set[str]] = {name: set() for name in names}
    dealt = random.sample(names, nodes)
    for place, topic in enumerate(labels):  # two each, in a circle: nobody gets more than its share
        for one in (2 * place, 2 * place + 1):
            wanted[dealt[one % nodes]].add(topic)
    weights = [1 / (place + 1) for place in range(topics)]
    for chosen in wanted.values():
        while len(chosen) < subscriptions:
            chosen.update(random.choices(labels, weights))
    return {name: tuple(sorted(chosen)) for name, chosen in wanted.items()}


def read_interests(path: Path, nodes: int | None) -> dict[str, tuple[str, ...]]:
    """The first `nodes` of a table; all of them unless given."""
    from trellis.model import read_interests as read
    from trellis.simulate.run import topics_by_node

    found = topics_by_node(read(path))
    if nodes is not None and nodes > len(found):
        raise InputError(str(path), f"it has {len(found)} nodes, not {nodes}", "give fewer --nodes")
    chosen = dict(list(found.items())[:nodes])
    expect_few(str(path), len(chosen))
    return chosen


def expect_few(where: str, nodes: int) -> None:
    if not 2 <= nodes <= NODES_MAX:
        raise InputError(where, f"{nodes} nodes", f"give 2 to {NODES_MAX} (--nodes): each is a process")


def subscribers_of(interests: InterestsByNode) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for node, topics in interests.items():
        for topic in topics:
            found.setdefault(topic, set()).add(node)
    return found
