"""A network of Magnet nodes, or of the strawman's, in cycles: all state of a run, moved on in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np

from trellis import ids
from trellis.cycles.calendar import enter, make_calendar, more_calendar
from trellis.cycles.chance import stream
from trellis.cycles.estimates import make_estimates, more_estimates
from trellis.cycles.fingers import interest_of, make_estimate, rule_of, sample_arc
from trellis.cycles.instance import Instance
from trellis.cycles.magnet import (
    BEGIN,
    CROWDED_CONTROL,
    CROWDED_SKEWED,
    DONE,
    SHORT_CALENDAR,
    SHORT_CONTROL,
    SHORT_MEMBERS,
    SHORT_SKEWED,
    TREES,
    Joins,
    Settings,
    State,
    run,
)
from trellis.cycles.members import make_members, more_members
from trellis.cycles.oscar import Oscar, home_of, labels_of, links_of, make_oscar, widened
from trellis.cycles.trees import NONE, ROOT, Reached, make_trees, more_trees, reach
from trellis.protocols.magnet import MagnetConfig

_EVENTS = 8  # events of a node that the calendar has at most at a time


class MagnetNetwork:
    """Nodes that join at the times `begins_ms`, in random order, and trees from `trees_ms` on."""

    def __init__(
        self, instance: Instance, config: MagnetConfig, begins_ms: Sequence[int], trees_ms: int, seed: int = 1
    ) -> None:
        self.instance, self.config, self.seed, self.now_ms = instance, config, seed, 0
        self.trees_ms, self.trees_end_ms = trees_ms, trees_ms + (begins_ms[-1] // 4 if begins_ms else 0)
        self.deliveries = self.published = 0  # of publications so far: deliveries, and messages down the trees
        self._reached: tuple[int, Reached] | None = None
        nodes, topics = len(instance.nodes), len(instance.topics)
        is_similar = config.placement == "similar"
        self.settings = Settings(
            rule_of(config.control, is_similar=False),
            rule_of(config.skewed, is_similar=is_similar),
            is_similar,
            config.tree == "graft",
            config.sample_ms,
            config.skewed.estimate_ms,
            config.skewed.estimate_ms_max,
            _EVENTS + max(len(instance.topics), int(np.diff(instance.wants.offsets).max(initial=0))),
        )
        random = np.random.default_rng(ids.stream(seed, "cycles", "fingers"))
        control = make_oscar(nodes, config.control.links, random)
        skewed = make_oscar(nodes, config.skewed.links, random)
        order = list(range(nodes))
        Random(ids.stream(seed, "join order")).shuffle(order)  # as the event engine orders them
        turns = np.empty(nodes, np.int32)
        turns[order] = np.arange(nodes)
        room = members_room(instance.subscriptions)
        self._margin = room // 8
        joins = Joins(
            labels_of(instance.nodes),
            np.array(order, np.int32),
            turns,
            np.full(nodes, -1, np.int32),
            np.zeros(nodes, np.int64),
            np.zeros((2, nodes), np.int64),
            np.full(nodes, -1, np.int32),
            stream(seed, "magnet", "joins"),
            np.zeros(2, np.int64),
        )
        self.state = State(
            control,
            skewed,
            make_estimate(control, self.settings.control),
            make_estimate(skewed, self.settings.skewed),
            make_estimates(nodes, self.settings.control),
            make_estimates(nodes, self.settings.skewed),
            make_members(nodes, topics, config.sample_size, room),
            make_trees(np.full(topics, -1, np.int32), room),
            make_calendar(_EVENTS * nodes + 2 * self.settings.events_max),
            interest_of(instance.wants),
            joins,
            labels_of(instance.topics),
            *(stream(seed, "magnet", name) for name in ("members", "walks", "trees")),
        )
        for node, begin_ms in zip(order, begins_ms, strict=True):
            enter(self.state.calendar, begin_ms, BEGIN, node)
            enter(self.state.calendar, trees_ms + begin_ms // 4, TREES, node)

    def run(self, until_ms: int) -> None:
        """Let time pass until `until_ms`."""
        if self.now_ms < self.trees_ms <= until_ms:
            self._run(self.trees_ms - 1)
            self.find_homes()
        self._run(until_ms)
        self.now_ms = until_ms

    @property
    def changed_ms(self) -> int:
        """Return when a link or a tree has changed last."""
        return int(self.state.joins.changed[0])

    def find_homes(self) -> None:
        """Find the home location of each topic. It stays the same once all nodes are on the control ring."""
        first = int(self.state.joins.order[0])
        for topic, place in enumerate(self.state.places):
            self.state.trees.homes[topic] = home_of(self.state.control, first, place)[0]

    def links(self) -> tuple[Any, Any]:
        """Return the links of the skewed ring, which are the overlay, as two arrays of their ends."""
        found: tuple[Any, Any] = links_of(self.state.skewed)
        return found

    @property
    def links_version(self) -> int:
        """Return a number that grows whenever the links of the skewed ring change."""
        return int(self.state.joins.changed[1])

    @property
    def sent(self) -> dict[str, int]:
        """Return how many messages of trees the protocol would have sent."""
        climbed, descended = self.state.trees.counts[:2].tolist()
        return {"Climb": climbed, "Descend": descended, "Publication": self.published}

    def reached(self) -> Reached:
        """Return what one publication on every topic would do now."""
        version = int(self.state.trees.counts[2])
        if self._reached is None or self._reached[0] != version:
            self._reached = version, reach(self.state.trees, len(self.instance.topics))
        return self._reached[1]

    def publish(self, topic: int) -> None:
        """Publish on a topic. Whoever publishes, the home sends it down the tree (A-MAG-16)."""
        found = self.reached()
        self.deliveries += int(found.reached[topic])
        self.published += max(0, int(found.reached[topic] + found.relays[topic]) - 1)

    def ring_order(self) -> list[str]:
        """Return the nodes that have a position on the skewed ring, clockwise."""
        ring = self.state.skewed
        placed = np.flatnonzero(ring.after >= 0)
        return [self.instance.nodes[node] for node in placed[np.argsort(ring.labels[placed], kind="stable")]]

    def tree_of(self, topic: int) -> tuple[int, dict[int, int]]:
        """Return the home of a topic, or -1, and the parent of each node in its tree. That of the home is -1."""
        trees = self.state.trees
        parts = np.flatnonzero(trees.parts.topic[: trees.parts.used[0]] == topic)
        parents = {}
        for part in parts[trees.parent[parts] != NONE].tolist():
            parent = int(trees.parent[part])
            parents[int(trees.parts.node[part])] = -1 if parent == ROOT else int(trees.parts.node[parent])
        return int(trees.homes[topic]), parents

    def median_ranks(self) -> list[list[int]]:
        """Let every node estimate its medians. Return how many nodes away they are on the skewed ring, far ones first.

        The run itself does not change.
        """
        ring, rule = self.state.skewed, self.settings.skewed
        scratch, chance = make_estimate(ring, rule), stream(self.seed, "magnet", "medians")
        placed = np.sort(ring.labels[ring.after >= 0])
        found = []
        for node in np.flatnonzero(ring.after >= 0).tolist():
            scratch.counts[:] = 0
            while not sample_arc(ring, node, rule, chance, scratch):
                pass
            far = scratch.medians[: scratch.counts[0]] + ring.labels[node : node + 1]  # It wraps around the ring.
            ranks = np.searchsorted(placed, far) - np.searchsorted(placed, ring.labels[node])
            found.append((ranks % len(placed)).tolist())
        return found

    def digest(self) -> str:
        """Return a digest of everything that the run has come to. The same seed gives the same one."""
        hashed, state = blake2b(digest_size=16), self.state
        for ring in (state.control, state.skewed):
            for array in (ring.labels, ring.after, ring.fingers, ring.guest_count):
                hashed.update(np.ascontiguousarray(array).tobytes())
        used = int(state.trees.parts.used[0])
        for array in (state.trees.parts.node, state.trees.parts.topic, state.trees.parent):
            hashed.update(array[:used].tobytes())
        hashed.update(state.members.view_sizes.tobytes())
        return hashed.hexdigest()

    def _run(self, until_ms: int) -> None:
        while (short := run(self.state, self.settings, until_ms, self._margin)) != DONE:
            state = self.state
            if short == CROWDED_CONTROL:
                ring: Oscar = widened(state.control)
                scratch = make_estimate(ring, self.settings.control)
                self.state = state._replace(control=ring, control_scratch=scratch)
            elif short == CROWDED_SKEWED:
                ring = widened(state.skewed)
                scratch = make_estimate(ring, self.settings.skewed)
                self.state = state._replace(skewed=ring, skewed_scratch=scratch)
            elif short == SHORT_MEMBERS:
                room = len(state.members.table) * 3 // 2
                self.state = state._replace(members=more_members(state.members, room))
            elif short == SHORT_CALENDAR:
                self.state = state._replace(calendar=more_calendar(state.calendar))
            elif short == SHORT_CONTROL:
                more = more_estimates(state.control_estimates, self.settings.control)
                self.state = state._replace(control_estimates=more)
            elif short == SHORT_SKEWED:
                more = more_estimates(state.skewed_estimates, self.settings.skewed)
                self.state = state._replace(skewed_estimates=more)
            else:
                room = len(state.trees.parent) * 3 // 2
                self.state = state._replace(trees=more_trees(state.trees, room))


def members_room(subscriptions: int) -> int:
    """Return for how many parts there is room at first."""
    return 2 * subscriptions + 65_536
