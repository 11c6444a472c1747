"""The choice of backups that a repair asks, by what gossip says about them. `Repair` calls `covering`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from trellis.protocols.effects import NodeId


class Offer(NamedTuple):
    """What gossip says about a backup."""

    topics: int  # Those of the repair's topics that it has, as a bitset.
    degree: int = 0  # 0 if it is unknown.


def covering(offers: Mapping[NodeId, Offer], least: int, key: Callable[[NodeId], int]) -> list[NodeId]:
    """Return backups that together cover the offered topics once. Each adds at least `least` topics to those before it.

    Topics that only smaller additions would cover stay uncovered. The backup that adds most topics comes first. Ties go
    to the lowest degree, then to the smallest key.
    """
    left, chosen = dict(offers), list[NodeId]()
    open_topics = 0
    for offer in left.values():
        open_topics |= offer.topics
    while left:
        added = {node: (offer.topics & open_topics).bit_count() for node, offer in left.items()}
        best = min(left, key=lambda node: (-added[node], left[node].degree, key(node), node))
        if added[best] < max(least, 1):
            break
        open_topics &= ~left.pop(best).topics
        chosen.append(best)
    return chosen
