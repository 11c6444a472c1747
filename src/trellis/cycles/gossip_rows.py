"""Rows of descriptors in cycles: samples of Newscast, and views by gossip.

The rules are those of `trellis.protocols.descriptors`, `newscast` and `gossip_view`. These kernels are called often, so
that they get the arrays that they need, and no more. They are inlined, since counting references to arrays at each call
took most of the time.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

import numpy as np

from trellis.cycles.chance import below
from trellis.jit import njit

PEER, BORN, LIFE = range(3)  # columns of an entry: BORN is the round of the holder in which it was made
AGE = BORN  # the same column of what is told
BURIED, BURIED_ROUND, KNOWN_LIFE, SAMPLED_LIFE = range(4)  # columns of a grave
HOLE = 2**30  # BORN of a hole: newer than every entry
_ONE, _63 = np.uint64(1), np.uint64(63)


@njit(folder=True, forceinline=True)
def drop_old(entries, count, oldest):
    """Drop the samples that were made before the round `oldest`. Return how many are left."""
    left = 0
    for place in range(count):
        if entries[BORN, place] >= oldest:
            move(entries, place, left)
            left += 1
    return left


@njit(folder=True, forceinline=True)
def move(entries, place, to):
    """Copy the entry of a place to another place."""
    if to == place:
        return
    entries[PEER, to] = entries[PEER, place]
    entries[BORN, to] = entries[BORN, place]
    entries[LIFE, to] = entries[LIFE, place]


@njit(folder=True, forceinline=True)
def merge(entries, before, age_max, node, now, news, place_of, graves):
    """Take in descriptors as samples. Of each node the better one stays. Return how many there are."""
    count = np.int64(before)
    for place in range(before):
        place_of[entries[PEER, place]] = place + 1
    for one in range(len(news)):
        peer, age, life = news[one, PEER], news[one, AGE], news[one, LIFE]
        born, place = now - age, place_of[peer] - 1
        if place >= 0:
            if not is_better(born, life, entries[BORN, place], entries[LIFE, place]):
                continue
        elif peer == node or is_dead(graves, SAMPLED_LIFE, now - age_max, peer, born, life):
            continue
        if age <= age_max:
            if place < 0:
                place = count
                count += 1
            entries[PEER, place], entries[BORN, place], entries[LIFE, place] = peer, born, life
    for place in range(before):
        place_of[entries[PEER, place]] = 0
    return count


@njit(folder=True, forceinline=True)
def is_better(born, life, known_born, known_life):
    """Return whether a descriptor is of a later incarnation than the known one, or else younger."""
    return life > known_life if born <= known_born else life >= known_life


@njit(folder=True, forceinline=True)
def is_dead(graves, grave_life, oldest, peer, born, life):
    """Return whether a descriptor must be refused, because its node was buried after it was made."""
    for place in range(len(graves)):
        if graves[place, BURIED] == peer and graves[place, BURIED_ROUND] >= oldest:
            return life <= graves[place, grave_life] and born <= graves[place, BURIED_ROUND]
    return False


@njit(folder=True, forceinline=True)
def keep_the_freshest(entries, count, size, now, ages, tied, chance):
    """Reduce the samples to the `size` youngest ones. Ties are broken at random. Return how many are left."""
    if count <= size:
        return count
    ages[:] = 0
    for place in range(count):
        ages[now - entries[BORN, place]] += 1
    cut, younger = 0, 0
    while younger + ages[cut] < size:
        younger += ages[cut]
        cut += 1
    left, ties = 0, 0
    for place in range(count):
        age = now - entries[BORN, place]
        if age < cut:
            move(entries, place, left)
            left += 1
        elif age == cut:
            for column in range(3):
                tied[column, ties] = entries[column, place]
            ties += 1
    for place in range(size - left):
        drawn = place + below(chance, ties - place)
        for column in range(3):
            tied[column, place], tied[column, drawn] = tied[column, drawn], tied[column, place]
            entries[column, left + place] = tied[column, place]
    return np.int64(size)


@njit(folder=True, forceinline=True)
def learn(entries, used, at, made, age_max, node, now, news, graves, oldest_grave):
    """Take in descriptors as a view. Of each node the better one stays. Return how long the row is."""
    for one in range(len(news)):
        peer, age, life = news[one, PEER], news[one, AGE], news[one, LIFE]
        born, place = now - age, np.int64(at[peer]) - 1
        if place >= 0:
            if not is_better(born, life, entries[BORN, place], entries[LIFE, place]):
                continue
        elif peer == node or is_dead(graves, KNOWN_LIFE, oldest_grave, peer, born, life):
            continue
        if age <= age_max:
            if place < 0:
                place = np.int64(used)
                used += 1
                at[peer] = used
            else:
                made[entries[BORN, place] % len(made)] -= 1
            entries[PEER, place], entries[BORN, place], entries[LIFE, place] = peer, born, life
            made[born % len(made)] += 1
    return used


@njit(folder=True, forceinline=True)
def drop_oldest(entries, used, at, made, cut, excess, bits, version, node):
    """Drop the `excess` oldest entries of a view. Of equals those that came first are dropped.

    cut  a round before which no entry was made
    """
    drops = excess
    if drops == 0:
        return
    while made[cut % len(made)] < excess:
        excess -= made[cut % len(made)]
        cut += 1
    place = 0
    while drops > 0:
        born = entries[BORN, place]
        if born < cut or (born == cut and excess > 0):
            excess -= born == cut
            drop_entry(entries, at, made, place, bits, version, node)
            drops -= 1
        place += 1


@njit(folder=True, forceinline=True)
def drop_entry(entries, at, made, place, bits, version, node):
    """Make a hole of an entry of a view."""
    peer = entries[PEER, place]
    at[peer] = 0
    made[entries[BORN, place] % len(made)] -= 1
    entries[BORN, place] = HOLE
    clear_bit(bits, version, node, peer)


@njit(folder=True, forceinline=True)
def close_up(entries, used, at):
    """Let a row of a view have no holes. Return how long it is."""
    left = np.int64(0)
    for place in range(used):
        if entries[BORN, place] != HOLE:
            move(entries, place, left)
            left += 1
            at[entries[PEER, place]] = left
    return left


@njit(folder=True, forceinline=True)
def set_bit(bits, version, node, peer):
    """Note that `peer` is in the view of `node`."""
    word, bit = peer >> 6, _ONE << (np.uint64(peer) & _63)
    if not bits[word] & bit:
        bits[word] |= bit
        version[node] += 1


@njit(folder=True, forceinline=True)
def clear_bit(bits, version, node, peer):
    """Note that `peer` is not in the view of `node`."""
    word, bit = peer >> 6, _ONE << (np.uint64(peer) & _63)
    if bits[word] & bit:
        bits[word] &= ~bit
        version[node] += 1
