"""The links that a mesh starts with: LowODA's for its interests, or those of a file.

No node of a live mesh knows all interests, but `trellis up` does. On few nodes LowODA's rule is that of OMen's repairs
(`protocols/omen/shadow.py`), so this needs neither numpy nor numba.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from trellis import ids
from trellis.errors import InputError
from trellis.fleet.interests import InterestsByNode, subscribers_of
from trellis.protocols.omen.shadow import low_edges
from trellis.protocols.topics import TopicTable

Link = tuple[str, str]


def low_links(interests: InterestsByNode, seed: int) -> list[Link]:
    """Return the links of a topic-connected overlay that LowODA plans."""
    table = TopicTable()
    parts = {
        table.bit(topic): [(node,) for node in sorted(nodes)]
        for topic, nodes in sorted(subscribers_of(interests).items())
        if len(nodes) > 1
    }
    return low_edges(parts, dict.fromkeys(interests, 0), {node: ids.key(seed, node) for node in interests})


def read_links(path: Path, interests: InterestsByNode) -> list[Link]:
    """Read links from the file of an overlay. Every node in it must be a node of the mesh."""
    from trellis.model import read_overlay
    from trellis.simulate.run import link_names

    links = list(link_names(read_overlay(path)))
    unknown = next((name for link in links for name in link if name not in interests), None)
    if unknown is not None:
        raise InputError(str(path), f'there is no node "{unknown}"', "plan the interests of this mesh")
    return links


def neighbors_of(links: Iterable[Link], absent: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """Return the planned neighbors of each node. Nodes that are absent at the start have none: they join later."""
    neighbors: dict[str, list[str]] = {}
    later = set(absent)
    for u, v in links:
        if not later & {u, v}:
            neighbors.setdefault(u, []).append(v)
            neighbors.setdefault(v, []).append(u)
    return {node: tuple(sorted(peers)) for node, peers in neighbors.items()}
