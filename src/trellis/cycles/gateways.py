"""Gateway election in cycles: each cluster of a topic agrees on the node closest to the topic.  [VI Alg. 5]

The rules are those of `trellis.protocols.vitis.gateways`. A proposal belongs to a subscription, so proposals are arrays
beside the interests in CSR form.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import shuffle
from trellis.jit import njit

_ONE = np.uint32(1)


class Proposals(NamedTuple):
    """What each subscription's node proposes for its topic."""

    gateway: Any  # uint32[subscriptions]
    parent: Any  # uint32[subscriptions]: from whom the node has it; itself: its own proposal
    hops: Any  # int8[subscriptions]: how far the gateway is


def make_proposals(wants: Any) -> Proposals:
    """Return proposals in which every node proposes itself."""
    owners = np.repeat(np.arange(len(wants.places), dtype=np.uint32), np.diff(wants.offsets))
    return Proposals(owners, owners.copy(), np.zeros(len(owners), np.int8))


@njit(folder=True)
def elect_cycle(proposals, wants, links, alive, order, chance, mark, hops_max, take_back):
    """Let each node of `order` renew its proposals, in random order. Return how many proposals changed.

    alive      bool[nodes]: who is there; others have told nothing
    hops_max   how far a gateway may be
    take_back  also take what a neighbor has from the node itself (A-VIT-11)
    """
    most = 0
    for node in range(len(wants.offsets) - 1):
        most = max(most, wants.offsets[node + 1] - wants.offsets[node])
    gateway, parent, hops = np.empty(most, np.uint32), np.empty(most, np.uint32), np.empty(most, np.int8)
    distances, at = np.empty(most, np.uint64), np.zeros(len(wants.topic_places), np.uint32)
    shuffle(order, chance)
    mark[:] = -1
    changes = 0
    for turn in range(len(order)):
        node = np.uint32(order[turn])
        begin(node, wants.offsets, wants.topics, wants.places, wants.topic_places, gateway, parent, hops, distances, at)
        listen(
            node, proposals.gateway, proposals.parent, proposals.hops, wants.offsets, wants.topics, wants.places,
            wants.topic_places, links.offsets, links.peers, gateway, parent, hops, distances, at, mark, hops_max,
            take_back, alive,
        )  # fmt: skip
        changes += settle(
            node, proposals.gateway, proposals.parent, proposals.hops, wants.offsets, wants.topics, gateway, parent,
            hops, at,
        )  # fmt: skip
    return changes


@njit(folder=True)
def begin(node, offsets, topics, places, topic_places, gateway, parent, hops, distances, at):
    """Let the node propose itself for each of its topics.  [l. 3]

    at  one more than the place of a topic among those of the node; 0: the node does not want it
    """
    first = offsets[node]
    for place in range(offsets[node + _ONE] - first):
        topic = topics[first + place]
        gateway[place], parent[place], hops[place] = node, node, 0
        distances[place], at[topic] = distance(places[node], topic_places[topic]), place + 1


@njit(folder=True)
def listen(
    node, gateways, parents, hops_of, offsets, topics, places, topic_places, link_offsets, linked,
    gateway, parent, hops, distances, at, mark, hops_max, take_back, alive,
):  # fmt: skip
    """Take what neighbors propose, where it is better than what is known.  [l. 4-15]

    A parent that is a neighbor told us itself: it wants the topic, too (A-VIT-15).
    """
    first, first_link, last_link = offsets[node], np.uint64(link_offsets[node]), np.uint64(link_offsets[node + _ONE])
    for link in range(first_link, last_link):
        if alive[linked[link]]:
            mark[linked[link]] = node
    for link in range(first_link, last_link):
        neighbor = linked[link]
        if not alive[neighbor]:
            continue
        for slot in range(np.uint64(offsets[neighbor]), np.uint64(offsets[neighbor + _ONE])):
            place = at[topics[slot]]
            if place == 0:
                continue
            place -= _ONE
            new, via, far = gateways[slot], parents[slot], hops_of[slot] + 1
            if far > hops_max or new == node:
                continue
            if via == node:
                if not take_back:
                    continue
            elif via != neighbor and mark[via] == node:
                continue
            if new == gateway[place]:
                if is_shorter(far, neighbor, hops[place], parent[place], parents[first + place]):
                    parent[place], hops[place] = neighbor, far
                continue
            away, known = distance(places[new], topic_places[topics[slot]]), distances[place]
            if away < known or (away == known and places[new] < places[gateway[place]]):
                gateway[place], parent[place], hops[place], distances[place] = new, neighbor, far, away


@njit(folder=True)
def is_shorter(hops, parent, known_hops, known_parent, present):
    """Return whether a way to the same gateway is better: fewer hops, the present parent, the smaller name."""
    if hops != known_hops:
        return hops < known_hops
    if known_parent == present or parent == present:
        return parent == present
    return parent < known_parent


@njit(folder=True)
def settle(node, gateways, parents, hops_of, offsets, topics, gateway, parent, hops, at):
    """Write the proposals of the node down, and return how many changed.  [l. 19]"""
    changes, first = 0, offsets[node]
    for place in range(offsets[node + _ONE] - first):
        slot = first + place
        at[topics[slot]] = 0
        if gateways[slot] != gateway[place] or parents[slot] != parent[place] or hops_of[slot] != hops[place]:
            gateways[slot], parents[slot], hops_of[slot] = gateway[place], parent[place], hops[place]
            changes += 1
    return changes


@njit(folder=True)
def distance(one, other):
    """How far two places of the ring are apart."""
    return min(one - other, other - one)
