"""Find nodes to which a plan gives more links than their cap allows, and why.

Three proofs are tried. First, the neighbors of a node must have all its topics. So it needs at least as many links as
it takes of the largest overlaps to reach the number of its topics. Second, a topic of k subscribers needs k - 1 links,
so the caps of its subscribers must allow 2 (k - 1) ends. Third, all caps together must allow as many links as every
overlay has (`trellis.measure.bounds`). If no proof shows that a cap cannot be kept, another plan may keep it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trellis.measure.bounds import links_lower_bound
from trellis.model.costs import LinkCaps
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

NAMED_MAX = 3  # most topics that an excess names


@dataclass(frozen=True)
class Excess:
    """A node with more links than its cap allows."""

    node: str
    links_max: int
    links: int
    topics: tuple[str, ...]  # some topics for which it needed links beyond the cap
    proven: bool  # whether no overlay can keep the cap, or the links existed before
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.links} links, {self.links_max} allowed: {self.reason}"


def find_excess(
    interests: Interests, overlay: Overlay, caps: LinkCaps, existing: Overlay, joined: dict[int, list[int]]
) -> Iterator[Excess]:
    """Yield every node with too many links, the largest excess first.

    existing  the links that existed before
    joined    node -> topics for which it needed links beyond the cap
    """
    over = overlay.degrees - caps.links_max
    if not np.any(over > 0):
        return
    everywhere = _too_few(interests, caps)
    for node in np.argsort(-over, kind="stable")[: np.count_nonzero(over > 0)].tolist():
        most = int(caps.links_max[node])
        topics = tuple(interests.topics[topic] for topic in dict.fromkeys(joined.get(node, [])))
        proof = _proof(interests, caps, node, int(existing.degrees[node])) or everywhere
        needed = f' when topic "{topics[0]}" was still split' if topics else ""
        guess = f"all its links were in use{needed}; another plan may keep the cap"
        yield Excess(
            interests.nodes[node],
            most,
            int(overlay.degrees[node]),
            topics[:NAMED_MAX],
            proof is not None,
            guess if proof is None else proof,
        )


def _proof(interests: Interests, caps: LinkCaps, node: int, existing: int) -> str | None:
    """Return why no overlay can keep the cap of the node, or None if that is not known."""
    most = int(caps.links_max[node])
    if existing > most:
        return f"it has {existing:,} links already"
    topics = interests.topics_of(node)
    shared = topics[interests.popularity[topics] > 1]
    least = links_needed(interests, node)
    if least > most:
        return f"its {len(shared):,} topics need {least:,} or more links, whatever the plan"
    for topic in shared.tolist():
        allowed, needed = ends_allowed(interests, caps.links_max, topic)
        if allowed < needed:
            return (
                f'topic "{interests.topics[topic]}" has {needed // 2 + 1:,} subscribers, whose links have '
                f"{needed:,} ends or more; their caps allow {allowed:,}"
            )
    return None


def _too_few(interests: Interests, caps: LinkCaps) -> str | None:
    """Return why no overlay can keep all caps, if they allow too few links altogether."""
    allowed = int(np.minimum(caps.links_max, len(interests.nodes) - 1).sum()) // 2
    least = links_lower_bound(interests)
    if allowed >= least:
        return None
    return f"all caps together allow {allowed:,} links, and no overlay has fewer than {least:,}"


def links_needed(interests: Interests, node: int) -> int:
    """Return a number of links that the node has at least in every topic-connected overlay."""
    topics = interests.topics_of(node)
    shared = topics[interests.popularity[topics] > 1]
    if not len(shared):
        return 0
    others = np.concatenate([interests.nodes_of(topic) for topic in shared.tolist()])
    overlaps = np.bincount(others)
    overlaps[node] = 0
    reached = np.cumsum(np.sort(overlaps)[::-1])
    return int(np.searchsorted(reached, len(shared))) + 1


def ends_allowed(interests: Interests, links_max: npt.NDArray[np.int64], topic: int) -> tuple[int, int]:
    """Return how many ends of links inside the topic the caps allow, and how many are needed to connect it."""
    subscribers = interests.nodes_of(topic)
    inside = np.minimum(links_max[subscribers], len(subscribers) - 1)
    return int(inside.sum()), 2 * (len(subscribers) - 1)
