"""The choice of backups in cycles: lambda set covers of a node's topics.  [SH Alg. 12; OM §4.2]

The rules are those of `trellis.protocols.omen.cover`, which words them. A rule gets *candidates*, numbered from 0, and
*places*, which are the topics to cover, numbered from 0. `offer` has filled both directions: the places of each
candidate, and the candidates of each place. Where the protocol lets the candidate of the smaller name win, the one with
the smaller `nodes` wins here. So candidates need no order.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from trellis.cycles.chance import below
from trellis.jit import njit

PRIMAL_DUAL, PRIMAL_DUAL_CARRY, PRIMAL_DUAL_UNCOVERED, GREEDY = range(4)
ROUTINES = {
    "primal-dual": PRIMAL_DUAL,
    "primal-dual-carry": PRIMAL_DUAL_CARRY,
    "primal-dual-uncovered": PRIMAL_DUAL_UNCOVERED,
    "greedy": GREEDY,
}


class Offers(NamedTuple):
    """Candidates for one view, and what a rule notes about them. All arrays are scratch."""

    nodes: Any  # int32[candidates]
    weights: Any  # int32[candidates]: degree and primaries of each
    places_of: Any  # int32[pairs]: places, candidate by candidate
    offsets: Any  # int64[candidates + 1]
    candidates_of: Any  # int32[pairs]: candidates, place by place
    place_offsets: Any  # int64[places + 1]
    left: Any  # int32[candidates]: weights that are left, or places that the candidate would cover
    is_chosen: Any  # bool[candidates]
    rest: Any  # int32[places]: those that are not covered yet, ascending
    is_open: Any  # bool[places]: the same
    chosen: Any  # int32[candidates]: the result, as candidates
    drawn: Any  # int32[candidates]
    chance: Any  # uint64[1]


def make_offers(candidates: int, pairs: int, places: int) -> Offers:
    """Return scratch for as many candidates, pairs of a candidate and a place, and places."""
    return Offers(
        np.empty(candidates, np.int32),
        np.empty(candidates, np.int32),
        np.empty(pairs, np.int32),
        np.zeros(candidates + 1, np.int64),
        np.empty(pairs, np.int32),
        np.zeros(places + 1, np.int64),
        np.empty(candidates, np.int32),
        np.empty(candidates, np.bool_),
        np.empty(places, np.int32),
        np.empty(places, np.bool_),
        np.empty(candidates, np.int32),
        np.empty(candidates, np.int32),
        np.zeros(1, np.uint64),
    )


@njit(folder=True, forceinline=True)
def turn_pairs(offers, count, places):
    """Fill the candidates of each place from the places of each candidate."""
    at = offers.place_offsets
    at[: places + 1] = 0
    for pair in range(offers.offsets[count]):
        at[offers.places_of[pair] + 1] += 1
    for place in range(places):
        at[place + 1] += at[place]
    for candidate in range(count):
        for pair in range(offers.offsets[candidate], offers.offsets[candidate + 1]):
            place = offers.places_of[pair]
            offers.candidates_of[at[place]] = candidate
            at[place] += 1
    for place in range(places, 0, -1):
        at[place] = at[place - 1]
    at[0] = 0


@njit(folder=True)
def choose_backups(routine, coverage, offers, count, places):
    """Put backups into `offers.chosen` that cover each place `coverage` times. Return how many they are."""
    for candidate in range(count):
        offers.is_chosen[candidate] = False
    if routine == GREEDY:
        return greedy(coverage, offers, count, places)
    if routine == PRIMAL_DUAL_UNCOVERED:
        return by_topic(coverage, offers, places)
    return primal_dual(coverage, offers, count, places, routine == PRIMAL_DUAL_CARRY)


@njit(folder=True, forceinline=True)
def begin_cover(offers, places):
    """List the places that any candidate has. Return their number."""
    listed = 0
    for place in range(places):
        offers.is_open[place] = offers.place_offsets[place + 1] > offers.place_offsets[place]
        if offers.is_open[place]:
            offers.rest[listed] = place
            listed += 1
    return listed


@njit(folder=True, forceinline=True)
def take(offers, candidate, chosen):
    """Choose a candidate, and count its places out of what the others would cover."""
    offers.chosen[chosen], offers.is_chosen[candidate] = candidate, True
    for pair in range(offers.offsets[candidate], offers.offsets[candidate + 1]):
        place = offers.places_of[pair]
        if offers.is_open[place]:
            offers.is_open[place] = False
            for other in range(offers.place_offsets[place], offers.place_offsets[place + 1]):
                offers.left[offers.candidates_of[other]] -= 1


@njit(folder=True, forceinline=True)
def still_open(offers, listed):
    """Keep the places in `rest` that are open. Return their number."""
    left = 0
    for at in range(listed):
        if offers.is_open[offers.rest[at]]:
            offers.rest[left] = offers.rest[at]
            left += 1
    return left


@njit(folder=True)
def greedy(coverage, offers, count, places):
    """Take the candidate that covers most each time, without weights.  [OM §4.2]"""
    chosen = 0
    for _ in range(coverage):
        listed = begin_cover(offers, places)
        for candidate in range(count):
            offers.left[candidate] = offers.offsets[candidate + 1] - offers.offsets[candidate]
        while listed > 0:
            best = -1
            for candidate in range(count):
                if offers.is_chosen[candidate]:
                    continue
                if best < 0 or is_better(offers, candidate, best):
                    best = candidate
            if best < 0 or offers.left[best] == 0:
                break
            take(offers, best, chosen)
            chosen += 1
            listed = still_open(offers, listed)
    return chosen


@njit(folder=True, forceinline=True)
def is_better(offers, one, other):
    """Return whether a candidate would cover more than another; of equals the smaller node wins."""
    more = offers.left[one] - offers.left[other]
    return more > 0 or (more == 0 and offers.nodes[one] < offers.nodes[other])


@njit(folder=True)
def by_topic(coverage, offers, places):
    """Draw an uncovered topic, and take its subscriber "with the maximum uncovered topics".  [OM §4.2]

    Open places are counted for few candidates: those that have at least as many places as the best one so far covers.
    """
    chosen = 0
    for _ in range(coverage):
        listed = begin_cover(offers, places)
        while listed > 0:
            place, best, most = offers.rest[below(offers.chance, listed)], -1, 0
            for at in range(offers.place_offsets[place], offers.place_offsets[place + 1]):
                candidate = offers.candidates_of[at]
                begin, end = offers.offsets[candidate], offers.offsets[candidate + 1]
                if end - begin < most or offers.is_chosen[candidate]:
                    continue
                found = 0
                for pair in range(begin, end):
                    found += offers.is_open[offers.places_of[pair]]
                if found > most or (found == most and offers.nodes[candidate] < offers.nodes[best]):
                    best, most = candidate, found
            offers.is_open[place] = False  # A-SHD-6: also if no candidate is left to cover the topic once more.
            if best >= 0:
                offers.chosen[chosen], offers.is_chosen[best] = best, True
                chosen += 1
                for pair in range(offers.offsets[best], offers.offsets[best + 1]):
                    offers.is_open[offers.places_of[pair]] = False
            listed = still_open(offers, listed)
    return chosen


@njit(folder=True)
def primal_dual(coverage, offers, count, places, carry):
    """Draw an uncovered topic, and take its subscriber of least weight.  [SH Alg. 12]

    That weight is then subtracted from the weights of all its subscribers. `carry`: the lowered weights are kept for
    the next cover.
    """
    chosen = 0
    for cover in range(coverage):
        listed = begin_cover(offers, places)
        if cover == 0 or not carry:
            for candidate in range(count):
                offers.left[candidate] = 0 if offers.is_chosen[candidate] else offers.weights[candidate]
        while listed > 0:
            place = offers.rest[below(offers.chance, listed)]
            candidate = lightest(offers, place)
            if candidate < 0:
                candidate = any_light(offers, place)
            if candidate < 0:  # A-SHD-6: no candidate is left to cover the topic once more.
                offers.is_open[place] = False
            else:
                offers.chosen[chosen], offers.is_chosen[candidate] = candidate, True
                chosen += 1
                for pair in range(offers.offsets[candidate], offers.offsets[candidate + 1]):
                    offers.is_open[offers.places_of[pair]] = False
            listed = still_open(offers, listed)
    return chosen


@njit(folder=True, forceinline=True)
def lightest(offers, place):
    """Return the candidate of least positive weight, or -1. Lower the positive weights of all by it."""
    best, begin, end = -1, offers.place_offsets[place], offers.place_offsets[place + 1]
    for at in range(begin, end):
        candidate = offers.candidates_of[at]
        weight = offers.left[candidate]
        if weight > 0 and (
            best < 0
            or weight < offers.left[best]
            or (weight == offers.left[best] and offers.nodes[candidate] < offers.nodes[best])
        ):
            best = candidate
    if best >= 0:
        spared = offers.left[best]
        for at in range(begin, end):
            if offers.left[offers.candidates_of[at]] > 0:
                offers.left[offers.candidates_of[at]] -= spared
    return best


@njit(folder=True)
def any_light(offers, place):
    """Draw one of the candidates that are not chosen, which have no weight left; -1: there is none (A-SHD-4)."""
    rivals = 0
    for at in range(offers.place_offsets[place], offers.place_offsets[place + 1]):
        candidate = offers.candidates_of[at]
        if not offers.is_chosen[candidate]:
            offers.drawn[rivals] = candidate
            rivals += 1
    if rivals == 0:
        return -1
    number = below(offers.chance, rivals)
    named = np.sort(offers.nodes[offers.drawn[:rivals]])[number]  # The protocol numbers them by name.
    for place in range(rivals):
        if offers.nodes[offers.drawn[place]] == named:
            return np.int64(offers.drawn[place])
    return -1
