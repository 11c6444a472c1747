"""Find what falls apart when nodes are lost: the TC-components that their links held together.  [SH Alg. 7]

Let the overlay be a TCO, and let the nodes of `gone` leave (or drop a topic). Every remaining component of a topic t
contains a neighbor of a lost node, because otherwise it was separate before. So it is enough to search G(t) from those
neighbors, from all of them in turn, until at most one search is still running. The finished searches have found all of
their components, and nodes that none has met belong to the search that still runs. A small piece costs only its own
size, and the large rest is not visited completely.

The result is a *signature* of each candidate node, as bits over the topics that split: which of them it has, and the
label of the component in which it is, in binary over several planes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.jit import njit

_ONE = np.uint64(1)
_WORD = 64


@njit(cache=True)
def required(
    topic_data: Any,
    topic_start: Any,
    topic_length: Any,
    link_data: Any,
    link_start: Any,
    link_length: Any,
    topics_count: Any,
    gone: Any,
    only_topic: Any,
) -> Any:
    """Return, for each topic of a lost node, the neighbors that must stay connected.

    Call this before the nodes are lost.

    gone        ranks of the nodes that leave
    only_topic  -1: they leave altogether; otherwise the one topic that they drop
    returns     topics, offsets, nodes: those of topics[i] are nodes[offsets[i]:offsets[i + 1]]; a node may repeat
    """
    is_gone = np.zeros(len(topic_start), np.bool_)
    slot = np.full(topics_count, -1, np.int64)
    for g in range(len(gone)):
        is_gone[gone[g]] = only_topic < 0  # A node that only drops a topic stays, but no longer connects the topic.
        for at in range(topic_start[gone[g]], topic_start[gone[g]] + topic_length[gone[g]]):
            if only_topic < 0 or topic_data[at] == only_topic:
                slot[topic_data[at]] = 0
    topics, count = np.empty(topics_count, np.int32), 0
    for topic in range(topics_count):
        if slot[topic] == 0:
            topics[count], slot[topic] = topic, count
            count += 1
    offsets, cursor = np.zeros(count + 1, np.int64), np.empty(count, np.int64)
    nodes = np.empty(0, np.int32)
    has = np.full(topics_count, -1, np.int64)  # the last node seen with the topic
    for write in range(2):  # count, then write
        if write:
            for i in range(count):
                cursor[i] = offsets[i]
                offsets[i + 1] += offsets[i]
            nodes = np.empty(offsets[count], np.int32)
        for g in range(len(gone)):
            x = gone[g]
            for at in range(topic_start[x], topic_start[x] + topic_length[x]):
                has[topic_data[at]] = x
            for link in range(link_start[x], link_start[x] + link_length[x]):
                w = link_data[link]
                if is_gone[w]:
                    continue
                for at in range(topic_start[w], topic_start[w] + topic_length[w]):
                    i = slot[topic_data[at]]
                    if i >= 0 and has[topic_data[at]] == x:
                        if write:
                            nodes[cursor[i]] = w
                            cursor[i] += 1
                        else:
                            offsets[i + 1] += 1
    return topics[:count], offsets, nodes


@njit(cache=True)
def signatures(
    link_data: Any,
    link_start: Any,
    link_length: Any,
    member_data: Any,
    member_start: Any,
    member_length: Any,
    topics: Any,
    offsets: Any,
    sources: Any,
    candidates: Any,
    inside: Any,
    only_found: Any,
) -> Any:
    """Return for each candidate the topics that split, and its component in each. Call this after the nodes are lost.

    topics, offsets, sources  as `required` returns them
    candidates                ranks, ascending
    inside                    only links between candidates count  [A-SHD-11, `shadow` and `neighbors`]
    only_found                candidates that no source reaches have no component  [A-SHD-11, `neighbors`]
    returns                   has[row, word], label[plane, row, word], parts[bit]: the components of each split topic
    """
    count, most = 0, 0
    for i in range(len(topics)):
        count += offsets[i + 1] - offsets[i] > 1
        most = max(most, offsets[i + 1] - offsets[i])
    planes = 1
    while most > 1 << planes:
        planes += 1
    words = (count + _WORD - 1) // _WORD
    has = np.zeros((len(candidates), words), np.uint64)
    label = np.zeros((planes, len(candidates), words), np.uint64)
    parts = np.zeros(count, np.int64)
    row_of = np.full(len(link_start), -1, np.int32)
    for row in range(len(candidates)):
        row_of[candidates[row]] = row
    state = np.zeros(len(link_start), np.int64)
    following = np.empty(len(link_start), np.int32)
    base, bit = 1, 0
    for i in range(len(topics)):
        own_sources = sources[offsets[i] : offsets[i + 1]]
        if len(own_sources) < 2:
            continue
        first, last = member_start[topics[i]], member_start[topics[i]] + member_length[topics[i]]
        for at in range(first, last):
            if not inside or row_of[member_data[at]] >= 0:
                state[member_data[at]] = base
        parent, rest = _search(link_data, link_start, link_length, state, following, base, own_sources, only_found)
        number = np.full(len(own_sources), -1, np.int64)
        pieces = 0
        for source in range(len(own_sources)):
            root = _root(parent, source)
            if number[root] < 0:
                number[root] = pieces
                pieces += 1
        if pieces > 1:
            parts[bit] = pieces
            mask = _ONE << np.uint64(bit % _WORD)
            for at in range(first, last):
                row = row_of[member_data[at]]
                met = state[member_data[at]] - base - 1
                if row < 0 or (met < 0 and only_found):
                    continue
                assert met >= 0 or rest >= 0  # Otherwise the overlay was no TCO.
                name = number[_root(parent, met)] if met >= 0 else number[rest]
                has[row, bit // _WORD] |= mask
                for plane in range(planes):
                    if name >> plane & 1:
                        label[plane, row, bit // _WORD] |= mask
            bit += 1
        base += len(own_sources) + 1
    return has, label, parts[:bit]


@njit(cache=True)
def newcomer_signatures(
    topic_data: Any,
    topic_start: Any,
    topic_length: Any,
    topics_count: Any,
    node: Any,
    topics: Any,
    candidates: Any,
) -> Any:
    """Do as `signatures`, for a node that is alone on `topics`.

    Each topic has two components: the node, and the others.
    """
    words = (len(topics) + _WORD - 1) // _WORD
    has = np.zeros((len(candidates), words), np.uint64)
    label = np.zeros((1, len(candidates), words), np.uint64)
    bit_of = np.full(topics_count, -1, np.int64)
    for i in range(len(topics)):
        bit_of[topics[i]] = i
    for row in range(len(candidates)):
        u = candidates[row]
        for at in range(topic_start[u], topic_start[u] + topic_length[u]):
            bit = bit_of[topic_data[at]]
            if bit >= 0:
                mask = _ONE << np.uint64(bit % _WORD)
                has[row, bit // _WORD] |= mask
                if u == node:
                    label[0, row, bit // _WORD] |= mask
    return has, label, np.full(len(topics), 2, np.int64)


@njit(cache=True)
def _search(
    link_data: Any,
    link_start: Any,
    link_length: Any,
    state: Any,
    following: Any,
    base: Any,
    sources: Any,
    to_the_end: Any,
) -> Any:
    """Search from all sources in turn, one node per turn. Searches that meet continue as one.

    state      `base`: a member that was not met yet; base + 1 + i: met by source i; smaller: no member
    following  the queues, as lists linked through the nodes
    returns    parent, rest: a forest over the sources, one tree per component; the root that was still running, or -1
    """
    count = len(sources)
    parent = np.arange(count)
    head, tail = np.full(count, -1, np.int64), np.full(count, -1, np.int64)
    running = 0
    for i in range(count):
        if state[sources[i]] == base:
            state[sources[i]] = base + 1 + i
            head[i] = tail[i] = sources[i]
            following[sources[i]] = -1
            running += 1
        else:  # It is listed twice.
            parent[i] = state[sources[i]] - base - 1
    while running > 1 or (to_the_end and running > 0):
        for i in range(count):
            if head[i] < 0 or parent[i] != i:
                continue
            u = head[i]
            head[i] = following[u]
            for at in range(link_start[u], link_start[u] + link_length[u]):
                w = link_data[at]
                if state[w] == base:
                    state[w] = base + 1 + i
                    following[w] = -1
                    if head[i] < 0:
                        head[i] = w
                    else:
                        following[tail[i]] = w
                    tail[i] = w
                elif state[w] > base:
                    other_search = _root(parent, state[w] - base - 1)
                    if other_search != i:  # The other search is running too: a finished one has met all its neighbors.
                        parent[other_search] = i
                        if head[i] < 0:
                            head[i] = head[other_search]
                        else:
                            following[tail[i]] = head[other_search]
                        tail[i] = tail[other_search]
                        running -= 1
            if head[i] < 0:
                running -= 1
    rest = -1
    for i in range(count):
        if parent[i] == i and head[i] >= 0:
            rest = i
    return parent, rest


@njit(cache=True)
def _root(parent: Any, i: Any) -> Any:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i
