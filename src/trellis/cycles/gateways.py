"""Gateway election in cycles: each cluster of a topic agrees on the node closest to the topic.  [VI Alg. 5]

The rules are those of `trellis.protocols.vitis.gateways`. A proposal belongs to a subscription, so proposals are arrays
beside the interests in CSR form.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import shuffle
from trellis.jit import njit


class Proposals(NamedTuple):
    """What each subscription's node proposes for its topic."""

    gateway: Any  # int32[subscriptions]
    parent: Any  # int32[subscriptions]: from whom the node has it; itself: its own proposal
    hops: Any  # int8[subscriptions]: how far the gateway is


class Best(NamedTuple):
    """Scratch: the best proposal for each topic of a node."""

    gateway: Any  # int32
    parent: Any  # int32
    hops: Any  # int8
    distance: Any  # uint64: of the gateway to the topic
    at: Any  # int32[topics]: the place of a topic among those of the node; -1: the node does not want it


def make_proposals(wants: Any) -> Proposals:
    """Return proposals in which every node proposes itself."""
    owners = np.repeat(np.arange(len(wants.places), dtype=np.int32), np.diff(wants.offsets))
    return Proposals(owners, owners.copy(), np.zeros(len(owners), np.int8))


@njit(folder=True)
def elect_cycle(proposals, wants, links, order, chance, mark, hops_max, take_back):
    """Let each node of `order` renew its proposals, in random order. Return how many proposals changed.

    hops_max   how far a gateway may be
    take_back  also take what a neighbor has from the node itself (A-VIT-11)
    """
    most = 0
    for node in range(len(wants.offsets) - 1):
        most = max(most, wants.offsets[node + 1] - wants.offsets[node])
    best = Best(
        np.empty(most, np.int32),
        np.empty(most, np.int32),
        np.empty(most, np.int8),
        np.empty(most, np.uint64),
        np.full(len(wants.topic_places), -1, np.int32),
    )
    shuffle(order, chance)
    mark[:] = -1
    changes = 0
    for turn in range(len(order)):
        changes += elect(proposals, wants, links, order[turn], best, mark, hops_max, take_back)
    return changes


@njit(folder=True)
def elect(proposals, wants, links, node, best, mark, hops_max, take_back):
    """Renew the proposals of one node, and return how many changed."""
    begin, end = wants.offsets[node], wants.offsets[node + 1]
    for slot in range(begin, end):  # l. 3
        place = slot - begin
        best.at[wants.topics[slot]] = place
        best.gateway[place], best.parent[place], best.hops[place] = node, node, 0
        best.distance[place] = distance(wants.places[node], wants.topic_places[wants.topics[slot]])
    for link in range(links.offsets[node], links.offsets[node + 1]):
        mark[links.peers[link]] = node
    for link in range(links.offsets[node], links.offsets[node + 1]):
        neighbor = links.peers[link]
        for slot in range(wants.offsets[neighbor], wants.offsets[neighbor + 1]):
            place = best.at[wants.topics[slot]]
            if place >= 0:
                hear(proposals, wants, node, neighbor, slot, begin, best, place, mark, hops_max, take_back)
    changes = 0
    for slot in range(begin, end):
        place = slot - begin
        best.at[wants.topics[slot]] = -1
        changes += (
            proposals.gateway[slot] != best.gateway[place]
            or proposals.parent[slot] != best.parent[place]
            or proposals.hops[slot] != best.hops[place]
        )
        proposals.gateway[slot], proposals.parent[slot] = best.gateway[place], best.parent[place]
        proposals.hops[slot] = best.hops[place]
    return changes


@njit(folder=True)
def hear(proposals, wants, node, neighbor, slot, begin, best, place, mark, hops_max, take_back):
    """Take what a neighbor proposes for a topic, where it is better than what is known.  [l. 7-15]

    A parent that is a neighbor told us itself: it wants the topic, too (A-VIT-15).
    """
    gateway, parent, hops = proposals.gateway[slot], proposals.parent[slot], proposals.hops[slot] + 1
    if hops > hops_max or gateway == node:
        return
    if parent == node:
        if not take_back:
            return
    elif parent != neighbor and mark[parent] == node:
        return
    if gateway == best.gateway[place]:
        if hops > best.hops[place]:
            return
        if hops == best.hops[place]:
            present = proposals.parent[begin + place]
            if best.parent[place] == present or (neighbor != present and neighbor > best.parent[place]):
                return
        best.parent[place], best.hops[place] = neighbor, hops
        return
    far = distance(wants.places[gateway], wants.topic_places[wants.topics[slot]])
    known = best.distance[place]
    if far < known or (far == known and wants.places[gateway] < wants.places[best.gateway[place]]):
        best.gateway[place], best.parent[place], best.hops[place] = gateway, neighbor, hops
        best.distance[place] = far


@njit(folder=True)
def distance(one, other):
    """How far two places of the ring are apart."""
    return min(one - other, other - one)
