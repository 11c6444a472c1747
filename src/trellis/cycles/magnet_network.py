"""A network of Magnet nodes, or of the strawman's, in cycles: all state of a run, moved on in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from random import Random
from typing import Any

import numpy as np

from trellis import ids
from trellis.cycles.calendar import enter, make_calendar
from trellis.cycles.chance import stream
from trellis.cycles.fingers import interest_of, make_estimate, rule_of
from trellis.cycles.instance import Instance
from trellis.cycles.magnet import (
    BEGIN,
    CROWDED_CONTROL,
    CROWDED_SKEWED,
    DONE,
    SHORT_MEMBERS,
    TREES,
    Joins,
    Settings,
    State,
    run,
)
from trellis.cycles.members import make_members, more_members
from trellis.cycles.oscar import Oscar, home_of, labels_of, links_of, make_oscar, widened
from trellis.cycles.trees import Reached, make_trees, more_trees, reach
from trellis.protocols.magnet import MagnetConfig

_EVENTS = 8  # events of a node that the calendar has at most at a time


class MagnetNetwork:
    """Nodes that join at the times `begins_ms`, in random order, and trees from `trees_ms` on."""

    def __init__(
        self, instance: Instance, config: MagnetConfig, begins_ms: Sequence[int], trees_ms: int, seed: int = 1
    ) -> None:
        self.instance, self.config, self.seed, self.now_ms = instance, config, seed, 0
        self.trees_ms, self.trees_end_ms = trees_ms, trees_ms + (begins_ms[-1] // 4 if begins_ms else 0)
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
            np.zeros((2, nodes), np.int64),
            np.full(nodes, -1, np.int32),
            stream(seed, "magnet", "joins"),
            np.zeros(1, np.int64),
        )
        self.state = State(
            control,
            skewed,
            make_estimate(control, self.settings.control),
            make_estimate(skewed, self.settings.skewed),
            make_members(nodes, topics, config.sample_size, room),
            make_trees(np.full(topics, -1, np.int32), room),
            make_calendar(_EVENTS * nodes + 1),
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

    def reached(self) -> Reached:
        """Return what one publication on every topic would do now."""
        found: Reached = reach(self.state.trees, len(self.instance.topics))
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
                room = len(state.members.parent) * 3 // 2
                self.state = state._replace(members=more_members(state.members, room))
            else:
                room = len(state.trees.parent) * 3 // 2
                self.state = state._replace(trees=more_trees(state.trees, room))


def members_room(subscriptions: int) -> int:
    """Return for how many parts there is room at first."""
    return 2 * subscriptions + 65_536
