"""Generate churn traces from a model, the interests it starts from, and a seed.

Each model first decides which nodes join and leave, and when (`Happening`s, in time order). Then the interests of all
joining nodes are drawn at once. Every trace replays without error over the interests for which it was made.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from trellis import ids
from trellis.errors import InputError
from trellis.model.churn import ChurnTrace, Event
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.model.overlay import Overlay
from trellis.workloads.churn_configs import ChurnConfig, CrashGroups, FlashCrowd, OnOff, RandomChurn
from trellis.workloads.joiners import Joined, draw_joiners
from trellis.workloads.placement import crash_groups


class Happening(NamedTuple):
    """One event of a node, still without topics."""

    time: float
    node: str
    event: Event


def churn(config: ChurnConfig, interests: Interests, seed: int | str, overlay: Overlay | None = None) -> ChurnTrace:
    """Return a trace of the model over `interests`. Crash groups placed by overlay or hub also need the overlay."""
    if not len(interests.nodes):
        raise InputError("", "the interests have no nodes", "churn needs nodes to start from")
    chance = random.Random(ids.stream(seed, "churn", type(config).__name__))
    match config:
        case RandomChurn():
            happenings = random_churn(config, interests, chance)
        case OnOff():
            happenings = on_off(config, interests, seed)
        case FlashCrowd():
            happenings = flash_crowd(config, interests, chance)
        case CrashGroups():
            return trace_of(crashes(config, interests, overlay, chance))
    joins = sum(happening.event is Event.join for happening in happenings)
    return trace_of(happenings, draw_joiners(config.joiners, interests, seed, joins))


def random_churn(config: RandomChurn, interests: Interests, chance: random.Random) -> list[Happening]:
    """Let a node join or leave in each round 1, 2, ..., with probability 0.5 each.  [Shadows VI]"""
    present, newcomers = list(interests.nodes), new_names(interests)
    happenings = []
    for time in range(1, config.rounds + 1):
        if chance.random() < 0.5 or len(present) == 1:
            present.append(next(newcomers))
            happenings.append(Happening(time, present[-1], Event.join))
        else:
            leaver = int(chance.random() * len(present))
            present[leaver], present[-1] = present[-1], present[leaver]
            happenings.append(Happening(time, present.pop(), Event.leave))
    return happenings


def on_off(config: OnOff, interests: Interests, seed: int | str) -> list[Happening]:
    """Let nodes leave and join after exponential times.  [SpiderCast 3.8]

    The start is stationary (E-11): a node is up with a probability equal to its average share of time up. What remains
    of a time is exponential again. In a trace, a node whose first event is not a join is there at the start. So a node
    that is away at the start keeps its first join, even if it is later than `duration`. No other event may be later.
    """
    happenings = []
    for node in interests.nodes:
        # a stream of its own, so it is independent of the other nodes
        chance = random.Random(ids.stream(seed, "churn", "onoff", node))
        up = chance.random() < config.mean_up / (config.mean_up + config.away)
        time, first = 0.0, True
        while True:
            time += chance.expovariate(1 / (config.mean_up if up else config.away))
            if time > config.duration and (up or not first):
                break
            happenings.append(Happening(time, node, Event.leave if up else Event.join))
            up, first = not up, False
    return sorted(happenings, key=lambda happening: happening.time)


def flash_crowd(config: FlashCrowd, interests: Interests, chance: random.Random) -> list[Happening]:
    """Let new nodes join at times that are uniform in the window.  [Vitis IV-F]"""
    joins = config.joins or max(1, round(config.fraction * len(interests.nodes)))
    times = sorted(config.start + config.window * chance.random() for _ in range(joins))
    return [Happening(time, node, Event.join) for time, node in zip(times, new_names(interests), strict=False)]


def crashes(
    config: CrashGroups, interests: Interests, overlay: Overlay | None, chance: random.Random
) -> list[Happening]:
    """Let groups of nodes crash together.

    A join without subscribe rows has its old interests, so a returning node has them.
    """
    happenings = []
    for number, group in enumerate(crash_groups(config, interests, overlay, chance)):
        for node in group:
            time = config.start + number * config.interval + config.window * chance.random()
            happenings.append(Happening(time, node, Event.crash))
            if config.rejoin_after is not None:
                happenings.append(Happening(time + config.rejoin_after, node, Event.join))
    return sorted(happenings, key=lambda happening: happening.time)


def new_names(interests: Interests) -> Iterator[str]:
    """Yield j1, j2, ..., without names of initial nodes."""
    return (name for name in (f"j{number}" for number in itertools.count(1)) if name not in interests.nodes)


def trace_of(happenings: list[Happening], joined: Joined | None = None) -> ChurnTrace:
    """Return the rows of a trace. The j-th join is followed by the j-th interests of `joined`, if there are any."""
    times = np.array([happening.time for happening in happenings], np.float64)
    events = np.array([happening.event for happening in happenings], np.int8)
    names = [happening.node for happening in happenings]
    nodes, _ = Names.in_order(sorted(set(names)))
    said = np.zeros(len(happenings), np.int64)  # number of subscribe rows after each
    topics, topic_ids = Names([]), np.empty(0, np.int32)
    if joined is not None:
        said[events == Event.join] = np.diff(joined.drawn.offsets)
        used, places = np.unique(joined.drawn.topics, return_inverse=True)
        topics, topic_ids = Names(joined.names.take(used)), places.astype(np.int32)
    rows = np.repeat(np.arange(len(happenings)), said + 1)
    is_subscribe = np.ones(len(rows), bool)
    is_subscribe[np.cumsum(said + 1) - said - 1] = False
    topic = np.full(len(rows), -1, np.int32)
    topic[is_subscribe] = topic_ids
    event = np.where(is_subscribe, Event.subscribe, events[rows]).astype(np.int8)
    return ChurnTrace(nodes, topics, times[rows], nodes.ids_of(names)[rows], event, topic)
