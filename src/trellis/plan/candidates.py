"""Sample candidate pairs, so that planning is nearly linear if all pairs would be too many.

LowODA compares all pairs of nodes that share a topic, and their number grows with the square of the nodes. Here every
node gets a short list of candidates instead, and only listed pairs are considered as edges:

1. Nodes are ordered by rank (`trellis.plan.ties`), which is a random order. Each node looks at a section of this order
   that starts at a random place, or at all of it. The section has about MEETINGS subscriptions to topics of the node.
   It shows which topics the node shares with each other node in it.
2. A topic with fewer than `sample` subscribers in the section gets the next ones beyond it, up to `sample`. The topics
   shared with these are found one by one.
3. The node keeps the `keep` others that share most with it. Rare topics weigh more: a topic that a share p of all nodes
   has weighs p^-1/2, from 1 to 64. Links for rare topics also connect popular ones, but not the other way round. So
   with skewed popularity, weighted candidates give fewer links than all pairs. Ties go round the topics in turn, so
   that each topic gets its part of the list.
4. In each topic, every two consecutive subscribers in the order of ranks are a candidate pair as well, and so are the
   last and the first.

I1  The candidates can connect every topic: by step 4 they contain a ring of all its subscribers. The choice of edges
    ends only when no candidate contributes. Then both ends of every step of each ring are connected. A ring stays
    connected when one of its nodes is lost, so the candidates can also make every topic two-connected.
I2  There are at most `keep` pairs per node and one pair per subscription.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trellis import ids
from trellis.errors import InputError
from trellis.jit import njit
from trellis.model.interests import OffsetArray
from trellis.model.names import IdArray

COUNT_MAX = 100_000  # largest value of the numbers of a sampling
WEIGHT_MAX = 64  # largest weight of a topic
GOLDEN, HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
MEETINGS = 4000  # Subscriptions that a node looks at. For 100,000 nodes x 10,000 topics x 20, these are all of them.


class Candidates(NamedTuple):
    """Pairs (i, j), i < j, as rows. The partners j of node i, ascending, are columns[row_start[i]:row_start[i + 1]]."""

    row_start: OffsetArray
    columns: IdArray


@dataclass(frozen=True)
class Sampling:
    """How many nodes become candidates. `docs/planning.md` says what the numbers cost and bring."""

    # At least this many subscribers of each topic are looked at. A larger number finds better partners if some topics
    # are much more popular than others. The time of sampling grows with it.
    sample: int = 64
    # This many of them are kept for each node. A larger number brings the plan closer to that of all pairs. Memory and
    # the time to choose edges grow with it.
    keep: int = 48

    def __post_init__(self) -> None:
        for name, value in (("sample", self.sample), ("keep", self.keep)):
            if not 1 <= value <= COUNT_MAX:
                raise InputError("", f"{name} is {value}", f"give a number from 1 to {COUNT_MAX:,}")

    def pairs_max(self, nodes: int, subscriptions: int) -> int:
        """Return a number that the listed pairs never exceed (I2)."""
        return min(nodes * self.keep + subscriptions, nodes * (nodes - 1) // 2)

    def bytes_of(self, nodes: int, subscriptions: int) -> int:
        """Return the memory of the draw at its peak, including the candidates, in bytes."""
        return 4 * (2 * nodes * self.keep + 3 * subscriptions) + 64 * nodes


class Subscribers(NamedTuple):
    """Interests by node and by topic. Nodes are given by rank.

    The topics of node i, ascending, are topics[offsets[i]:offsets[i + 1]]. The subscribers of topic t, ascending, are
    node_at[start[t]:start[t + 1]].
    """

    offsets: OffsetArray
    topics: IdArray
    start: OffsetArray
    node_at: IdArray


def sampled(offsets: OffsetArray, topics: IdArray, topic_count: int, sampling: Sampling, seed: int | str) -> Candidates:
    """Draw the candidate pairs. Nodes are given by rank."""
    table = subscribers_of(offsets, topics, topic_count)
    return with_rings(table, drawn(table, 0, len(offsets) - 1, sampling, seed))


def subscribers_of(offsets: OffsetArray, topics: IdArray, topic_count: int) -> Subscribers:
    """Return the interests with the subscribers of each topic added."""
    start = np.zeros(topic_count + 1, np.int64)
    np.cumsum(np.bincount(topics, minlength=topic_count), out=start[1:])
    node_at = np.empty(len(topics), np.int32)
    _fill_subscribers(offsets, topics, start[:-1].copy(), node_at)
    return Subscribers(offsets, topics, start, node_at)


def drawn(table: Subscribers, first: int, last: int, sampling: Sampling, seed: int | str) -> IdArray:
    """Do steps 1 to 3 for the nodes first, ..., last - 1. Return a row of candidates for each; -1 fills short rows.

    A row depends only on the table, the sampling and the seed. So rows can be drawn anywhere, in any order.
    """
    nodes = len(table.offsets) - 1
    kept = np.full((last - first, min(sampling.keep, max(nodes - 1, 1))), -1, np.int32)
    chance = np.uint64(ids.stream(seed, "candidates") % 2**64)
    weight = weights(np.diff(table.start), nodes)
    _draw(
        table.offsets, table.topics, table.start, weight, table.node_at, MEETINGS, sampling.sample, first, kept, chance
    )
    return kept


def with_rings(table: Subscribers, kept: IdArray) -> Candidates:
    """Do step 4: return the drawn pairs and those of the rings, each once."""
    nodes = len(kept)
    ends = np.zeros(nodes + 1, np.int64)
    _count(kept, table.start, table.node_at, ends)
    np.cumsum(ends, out=ends)
    lower = np.empty(int(ends[-1]), np.int32)
    _put_lower(kept, table.start, table.node_at, ends[:-1].copy(), lower)
    del kept
    row_start = np.zeros(nodes + 1, np.int64)
    last = np.full(nodes, -1, np.int32)
    _count_rows(ends, lower, last, row_start)
    np.cumsum(row_start, out=row_start)
    columns = np.empty(int(row_start[-1]), np.int32)
    last[:] = -1
    _fill_rows(ends, lower, last, row_start[:-1].copy(), columns)
    return Candidates(row_start, columns)


def weights(popularity: OffsetArray, nodes: int) -> IdArray:
    """Return the weight of each topic in the choice of candidates."""
    return np.clip(np.rint(np.sqrt(nodes / np.maximum(popularity, 1))), 1, WEIGHT_MAX).astype(np.int32)


def listed(u: IdArray, v: IdArray, nodes: int) -> Candidates:
    """Return given pairs, in any order, as rows."""
    i, j = np.minimum(u, v), np.maximum(u, v)
    row_start = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(i, minlength=nodes), out=row_start[1:])
    return Candidates(row_start, np.asarray(j[np.lexsort((j, i))], np.int32))


@njit(cache=True)
def _fill_subscribers(offsets, topics, ends, node_at):
    """Fill the subscribers of each topic, ascending. `ends` holds at first the starts of the topics."""
    for node in range(len(offsets) - 1):
        for slot in range(offsets[node], offsets[node + 1]):
            node_at[ends[topics[slot]]] = node
            ends[topics[slot]] += 1


@njit(cache=True)
def _draw(offsets, topics, start, weight, node_at, meetings, sample, begins, kept, seed):
    """Do steps 1 to 3: fill each row of `kept` with the candidates of its node, in no particular order.

    Row k is that of node begins + k.

    In its t-th topic a node looks at looked[t] subscribers from first[t] on, where the first subscriber follows the
    last.
    """
    nodes, largest = len(offsets) - 1, 0
    for node in range(begins, begins + len(kept)):
        largest = max(largest, offsets[node + 1] - offsets[node])
    first, looked = np.empty(largest, np.int64), np.empty(largest, np.int64)
    # node -> weight of the topics shared with the node of the row; reset to 0 after each row
    shared = np.zeros(nodes, np.int32)
    shares = np.zeros(largest * WEIGHT_MAX + 1, np.int64)  # weight -> number of met nodes that share as much
    mine = np.full(len(start), -1, np.int32)  # topic -> the last node of a row that has it
    met = np.empty(nodes + 1, np.int32)
    for node in range(begins, begins + len(kept)):
        own = topics[offsets[node] : offsets[node + 1]]
        total, most = 0, 0
        for t in range(len(own)):
            mine[own[t]] = node
            most += weight[own[t]]
            total += start[own[t] + 1] - start[own[t]]
        begin = np.int64((mix(seed + np.uint64(node) * GOLDEN) >> HALF) * np.uint64(nodes) >> HALF)
        end = begin + (nodes if total <= meetings else np.int64(nodes * (meetings / total)) + 1)
        count = 0
        for t in range(len(own)):
            low, high = start[own[t]], start[own[t] + 1]
            first[t] = _first_from(node_at, low, high, begin)
            straight, count = _meet(node_at, first[t], high, end, weight[own[t]], shared, met, count)
            around, count = _meet(node_at, low, first[t], end - nodes, weight[own[t]], shared, met, count)
            looked[t] = straight + around
        for t in range(len(own)):
            low, high = start[own[t]], start[own[t] + 1]
            for nth in range(looked[t], min(sample, high - low)):
                subscriber = _subscriber(node_at, low, high, first[t] + nth)
                if shared[subscriber] == 0:
                    for slot in range(offsets[subscriber], offsets[subscriber + 1]):
                        if mine[topics[slot]] == node:
                            shared[subscriber] += weight[topics[slot]]
                    met[count] = subscriber
                    count += 1
            looked[t] = max(looked[t], min(sample, high - low))
        shared[node] = 0
        _keep(start, node_at, own, most, first, looked, shared, shares, met[:count], kept[node - begins])


@njit(cache=True)
def _first_from(node_at, low, high, rank):
    """Return the first index in low:high whose node has at least this rank."""
    while low < high:
        middle = (low + high) // 2
        if node_at[middle] < rank:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _meet(node_at, at, high, end, weight, shared, met, count):
    """Count subscribers from index `at` up to index `high` or rank `end`.

    Return how many, and the new count of `met`.
    """
    begin = at
    while at < high and node_at[at] < end:
        subscriber = node_at[at]
        met[count] = subscriber
        count += shared[subscriber] == 0
        shared[subscriber] += weight
        at += 1
    return at - begin, count


@njit(cache=True)
def _keep(start, node_at, own, most, first, looked, shared, shares, met, row):
    """Do step 3: fill `row` with the nodes that share most. Then reset `shared` and `shares` to 0."""
    for k in range(len(met)):
        shares[shared[met[k]]] += 1
    least, above = most, 0  # Kept nodes share at least `least`; `above` of them share more.
    while least > 0 and above + shares[least] <= len(row):
        above += shares[least]
        least -= 1
    at = 0
    for k in range(len(met)):
        if shared[met[k]] > least:
            row[at] = met[k]
            at += 1
    turn, left = 0, shares[least] if least > 0 else 0
    while left > 0 and at < len(row):
        for t in range(len(own)):
            if turn < looked[t] and at < len(row):
                subscriber = _subscriber(node_at, start[own[t]], start[own[t] + 1], first[t] + turn)
                if shared[subscriber] == least:
                    shared[subscriber] = 0
                    left -= 1
                    row[at] = subscriber
                    at += 1
        turn += 1
    for k in range(len(met)):
        shared[met[k]] = 0
    for k in range(most + 1):
        shares[k] = 0


@njit(cache=True)
def _subscriber(node_at, low, high, index):
    """Return the subscriber at an index of the topic low:high. After its end, its start follows."""
    return node_at[index if index < high else index - (high - low)]


@njit(cache=True)
def mix(word):
    """Return SplitMix64 of the word: 64 bits that look independent of the given ones."""
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return word ^ (word >> np.uint64(31))


@njit(cache=True)
def _count(kept, start, node_at, ends):
    """Count in ends[j + 1] the pairs with node j as their higher end, including repeated ones."""
    for node in range(len(kept)):
        for k in range(kept.shape[1]):
            if kept[node, k] >= 0:
                ends[max(node, kept[node, k]) + 1] += 1
    for topic in range(len(start) - 1):
        for at in range(start[topic] + 1, start[topic + 1]):
            ends[node_at[at] + 1] += 1
        if start[topic + 1] - start[topic] > 2:
            ends[node_at[start[topic + 1] - 1] + 1] += 1


@njit(cache=True)
def _put_lower(kept, start, node_at, ends, lower):
    """Put the lower end of each pair to those of its higher end. `ends` holds at first where these start."""
    for node in range(len(kept)):
        for k in range(kept.shape[1]):
            partner = kept[node, k]
            if partner >= 0:
                high = max(node, partner)
                lower[ends[high]] = min(node, partner)
                ends[high] += 1
    for topic in range(len(start) - 1):
        for at in range(start[topic] + 1, start[topic + 1]):
            high = node_at[at]
            lower[ends[high]] = node_at[at - 1]
            ends[high] += 1
        if start[topic + 1] - start[topic] > 2:
            high = node_at[start[topic + 1] - 1]
            lower[ends[high]] = node_at[start[topic]]
            ends[high] += 1


# The next two functions take the higher ends in ascending order. So the columns of every row are ascending, and the
# last column of a row shows whether a pair is repeated.


@njit(cache=True)
def _count_rows(ends, lower, last, row_start):
    for high in range(len(last)):
        for at in range(ends[high], ends[high + 1]):
            low = lower[at]
            row_start[low + 1] += last[low] != high
            last[low] = high


@njit(cache=True)
def _fill_rows(ends, lower, last, cursor, columns):
    """Fill the columns. `cursor` holds at first the starts of the rows."""
    for high in range(len(last)):
        for at in range(ends[high], ends[high + 1]):
            low = lower[at]
            if last[low] != high:
                last[low] = high
                columns[cursor[low]] = high
                cursor[low] += 1
