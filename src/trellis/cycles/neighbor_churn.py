"""Crashes, departures and joins of nodes of SpiderCast in cycles.  [SC §2.4, Fig. 4, l. 29-30]

The rules are those of `trellis.protocols.spidercast` (`node.py`, `task.py`) and of `trellis.protocols.suspicion`. A
node that crashes says nothing. Its neighbors hear of it from the network (a broken stream), or miss its heartbeats.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.answers import CHANGED, LEAVE, is_linked, link_down, quarantine, refresh_asked, send
from trellis.cycles.gossip_views import bury
from trellis.cycles.neighbors import (
    ASKED,
    CHANGES,
    COUNT,
    HELD,
    LIMIT,
    PEER,
    REDIRECTS,
    RESTLESS,
    RESTS,
    SEEN,
    SILENCE,
    TARGET,
    TURNS,
    K,
    find,
)
from trellis.cycles.wheel import set_timer, unset_timer
from trellis.jit import njit


@njit(folder=True)
def say_goodbye(tasks, rule, mail, node, tick, counts):
    """Tell all neighbors of a node that it leaves.  [SC §2.4]"""
    for me in range(node, len(tasks.state), rule.nodes):
        for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
            send(rule, mail, LEAVE, me, np.int64(tasks.records[place, PEER]), 0, 0, -1, tick, counts)


@njit(folder=True)
def stop(tasks, wants, rule, wheel, node, tick, counts):
    """End a node."""
    tasks.alive[node] = False
    counts[CHANGED] = tick
    for me in range(node, len(tasks.state), rule.nodes):
        shift = me // rule.nodes * len(wants.topics)
        tasks.state[me, COUNT] = tasks.state[me, HELD] = tasks.state[me, REDIRECTS] = 0
        if rule.covers:
            tasks.cover[shift + wants.offsets[node] : shift + wants.offsets[node + 1]] = 0
        unset_timer(wheel, me)
    for timer in range(len(tasks.state) + node, wheel.timers, rule.nodes):
        unset_timer(wheel, timer)


@njit(folder=True)
def find_holders(tasks, rule, node, holders):
    """Fill `holders` with the nodes that hold a link to a node, and return their number."""
    found = 0
    for other in range(rule.nodes):
        if is_linked(tasks, rule, other, node):
            holders[found] = other
            found += 1
    return found


@njit(folder=True)
def make_new(tasks, wants, rule, node, first, tick, counts):
    """Let a node be there as one that knows no neighbors. first: int32, K of each of its tasks."""
    tasks.alive[node] = True
    counts[CHANGED] = tick
    size = wants.offsets[node + 1] - wants.offsets[node] if rule.covers else 1
    for me in range(node, len(tasks.state), rule.nodes):
        state, known = tasks.state[me], first[me // rule.nodes]
        state[K], state[LIMIT], state[TARGET] = known, known * size, known * size
        state[CHANGES] = state[TURNS] = 0
        state[ASKED], state[RESTLESS], state[RESTS], state[SEEN] = -1, 1, 0, -1


@njit(folder=True)
def peer_down(tasks, wants, rule, view, gossip, wheel, node, peer, tick, counts):
    """Remove a peer that has crashed, in all tasks of a node."""
    if gossip.is_used:
        bury(gossip, node, peer)
    roused = 0
    if is_linked(tasks, rule, node, peer):
        for me in range(node, len(tasks.state), rule.nodes):
            if tasks.state[me, RESTS]:
                tasks.state[me, RESTS], tasks.state[me, RESTLESS] = 0, 1
                roused |= 1 << (me // rule.nodes)
    for me in range(node, len(tasks.state), rule.nodes):
        suspect(tasks, wants, rule, view, wheel, me, peer, tick, counts)
    for me in range(node, len(tasks.state), rule.nodes):
        if roused >> (me // rule.nodes) & 1 and tasks.state[me, K] > 0:
            set_timer(wheel, me, tick)


@njit(folder=True)
def suspect(tasks, wants, rule, view, wheel, me, peer, tick, counts):
    """FAILUREDETECTIONSUSPECT.  [SC Fig. 4, l. 29-30]"""
    refresh_asked(tasks, rule, me, tick)
    left = 0
    for place in range(tasks.state[me, REDIRECTS]):
        if tasks.redirects[me, place] != peer:
            tasks.redirects[me, left] = tasks.redirects[me, place]
            left += 1
    tasks.state[me, REDIRECTS] = left
    if find(tasks, me, peer) >= 0:
        quarantine(tasks, me, peer, tick + rule.suspect_quarantine, 0)
        link_down(tasks, wants, rule, view, wheel, me, peer, tick, counts)


@njit(folder=True)
def suspect_silent(tasks, wants, rule, view, gossip, wheel, node, tick, counts):
    """End a heartbeat period of a node: suspect the neighbors that were silent for too long."""
    for me in range(node, len(tasks.state), rule.nodes):
        for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
            tasks.records[place, SILENCE] += 1
    for me in range(node, len(tasks.state), rule.nodes):
        place = tasks.begin[me]
        while place < tasks.begin[me] + tasks.state[me, COUNT]:
            peer = np.int64(tasks.records[place, PEER])
            if tasks.records[place, SILENCE] > rule.silence_max and is_silent(tasks, rule, node, peer):
                peer_down(tasks, wants, rule, view, gossip, wheel, node, peer, tick, counts)
            else:
                place += 1


@njit(folder=True)
def is_silent(tasks, rule, node, peer):
    """Return whether a neighbor was silent for too long in all tasks that hold the link."""
    for me in range(node, len(tasks.state), rule.nodes):
        place = find(tasks, me, peer)
        if place >= 0 and tasks.records[place, SILENCE] <= rule.silence_max:
            return False
    return True
