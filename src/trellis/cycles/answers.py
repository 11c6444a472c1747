"""What SpiderCast's tasks do about messages, in cycles.  [SC Fig. 4]

The rules are those of `trellis.protocols.spidercast.task`. Messages cross, so a link may stand at one end only for a
while. Only those to nodes that are not there are lost. An answer is awaited until it comes, or until its quarantine
ends.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.choice import knows, look_around
from trellis.cycles.mail import KIND, SENDER, TASK, TO, TOLD_DEGREE, TOLD_TARGET, post
from trellis.cycles.neighbors import (
    ASKED,
    ASKED_UNTIL,
    CHANGES,
    COUNT,
    DEGREE,
    HELD,
    HINT,
    LIMIT,
    PEER,
    REDIRECTS,
    REFUSED,
    RESTLESS,
    RESTS,
    SILENCE,
    TARGET,
    THEIR_TARGET,
    TURNS,
    WILLING,
    K,
    add,
    find,
    find_in,
    most_alike,
    remove,
    under,
    under_without,
)
from trellis.cycles.wheel import set_timer
from trellis.jit import njit

CONNECT, CONNECT_OK, REDIRECT, DISCONNECT, DISCONNECT_OK, LEAVE, HEARTBEAT = range(7)  # of `counts`: messages sent
FORMED, CHANGED = 7, 8  # of `counts`: links formed, and the tick of the last change of links or of nodes
REQUESTS, REPLIES = 9, 10  # of `counts`: messages of gossip
WHOM, UNTIL, AWAITED = range(3)  # columns of a quarantine


@njit(folder=True)
def answer(tasks, wants, rule, view, wheel, mail, letter, tick, scratch, chance, counts):
    """Do what a message asks for. It is lost if its receiver is not there."""
    kind, peer, me = letter[KIND], np.int64(letter[SENDER]), np.int64(letter[TASK])
    if not tasks.alive[me % rule.nodes]:
        return
    degree, target = letter[TOLD_DEGREE], letter[TOLD_TARGET]
    refresh_asked(tasks, rule, me, tick)
    if kind in (CONNECT, CONNECT_OK):
        hear_sign(tasks, rule, me % rule.nodes, peer)
    if kind == CONNECT:
        on_connect(tasks, wants, rule, view, mail, me, peer, degree, target, tick, scratch, chance, counts)
    elif kind == CONNECT_OK:
        on_connect_ok(tasks, wants, rule, view, mail, me, peer, degree, target, tick, counts)
    elif kind == REDIRECT:
        on_redirect(tasks, rule, me, peer, np.int64(letter[TO]), tick)
    elif kind == DISCONNECT:
        on_disconnect(tasks, wants, rule, view, wheel, mail, me, peer, tick, counts)
    else:
        if kind == LEAVE:
            rouse(tasks, rule, wheel, me % rule.nodes, peer, tick)
            note_answer(tasks, me, peer, tick)
        link_down(tasks, wants, rule, view, wheel, me, peer, tick, counts)


@njit(folder=True)
def send(rule, mail, kind, me, peer, degree, target, to, tick, counts):
    """Send a message of task `me` to the same task of `peer`."""
    node = me % rule.nodes
    post(mail, kind, node, me - node + peer, degree, target, to, tick + rule.latency)
    counts[kind] += 1


@njit(folder=True)
def on_connect(tasks, wants, rule, view, mail, me, peer, degree, target, tick, scratch, chance, counts):
    """CONNECT: accept below L^max + Margin, otherwise redirect.  [SC Fig. 4, l. 1-9]"""
    state, place = tasks.state[me], find(tasks, me, peer)
    if place < 0 and state[COUNT] >= state[LIMIT] + rule.margin:
        count, to = most_alike(tasks, wants, rule, me, peer, scratch.tied), np.int64(-1)
        if count > 0:
            to = np.int64(scratch.tied[below(chance, count)])
        send(rule, mail, REDIRECT, me, peer, 0, 0, to, tick, counts)
        return
    if place >= 0:  # both have asked
        hear_state(tasks, me, place, degree, target)
        note_answer(tasks, me, peer, tick)
    else:
        link_up(tasks, wants, rule, view, me, peer, degree, target, tick, counts)
    send(rule, mail, CONNECT_OK, me, peer, state[COUNT], state[TARGET], -1, tick, counts)
    if place < 0:
        raise_target(tasks, rule, me)  # l. 3 before l. 4-5: the answer has L as it was


@njit(folder=True)
def on_connect_ok(tasks, wants, rule, view, mail, me, peer, degree, target, tick, counts):
    """CONNECT-OK.  [SC Fig. 4, l. 12-18]"""
    state, place = tasks.state[me], find(tasks, me, peer)
    if place >= 0:
        hear_state(tasks, me, place, degree, target)
        note_answer(tasks, me, peer, tick)
    elif is_awaited(tasks, me, peer, tick) and state[COUNT] < state[LIMIT] + rule.margin:
        link_up(tasks, wants, rule, view, me, peer, degree, target, tick, counts)
        raise_target(tasks, rule, me)
    else:
        note_answer(tasks, me, peer, tick)
        send(rule, mail, LEAVE, me, peer, 0, 0, -1, tick, counts)


@njit(folder=True)
def on_redirect(tasks, rule, me, peer, to, tick):
    """REDIRECT.  [SC Fig. 4, l. 10-11]"""
    state = tasks.state[me]
    if not is_awaited(tasks, me, peer, tick):
        return
    note_answer(tasks, me, peer, tick)
    most = min(np.int64(rule.redirects_max), tasks.redirects.shape[1])
    if to < 0 or to == me % rule.nodes or find(tasks, me, to) >= 0 or state[REDIRECTS] >= most:
        return
    state[RESTLESS] = 1
    for place in range(state[REDIRECTS]):
        if tasks.redirects[me, place] == to:
            return
    tasks.redirects[me, state[REDIRECTS]] = to
    state[REDIRECTS] += 1


@njit(folder=True)
def on_disconnect(tasks, wants, rule, view, wheel, mail, me, peer, tick, counts):
    """DISCONNECT: agree where the task can do without the link.  [SC Fig. 4, l. 21-26]"""
    state, place = tasks.state[me], find(tasks, me, peer)
    if place >= 0:
        leaving = np.int64(state[ASKED])  # A-SPC-13: the one that was asked to part may be gone any moment
        if leaving == peer:
            leaving = np.int64(-1)
        look_around(tasks, wants, rule, view, me)
        missed = under_without(tasks, wants, rule, me, peer, leaving)
        if state[COUNT] - (leaving >= 0) <= state[TARGET] and missed > 0:
            alone = under_without(tasks, wants, rule, me, peer, np.int64(-1))
            if leaving >= 0 and (state[COUNT] > state[TARGET] or alone == 0):
                state[RESTLESS] = 1
                if tasks.records[place, WILLING] == 0:
                    state[TURNS] += 1
                    tasks.records[place, WILLING] = state[TURNS]
            return  # a refusal is silent
        link_down(tasks, wants, rule, view, wheel, me, peer, tick, counts)
        if missed == 0:
            state[TARGET] = min(state[LIMIT], state[COUNT])
    send(rule, mail, DISCONNECT_OK, me, peer, 0, 0, -1, tick, counts)


@njit(folder=True)
def heartbeat(tasks, rule, mail, node, tick, counts):
    """Tell all neighbors degree and target of the tasks that hold the link. They hear it at once.

    Most heartbeats bring nothing new, so that few kernels are called for them.
    """
    counts[HEARTBEAT] += degree_of(tasks, rule, node)
    begin, records, state, alive, nodes = tasks.begin, tasks.records, tasks.state, tasks.alive, rule.nodes
    for me in range(node, len(state), nodes):
        degree, target = state[me, COUNT], state[me, TARGET]
        for turn in range(begin[me], begin[me] + degree):
            peer = np.int64(records[turn, PEER])
            you = me - node + peer
            if not alive[peer]:
                continue
            hint = begin[you] + records[turn, HINT]
            if hint < begin[you] + state[you, COUNT] and records[hint, PEER] == node:
                place = hint
            else:
                place = find_in(records, begin[you], state[you, COUNT], node)
                records[turn, HINT] = max(0, place - begin[you])
            if state[you, ASKED] >= 0:
                refresh_asked(tasks, rule, you, tick)
            if place < 0:
                hear_sign(tasks, rule, peer, node)
                if not is_awaited(tasks, you, node, tick):  # half a link
                    send(rule, mail, LEAVE, you, node, 0, 0, -1, tick, counts)
                continue
            records[place, SILENCE] = 0
            if records[place, DEGREE] != degree or records[place, THEIR_TARGET] != target:
                hear_state(tasks, you, place, degree, target)


@njit(folder=True)
def hear_sign(tasks, rule, node, peer):
    """Note that `peer` lives."""
    for me in range(node, len(tasks.state), rule.nodes):
        place = find(tasks, me, peer)
        if place >= 0:
            tasks.records[place, SILENCE] = 0


@njit(folder=True)
def keep_silence(tasks, rule, node, peer, silence):
    """Keep for the other task how long `peer` has been silent, where one task has lost the link."""
    for me in range(node, len(tasks.state), rule.nodes):
        place = find(tasks, me, peer)
        if place >= 0:
            tasks.records[place, SILENCE] = min(tasks.records[place, SILENCE], silence)


@njit(folder=True)
def hear_state(tasks, me, place, degree, target):
    record = tasks.records[place]
    if record[DEGREE] != degree or record[THEIR_TARGET] != target:
        record[DEGREE], record[THEIR_TARGET], record[REFUSED] = degree, target, -1
        tasks.state[me, RESTLESS] = 1


@njit(folder=True)
def raise_target(tasks, rule, me):
    """[SC Fig. 4, l. 4-5, l. 15-16]"""
    state = tasks.state[me]
    if state[TARGET] < state[LIMIT] and state[COUNT] < state[TARGET] + rule.margin:
        state[TARGET] += 1


@njit(folder=True)
def link_up(tasks, wants, rule, view, me, peer, degree, target, tick, counts):
    """ADDCONNECTION.  [SC Fig. 4, l. 31-33]"""
    node = me % rule.nodes
    if not is_linked(tasks, rule, node, peer):
        counts[CHANGED] = tick
        counts[FORMED] += is_linked(tasks, rule, peer, node)  # the other end has it already
    add(tasks, wants, rule, me, peer, degree, target, np.int32(knows(view, node, peer)))
    note_answer(tasks, me, peer, tick)


@njit(folder=True)
def link_down(tasks, wants, rule, view, wheel, me, peer, tick, counts):
    """REMOVECONNECTION, where there is a link.  [SC Fig. 4, l. 34-38]"""
    place = find(tasks, me, peer)
    if place < 0:
        return
    silence = tasks.records[place, SILENCE]
    remove(tasks, wants, rule, me, peer, place)
    keep_silence(tasks, rule, me % rule.nodes, peer, silence)
    if not is_linked(tasks, rule, me % rule.nodes, peer):
        counts[CHANGED] = tick
    look_around(tasks, wants, rule, view, me)
    if tasks.state[me, COUNT] < tasks.state[me, TARGET] or under(tasks, wants, rule, me) > 0:
        wake(tasks, wheel, me, tick)


@njit(folder=True)
def is_linked(tasks, rule, node, peer):
    """Return whether a task of `node` holds a link to `peer` (A-SPC-1)."""
    held = False
    for me in range(node, len(tasks.state), rule.nodes):
        held = held or find(tasks, me, peer) >= 0
    return held


@njit(folder=True)
def degree_of(tasks, rule, node):
    """Return the number of different neighbors, of both tasks together."""
    count = np.int64(tasks.state[node, COUNT])
    for other in range(node + rule.nodes, len(tasks.state), rule.nodes):
        for place in range(tasks.begin[other], tasks.begin[other] + tasks.state[other, COUNT]):
            count += find(tasks, node, np.int64(tasks.records[place, PEER])) < 0
    return count


@njit(folder=True)
def rouse(tasks, rule, wheel, node, peer, tick):
    """A neighbor is lost: tasks that rest go on."""
    if is_linked(tasks, rule, node, peer):
        for me in range(node, len(tasks.state), rule.nodes):
            if tasks.state[me, RESTS]:
                tasks.state[me, RESTS] = 0
                wake(tasks, wheel, me, tick)


@njit(folder=True)
def wake(tasks, wheel, me, tick):
    """Cut the sleep short."""
    tasks.state[me, RESTLESS] = 1
    if tasks.state[me, K] > 0 and not tasks.state[me, RESTS]:
        set_timer(wheel, me, tick)


@njit(folder=True)
def refresh(tasks, rule, me, tick):
    """Let the time run out of a DISCONNECT without an answer, and of quarantines."""
    refresh_asked(tasks, rule, me, tick)
    state, left = tasks.state[me], 0
    for place in range(state[HELD]):
        if tasks.quarantine[me, place, UNTIL] > tick:
            if left < place:
                tasks.quarantine[me, left] = tasks.quarantine[me, place]
            left += 1
    if left < state[HELD]:
        state[HELD] = left
        state[RESTLESS] = 1


@njit(folder=True)
def refresh_asked(tasks, rule, me, tick):
    """The same of a DISCONNECT alone: to be done before anything changes the task's neighbors."""
    state = tasks.state[me]
    if state[ASKED] >= 0 and state[ASKED_UNTIL] <= tick:
        if rule.remember_refusals:
            tasks.records[find(tasks, me, np.int64(state[ASKED])), REFUSED] = state[CHANGES]
        state[ASKED] = -1
        state[RESTLESS] = 1


@njit(folder=True)
def quarantine(tasks, me, peer, until, awaited):
    """Do not ask `peer` again until then. Where there is no room the oldest quarantine ends early."""
    state, most, place = tasks.state[me], tasks.quarantine.shape[1], np.int64(0)
    while place < state[HELD] and tasks.quarantine[me, place, WHOM] != peer:
        place += 1
    if place == most:
        for later in range(1, most):
            tasks.quarantine[me, later - 1] = tasks.quarantine[me, later]
        place = np.int64(most - 1)
    entry = tasks.quarantine[me, place]
    entry[WHOM], entry[UNTIL], entry[AWAITED] = peer, until, awaited
    state[HELD] = max(state[HELD], place + 1)


@njit(folder=True)
def quarantine_of(tasks, me, peer, tick):
    """Return the place of the quarantine of `peer`, or -1."""
    for place in range(tasks.state[me, HELD]):
        if tasks.quarantine[me, place, WHOM] == peer and tasks.quarantine[me, place, UNTIL] > tick:
            return np.int64(place)
    return np.int64(-1)


@njit(folder=True)
def is_awaited(tasks, me, peer, tick):
    """Return whether an answer of `peer` is awaited."""
    place = quarantine_of(tasks, me, peer, tick)
    return place >= 0 and tasks.quarantine[me, place, AWAITED] == 1


@njit(folder=True)
def note_answer(tasks, me, peer, tick):
    """The quarantine goes on, but no answer is awaited any more."""
    place = quarantine_of(tasks, me, peer, tick)
    if place >= 0:
        tasks.quarantine[me, place, AWAITED] = 0
