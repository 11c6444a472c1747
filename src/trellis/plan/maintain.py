"""Keep an overlay topic-connected while a churn trace happens, with central knowledge.  [SH V; OMen Table 3]

    run = Maintenance(interests, trace, config=MaintainConfig(algorithm="shadows"))
    for round_ in run.rounds():
        ...
    run.history.to_table(), run.overlay(), run.interests()

A crash is a leave here, because central knowledge shows both at once. All random numbers come from streams per (seed,
purpose, round, node), so a run can be repeated. After every event the overlay is a TCO of the present nodes
[SH Lemmas 2-4].
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

import numpy as np

from trellis.errors import InputError
from trellis.measure.connectivity import connectivity, split_topics
from trellis.model.churn import ChurnEvent, ChurnTrace, Event, replay
from trellis.model.interests import Interests
from trellis.model.names import IdArray, Names
from trellis.model.overlay import Overlay
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.maintain_history import History, Round
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_steps import IncrementalMaintenance, Repair
from trellis.plan.naive import Everyone
from trellis.plan.shadows import Shadows


class Algorithm(Protocol):
    """Handles the events: `IncrementalMaintenance` or `RebuildMaintenance`."""

    def join(self, node: int, topics: IdArray, round_: int) -> Repair: ...
    def leave(self, nodes: list[int], round_: int) -> Repair: ...
    def subscribe(self, node: int, topic: int, round_: int) -> Repair: ...
    def unsubscribe(self, node: int, topic: int, round_: int) -> Repair: ...


class Maintenance:
    """One run. When it is created, its inputs are checked and its first overlay and backup sets are built."""

    def __init__(
        self,
        interests: Interests,
        trace: ChurnTrace,
        overlay: Overlay | None = None,
        config: MaintainConfig | None = None,
    ) -> None:
        self.config = MaintainConfig() if config is None else config
        # Replay all of it now, so that a trace that does not fit is reported at once.
        self.events = tuple(replay(trace, interests))
        self.history = History(len(self.events))
        self.current = CurrentOverlay(
            _either(interests.nodes, trace.nodes), _either(interests.topics, trace.topics), self.config.seed
        )
        self.current.admit_all(interests, _present_at_the_start(interests, self.events))
        self.current.link_as(self._built() if overlay is None else _fitting(overlay, interests, self.current))
        expect_tco(self.current)
        self.algorithm = algorithm_for(self.current, self.config)

    def rounds(self) -> Iterator[Round]:
        """Handle one event after the other, and yield a round for each.

        A caller may stop and continue between two rounds.
        """
        for event in self.events[len(self.history) :]:
            round_ = self._round(event)
            self.history.append(round_)
            yield round_

    def interests(self) -> Interests:
        """Return the interests of the nodes that are present now."""
        return self.current.interests()

    def overlay(self) -> Overlay:
        """Return the present overlay, over the nodes of `interests()`."""
        return self.current.overlay()

    def _built(self) -> Overlay:
        """Return the overlay of LowODA, from which the paper starts.  [SH VI]"""
        from trellis.plan.construction import construct

        return construct(self.current.interests(), "lowoda", rho=self.config.rho, seed=self.config.seed).overlay

    def _round(self, event: ChurnEvent) -> Round:
        """Handle one event, and return its row of the history."""
        begin, links, number = time.process_time(), self.current.links, len(self.history) + 1
        node = self.current.rank_of[event.node]
        subscriptions = int(self.current.topics_of.length[node])
        repair = self._answer(event, node, number)
        seconds = time.process_time() - begin
        added = len(repair.added.us)
        is_checked = self.config.check_every and number % self.config.check_every == 0
        return Round(
            number,
            event.time,
            event.event.name,
            event.node,
            int(self.current.topics_of.length[node]) if self.current.present[node] else subscriptions,
            repair.shadow_set,
            added,
            repair.removed,
            (added + repair.removed) / links if links else None,
            self.current.degree_max,
            self.current.degree_mean,
            self.current.nodes,
            self.current.links,
            repair.seconds,
            seconds,
            self.split_topics() if is_checked else None,
        )

    def _answer(self, event: ChurnEvent, node: int, number: int) -> Repair:
        topics = np.array([self.current.topic_names.id_of(topic) for topic in event.topics], np.int32)
        match event.event:
            case Event.join:
                return self.algorithm.join(node, np.sort(topics), number)
            case Event.leave | Event.crash:
                return self.algorithm.leave([node], number)
            case Event.subscribe:
                return self.algorithm.subscribe(node, int(topics[0]), number)
            case Event.unsubscribe:
                return self.algorithm.unsubscribe(node, int(topics[0]), number)

    def split_topics(self) -> int:
        """Check the whole overlay, and return how many topics have more than one component now."""
        return len(connectivity(self.interests(), self.overlay()).split)


def algorithm_for(current: CurrentOverlay, config: MaintainConfig) -> Algorithm:
    """Return the algorithm of the configuration, with its Step I done."""
    if config.algorithm == "rebuild":
        from trellis.plan.rebuild import RebuildMaintenance

        return RebuildMaintenance(current, config.rho, config.seed)
    if config.algorithm == "naive":
        return IncrementalMaintenance(current, Everyone(current), config.rho)
    shadows = Shadows(current, config.backups, config.coverage_factor, config.seed)
    return IncrementalMaintenance(current, shadows, config.rho, config.components)


def expect_tco(current: CurrentOverlay) -> None:
    """Raise InputError if the overlay is no TCO. The algorithms repair only what an event has split."""
    interests = current.interests()
    result = connectivity(interests, current.overlay())
    if not result.is_tco:
        worst = split_topics(interests, result, topics_max=1)[0]
        raise InputError(
            "",
            f"the overlay is no TCO: {len(result.split)} topics are split ({worst})",
            "build one from it with trellis plan --existing",
        )


def _fitting(overlay: Overlay, interests: Interests, current: CurrentOverlay) -> Overlay:
    """Return the overlay if it has only nodes of the interests and links only present ones.

    Otherwise raise InputError.
    """
    unknown = np.flatnonzero(interests.nodes.ids_of(overlay.nodes.array) < 0)
    if len(unknown):
        raise InputError(
            "",
            f'the overlay is over other nodes: the interests have no "{overlay.nodes[unknown[0]]}"',
            "give the interests that the overlay was made for",
        )
    for ends in (overlay.u, overlay.v):
        for name in overlay.nodes.take(ends).to_pylist():
            if not current.present[current.rank_of[name]]:
                raise InputError(
                    "", f'the overlay links "{name}", which joins only later', "remove its links, or its join"
                )
    return overlay


def _present_at_the_start(interests: Interests, events: tuple[ChurnEvent, ...]) -> list[str]:
    """Return every node of the interests whose first event is not a join."""
    first: dict[str, Event] = {}
    for event in events:
        first.setdefault(event.node, event.event)
    return [name for name in interests.nodes if first.get(name) is not Event.join]


def _either(some: Names, others: Names) -> Names:
    return Names.in_order(sorted(set(some) | set(others)))[0]
