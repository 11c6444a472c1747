"""The links that a mesh starts with: LowODA's for its interests, or those of a file.

Nobody in a live mesh knows all interests, but who starts one does. LowODA's rule on few nodes is that of OMen's repairs
(`protocols/omen/shadow.py`), so that this needs neither numpy nor numba.
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
    """A topic-connected overlay by LowODA."""
    table = TopicTable()
    parts = {
        table.bit(topic): [(node,) for node in sorted(nodes)]
        for topic, nodes in sorted(subscribers_of(interests).items())
        if len(nodes) > 1
    }
    return low_edges(parts, dict.fromkeys(interests, 0), {node: ids.key(seed, node) for node in interests})


def read_links(path: Path, interests: InterestsByNode) -> list[Link]:
    """Of an overlay's file. A node that does not start is an error there, though the others would do without it."""
    from trellis.model import read_overlay
    from trellis.simulate.run import link_names

    links = list(link_names(read_overlay(path)))
    unknown = next((name for link in links for name in link if name not in interests), None)
    if unknown is not None:
        raise InputError(str(path), f'there is no node "{unknown}"', "plan the interests of this mesh")
    return links


def neighbours(links: Iterable[Link], absent: Iterable[str] = ()) -> dict[str, tuple[str, ...]]:
    """By node. Those that come later join: nobody waits for them."""
    found: dict[str, list[str]] = {}
    later = set(absent)
    for one, other in links:
        if not later & {one, other}:
            found.setdefault(one, []).append(other)
            found.setdefault(other, []).append(one)
    return {node: tuple(sorted(peers)) for node, peers in found.items()}
