"""OPT in cycles: links that both ends agree to, by greedy coverage.  [VI §IV; A-VIT-24]

The rules are those of `trellis.protocols.opt` and `trellis.protocols.vitis.overlay`. `cover.py` has the selection.
Every node keeps a row of neighbors: whom it has in its table, and who has it in theirs. A link is asked for by the next
profile, and confirmed by the profile of the other end. Messages arrive at once, in the order in which they are sent.
A link that ends is forgotten at once: OPT's links do not linger.

O1  A node never has more than `bound` neighbors, whichever end asked for them.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below, shuffle
from trellis.cycles.cover import IN_TABLE, LINKS_US, SPOKE, choose
from trellis.cycles.presence import bury, is_silent, without_buried
from trellis.cycles.tables import gather
from trellis.jit import njit

_PEER = np.uint32((1 << 26) - 1)  # of an entry of `trellis.cycles.newscast`


class Agreed(NamedTuple):
    """The neighbors and tables of all nodes."""

    peers: Any  # uint32[nodes, bound + 1]: neighbors, in the order in which they came
    flags: Any  # uint8[nodes, bound + 1]: what the node knows of each
    links: Any  # int32[nodes]: how many neighbors there are
    table: Any  # uint32[nodes, bound]
    count: Any  # int32[nodes]: entries of the table
    ticks: Any  # int32[nodes]: profiles that the node has sent
    refusers: Any  # uint32[nodes, refusals]: those that refused a link last
    refused: Any  # int32[nodes, refusals]: `ticks` at that time
    refusals: Any  # int32[nodes]: refusals so far; the oldest are overwritten


class Terms(NamedTuple):
    """How links are chosen and agreed to."""

    bound: int  # links of a node at most
    most: int  # neighbors at most that a node takes in
    coverage: int  # K
    refusal_rounds: int


class Mail(NamedTuple):
    """Scratch: messages `Unlink` that are under way, and the tables that an exchange swaps."""

    ends: Any  # uint32[letters, 2]: from whom, to whom
    count: Any  # int64[1]
    mine: Any  # uint32[bound]
    theirs: Any  # uint32[bound]
    none: Any  # int64[nodes + 1]: offsets of no links
    nobody: Any  # uint32[0]
    stamp: Any  # int32[1]: selections so far


def make_agreed(nodes: int, terms: Terms, table_size: int) -> Agreed:
    """Return nodes that know nobody."""
    refusals = terms.refusal_rounds * table_size
    return Agreed(
        np.zeros((nodes, terms.bound + 1), np.uint32),
        np.zeros((nodes, terms.bound + 1), np.uint8),
        np.zeros(nodes, np.int32),
        np.zeros((nodes, terms.bound), np.uint32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros((nodes, refusals), np.uint32),
        np.zeros((nodes, refusals), np.int32),
        np.zeros(nodes, np.int32),
    )


def make_mail(nodes: int, terms: Terms) -> Mail:
    return Mail(
        np.empty((terms.bound * (terms.bound + 3), 2), np.uint32),
        np.zeros(1, np.int64),
        np.empty(terms.bound, np.uint32),
        np.empty(terms.bound, np.uint32),
        np.zeros(nodes + 1, np.int64),
        np.empty(0, np.uint32),
        np.zeros(1, np.int32),
    )


@njit(folder=True)
def swap_cycle(agreed, wants, views, presence, order, chance, cover, mail, terms):
    """Let each node of `order` swap tables with a random entry of its table, in random order.  [VI Alg. 2-3]

    Return the number of exchanges, and of selections that changed a table.
    """
    shuffle(order, chance)
    exchanges, changes = 0, 0
    for turn in range(len(order)):
        node = np.int64(order[turn])
        if agreed.count[node] > 0:
            partner = np.int64(agreed.table[node, below(chance, agreed.count[node])])
        elif views.count[node] > 0:
            partner = np.int64(views.entries[node * (views.size + 1) + below(chance, views.count[node])] & _PEER)
        else:
            continue
        exchanges += 1
        if not presence.alive[partner]:
            continue
        mine, theirs = agreed.count[node], agreed.count[partner]
        for place in range(mine):
            mail.mine[place] = agreed.table[node, place]
        for place in range(theirs):
            mail.theirs[place] = agreed.table[partner, place]
        changes += select(agreed, wants, views, presence, partner, node, mail.mine, mine, cover, mail, terms)
        changes += select(agreed, wants, views, presence, node, partner, mail.theirs, theirs, cover, mail, terms)
        deliver(agreed, mail)
    return exchanges, changes


@njit(folder=True)
def profile_cycle(agreed, wants, views, presence, order, chance, cover, mail, terms):
    """Let each node of `order` send its profile to its neighbors, in random order.  [VI Alg. 6-7]

    Return the number of profiles, and of tables that changed.
    """
    shuffle(order, chance)
    profiles, changes = 0, 0
    told, linked = np.empty(terms.bound + 1, np.uint32), np.empty(terms.bound + 1, np.bool_)
    for turn in range(len(order)):
        node = np.int64(order[turn])
        agreed.ticks[node] += 1
        drop_silent(agreed, views, presence, node)
        count = agreed.links[node]
        for place in range(count):
            told[place], linked[place] = agreed.peers[node, place], agreed.flags[node, place] & IN_TABLE
        for place in range(count):
            peer = np.int64(told[place])
            if presence.alive[peer]:
                changes += hear(agreed, wants, views, presence, peer, node, linked[place], cover, mail, terms)
        profiles += count
        changes += deliver(agreed, mail)
    return profiles, changes


@njit(folder=True)
def hear(agreed, wants, views, presence, node, sender, linked, cover, mail, terms):
    """Handle the profile of `sender`, which says whether it has the node in its table. Return changes of tables."""
    peers, flags, links = agreed.peers, agreed.flags, agreed.links
    place = find(peers, links, node, sender)
    if place < 0:
        if not linked or links[node] >= terms.most or is_full(flags, links, node, terms.bound):
            post(mail, node, sender)
            return 0
        peers[node, links[node]], flags[node, links[node]] = sender, LINKS_US | SPOKE
        links[node] += 1
        if links[node] > terms.bound:  # Give up a request that is not confirmed.
            return select(agreed, wants, views, presence, node, node, mail.nobody, 0, cover, mail, terms)
        return 0
    if linked:
        flags[node, place] |= LINKS_US | SPOKE
    elif flags[node, place] & IN_TABLE:
        flags[node, place] = IN_TABLE | SPOKE
    else:
        drop(peers, flags, links, node, place)
        post(mail, node, sender)
    return 0


@njit(folder=True)
def is_full(flags, links, node, bound):
    """Return whether confirmed links alone reach the bound."""
    confirmed = 0
    for place in range(links[node]):
        confirmed += (flags[node, place] & SPOKE) != 0
    return confirmed >= bound


@njit(folder=True)
def find(peers, links, node, peer):
    """Return the place of a neighbor, or -1."""
    for place in range(links[node]):
        if peers[node, place] == peer:
            return place
    return -1


@njit(folder=True)
def drop(peers, flags, links, node, place):
    """Forget a neighbor. The others keep their order."""
    links[node] -= 1
    for later in range(place, links[node]):
        peers[node, later], flags[node, later] = peers[node, later + 1], flags[node, later + 1]


@njit(folder=True)
def drop_entry(table, counts, node, peer):
    """Drop an entry of a table. The others keep their order."""
    left = 0
    for entry in range(counts[node]):
        if table[node, entry] != peer:
            table[node, left] = table[node, entry]
            left += 1
    counts[node] = left


@njit(folder=True)
def drop_silent(agreed, views, presence, node):
    """Let a node drop neighbors that have been silent for too long.  [VI Alg. 6, l. 4-5]"""
    place = 0
    while place < agreed.links[node]:
        peer = np.int64(agreed.peers[node, place])
        if is_silent(presence, node, peer):
            part(agreed, views, presence, node, peer)
        else:
            place += 1


@njit(folder=True)
def part(agreed, views, presence, node, gone):
    """Let a node forget a neighbor that is not there any more."""
    bury(presence, views, node, gone)
    drop_entry(agreed.table, agreed.count, node, gone)
    drop(agreed.peers, agreed.flags, agreed.links, node, find(agreed.peers, agreed.links, node, gone))


@njit(folder=True)
def leave_links(agreed, views, presence, gone):
    """Let the neighbors of a node that leaves forget it. `presence` says that it is gone."""
    for place in range(agreed.links[gone]):
        node = np.int64(agreed.peers[gone, place])
        if presence.alive[node] and find(agreed.peers, agreed.links, node, gone) >= 0:
            part(agreed, views, presence, node, gone)
    agreed.links[gone] = agreed.count[gone] = agreed.refusals[gone] = 0


@njit(folder=True)
def post(mail, sender, to):
    mail.ends[mail.count[0], 0], mail.ends[mail.count[0], 1] = sender, to
    mail.count[0] += 1


@njit(folder=True)
def deliver(agreed, mail):
    """Deliver all `Unlink`s: the end of a link, or a refusal. Return how many tables changed.

    A node that had the sender in its table does not ask it again for a while.
    """
    peers, flags, links, changes = agreed.peers, agreed.flags, agreed.links, 0
    for letter in range(mail.count[0]):
        sender, node = mail.ends[letter, 0], np.int64(mail.ends[letter, 1])
        place = find(peers, links, node, sender)
        if place < 0:
            continue
        if flags[node, place] & IN_TABLE:
            slot = agreed.refusals[node] % agreed.refused.shape[1]
            agreed.refusers[node, slot], agreed.refused[node, slot] = sender, agreed.ticks[node]
            agreed.refusals[node] += 1
            drop_entry(agreed.table, agreed.count, node, sender)
            changes += 1
        drop(peers, flags, links, node, place)
    mail.count[0] = 0
    return changes


@njit(folder=True)
def select(agreed, wants, views, presence, node, teller, told, told_count, cover, mail, terms):
    """Select the table of a node, and let its neighbors follow it. Return whether the table changed.

    `teller` has told of the nodes in its table, `told`. The node itself as `teller`: nobody has told anything.
    """
    mail.stamp[0] += 1
    stamp, before = mail.stamp[0], np.int64(agreed.count[node])
    cover.mark[node] = stamp
    for place in range(before):
        cover.peers[place] = agreed.table[node, place]
        cover.mark[cover.peers[place]] = stamp
    count = gather(
        views.entries, views.count, views.size, mail.none, mail.nobody, mail.nobody, mail.nobody, node, teller, told,
        told_count, cover.peers, cover.mark, stamp, before,
    )  # fmt: skip
    count = without_buried(presence, node, cover.peers, before, count)
    for place in range(min(agreed.refusals[node], agreed.refused.shape[1])):
        if agreed.ticks[node] - agreed.refused[node, place] < terms.refusal_rounds:
            cover.refused[agreed.refusers[node, place]] = stamp
    chosen = choose(
        node, agreed.peers[node], agreed.flags[node], agreed.links[node], wants.offsets, wants.topics, cover, count,
        before, terms.bound, terms.coverage, stamp,
    )  # fmt: skip
    return follow(agreed, node, before, chosen, cover, mail)


@njit(folder=True)
def follow(agreed, node, before, chosen, cover, mail):
    """Make `cover.chosen` the table. Links that neither end holds any more end.  [N1]"""
    peers, flags, links = agreed.peers, agreed.flags, agreed.links
    changed = chosen != before
    for place in range(chosen):
        cover.known[cover.chosen[place]] = 1
    left = 0
    for place in range(links[node]):
        peer, flag = peers[node, place], flags[node, place]
        if cover.known[peer]:
            flag |= IN_TABLE
            cover.known[peer] = 2
        elif flag & IN_TABLE:
            flag &= ~IN_TABLE
            changed = True
            if not flag & LINKS_US:
                post(mail, node, peer)
                continue
        peers[node, left], flags[node, left] = peer, flag
        left += 1
    for place in range(chosen):
        peer = cover.chosen[place]
        if cover.known[peer] == 1:
            peers[node, left], flags[node, left] = peer, IN_TABLE
            left += 1
            changed = True
        cover.known[peer] = 0
        agreed.table[node, place] = peer
    links[node], agreed.count[node] = left, chosen
    return np.int64(changed)


@njit(folder=True)
def links_with(agreed, flag, both):
    """Return links in CSR form: of each node the neighbors of whom it knows `flag`; `both`: if they know the node."""
    nodes = len(agreed.links)
    offsets, end = np.zeros(nodes + 1, np.int64), 0
    found = np.empty(agreed.links.sum(), np.uint32)
    for node in range(nodes):
        for place in range(agreed.links[node]):
            peer = np.int64(agreed.peers[node, place])
            if (agreed.flags[node, place] & flag) != flag:
                continue
            if both and find(agreed.peers, agreed.links, peer, node) < 0:
                continue
            found[end] = peer
            end += 1
        offsets[node + 1] = end
    return offsets, found[:end].copy()
