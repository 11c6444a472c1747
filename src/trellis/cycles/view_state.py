"""The state of OMen's local views in cycles: tables of known nodes, and views with their backups.

Small kernels that nodes call in every round are inlined. A call would count the references to all arrays of its
arguments, which takes longer than the work itself.

V1  a view has no node twice, and not the node that it is for.
V2  the first `shared` entries of a table are the nodes of B and N of all views, as far as they are known.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.backups import Offers, make_offers
from trellis.cycles.pool import Pool, make_pool
from trellis.jit import njit
from trellis.protocols.wire import PEERS_MAX

PEER, BORN, WEIGHT, DEGREE = range(4)  # of an entry of a table


class Terms(NamedTuple):
    """The settings of a run that kernels need."""

    routine: int
    coverage: int
    length: int  # L
    ready_rounds: int
    join_rounds: int
    view_rounds: int
    everybody: bool  # OMen-G: all living nodes are candidates, and there is no gossip about backups
    seed: Any  # uint64


class LocalViews(NamedTuple):
    """What all nodes know about backups. A view is at [node, slot]; slots are used from the first on."""

    known: Pool  # PEER, BORN, WEIGHT, DEGREE
    shared: Any  # int32[nodes]
    clock: Any  # int32[nodes]: own rounds
    built: Any  # int32[nodes]: the own round in which views were last built
    count: Any  # int32[nodes]: views
    whose: Any  # int32[nodes, 2L]: the node that the view is for
    rounds: Any  # int32[nodes, 2L]: gossip rounds since the view was new
    ready: Any  # bool[nodes, 2L]
    joiner: Any  # bool[nodes, 2L]: its node joins, or has no links yet
    held: Any  # bool[nodes, 2L]: the node's record is held here
    row: Any  # int32[nodes, 2L]: the row of its backups
    backups: Pool


class Standing(NamedTuple):
    """What a node tells about itself, and who is there."""

    alive: Any  # bool[nodes]
    links: Pool  # the neighbors of each node
    primaries: Any  # int32[nodes]: nodes that count on it as their backup
    buriers: Any  # int32[nodes, some]: who knows that a node is gone, then -1


class Desk(NamedTuple):
    """Scratch of the kernels."""

    mark: Any  # int32[nodes]
    at: Any  # int32[nodes]
    stamp: Any  # int64[1]: the last one that was used in `mark`
    place: Any  # int32[topics]: place of a topic in the view that is built
    place_mark: Any  # int64[topics]
    mine: Any  # int32[some, 4]: what a node tells
    theirs: Any  # int32[some, 4]
    partners: Any  # int32[some]
    offers: Offers


def make_local_views(nodes: int, length: int) -> LocalViews:
    """Return nodes that know nobody and have no views."""
    slots = 2 * length
    return LocalViews(
        make_pool(nodes, 4, 16, 1 << 16),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int32),
        np.full((nodes, slots), -1, np.int32),
        np.zeros((nodes, slots), np.int32),
        np.zeros((nodes, slots), np.bool_),
        np.zeros((nodes, slots), np.bool_),
        np.zeros((nodes, slots), np.bool_),
        np.arange(nodes * slots, dtype=np.int32).reshape(nodes, slots),
        make_pool(nodes * slots, 1, 4, 1 << 16),
    )


def make_desk(wants: Any) -> Desk:
    """Return scratch for all nodes as candidates."""
    nodes, topics = len(wants.offsets) - 1, len(wants.topic_offsets) - 1
    most = int(np.diff(wants.offsets).max(initial=1))
    return Desk(
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(1, np.int64),
        np.zeros(topics, np.int32),
        np.zeros(topics, np.int64),
        np.empty((PEERS_MAX, 4), np.int32),
        np.empty((PEERS_MAX, 4), np.int32),
        np.empty(2 * PEERS_MAX, np.int32),
        make_offers(nodes, max(len(wants.topics), 1), max(most, 1)),
    )


@njit(folder=True, forceinline=True)
def next_stamp(desk):
    """Return a number that stands nowhere in `mark`."""
    if desk.stamp[0] >= 2**31 - 2:
        desk.mark[:] = 0
        desk.place_mark[:] = 0
        desk.stamp[0] = 0
    desk.stamp[0] += 1
    return desk.stamp[0]


@njit(folder=True, forceinline=True)
def is_settled(views, terms, node, slot):
    """Return whether a view is ready and was improved for long enough."""
    return views.ready[node, slot] and views.rounds[node, slot] > terms.view_rounds


@njit(folder=True, forceinline=True)
def is_restless(views, terms, node):
    """Return whether any view of a node is not settled."""
    slot = 0
    while slot < views.count[node] and is_settled(views, terms, node, slot):
        slot += 1
    return slot < views.count[node]


@njit(folder=True, forceinline=True)
def weight_of(standing, node):
    return np.int32(standing.links.count[node] + standing.primaries[node])
