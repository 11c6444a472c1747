"""Find links that bring all subscribers of one topic near its center: the kernel of `trellis.plan.hops`.

The links of a node are a list: `head[node]`, then `following[end]`, with the other node in `to[end]`. A link has two
ends, 2k and 2k + 1. Lists grow at their heads, so the links of a topic that cannot be shortened are removed in reverse.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from trellis.jit import njit

FAR = 2**30
MET, UNMET = 0, 1


@njit(cache=True)
def link_list(u, v, head, following, to):
    """Put all links (u, v) into the lists."""
    for k in range(len(u)):
        put(2 * k, u[k], v[k], head, following, to)


@njit(cache=True)
def put(end, first, second, head, following, to):
    """Put a link with the ends `end` and `end + 1` at the heads of both lists."""
    to[end], to[end + 1] = second, first
    following[end], head[first] = head[first], end
    following[end + 1], head[second] = head[second], end + 1


@njit(cache=True)
def shorten_topic(nodes, hops_max, lists, limits, count, mark, stamp, depth, queue, index_of):
    """Add links until the topic's diameter is at most `hops_max`. Return whether it is, and the new number of links.

    nodes   the subscribers, ascending
    lists   head, following, to; with space for the links of this topic
    limits  room of each node (how many links it may still have), and the arguments of `cost_between`
    mark    of each node: `stamp` marks subscribers
    depth, queue, index_of  scratch, one entry per node
    """
    for k in range(len(nodes)):
        mark[nodes[k]], depth[nodes[k]], index_of[nodes[k]] = stamp, FAR, k
    before = count
    if is_short(nodes, hops_max, lists, mark, stamp, depth, queue):
        return MET, count
    if hops_max == 1:
        verdict, count = link_all(nodes, lists, limits, count)
    else:
        verdict, count = link_to_centre(nodes, hops_max, lists, limits, count, mark, stamp, depth, queue, index_of)
    if verdict == UNMET:
        while count > before:
            count -= 1
            take_back(count, lists, limits)
    return verdict, count


@njit(cache=True)
def is_short(nodes, hops_max, lists, mark, stamp, depth, queue):
    """Return whether the topic's diameter is at most `hops_max`."""
    for node in nodes:  # noqa: SIM110  a kernel
        if count_near(node, hops_max, lists, mark, stamp, depth, queue) < len(nodes):
            return False
    return True


@njit(cache=True)
def count_near(start, hops_max, lists, mark, stamp, depth, queue):
    """Return how many nodes of the topic are within `hops_max` hops. `queue` lists them."""
    end = reach(start, hops_max, lists, mark, stamp, depth, queue)
    forget(end, depth, queue)
    return end


@njit(cache=True)
def forget(end, depth, queue):
    """Make the scratch arrays ready for the next search."""
    for at in range(end):
        depth[queue[at]] = FAR


@njit(cache=True)
def reach(start, hops_max, lists, mark, stamp, depth, queue):
    """Search the topic from `start` up to `hops_max` hops.

    Return how many nodes are in the queue; `depth` has their hops.

    All depths must be FAR before a search: call `forget` after it.
    """
    head, following, to = lists
    depth[start], queue[0] = 0, start
    taken, end = 0, 1
    while taken < end:
        node = queue[taken]
        taken += 1
        if depth[node] == hops_max:
            break
        at = head[node]
        while at >= 0:
            neighbor = to[at]
            if mark[neighbor] == stamp and depth[neighbor] == FAR:
                depth[neighbor] = depth[node] + 1
                queue[end] = neighbor
                end += 1
            at = following[at]
    return end


@njit(cache=True)
def link_all(nodes, lists, limits, count):
    """Link every two subscribers, for a bound of one hop."""
    for a in range(len(nodes)):
        for b in range(a + 1, len(nodes)):
            if not is_linked(nodes[a], nodes[b], lists):
                if limits[0][nodes[a]] == 0 or limits[0][nodes[b]] == 0:
                    return UNMET, count
                count = add(nodes[a], nodes[b], lists, limits, count)
    return MET, count


@njit(cache=True)
def link_to_centre(nodes, hops_max, lists, limits, count, mark, stamp, depth, queue, index_of):
    """Link all subscribers near one center, or near one of two linked centers if `hops_max` is odd."""
    head, following, to = lists
    room, radius = limits[0], hops_max // 2
    near = np.zeros(len(nodes), np.bool_)
    first, second = -1, -1
    best, best_near = -1, -1
    for node in nodes:
        size = count_near(node, radius, lists, mark, stamp, depth, queue)
        served = size + min(room[node], len(nodes) - size)  # Nodes to which it could still be linked count as well.
        if served > best or (served == best and size > best_near):
            first, best, best_near = node, served, size
    if hops_max % 2 == 1:
        for at in range(count_near(first, radius, lists, mark, stamp, depth, queue)):
            near[index_of[queue[at]]] = True
        best, best_near = -1, -1
        for node in nodes:
            joined = is_linked(first, node, lists)
            if node == first or not (joined or (room[first] > 0 and room[node] > 0)):
                continue
            size = 0
            for at in range(count_near(node, radius, lists, mark, stamp, depth, queue)):
                size += not near[index_of[queue[at]]]
            served = min(size + room[node], len(nodes))
            if served > best or (served == best and size + joined > best_near):
                second, best, best_near = node, served, size + joined
        if second < 0:
            return UNMET, count
        if not is_linked(first, second, lists):
            count = add(first, second, lists, limits, count)
    hops = np.full(len(nodes), FAR, np.int64)  # for each subscriber, by its index: hops to the nearest center
    for centre in (first, second):
        if centre >= 0:
            end = reach(centre, radius, lists, mark, stamp, depth, queue)
            for at in range(end):
                hops[index_of[queue[at]]] = min(hops[index_of[queue[at]]], depth[queue[at]])
            forget(end, depth, queue)
    tried = np.zeros(len(nodes), np.bool_)
    gains = np.zeros(radius, np.int64)  # [s]: far nodes within s hops of the chosen one
    while True:
        chosen, most, is_far = -1, 0, False
        for k in range(len(nodes)):
            if hops[k] <= radius:
                continue
            is_far = True
            if tried[k] or room[nodes[k]] == 0:
                continue
            size = 1
            if radius > 1:
                size = 0
                for at in range(count_near(nodes[k], radius - 1, lists, mark, stamp, depth, queue)):
                    size += hops[index_of[queue[at]]] > radius
            if size > most:
                chosen, most = k, size
        if not is_far:
            return MET, count
        if chosen < 0:
            return UNMET, count
        node = nodes[chosen]
        end = reach(node, radius - 1, lists, mark, stamp, depth, queue)
        gains[:] = 0
        for at in range(end):
            if hops[index_of[queue[at]]] > radius:
                for s in range(depth[queue[at]], radius):
                    gains[s] += 1
        forget(end, depth, queue)
        partner = best_partner(nodes, chosen, hops, radius, gains, lists, limits)
        if partner < 0:
            tried[chosen] = True
            continue
        count = add(node, nodes[partner], lists, limits, count)
        # Update the hops: from the chosen node on, of nodes that are nearer now.
        hops[chosen] = min(hops[chosen], hops[partner] + 1)
        queue[0], taken, end = node, 0, 1
        while taken < end:
            node = queue[taken]
            taken += 1
            at = head[node]
            while at >= 0:
                neighbor = to[at]
                if mark[neighbor] == stamp and hops[index_of[neighbor]] > hops[index_of[node]] + 1 <= radius:
                    hops[index_of[neighbor]] = hops[index_of[node]] + 1
                    queue[end] = neighbor
                    end += 1
                at = following[at]


@njit(cache=True)
def best_partner(nodes, chosen, hops, radius, gains, lists, limits):
    """Return the index of the best partner nearer to the center, or -1 if there is none.

    It brings most nodes near for its cost. Among several, it shares most topics with the chosen node, then has fewest
    links.
    """
    room, offsets, topics, degrees = limits[0], limits[1], limits[2], limits[3]
    partner, best, best_shared = -1, 0.0, 0
    for k in range(len(nodes)):
        if hops[k] >= radius or room[nodes[k]] == 0:
            continue
        cost = cost_between(nodes[chosen], nodes[k], limits)
        if not cost <= np.inf:
            continue
        value = gains[radius - 1 - hops[k]] / max(cost, 2.0**-990)
        if partner >= 0 and value < best:
            continue
        shared = shared_topics(offsets, topics, nodes[chosen], nodes[k])
        fewer = partner >= 0 and degrees[nodes[k]] < degrees[nodes[partner]]
        if partner < 0 or value > best or shared > best_shared or (shared == best_shared and fewer):
            partner, best, best_shared = k, value, shared
    return partner


@njit(cache=True)
def shared_topics(offsets, topics, u, v):
    """Return how many topics two nodes share."""
    count, a, b = 0, offsets[u], offsets[v]
    while a < offsets[u + 1] and b < offsets[v + 1]:
        if topics[a] < topics[b]:
            a += 1
        elif topics[a] > topics[b]:
            b += 1
        else:
            count += 1
            a += 1
            b += 1
    return count


@njit(cache=True)
def cost_between(u, v, limits):
    """Return the cost of a link, or not-a-number if it has none."""
    place, keys, values, default = limits[4], limits[5], limits[6], limits[7]
    if len(keys) == 0:
        return default[0]
    wanted = min(place[u], place[v]) * place[-1] + max(place[u], place[v])
    at = np.searchsorted(keys, wanted)
    return values[at] if at < len(keys) and keys[at] == wanted else default[0]


@njit(cache=True)
def is_linked(u, v, lists):
    head, following, to = lists
    at = head[u]
    while at >= 0:
        if to[at] == v:
            return True
        at = following[at]
    return False


@njit(cache=True)
def add(u, v, lists, limits, count):
    """Add a link, and update room and degrees of its ends. Return the new number of links."""
    head, following, to = lists
    put(2 * count, u, v, head, following, to)
    change_ends(u, v, limits, 1)
    return count + 1


@njit(cache=True)
def take_back(link, lists, limits):
    """Undo the last `add`."""
    head, following, to = lists
    u, v = to[2 * link + 1], to[2 * link]
    head[v] = following[2 * link + 1]
    head[u] = following[2 * link]
    change_ends(u, v, limits, -1)


@njit(cache=True)
def change_ends(u, v, limits, more):
    """Change the degrees of both ends by `more`, and their room if they have a cap."""
    room, degrees = limits[0], limits[3]
    for end in (u, v):
        degrees[end] += more
        if room[end] < 2**31 - 1:
            room[end] -= more
