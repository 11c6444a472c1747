"""Draw the interests of nodes that join. They are independent: joining node j has a stream of its own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.workloads.churn_configs import parse_joiners
from trellis.workloads.configs import WorkloadConfig
from trellis.workloads.generate import Drawn, draw, generate_range, numbered, uniform_numbers
from trellis.workloads.popularity import weight_tables


class Joined(NamedTuple):
    """The interests of each joining node, and the names of the topics in them."""

    names: Names
    drawn: Drawn


def draw_joiners(joiners: str | WorkloadConfig, interests: Interests, seed: int | str, count: int) -> Joined:
    """Draw interests for `count` nodes that join a system that began as `interests`."""
    joiners = parse_joiners(joiners) if isinstance(joiners, str) else joiners
    if not isinstance(joiners, str):
        return _next_nodes(joiners, interests, seed, count)
    donors = np.flatnonzero(interests.sizes)
    if not len(donors):
        raise InputError("--joiners " + joiners, "no node has interests to draw from", "give interests")
    donor = donors[(uniform_numbers(seed, "donors", 0, count)[:, 0] * len(donors)).astype(np.int64)]
    sizes = interests.sizes[donor]
    if joiners == "popularity":
        with np.errstate(divide="ignore"):  # A topic without subscribers is never drawn.
            tables = weight_tables(np.log(interests.popularity))
        return Joined(interests.topics, draw(sizes, tables, 1, seed, purpose="joiners"))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(interests.node_offsets[donor] - offsets[:-1], sizes) + np.arange(offsets[-1])
    return Joined(interests.topics, Drawn(offsets, interests.node_topics[places]))


def _next_nodes(config: WorkloadConfig, interests: Interests, seed: int | str, count: int) -> Joined:
    names = numbered("t", config.topics)
    if not np.any(interests.topics.ids_of(names.array) >= 0):
        raise InputError(
            f"--joiners {type(config).__name__.lower()}",
            f"its topics t1 to t{config.topics} are none of those in the interests",
            "use popularity or copy",
        )
    # Indexes beyond the initial nodes: joining nodes are independent of these, even with the same seed.
    first = len(interests.nodes)
    return Joined(names, generate_range(config, seed, first, first + count))  # type: ignore[arg-type]
