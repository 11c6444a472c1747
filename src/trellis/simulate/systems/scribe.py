"""Prepare the baseline of Magnet: the same trees on a ring that ignores interests, as in Scribe.  [MG §4; A-MAG-20]

It is the code of Magnet with the same number of links. Only the places on the ring differ: they follow from the hash of
the name, and fingers ignore interests. So the difference between the two shows what placement saves.
"""

from __future__ import annotations

from typing import Annotated

from trellis.simulate.systems.magnet import Magnet


class Scribe(Magnet):
    """Magnet's trees on a ring that ignores interests."""

    name = "scribe"
    placement = "name"

    def __init__(
        self,
        links: Annotated[int, "links a node has on average, both ends counted"] = 19,
        tree: Annotated[str, "how trees are joined: graft (as printed) or greedy-path (as claimed)"] = "graft",
        samples: Annotated[int, "subscribers in the sample of a topic, where grafts begin"] = 10,
        join_gap_ms: Annotated[int, "time between two joins of nodes that are there at the start"] = 30,
        first_gap_ms: Annotated[int, "the same for the first ten; it falls to join_gap_ms as nodes become more"] = 0,
        trees_ms: Annotated[int, "trees are joined from this moment on, in turn; 0: as soon as a node is placed"] = 0,
        period_ms: Annotated[int, "period of heartbeats; the ring is asked twice as often"] = 2_000,
        sample_ms: Annotated[int, "period of sampling rounds"] = 5_000,
        estimate_ms: Annotated[int, "first re-estimation of medians; later ones at three times the distance"] = 5_000,
    ) -> None:
        super().__init__(
            links,
            tree,
            samples,
            two_choices=False,
            join_gap_ms=join_gap_ms,
            first_gap_ms=first_gap_ms,
            trees_ms=trees_ms,
            period_ms=period_ms,
            sample_ms=sample_ms,
            estimate_ms=estimate_ms,
        )
