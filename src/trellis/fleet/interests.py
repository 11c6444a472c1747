"""The interests of a live mesh: which node subscribes to which topics. Drawn here, or read from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from trellis import ids
from trellis.errors import InputError

NODES_MAX = 200  # processes on one machine; each takes about 45 MB

InterestsByNode = Mapping[str, tuple[str, ...]]


def draw_interests(nodes: int, topics: int, subscriptions: int, seed: int) -> dict[str, tuple[str, ...]]:
    """Draw `subscriptions` topics for each node, popular ones more often (Zipf 1). Every topic has two subscribers."""
    if subscriptions > topics:
        raise InputError("--subscriptions", f"{subscriptions} of {topics} topics", "give at most --topics")
    if nodes * subscriptions < 2 * topics:
        remedy = "give fewer --topics, or more --subscriptions"
        raise InputError("--topics", f"{topics} are too many for two subscribers each", remedy)
    random = Random(ids.stream(seed, "fleet interests"))
    width = len(str(nodes - 1))
    names = [f"n{number:0{width}}" for number in range(nodes)]
    labels = [f"t{number:0{len(str(topics - 1))}}" for number in range(topics)]
    wanted: dict[str, set[str]] = {name: set() for name in names}
    dealt = random.sample(names, nodes)
    for number, topic in enumerate(labels):  # Two nodes for each topic, in turn, so that no node gets too many.
        for turn in (2 * number, 2 * number + 1):
            wanted[dealt[turn % nodes]].add(topic)
    weights = [1 / (rank + 1) for rank in range(topics)]
    for chosen in wanted.values():
        while len(chosen) < subscriptions:
            chosen.update(random.choices(labels, weights))
    return {name: tuple(sorted(chosen)) for name, chosen in wanted.items()}


def read_interests(path: Path, nodes: int | None) -> dict[str, tuple[str, ...]]:
    """Read a table of interests: its first `nodes` nodes, or all of them if that is None."""
    from trellis.model import read_interests as read
    from trellis.simulate.run import topics_by_node

    interests = topics_by_node(read(path))
    if nodes is not None and nodes > len(interests):
        raise InputError(str(path), f"it has {len(interests)} nodes, not {nodes}", "give fewer --nodes")
    chosen = dict(list(interests.items())[:nodes])
    expect_few(str(path), len(chosen))
    return chosen


def expect_few(where: str, nodes: int) -> None:
    """Raise InputError unless one machine can run a mesh of so many nodes."""
    if not 2 <= nodes <= NODES_MAX:
        raise InputError(where, f"{nodes} nodes", f"give 2 to {NODES_MAX} (--nodes): each is a process")


def subscribers_of(interests: InterestsByNode) -> dict[str, set[str]]:
    """Return the subscribers of each topic."""
    subscribers: dict[str, set[str]] = {}
    for node, topics in interests.items():
        for topic in topics:
            subscribers.setdefault(topic, set()).add(node)
    return subscribers
