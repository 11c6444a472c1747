"""Observe a run: take the overlay and the interests of living nodes as tables, and measure a series over time.

A probe is called between two slices of a run, never by one of its events. So it cannot change the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trellis.measure.connectivity import Connectivity, connectivity
from trellis.measure.distributions import Distribution
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.simulate.engine import Engine
from trellis.simulate.population import Population


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state at one instant. Nodes that are down have no interests and no links."""

    interests: Interests
    overlay: Overlay
    degrees: Distribution  # of living nodes
    connectivity: Connectivity

    @property
    def topics(self) -> int:
        """Return the number of topics that have subscribers."""
        return int(np.count_nonzero(self.connectivity.components))

    @property
    def connected_share(self) -> float:
        """Return the share of topics with subscribers that are connected, or 1 if there is no topic."""
        return 1 - len(self.connectivity.split) / self.topics if self.topics else 1.0


class Camera:
    """Takes snapshots of a world. It keeps name tables, which seldom change, from one snapshot to the next."""

    def __init__(self, world: Population) -> None:
        self.world = world
        self._nodes, self._topics = Names([]), Names([])
        self._node_id: dict[str, int] = {}
        self._topic_id: dict[str, int] = {}

    def take(self, age_ms_min: int = 0) -> Snapshot:
        """Return the state of the world now. Nodes younger than `age_ms_min` do not count as subscribers.  [SC §3.8]"""
        world = self.world
        self._learn_names()
        living = world.living
        node_ids, topic_ids = self._node_id, self._topic_id
        old = [name for name in living if age_ms_min <= 0 or world.now_ms - world.born_ms(name) >= age_ms_min]
        wanted = [world.actors[name].topics for name in old]
        owner = np.repeat([node_ids[name] for name in old], [len(topics) for topics in wanted])
        topics = [topic_ids[topic] for own in wanted for topic in own]
        interests = Interests.from_ids(self._nodes, self._topics, owner.astype(np.int64), np.array(topics, np.int64))
        links = world.links()
        overlay = Overlay.from_ids(self._nodes, [node_ids[u] for u, _ in links], [node_ids[v] for _, v in links])
        degrees = Distribution.of(overlay.degrees[[node_ids[name] for name in old]] if old else [])
        return Snapshot(interests, overlay, degrees, connectivity(interests, overlay))

    def _learn_names(self) -> None:
        names, topics = self.world.membership.names, self.world.topics.names
        if len(names) != len(self._nodes):
            self._nodes, _ = Names.in_order(names)
            self._node_id = {name: place for place, name in enumerate(self._nodes)}
        if len(topics) != len(self._topics):
            self._topics, _ = Names.in_order(topics)
            self._topic_id = {name: place for place, name in enumerate(self._topics)}


class Series:
    """Rows of (time in seconds, metric, value)."""

    def __init__(self) -> None:
        self._time: list[float] = []
        self._metric: list[str] = []
        self._value: list[float] = []

    def table(self) -> pa.Table:
        """Return the rows as a table with columns time, metric and value."""
        return pa.table(
            {
                "time": pa.array(self._time, pa.float64()),
                "metric": pa.array(self._metric, pa.string()),
                "value": pa.array(self._value, pa.float64()),
            }
        )

    def series(self, metric: str) -> tuple[list[float], list[float]]:
        """Return the times and values of one metric."""
        chosen = [place for place, name in enumerate(self._metric) if name == metric]
        return [self._time[place] for place in chosen], [self._value[place] for place in chosen]

    def add(self, time_s: float, metric: str, value: float) -> None:
        self._time.append(time_s)
        self._metric.append(metric)
        self._value.append(float(value))

    def add_snapshot(self, time_s: float, found: Snapshot) -> None:
        """Add the metrics that every run has."""
        degrees = found.degrees
        self.add(time_s, "nodes", degrees.total)
        self.add(time_s, "links", len(found.overlay))
        self.add(time_s, "degree_mean", degrees.mean)
        self.add(time_s, "degree_max", degrees.maximum)
        self.add(time_s, "topics", found.topics)
        self.add(time_s, "connected_topics", found.connected_share)
        self.add(time_s, "components_missing", found.connectivity.missing)


class Probe(Series):
    """The series of a run of the event engine.

    nodes, links, degree_mean, degree_max     of living nodes, at the time of the sample
    topics, connected_topics                  topics with subscribers; the share of them that is connected
    components_missing                        sum over topics of (components - 1)
    messages, messages/TYPE, deliveries       since the previous sample
    control_messages                          messages of the system's control types, since the previous sample
    and the metrics of `System.metrics`
    """

    def __init__(self, engine: Engine, *, age_ms_min: int = 0) -> None:
        super().__init__()
        self.engine, self.age_ms_min = engine, age_ms_min
        self.camera = Camera(engine.world)
        self.last: Snapshot | None = None
        self.connectivity_checks = 0
        self._sent: dict[str, int] = {}
        self._deliveries = 0
        self._seen: tuple[int, int] | None = None

    def sample(self) -> Snapshot:
        """Add one sample to the series, and return the snapshot behind it."""
        found = self.snapshot()
        self.add_snapshot(self.engine.world.now_us / 1e6, found)
        for metric, value in self.engine.system.metrics(self.engine.world).items():
            self._add(metric, value)
        self._add_messages()
        return found

    def snapshot(self) -> Snapshot:
        """Return the present state. It is computed again only after something has changed."""
        seen = (self.engine.changes, self.engine.world.now_us if self.age_ms_min else 0)
        if self.last is None or seen != self._seen:
            self.last, self._seen = self.camera.take(self.age_ms_min), seen
            self.connectivity_checks += 1
        return self.last

    def sent_by_type(self) -> dict[str, int]:
        return self.engine.sent_by_type()

    def _add_messages(self) -> None:
        sent = self.engine.sent_by_type()
        since = {kind: count - self._sent.get(kind, 0) for kind, count in sent.items()}
        self._add("messages", sum(since.values()))
        self._add("control_messages", control_messages(self.engine, since))
        for kind, count in since.items():
            self._add(f"messages/{kind}", count)
        self._add("deliveries", self.engine.deliveries - self._deliveries)
        self._sent, self._deliveries = sent, self.engine.deliveries

    def _add(self, metric: str, value: float) -> None:
        self.add(self.engine.world.now_us / 1e6, metric, value)


def control_messages(engine: Engine, sent: Mapping[str, int]) -> int:
    """Return how many messages of `sent` are control messages of the system, or all of them if it names no types."""
    control = set(engine.system.control_types())
    return sum(count for kind, count in sent.items() if not control or kind in control)
