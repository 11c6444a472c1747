"""SpiderCast's neighbor maintenance in cycles, and that of its baselines.  [SC Fig. 2, Fig. 3, §3.3.1, §3.9.1]

The rules are those of `trellis.protocols.spidercast` (`task.py`, `node.py`). Time passes in ticks. A node has a timer
for each of its tasks, one for its heartbeats, and one for its gossip. In each tick the messages arrive that are due,
then the tasks have turns whose timers are due.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.answers import (
    CONNECT,
    DISCONNECT,
    REPLIES,
    REQUESTS,
    answer,
    degree_of,
    heartbeat,
    quarantine,
    quarantine_of,
    refresh,
    send,
    wake,
)
from trellis.cycles.chance import below
from trellis.cycles.choice import choose, look_around, row_of_view
from trellis.cycles.gossip_views import begin_gossip, gossip_round
from trellis.cycles.mail import has_arrived, read
from trellis.cycles.neighbor_churn import suspect_silent
from trellis.cycles.neighbors import (
    ASKED,
    ASKED_UNTIL,
    CHANGES,
    COUNT,
    HELD,
    LIMIT,
    PEER,
    REDIRECTS,
    RESTLESS,
    RESTS,
    SEEN,
    TARGET,
    WILLING,
    K,
    could_need_more,
    fewest_missed,
    find,
    is_under,
    under,
    under_without,
)
from trellis.cycles.wheel import next_timer, set_timer
from trellis.jit import njit


@njit(folder=True)
def start(tasks, rule, gossip, wheel, starting, living, tick, chance):
    """Draw the moments at which nodes begin: they do not move in step. living: int64, all that are there."""
    for turn in range(len(starting)):
        node = np.int64(starting[turn])
        beat = 1 + below(chance, rule.heartbeat)
        for me in range(node, len(tasks.state), rule.nodes):
            if tasks.state[me, K] > 0 and not tasks.state[me, RESTS]:
                set_timer(wheel, me, tick + below(chance, rule.connect))
        set_timer(wheel, len(tasks.state) + node, tick + beat)
        if gossip.is_used:
            first = tick + begin_gossip(gossip, living, node)
            set_timer(wheel, len(tasks.state) + rule.nodes + node, first)


@njit(folder=True)
def ask_planned(tasks, rule, mail, asking, asked, counts):
    """Ask for links that were planned. asking, asked: int64, the two ends of each, in the order of the requests."""
    for turn in range(len(asking)):
        me = asking[turn]
        quarantine(tasks, me, asked[turn], rule.quarantine, 1)
        send(rule, mail, CONNECT, me, asked[turn], tasks.state[me, COUNT], tasks.state[me, TARGET], -1, 0, counts)


@njit(folder=True)
def run_ticks(tasks, wants, rule, view, gossip, wheel, mail, scratch, chance, counts, begin, end):
    """Let everything happen that is due from tick `begin` to before tick `end`."""
    beats = len(tasks.state)
    rounds = beats + rule.nodes
    for tick in range(begin, end):
        while has_arrived(mail, tick):
            answer(tasks, wants, rule, view, wheel, mail, read(mail), tick, scratch, chance, counts)
        timer = next_timer(wheel, tick)
        while timer >= 0:
            if timer >= rounds:
                sent = gossip_round(gossip, tasks.alive, timer - rounds)
                counts[REQUESTS] += sent > 0
                counts[REPLIES] += sent > 1
                set_timer(wheel, timer, tick + gossip.period)
            elif timer >= beats:
                heartbeat(tasks, rule, mail, timer - beats, tick, counts)
                suspect_silent(tasks, wants, rule, view, gossip, wheel, timer - beats, tick, counts)
                set_timer(wheel, timer, tick + rule.heartbeat)
            else:
                take_turn(tasks, wants, rule, view, wheel, mail, timer, tick, scratch, chance, counts)
            timer = next_timer(wheel, tick)


@njit(folder=True)
def take_turn(tasks, wants, rule, view, wheel, mail, me, tick, scratch, chance, counts):
    """One turn of MAINTAINNEIGHBORS, and the adaptive scheme after it.  [SC Fig. 2, l. 1-13; §3.3.1]"""
    state = tasks.state[me]
    has_seen = not view.changes or view.version[row_of_view(view, me % rule.nodes)] == state[SEEN]
    if has_seen and state[RESTLESS] == 0 and state[HELD] == 0 and state[ASKED] < 0 and rule.adaptive_max == 0:
        if state[K] > 0 and not state[RESTS]:  # Nothing has changed: most turns end here.
            set_timer(wheel, me, tick + rule.connect)
        return
    refresh(tasks, rule, me, tick)
    if state[K] > 0 and not state[RESTS]:
        set_timer(wheel, me, tick + rule.connect)
        if is_restless(tasks, wants, rule, view, me):
            maintain(tasks, wants, rule, view, mail, me, tick, scratch, chance, counts)
    if rule.adaptive_max > 0 and me < rule.nodes:
        adapt(tasks, wants, rule, view, wheel, me, tick)


@njit(folder=True)
def is_restless(tasks, wants, rule, view, me):
    """Return whether something has changed since an iteration of the task found nothing to do."""
    if tasks.state[me, RESTLESS] or not view.changes:
        return tasks.state[me, RESTLESS] != 0
    is_new = view.version[row_of_view(view, me % rule.nodes)] != tasks.state[me, SEEN]
    return is_new and could_need_more(tasks, wants, rule, me)


@njit(folder=True)
def maintain(tasks, wants, rule, view, mail, me, tick, scratch, chance, counts):
    """Ask a node for a link, or a neighbor to part, or rest."""
    state, asks, parts = tasks.state[me], np.int64(-1), np.int64(-1)
    if view.changes:
        state[SEEN] = view.version[row_of_view(view, me % rule.nodes)]
        look_around(tasks, wants, rule, view, me)
    lacking, gap = under(tasks, wants, rule, me), 0
    if lacking > 0:
        state[TARGET] = state[LIMIT]
        gap = state[TARGET] - state[COUNT]
        if gap > 0:
            asks = whom_to_ask(tasks, wants, rule, view, me, tick, scratch, chance)
    if rule.repair_only:
        state[RESTS] = lacking == 0 and not could_need_more(tasks, wants, rule, me)
    elif lacking == 0 or gap < 0:
        parts = whom_to_part(tasks, wants, rule, me, scratch, chance)
    state[RESTLESS] = asks >= 0 or parts >= 0 or next_willing(tasks, me) >= 0
    if asks >= 0:
        quarantine(tasks, me, asks, tick + rule.quarantine, 1)
        send(rule, mail, CONNECT, me, asks, state[COUNT], state[TARGET], -1, tick, counts)
    elif parts >= 0:
        state[ASKED], state[ASKED_UNTIL] = parts, tick + rule.part
        send(rule, mail, DISCONNECT, me, parts, 0, 0, -1, tick, counts)


@njit(folder=True)
def whom_to_ask(tasks, wants, rule, view, me, tick, scratch, chance):
    """CONNECT(): a candidate from a redirect, or one from the view; -1: nobody.  [SC Fig. 2, l. 14-20]"""
    while tasks.state[me, REDIRECTS] > 0:
        tasks.state[me, REDIRECTS] -= 1
        peer = np.int64(tasks.redirects[me, 0])
        for place in range(tasks.state[me, REDIRECTS]):
            tasks.redirects[me, place] = tasks.redirects[me, place + 1]
        if find(tasks, me, peer) >= 0 or quarantine_of(tasks, me, peer, tick) >= 0:
            continue
        if rule.useful_redirects_only and not helps(tasks, wants, rule, me, peer):
            continue
        return peer
    return choose(tasks, wants, rule, view, me, scratch, chance)


@njit(folder=True)
def helps(tasks, wants, rule, me, peer):
    """Return whether `peer` wants a topic that is under-covered. Where links are counted, any topic will do."""
    if not rule.covers:
        return wants.offsets[peer] < wants.offsets[peer + 1]
    node, shift = me % rule.nodes, me // rule.nodes * len(wants.topics)
    theirs, end = wants.offsets[peer], wants.offsets[peer + 1]
    for mine in range(wants.offsets[node], wants.offsets[node + 1]):
        while theirs < end and wants.topics[theirs] < wants.topics[mine]:
            theirs += 1
        if theirs < end and wants.topics[theirs] == wants.topics[mine] and is_under(tasks, rule, me, shift + mine):
            return True
    return False


@njit(folder=True)
def whom_to_part(tasks, wants, rule, me, scratch, chance):
    """DISCONNECT(): return the neighbor that is asked to part; -1: nobody.  [SC Fig. 2, l. 21-30]"""
    state = tasks.state[me]
    state[TARGET] = min(state[LIMIT], state[COUNT])
    if state[ASKED] >= 0:
        return np.int64(-1)
    place = next_willing(tasks, me)
    if place >= 0 and below(chance, 2) > 0:
        return np.int64(-1)
    over = state[COUNT] - state[TARGET]
    while place >= 0:
        tasks.records[place, WILLING] = 0
        peer = np.int64(tasks.records[place, PEER])
        if over > 0 or under_without(tasks, wants, rule, me, peer, np.int64(-1)) == 0:
            return peer
        place = next_willing(tasks, me)
    count, missed = fewest_missed(tasks, wants, rule, me, scratch.tied)
    if count == 0:
        return np.int64(-1)
    peer = np.int64(scratch.tied[below(chance, count)])
    return peer if over > 0 or missed == 0 else np.int64(-1)


@njit(folder=True)
def next_willing(tasks, me):
    """Return the place of the neighbor that was refused first because of the task's own request, or -1."""
    best = np.int64(-1)
    for place in range(tasks.begin[me], tasks.begin[me] + tasks.state[me, COUNT]):
        turn = tasks.records[place, WILLING]
        if turn > 0 and (best < 0 or turn < tasks.records[best, WILLING]):
            best = place
    return best


@njit(folder=True)
def adapt(tasks, wants, rule, view, wheel, node, tick):
    """Raise K_r where greedy links alone are too few to be random enough.  [SC §3.3.1; A-SPC-2, -3]"""
    state, other = tasks.state[node], node + rule.nodes
    look_around(tasks, wants, rule, view, node)
    if is_restless(tasks, wants, rule, view, node) or state[ASKED] >= 0 or under(tasks, wants, rule, node) > 0:
        return
    random, interest = tasks.state[other], wants.offsets[node + 1] - wants.offsets[node]
    if random[K] == 0:
        if degree_of(tasks, rule, node) != state[K]:
            return
    else:
        refresh(tasks, rule, other, tick)
        look_around(tasks, wants, rule, view, other)
        if is_restless(tasks, wants, rule, view, other) or random[ASKED] >= 0 or under(tasks, wants, rule, other) > 0:
            return
        if random[K] >= rule.adaptive_max or degree_of(tasks, rule, node) >= interest:
            return
    random[K] += 1
    random[LIMIT] = random[K] * interest
    random[CHANGES] += 1
    random[TARGET] = min(random[TARGET], random[LIMIT])
    wake(tasks, wheel, other, tick)
