"""Which backups a coordinator asks, by what gossip says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from trellis.protocols.effects import NodeId


class Offer(NamedTuple):
    """What a backup may be good for."""

    topics: int  # a bitset over the topics of the repair
    degree: int = 0


def covering(offers: Mapping[NodeId, Offer], least: int, key: Callable[[NodeId], int]) -> list[NodeId]:
    """Return nodes whose topics cover those of all offers once, as far as each adds at least `least` topics.

    The node that adds most comes first; of several the one of the lowest degree, then of the smallest key.
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
