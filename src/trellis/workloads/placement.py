"""Choose nodes that crash together: any, consecutive on the identifier ring, near in the overlay, or hubs.

Groups never share a node. Degrees and neighbors are those of the overlay before the first crash.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from hashlib import sha1

from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.workloads.churn_configs import CrashGroups


def crash_groups(
    config: CrashGroups, interests: Interests, overlay: Overlay | None, chance: random.Random
) -> Iterator[list[str]]:
    """Yield the names of each group, in the order in which the groups crash."""
    nodes, size = interests.nodes, config.size
    if size * config.groups >= len(nodes):
        raise InputError(
            f"--size {size} --groups {config.groups}",
            f"crashes of {size * config.groups} nodes leave none of {len(nodes)}",
            "give smaller or fewer groups",
        )
    left = ring_order(nodes) if config.placement == "ring" else list(range(len(nodes)))
    for _ in range(config.groups):
        if config.placement == "uniform":
            group = chance.sample(left, size)
        elif config.placement == "ring":
            start = chance.randrange(len(left))
            group = (left + left)[start : start + size]
        elif config.placement == "overlay":
            group = around_a_node(_checked(overlay, config, nodes), left, size, chance)
        else:
            group = around_hubs(_checked(overlay, config, nodes), left, size)
        gone = set(group)
        left = [node for node in left if node not in gone]
        yield [nodes[node] for node in group]


def ring_order(nodes: Names) -> list[int]:
    """Return the nodes in the order of the identifier ring: by the SHA-1 of their names."""
    identifiers = [sha1(name.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest() for name in nodes]
    return sorted(range(len(nodes)), key=identifiers.__getitem__)


def around_a_node(overlay: Overlay, left: list[int], size: int, chance: random.Random) -> list[int]:
    """Return a random node and those nearest to it, breadth first, with neighbors in random order.

    Only remaining nodes are visited. If they run out, the search continues at another random node.
    """
    unseen = set(left)
    group: list[int] = []
    queue: deque[int] = deque()
    while len(group) < size:
        if not queue:
            queue.append(chance.choice(sorted(unseen)))
            unseen.remove(queue[0])
        node = queue.popleft()
        group.append(node)
        near = [int(other) for other in overlay.neighbors_of(node) if int(other) in unseen]
        chance.shuffle(near)
        unseen.difference_update(near)
        queue.extend(near)
    return group


def around_hubs(overlay: Overlay, left: list[int], size: int) -> list[int]:
    """Return the node of the highest degree with its neighbors of the highest degrees, then the next hub if needed."""
    degrees = overlay.degrees
    by_degree = sorted(left, key=lambda node: (-degrees[node], node))
    place = {node: rank for rank, node in enumerate(by_degree)}
    group: dict[int, None] = {}  # in the order in which they are added
    for hub in by_degree:
        near = (int(other) for other in overlay.neighbors_of(hub) if int(other) in place)
        for node in [hub, *sorted(near, key=place.__getitem__)]:
            group.setdefault(node)
        if len(group) >= size:
            break
    return list(group)[:size]


def _checked(overlay: Overlay | None, config: CrashGroups, nodes: Names) -> Overlay:
    if overlay is None:
        raise InputError(f"--placement {config.placement}", "needs to know who is linked to whom", "give --overlay too")
    if overlay.nodes != nodes:
        raise InputError("--overlay", "its nodes are not those of the interests", "plan it for these interests")
    return overlay
