"""Check an overlay: whether it is a TCO, its degrees, and its topic diameters. `trellis check` prints the result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trellis.errors import InputError
from trellis.measure.connectivity import Connectivity, SplitTopic, split_topics
from trellis.measure.connectivity import connectivity as topic_connectivity
from trellis.measure.cuts import Cuts, find_cuts
from trellis.measure.diameters import TopicDiameters, topic_diameters
from trellis.measure.distributions import Distribution, degrees
from trellis.measure.fairness import gini
from trellis.measure.threads import Progress
from trellis.model.interests import Interests
from trellis.model.overlay import Overlay

SPLIT_MAX = 1000  # most split topics that are described; all are counted


@dataclass(frozen=True, eq=False)
class CheckResult:
    """The result of a check."""

    nodes: int
    topics: int  # topics with subscribers
    subscriptions: int
    links: int
    connectivity: Connectivity
    split: tuple[SplitTopic, ...]  # most components first, at most SPLIT_MAX
    degrees: Distribution
    degree_gini: float
    diameters: TopicDiameters | None  # None: not requested
    cuts: Cuts | None = None  # topics that the loss of one node would split; None: not requested

    @property
    def is_tco(self) -> bool:
        return self.connectivity.is_tco

    @property
    def is_two_connected(self) -> bool | None:
        """Return whether every topic stays connected without any one node, or None if that was not requested."""
        return None if self.cuts is None else self.is_tco and not self.cuts.topics

    def to_json(self) -> dict[str, Any]:
        """Return plain Python values, ready for `json.dumps`."""
        connectivity = self.connectivity
        return {
            "tco": self.is_tco,
            "nodes": self.nodes,
            "topics": self.topics,
            "subscriptions": self.subscriptions,
            "links": self.links,
            "idle_links": connectivity.idle_links,
            "components": int(connectivity.components.sum()),
            "components_missing": connectivity.missing,
            "split_topics": len(connectivity.split),
            "split": [topic.to_json() for topic in self.split],
            "two_connected": self.is_two_connected,
            "cuts": None
            if self.cuts is None
            else {
                "topics": self.cuts.topics,
                "nodes": self.cuts.nodes,
                "worst": [cut.to_json() for cut in self.cuts.worst],
            },
            "degree": {**self.degrees.to_json(), "gini": self.degree_gini},
            "diameter": None
            if self.diameters is None
            else {
                "topics": len(self.diameters.measured),
                "max": self.diameters.maximum,
                "mean": self.diameters.mean,
                "radius_max": self.diameters.radius_maximum,
                "radius_mean": self.diameters.radius_mean,
            },
        }


def check_overlay(
    interests: Interests,
    overlay: Overlay,
    *,
    diameters: bool = True,
    connectivity: int = 1,
    progress: Progress | None = None,
) -> CheckResult:
    """Check an overlay. `.is_tco` tells whether every topic is connected, and `.split` lists topics that are not.

    diameters     also measure exact topic diameters, from every node
    connectivity  2: also find topics that the loss of one node would split (`.is_two_connected`, `.cuts`)
    progress      called during the search for diameters, which takes most of the time
    """
    if connectivity not in (1, 2):
        raise InputError("--connectivity", f"{connectivity} cannot be checked", "give 1 or 2")
    connected = topic_connectivity(interests, overlay)
    return CheckResult(
        nodes=len(interests.nodes),
        topics=int(np.count_nonzero(connected.components)),
        subscriptions=interests.subscriptions,
        links=len(overlay),
        connectivity=connected,
        split=tuple(split_topics(interests, connected, topics_max=SPLIT_MAX)),
        degrees=degrees(overlay),
        degree_gini=gini(overlay.degrees),
        diameters=topic_diameters(interests, overlay, connected=connected, progress=progress) if diameters else None,
        cuts=find_cuts(interests, overlay, topics_max=SPLIT_MAX) if connectivity == 2 else None,
    )
