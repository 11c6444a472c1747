"""Small instances that hypothesis draws: interests, overlays over them, seeds."""

from __future__ import annotations

from hypothesis import strategies as st

from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

seeds = st.integers(0, 2**32)


@st.composite
def interests(draw: st.DrawFn, nodes_max: int = 12, topics_max: int = 8) -> Interests:
    """Every node has at least one topic; some topics may stay without subscribers and then do not exist."""
    nodes = draw(st.integers(1, nodes_max))
    topics = draw(st.integers(1, topics_max))
    rows = {
        f"n{node}": sorted(draw(st.sets(st.integers(0, topics - 1), min_size=1, max_size=topics)))
        for node in range(nodes)
    }
    return Interests.from_pairs({node: [f"t{topic}" for topic in wanted] for node, wanted in rows.items()})


@st.composite
def overlays(draw: st.DrawFn, over: Interests) -> Overlay:
    """Any simple graph over the nodes of `over`."""
    count = len(over.nodes)
    pairs = [(u, v) for u in range(count) for v in range(u + 1, count)]
    if not pairs:
        return Overlay.from_ids(over.nodes, [], [])
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3 * count))
    return Overlay.from_ids(over.nodes, [u for u, _ in chosen], [v for _, v in chosen])
