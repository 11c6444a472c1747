"""Events in cycles: relay paths by greedy lookups, and how an event travels over them.  [VI §III-B, §III-C, §IV]

The rules are those of `trellis.protocols.vitis` (`relays.py`, `node.py`, `events.py`) and `trellis.protocols.lookup`.
An event travels faster than tables change, so it is carried over the links of one instant, a hop at a time:

- A subscriber notifies its interested neighbors, and the nodes before and behind it on relay paths of the topic.
- A relay that does not want the topic notifies along relay paths only, unless relays flood (A-VIT-19).
- A node does not notify those that have notified it before it got the event; it remembers eight of them.

Links and paths that linger (`linger_rounds`) are those of the last instants: `spread` takes several.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.gateways import distance
from trellis.cycles.presence import GRACE, ROUND
from trellis.jit import njit

NOTIFIERS_MAX = 8  # as in `trellis.protocols.vitis.events`
VITIS, RVR, OPT = 0, 1, 2
PUBLICATIONS, HITS, MISSED, MESSAGES, UNWANTED_MESSAGES, DUPLICATES, NOTIFICATIONS, REACHED, DELIVERIES = range(9)


class Instants(NamedTuple):
    """The links of the last instants, the present one last, and who looked up its topics then."""

    offsets: Any  # int64[instants, nodes + 1]: into `peers`
    peers: Any  # uint32
    looks_up: Any  # bool[instants, subscriptions]


class Paths(NamedTuple):
    """Scratch: the relay paths of one topic, as a list of links for each node."""

    first: Any  # int32[nodes]: the first link of a node; -1: none
    following: Any  # int32[links]: the next link of the same node
    to: Any  # int32[links]: where it leads
    nodes: Any  # int32[nodes]: those that have links
    ends: Any  # int64[2]: how many links there are, and nodes with links
    seen: Any  # int64[nodes]: when the node last looked up a topic


class Wave(NamedTuple):
    """Scratch: where an event has been."""

    hops: Any  # int32[nodes]; -1: it has not come here
    queue: Any  # int32[nodes]: where it has been, in order
    notifiers: Any  # int32[nodes, NOTIFIERS_MAX]: those that notified the node before it got the event
    heard: Any  # int32[nodes]: how many of them there are
    wants: Any  # int64[nodes]: the number of the last event that the node wanted


class Tally(NamedTuple):
    """What is counted, over all events so far."""

    wanted: Any  # int64[nodes]: events that reached the node and that it wants, its own not among them
    unwanted: Any  # int64[nodes]: and that it does not want
    hops: Any  # int64[nodes + 1]: deliveries by the links that they crossed
    totals: Any  # int64[9]


class Scratch(NamedTuple):
    paths: Paths
    wave: Wave
    stamps: Any  # int64[3]: lookups and events so far, and how many nodes the last event has reached


def make_tally(nodes: int) -> Tally:
    """Return a tally of nothing."""
    return Tally(*(np.zeros(size, np.int64) for size in (nodes, nodes, nodes + 1, 9)))


def make_scratch(nodes: int) -> Scratch:
    """Return scratch for `spread`."""
    paths = Paths(
        np.full(nodes, -1, np.int32),
        np.empty(4 * nodes + 16, np.int32),
        np.empty(4 * nodes + 16, np.int32),
        np.empty(nodes, np.int32),
        np.zeros(2, np.int64),
        np.zeros(nodes, np.int64),
    )
    wave = Wave(
        np.full(nodes, -1, np.int32),
        np.empty(nodes, np.int32),
        np.empty((nodes, NOTIFIERS_MAX), np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int64),
    )
    return Scratch(paths, wave, np.zeros(3, np.int64))


@njit(folder=True)
def spread(topics, publishers, wants, presence, carrying, instants, relays, kind, relays_flood, scratch, tally):
    """Let each of `publishers` publish an event on its topic of `topics`, and count in `tally` how it travels.

    relays    the state of relay paths, while nodes join and leave; else paths are those of `instants`
    carrying  the links that carry events, those that linger among them
    kind      VITIS, RVR or OPT
    """
    for event in range(len(topics)):
        publish(
            topics[event], publishers[event], wants, presence, carrying, instants, relays, kind, relays_flood,
            scratch, tally,
        )  # fmt: skip
        forget(scratch)


@njit(folder=True)
def publish(topic, publisher, wants, presence, carrying, instants, relays, kind, relays_flood, scratch, tally):
    """Carry one event. It has been at the first nodes of `scratch.wave.queue`; return how many these are."""
    paths, wave, totals = scratch.paths, scratch.wave, tally.totals
    hops, queue, notifiers, heard, wanting = wave
    scratch.stamps[1] += 1
    number = scratch.stamps[1]
    for place in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
        if presence.alive[wants.subscribers[place]]:
            wave.wants[wants.subscribers[place]] = number
    if kind != OPT:
        find_paths(topic, wants, presence.alive, instants, relays, kind, scratch)
    wave.hops[publisher], wave.queue[0], wave.heard[publisher] = 0, publisher, 0
    reached, turn = 1, 0
    while turn < reached:
        node = np.int64(wave.queue[turn])
        turn += 1
        floods = kind != RVR and (wave.wants[node] == number or relays_flood)
        if floods:
            for link in range(carrying.offsets[node], carrying.offsets[node + 1]):
                peer = np.int64(carrying.peers[link])
                if wave.wants[peer] == number:
                    reached += notify(
                        node, peer, number, publisher, reached, hops, queue, notifiers, heard, wanting, totals
                    )
        link = paths.first[node]
        while link >= 0:
            peer = np.int64(paths.to[link])
            if not floods or wave.wants[peer] != number or not is_linked(carrying.offsets, carrying.peers, node, peer):
                reached += notify(
                    node, peer, number, publisher, reached, hops, queue, notifiers, heard, wanting, totals
                )
            link = paths.following[link]
    scratch.stamps[2] = reached
    count(topic, publisher, wants, presence, number, reached, wave, tally)
    return reached


@njit(folder=True)
def forget(scratch):
    """Make scratch ready for the next event."""
    paths, wave = scratch.paths, scratch.wave
    for turn in range(scratch.stamps[2]):
        wave.hops[wave.queue[turn]] = -1
    for place in range(paths.ends[1]):
        paths.first[paths.nodes[place]] = -1
    paths.ends[0] = paths.ends[1] = 0


@njit(folder=True)
def notify(node, peer, number, publisher, reached, hops, queue, notifiers, heard, wanting, totals):
    """Notify `peer`, unless it has notified the node. Return 1 if the event comes there for the first time, or 0."""
    for place in range(heard[node]):
        if notifiers[node, place] == peer:
            return 0
    unwanted = peer != publisher and wanting[peer] != number
    totals[NOTIFICATIONS] += 1
    totals[MESSAGES] += 1
    totals[UNWANTED_MESSAGES] += unwanted
    if hops[peer] < 0:
        hops[peer], queue[reached] = hops[node] + 1, peer
        notifiers[peer, 0], heard[peer] = node, 1
        totals[MESSAGES] += 2  # the pull and the event
        totals[UNWANTED_MESSAGES] += unwanted + (node != publisher and wanting[node] != number)
        return 1
    totals[DUPLICATES] += 1
    if hops[peer] == hops[node] + 1 and heard[peer] < NOTIFIERS_MAX:
        notifiers[peer, heard[peer]] = node
        heard[peer] += 1
    return 0


@njit(folder=True)
def count(topic, publisher, wants, presence, number, reached, wave, tally):
    """Count who was reached. Expected is whoever has been there for the grace before, and stays for it after."""
    for turn in range(1, reached):
        node = wave.queue[turn]
        if wave.wants[node] == number:
            tally.wanted[node] += 1
            tally.hops[wave.hops[node]] += 1
            tally.totals[DELIVERIES] += 1
        else:
            tally.unwanted[node] += 1
    now, grace = presence.clock[ROUND], presence.clock[GRACE]
    for place in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
        node = wants.subscribers[place]
        if node != publisher and presence.alive[node] and presence.since[node] <= now - grace:
            if wave.hops[node] >= 0:
                tally.totals[HITS] += 1
            elif presence.until[node] > now + grace:
                tally.totals[MISSED] += 1
    tally.totals[PUBLICATIONS] += 1
    tally.totals[REACHED] += reached - 1


@njit(folder=True)
def find_paths(topic, wants, alive, instants, relays, kind, scratch):
    """Find the relay paths of a topic: now both ways, and those that linger down only, as parents remember them."""
    paths, wave, number = scratch.paths, scratch.wave, scratch.stamps[1]
    place, last = wants.topic_places[topic], len(instants.offsets) - 1
    stand = len(relays.of_topic) > 0
    if stand:
        find_standing_paths(relays, topic, alive, paths)
    for back in range(stand, last + 1):
        instant = last - back
        scratch.stamps[0] += 1
        for one in range(wants.topic_offsets[topic], wants.topic_offsets[topic + 1]):
            if not instants.looks_up[instant, wants.slots[one]]:
                continue
            node = np.int64(wants.subscribers[one])
            if not alive[node]:
                continue
            while paths.seen[node] != scratch.stamps[0]:
                paths.seen[node] = scratch.stamps[0]
                hop = next_hop(wants.places, instants.offsets[instant], instants.peers, node, place)
                if hop < 0 or not alive[hop]:
                    break
                if back == 0:
                    add_link(paths.first, paths.following, paths.to, paths.nodes, paths.ends, node, hop)
                add_link(paths.first, paths.following, paths.to, paths.nodes, paths.ends, hop, node)
                if kind == VITIS and wave.wants[hop] == number:
                    break  # a subscriber: its own gateway is at least as close (A-VIT-17)
                node = hop


@njit(folder=True)
def find_standing_paths(relays, topic, alive, paths):
    """Add the links over which events on a topic travel: from each node to its next hop, and to all its children."""
    part = np.int64(relays.of_topic[topic])
    while part >= 0:
        node, hop = np.int64(relays.parts.node[part]), np.int64(relays.up[part])
        if alive[node]:
            if hop >= 0 and alive[hop]:
                add_if_room(paths, node, hop)
            edge = np.int64(relays.first_down[part])
            while edge >= 0:
                child = np.int64(relays.parts.node[relays.child[edge]])
                if alive[child]:
                    add_if_room(paths, node, child)
                edge = np.int64(relays.next_down[edge])
        part = np.int64(relays.next_of_topic[part])


@njit(folder=True)
def add_if_room(paths, node, peer):
    """Add a link, unless there are more than four for each node. Paths that stand have about two."""
    if paths.ends[0] < len(paths.to):
        add_link(paths.first, paths.following, paths.to, paths.nodes, paths.ends, node, peer)


@njit(folder=True)
def add_link(first, following, to, nodes, ends, node, peer):
    link = first[node]
    if link < 0:
        nodes[ends[1]] = node
        ends[1] += 1
    while link >= 0:
        if to[link] == peer:
            return
        link = following[link]
    link = ends[0]
    to[link], following[link] = peer, first[node]
    first[node] = link
    ends[0] += 1


@njit(folder=True)
def next_hop(places, offsets, peers, node, place):
    """Return the neighbor closest to a place of the ring, or -1 where the node itself is closer than all of them."""
    best, least, at = -1, distance(places[node], place), places[node]
    for link in range(offsets[node], offsets[node + 1]):
        peer = peers[link]
        far = distance(places[peer], place)
        if far < least or (far == least and places[peer] < at):
            best, least, at = np.int64(peer), far, places[peer]
    return best


@njit(folder=True)
def is_linked(offsets, peers, node, peer):
    link = offsets[node]
    while link < offsets[node + 1] and peers[link] != peer:
        link += 1
    return link < offsets[node + 1]


@njit(folder=True)
def join_links(offsets, peers, mark):
    """Return the links of all instants together. mark: int32[nodes], scratch."""
    nodes = offsets.shape[1] - 1
    joined, all_offsets, end = np.empty(len(peers), np.uint32), np.zeros(nodes + 1, np.int64), 0
    mark[:] = -1
    for node in range(nodes):
        for instant in range(len(offsets)):
            for link in range(offsets[instant, node], offsets[instant, node + 1]):
                if mark[peers[link]] != node:
                    mark[peers[link]] = node
                    joined[end] = peers[link]
                    end += 1
        all_offsets[node + 1] = end
    return all_offsets, joined[:end].copy()
