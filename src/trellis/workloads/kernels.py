"""Draw counter-based random numbers and topics, in compiled code.

Every node has a stream of random numbers of its own: splitmix64 (Steele, Lea, Flood, OOPSLA 2014). Its start is output
number `node` of splitmix64 seeded with the purpose's `base`. Two streams of 100 numbers overlap among a million nodes
with probability 5e-6. All kernels take a range of nodes [first, first + n). So a part of a workload can be made
anywhere, with the same result.

`state` is an array of one uint64: the position in the current stream. Arithmetic on it wraps around by design.
"""

# mypy: disable-error-code="no-untyped-def"
# Kernels get their types when they are first called.

from __future__ import annotations

import numpy as np

from trellis.jit import njit

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
U11, U12, U27, U30, U31 = np.uint64(11), np.uint64(12), np.uint64(27), np.uint64(30), np.uint64(31)


@njit(cache=True)
def mix(z):
    """Return splitmix64's output function: 64 bits to 64 bits, one to one."""
    z = (z ^ (z >> U30)) * MIX_1
    z = (z ^ (z >> U27)) * MIX_2
    return z ^ (z >> U31)


@njit(cache=True)
def node_stream(base, node):
    """Return the state at which the stream of `node` begins."""
    return mix(base + GAMMA * np.uint64(node + 1))


@njit(cache=True)
def next_bits(state):
    state[0] += GAMMA
    return mix(state[0])


@njit(cache=True)
def next_unit(state):
    """Return a number uniform in [0, 1), a multiple of 2^-53."""
    return np.float64(next_bits(state) >> U11) * 2.0**-53


@njit(cache=True)
def next_exponential(state):
    """Return an exponential number of mean 1, never 0 and never infinite."""
    return -np.log((np.float64(next_bits(state) >> U12) + 0.5) * 2.0**-52)


@njit(cache=True)
def next_below(state, bound):
    """Return a number uniform in 0 .. bound-1. For bounds below 2^31 the product cannot round up to the bound."""
    return np.int64(next_unit(state) * bound)


@njit(cache=True)
def units(base, first, count, per_node):
    """Return the first `per_node` uniform numbers of each node of the range, one row per node."""
    out = np.empty((count, per_node))
    state = np.empty(1, np.uint64)
    for i in range(count):
        state[0] = node_stream(base, first + i)
        for j in range(per_node):
            out[i, j] = next_unit(state)
    return out


@njit(cache=True)
def alias_table(weights, keep, other):
    """Fill `keep` and `other` so that a weighted draw takes one step: slot i, or other[i] with probability 1 - keep[i].

    This is Walker's alias method, built as Vose does: a slot below the mean weight is filled up by one above it.
    """
    count = len(weights)
    scaled = weights * (count / weights.sum())
    stack = np.empty(count, np.int64)  # slots with too little from the left, with enough from the right
    little, enough = 0, count
    for i in range(count):
        keep[i], other[i] = 1.0, i
        if scaled[i] < 1.0:
            stack[little] = i
            little += 1
        else:
            enough -= 1
            stack[enough] = i
    while little > 0 and enough < count:
        poor, rich = stack[little - 1], stack[enough]
        keep[poor], other[poor] = scaled[poor], rich
        scaled[rich] -= 1.0 - scaled[poor]
        little -= 1
        if scaled[rich] < 1.0:
            enough += 1
            stack[little] = rich
            little += 1
    # The remaining slots have weight 1 up to rounding, and keep their slot.


@njit(cache=True)
def choose_distinct(state, count, wanted, stamp, seen, out, start):
    """Write `wanted` different numbers below `count` to out[start:], each set equally likely, by Floyd's method.

    A number is already taken in this round if seen[number] == stamp.
    """
    for i in range(wanted):
        last = count - wanted + i
        number = next_below(state, last + 1)
        if seen[number] == stamp:
            number = last
        seen[number] = stamp
        out[start + i] = number


@njit(cache=True)
def kth_smallest(values, k):
    """Return the value with k smaller ones before it, and reorder `values`. (np.partition takes 5 s to compile.)"""
    low, high = 0, len(values) - 1
    while low < high:
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            break
    return values[k]


@njit(cache=True)
def draw_topics(base, first, offsets, bounds, picks, keep, other, log_weight, out):
    """Do draw(m, p) for each node of a range, with the topics in categories.  [docs/papers.md, workloads; Magnet 4.2]

    A node chooses `picks` of the categories. Then it draws repeatedly a category, uniformly among its own, and a topic
    in it by weight, and discards repeats. It stops when it has as many as the offsets leave space for. With one
    category this is plain draw(m, p).

    offsets     where in `out` the topics of each node begin; they are ascending in the end
    bounds      category c holds the topics bounds[c] .. bounds[c+1]-1; sizes differ by at most one
    keep, other, log_weight    row s: alias table and log of the weights, adding up to 1, of a category of the
                smallest size plus s
    """
    categories = len(bounds) - 1
    smallest = (bounds[-1] - bounds[0]) // categories
    state = np.empty(1, np.uint64)
    seen = np.full(bounds[-1], -1, np.int64)
    category_seen = np.full(categories, -1, np.int64)
    chosen = np.empty(picks, np.int64)
    keys = np.empty(picks * (smallest + 1))
    key_topic = np.empty(picks * (smallest + 1), np.int64)
    for i in range(len(offsets) - 1):
        state[0] = node_stream(base, first + i)
        choose_distinct(state, categories, picks, i, category_seen, chosen, 0)
        at, end, rejected = offsets[i], offsets[i + 1], 0
        # With heavy skew nearly all draws are repeats (zipf 2, 90 of 200). After as many repeats as there are topics,
        # drawing the rest in another way costs less than what was spent.
        while at < end and rejected < len(keys):
            category = chosen[next_below(state, picks)] if picks > 1 else chosen[0]
            size = bounds[category + 1] - bounds[category]
            slot = next_unit(state) * size
            rank = np.int64(slot)
            if slot - rank >= keep[size - smallest, rank]:
                rank = other[size - smallest, rank]
            topic = bounds[category] + rank
            if seen[topic] == i:
                rejected += 1
            else:
                seen[topic] = i
                out[at] = topic
                at += 1
        if at < end:
            # This has the same distribution. Let topic t have its first event at time E_t / p_t. The order of first
            # events is that of draws without repeats. Whatever happened before, the waiting times of the other topics
            # are distributed as at the start, because the exponential has no memory. So the rest are the smallest fresh
            # E_t / p_t of topics not yet drawn.
            count = 0
            for k in range(picks):
                low, high = bounds[chosen[k]], bounds[chosen[k] + 1]
                for topic in range(low, high):
                    if seen[topic] != i:
                        key_topic[count] = topic
                        weight = log_weight[high - low - smallest, topic - low]
                        keys[count] = np.log(next_exponential(state)) - weight
                        count += 1
            last = kth_smallest(keys[:count].copy(), end - at - 1)
            for k in range(count):
                if keys[k] <= last and at < end:
                    out[at] = key_topic[k]
                    at += 1
        out[offsets[i] : end].sort()


@njit(cache=True)
def draw_buckets(base, first, offsets, bounds, picks, out):
    """Draw equally many topics from each of `picks` buckets, all uniformly, for each node of a range.  [Vitis IV-A]"""
    buckets = len(bounds) - 1
    state = np.empty(1, np.uint64)
    bucket_seen = np.full(buckets, -1, np.int64)
    chosen = np.empty(picks, np.int64)
    seen = np.full((bounds[-1] - bounds[0]) // buckets + 1, -1, np.int64)
    for i in range(len(offsets) - 1):
        state[0] = node_stream(base, first + i)
        choose_distinct(state, buckets, picks, i, bucket_seen, chosen, 0)
        each = (offsets[i + 1] - offsets[i]) // picks
        for k in range(picks):
            low, high = bounds[chosen[k]], bounds[chosen[k] + 1]
            start = offsets[i] + k * each
            choose_distinct(state, high - low, each, i * picks + k, seen, out, start)
            for j in range(start, start + each):
                out[j] += low
        out[offsets[i] : offsets[i + 1]].sort()


@njit(cache=True)
def add_pair(table, pair):
    """Put `pair` into the open-addressing hash set `table` (-1: free). Return False if it is there already."""
    mask = np.uint64(len(table) - 1)
    slot = np.int64(mix(np.uint64(pair)) & mask)
    while table[slot] != -1:
        if table[slot] == pair:
            return False
        slot = (slot + 1) & (len(table) - 1)
    table[slot] = pair
    return True


@njit(cache=True)
def grow_hierarchy(base, nodes, keep, other, distance_cdf, initial, total, attempts_max, node_of, topic_of):
    """Generate HIERARCHICAL-TOPICS, one subscription after the other.  [Magnet 4.4; E-6, E-7]

    keep, other     alias table of the initial popularity by rank; ranks are assigned to the leaves at random
    distance_cdf    entry x-1: probability that the tree distance is at most x; as many entries as the tree is high
    initial, total  numbers of subscriptions after the first step (at least one per topic) and at the end

    Fill node_of and topic_of. Return three numbers of subscriptions: drawn at random, after the first step, and in all.
    The last one is less than `initial` or `total` if the attempts ran out.
    """
    topics = len(keep)
    state = np.empty(1, np.uint64)
    state[0] = base
    table_size = 16
    while table_size < 2 * len(node_of):
        table_size *= 2
    table = np.full(table_size, -1, np.int64)
    count, attempts = 0, 0

    leaf_of_rank = np.arange(topics)
    for last in range(topics - 1, 0, -1):
        swap = next_below(state, last + 1)
        leaf_of_rank[last], leaf_of_rank[swap] = leaf_of_rank[swap], leaf_of_rank[last]

    # Step a: one random peer for every topic (E-7), then random peers for topics by their weight. The home topics of
    # peers without a topic count among the first subscriptions, so that many fewer are drawn.
    idle = np.ones(nodes, np.bool_)
    homeless = nodes
    while (count < topics or count + homeless < initial) and attempts < attempts_max:
        attempts += 1
        if count < topics:
            topic = count
        else:
            slot = next_unit(state) * topics
            rank = np.int64(slot)
            topic = leaf_of_rank[rank if slot - rank < keep[rank] else other[rank]]
        node = next_below(state, nodes)
        if add_pair(table, node * topics + topic):
            node_of[count], topic_of[count] = node, topic
            count += 1
            homeless -= idle[node]
            idle[node] = False
    drawn = count
    if count < topics or count + homeless < initial:
        return drawn, count, count
    # "Giving users at least one home topic": a peer without a topic gets one, by weight as in the draws that it
    # replaces, so that popularity still follows the power law.
    for node in range(nodes):
        if idle[node]:
            slot = next_unit(state) * topics
            rank = np.int64(slot)
            topic = leaf_of_rank[rank if slot - rank < keep[rank] else other[rank]]
            add_pair(table, node * topics + topic)
            node_of[count], topic_of[count] = node, topic
            count += 1
    begun = count

    # Step b: a topic by its present popularity, then a uniform one of its subscribers, which is a uniform subscription.
    while count < total and attempts < attempts_max:
        attempts += 1
        known = next_below(state, count)
        node, topic = node_of[known], topic_of[known]
        u, height = next_unit(state), 0
        while distance_cdf[height] <= u:
            height += 1
        # The 2^(x-1) leaves at distance x = height + 1 differ from t in bit `height`, and may differ in the lower ones.
        below = next_below(state, 1 << height)
        topic = (((topic >> height) ^ 1) << height) | below
        if add_pair(table, node * topics + topic):
            node_of[count], topic_of[count] = node, topic
            count += 1
    return drawn, begun, count
