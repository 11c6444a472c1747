"""Keep track of the nodes that join and leave a run in cycles.  [VI §III-D, §IV-E]

A node that joins knows a few nodes, and acts from the next round on. A node that leaves tells its neighbors, and they
drop it at once. Others may still have it in their samples, and take it into their tables. They drop it when it has been
silent for `silence_max` rounds (THRESHOLD).

A node that has dropped another one does not take it back on hearsay (A-VIT-9). Such a node is *buried*.

P1  every node of a routing table is there, or was silent for at most `silence_max` rounds.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.jit import njit

SUSPECTS = 32  # silent nodes that a node remembers; the oldest are overwritten
NEVER = 2**31 - 1
ROUND, GONE, SILENCE, GRACE = range(4)  # of `clock`


class Presence(NamedTuple):
    """Which nodes are there, and whom they miss."""

    alive: Any  # bool[nodes]
    since: Any  # int32[nodes]: the round in which the node joined
    until: Any  # int32[nodes]: the round in which it will leave
    suspects: Any  # int32[nodes, SUSPECTS]: neighbors that are silent, or that were dropped
    missed: Any  # int32[nodes, SUSPECTS]: the round since which each of them is silent
    turns: Any  # int32[nodes]: suspects so far
    clock: Any  # int64[4]: the round; nodes that are not there; `silence_max`; rounds of grace around an event


def make_presence(nodes: int, silence_max: int, grace_rounds: int) -> Presence:
    """Return a presence in which all nodes are there from the start."""
    return Presence(
        np.ones(nodes, np.bool_),
        np.zeros(nodes, np.int32),
        np.full(nodes, NEVER, np.int32),
        np.full((nodes, SUSPECTS), -1, np.int32),
        np.zeros((nodes, SUSPECTS), np.int32),
        np.zeros(nodes, np.int32),
        np.array([0, 0, silence_max, grace_rounds], np.int64),
    )


@njit(folder=True)
def find_suspect(presence, node, peer):
    """Return the place of a suspect, or -1."""
    for place in range(min(presence.turns[node], SUSPECTS)):
        if presence.suspects[node, place] == peer:
            return place
    return -1


@njit(folder=True)
def suspect(presence, node, peer, since):
    """Remember that a peer is silent since a round."""
    place = find_suspect(presence, node, peer)
    if place < 0:
        place = presence.turns[node] % SUSPECTS
        presence.turns[node] += 1
    presence.suspects[node, place], presence.missed[node, place] = peer, since


@njit(folder=True)
def is_buried(presence, node, peer):
    """Return whether a node has dropped a peer that is not there any more."""
    if presence.alive[peer]:
        return False
    place = find_suspect(presence, node, peer)
    return place >= 0 and presence.clock[ROUND] - presence.missed[node, place] > presence.clock[SILENCE]


@njit(folder=True)
def is_silent(presence, node, peer):
    """Note that a neighbor is not there. Return whether it has been silent for too long.  [VI Alg. 6, l. 4]"""
    if presence.alive[peer]:
        return False
    place = find_suspect(presence, node, peer)
    if place < 0:
        suspect(presence, node, peer, presence.clock[ROUND])
        return False
    return presence.clock[ROUND] - presence.missed[node, place] > presence.clock[SILENCE]


@njit(folder=True)
def without_buried(presence, node, peers, begin, end):
    """Remove the buried ones from the candidates `peers[begin:end]`. Return where they end then."""
    if presence.clock[GONE] == 0:
        return end
    left = begin
    for place in range(begin, end):
        if not is_buried(presence, node, np.int64(peers[place])):
            peers[left] = peers[place]
            left += 1
    return left


@njit(folder=True)
def forget_sample(views, node, gone):
    """Drop a node from the samples of another."""
    begin, count, left = node * (views.size + 1), views.count[node], 0
    none = np.uint32((1 << 32) - 1 - (1 << 26))  # NONE of `trellis.cycles.newscast`
    for place in range(begin, begin + count):
        if views.entries[place] & np.uint32((1 << 26) - 1) != gone:
            views.entries[begin + left] = views.entries[place]
            left += 1
    for place in range(begin + left, begin + count):
        views.entries[place] = none
    views.count[node] = left


@njit(folder=True)
def bury(presence, views, node, gone):
    """Let a node forget a neighbor that has said goodbye."""
    suspect(presence, node, gone, presence.clock[ROUND] - presence.clock[SILENCE] - 1)
    forget_sample(views, node, gone)
