"""Build a topic-connected overlay from interests.  [SH Alg. 1-2; OMen §4.1, Table 1]"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trellis.errors import InputError
from trellis.jit import compiling
from trellis.model.costs import LinkCaps, LinkCosts
from trellis.model.interests import Interests, OffsetArray
from trellis.model.names import IdArray
from trellis.model.overlay import Overlay
from trellis.plan import baselines
from trellis.plan.candidates import Candidates, Sampling, listed, sampled
from trellis.plan.components import tc_components
from trellis.plan.edges import Edges, Progress, low_edges
from trellis.plan.excess import Excess, find_excess
from trellis.plan.fill import count_listed
from trellis.plan.hops import Short, expect_hops, shorten
from trellis.plan.priced import (
    PAIR_BYTES,
    Limits,
    PricedEdges,
    ends_of,
    listed_pairs,
    priced_block_edges,
    priced_edges,
)
from trellis.plan.state import LISTS
from trellis.plan.tables import Shape, make_components
from trellis.plan.ties import in_rank_order, ranks_of
from trellis.plan.twice import block_edges

GREEDY_RULES = ("gm", "minmax", "lowoda")
ALGORITHMS = (*GREEDY_RULES, "ring", "random", "star")
ALIASES = {"ringpt": "ring"}  # names used in the papers
LIMITED_RULES = ("gm", "lowoda")  # rules that accept costs and caps
# (algorithm, form, whether all pairs, whether with costs or caps) whose kernels this process has compiled or loaded
_warm: set[tuple[str, int, bool, bool]] = set()


@dataclass(frozen=True, eq=False)
class Construction:
    """An overlay and how it was built. Ids are those of the interests."""

    overlay: Overlay  # existing links and new ones
    new_u: IdArray  # the new links in the order in which they were chosen; new_u has the smaller key
    new_v: IdArray
    contributions: IdArray  # contribution of each new link when it was chosen; 0 for links that only shorten topics
    split_topics: IdArray  # topics that the candidates cannot join [A-LOW-4]; normally none
    algorithm: str
    rho: float
    seed: int | str
    connectivity: int  # 2: the loss of any one node splits no topic
    candidates: int | None  # number of pairs among which edges were chosen; None: all pairs that share a topic
    seconds: float  # time of the algorithm, without keys of names, compiling, and making the overlay
    cost: float | None = None  # cost of all links; None: no costs were given
    excess: tuple[Excess, ...] = ()  # nodes with more links than their cap allows, and why
    short: Short | None = None  # what the bound of hops has cost; None: no bound was given


def construct(
    interests: Interests,
    algorithm: str = "lowoda",
    *,
    rho: float = 3.0,
    existing: Overlay | None = None,
    candidates: Overlay | None = None,
    sampling: Sampling | None = None,
    connectivity: int = 1,
    costs: LinkCosts | None = None,
    caps: LinkCaps | None = None,
    hops_max: int | None = None,
    seed: int | str = 0,
    progress: Progress | None = None,
    on_compile: Callable[[], None] | None = None,
) -> Construction:
    """Add links to `existing` (default: none) until every topic is connected.

    gm       always an edge of greatest contribution; among several one that does not raise
             the maximum degree: LowODA with rho = 1                                [OMen Table 1]
    minmax   always e2, the edge of greatest contribution among those that
             raise the maximum degree least; among several the lightest
             (`trellis.plan.ties`); except for ties, LowODA with rho = infinity     [OMen Table 1]
    lowoda   e1 if contrib(e1) > rho * contrib(e2), otherwise e2                    [SH Alg. 1-2]
    ring, random, star   see `trellis.plan.baselines`; ringpt, SpiderCast's name, is ring

    Any overlay may exist at the start: its links count in degrees and are no candidates [A-LOW-5].
    candidates  E_pot: gm, minmax and lowoda choose only among these links, instead of all pairs
    sampling    choose among drawn candidates (`trellis.plan.candidates`), which can connect every topic
    connectivity  2: add links until the loss of any one node splits no topic (`trellis.plan.twice`)
    costs, caps  gm and lowoda: prefer links that join most for their cost, at nodes that may have more
                 (`trellis.plan.priced`)
    hops_max    add links until no topic diameter is larger, as far as caps allow it (`trellis.plan.hops`)
    seed        seed of the keys that break ties (`trellis.plan.ties`) and, for random, of the draws
    progress    called from time to time with the number of joined TC-components, and of all
    on_compile  called once if a kernel must be compiled, which takes some seconds
    """
    algorithm = ALIASES.get(algorithm, algorithm)
    _check(interests, algorithm, rho, existing, candidates, sampling, connectivity)
    is_limited = costs is not None or caps is not None
    _check_limits(interests, algorithm, costs, caps)
    if hops_max is not None:
        expect_hops(hops_max)
    start_links = Overlay.from_ids(interests.nodes, [], []) if existing is None else existing
    order = in_rank_order(interests.nodes, seed)
    rank = ranks_of(order)
    offsets, topics = _by_rank(interests, order)
    topic_count = len(interests.topics)
    exact = candidates is None and sampling is None
    form = Shape.of(offsets, topics, topic_count).best_form() if exact and not is_limited else LISTS
    _warm_up(algorithm, form, exact, is_limited, on_compile)
    limits = Limits(costs, caps, order)
    beyond: dict[int, list[int]] = {}  # node -> topics for which it needed links beyond its cap

    started = time.perf_counter()
    among: Candidates | None = None
    if candidates is not None:
        among = listed(rank[candidates.u], rank[candidates.v], len(order))
    elif sampling is not None:
        among = sampled(offsets, topics, topic_count, sampling, seed)
    component, _ = tc_components(offsets, topics, rank[start_links.u], rank[start_links.v])
    if is_limited:
        if costs is not None:
            costs.of(start_links.u, start_links.v)  # Refuse a missing cost now, not after the work.
        if among is None:
            among = listed_pairs(offsets, topics, topic_count, component)
        degrees = start_links.degrees[order]
        priced = priced_edges(
            offsets,
            topics,
            topic_count,
            component,
            degrees,
            among,
            limits,
            rho=rho_of(algorithm, rho),
            progress=progress,
        )
        new = priced.edges
        _note_beyond(beyond, priced, order)
        among = None if exact else among
    elif algorithm in GREEDY_RULES:
        new = low_edges(
            offsets,
            topics,
            topic_count,
            component,
            start_links.degrees[order],
            int(start_links.degrees.max(initial=0)),
            rho=rho_of(algorithm, rho),
            light=algorithm == "minmax",
            candidates=among,
            form=form,
            progress=progress,
        )
    else:
        if algorithm == "random":
            keys = interests.nodes.keys(seed)[order], interests.topics.keys(seed)
            i, j = baselines.random(offsets, topics, topic_count, component, *keys)
        else:
            draw = baselines.ring if algorithm == "ring" else baselines.star
            i, j = _absent(*draw(offsets, topics, topic_count), *_pairs(rank[start_links.u], rank[start_links.v]))
        new = _with_contributions(offsets, topics, rank, start_links, i, j)
    seconds = time.perf_counter() - started

    if connectivity == 2:
        started = time.perf_counter()
        wanted = limits if is_limited else None
        new = _twice(
            offsets,
            topics,
            topic_count,
            rank,
            start_links,
            new,
            rho_of(algorithm, rho),
            sampling,
            wanted,
            seed,
            progress,
        )
        seconds += time.perf_counter() - started

    u, v = order[new.i], order[new.j]
    gains = new.contribution
    overlay = Overlay.from_ids(interests.nodes, np.concatenate([start_links.u, u]), np.concatenate([start_links.v, v]))
    short: Short | None = None
    if hops_max is not None:
        started = time.perf_counter()
        if costs is not None and not costs.is_complete:
            _expect_costs(limits, offsets, topics, topic_count)
        more_u, more_v, short = shorten(interests, overlay, hops_max, limits, offsets, topics, progress=progress)
        u, v = np.concatenate([u, more_u]), np.concatenate([v, more_v])
        gains = np.concatenate([gains, np.zeros(len(more_u), gains.dtype)])
        ends = np.concatenate([overlay.u, more_u]), np.concatenate([overlay.v, more_v])
        overlay = Overlay.from_ids(interests.nodes, *ends)
        seconds += time.perf_counter() - started
    return Construction(
        overlay,
        u,
        v,
        gains,
        new.split,
        algorithm,
        rho,
        seed,
        connectivity,
        None if among is None else len(among.columns),
        seconds,
        None if costs is None else costs.total(overlay.u, overlay.v),
        () if caps is None else tuple(find_excess(interests, overlay, caps, start_links, beyond)),
        short,
    )


def _twice(
    offsets: OffsetArray,
    topics: IdArray,
    topic_count: int,
    rank: IdArray,
    start_links: Overlay,
    new: Edges,
    rho: float,
    sampling: Sampling | None,
    limits: Limits | None,
    seed: int | str,
    progress: Progress | None,
) -> Edges:
    """Return the edges chosen so far, and those that make each topic one block."""
    assert not len(new.split), "only connected topics can be made two-connected"
    u, v = np.concatenate([rank[start_links.u], new.i]), np.concatenate([rank[start_links.v], new.j])
    degrees = np.bincount(u, minlength=len(rank)) + np.bincount(v, minlength=len(rank))
    among = sampled(offsets, topics, topic_count, sampling or Sampling(), seed)
    if limits is None:
        more = block_edges(offsets, topics, u, v, degrees, among, rho=rho, progress=progress)
    else:
        more = priced_block_edges(offsets, topics, u, v, degrees, among, limits, rho=rho, progress=progress).edges
    return Edges(*(np.concatenate(both) for both in zip(new, more, strict=True)))


def _note_beyond(beyond: dict[int, list[int]], priced: PricedEdges, order: IdArray) -> None:
    for edge, side in np.argwhere(priced.over).tolist():
        node = order[(priced.edges.i, priced.edges.j)[side][edge]]
        beyond.setdefault(int(node), []).append(int(priced.joined[edge]))


def rho_of(algorithm: str, rho: float) -> float:
    """Return the rho with which LowODA's rule is the given algorithm."""
    return {"gm": 1.0, "minmax": np.inf}.get(algorithm, rho)


def memory_needed(
    interests: Interests,
    sampling: Sampling | None = None,
    connectivity: int = 1,
    is_limited: bool = False,
    hops_max: int | None = None,
) -> int:
    """Return how many bytes gm, minmax and lowoda need at most, beside the interests themselves.

    is_limited  with costs or caps
    """
    shape = Shape.of(interests.node_offsets, interests.node_topics, len(interests.topics))
    second = shape.bytes_sampled(sampling or Sampling()) + 64 * shape.slots if connectivity == 2 else 0
    if hops_max == 1:  # All pairs that share a topic become links.
        second = max(second, 64 * shape.listed_max)
    if is_limited:
        listed = shape.listed_max if sampling is None else sampling.pairs_max(shape.nodes, shape.slots)
        drawn = 0 if sampling is None else sampling.bytes_of(shape.nodes, shape.slots)
        return max(second, drawn, shape.bytes_common + PAIR_BYTES * listed)
    if sampling is not None:
        return max(second, shape.bytes_sampled(sampling))
    form = shape.best_form()
    if form != LISTS:
        return max(second, shape.bytes_of(form))
    alone = np.arange(interests.subscriptions, dtype=np.int32)
    components = make_components(interests.node_offsets, interests.node_topics, len(interests.topics), alone)
    return max(second, shape.bytes_of(form, int(count_listed(*components).sum())))


def _warm_up(algorithm: str, form: int, exact: bool, is_limited: bool, on_compile: Callable[[], None] | None) -> None:
    """Compile the kernels, or load them from the cache on disk. Call `on_compile` if one must be compiled."""
    if (algorithm, form, exact, is_limited) in _warm:
        return
    with compiling(on_compile or (lambda: None)):  # two nodes with one topic
        offsets, topics, zeros = np.arange(3, dtype=np.int64), np.zeros(2, np.int32), np.zeros(2, np.int32)
        component, _ = tc_components(offsets, topics, zeros[:0], zeros[:0])
        if is_limited:
            some = listed_pairs(offsets, topics, 1, component) if exact else sampled(offsets, topics, 1, Sampling(), 0)
            priced_edges(offsets, topics, 1, component, zeros, some, Limits(None, None, zeros))
        elif algorithm in GREEDY_RULES:
            among = None if exact else sampled(offsets, topics, 1, Sampling(), 0)
            low_edges(offsets, topics, 1, component, zeros, 0, light=algorithm == "minmax", candidates=among, form=form)
        elif algorithm == "random":
            baselines.random(offsets, topics, 1, component, np.arange(2, dtype=np.uint64), np.zeros(1, np.uint64))
    _warm.add((algorithm, form, exact, is_limited))


def _check(
    interests: Interests,
    algorithm: str,
    rho: float,
    existing: Overlay | None,
    candidates: Overlay | None,
    sampling: Sampling | None,
    connectivity: int,
) -> None:
    if algorithm not in ALGORITHMS:
        raise InputError("", f'unknown algorithm "{algorithm}"', f"choose one of {', '.join([*ALGORITHMS, *ALIASES])}")
    if not rho >= 1:  # This also refuses nan.
        raise InputError("", f"rho is {rho}", "give a number of at least 1, or inf")
    if connectivity not in (1, 2):
        raise InputError("", f"connectivity is {connectivity}", "give 1 or 2")
    if candidates is not None and connectivity == 2:
        raise InputError("", "given candidates may not connect every topic twice", "leave them out")
    if candidates is not None and sampling is not None:
        raise InputError("", "candidates are given and to be drawn", "leave one of them out")
    if (candidates is not None or sampling is not None) and algorithm not in GREEDY_RULES:
        raise InputError("", f"{algorithm} takes no candidates", f"choose one of {', '.join(GREEDY_RULES)}")
    for name, overlay in (("existing overlay", existing), ("overlay of candidates", candidates)):
        if overlay is not None and overlay.nodes != interests.nodes:
            raise InputError("", f"the {name} is over other nodes", "give one over the nodes of the interests")


def _check_limits(interests: Interests, algorithm: str, costs: LinkCosts | None, caps: LinkCaps | None) -> None:
    for name, given in (("costs", costs), ("caps", caps)):
        if given is None:
            continue
        if algorithm not in LIMITED_RULES:
            raise InputError("", f"{algorithm} takes no {name}", f"choose one of {', '.join(LIMITED_RULES)}")
        if given.nodes != interests.nodes:
            raise InputError("", f"the {name} are over other nodes", "give those of the nodes of the interests")


def _expect_costs(limits: Limits, offsets: OffsetArray, topics: IdArray, topic_count: int) -> None:
    """Refuse costs that lack a pair of nodes that share a topic, because a bound of hops may link any of them."""
    if Shape.of(offsets, topics, topic_count).prefers_sampling(is_limited=True):
        what = "with a bound of hops so many nodes need a cost for every pair"
        raise InputError("--costs", what, "give a cost for those that are not listed: --cost-default")
    alone = np.arange(len(topics), dtype=np.int32)
    limits.cost_of(*ends_of(listed_pairs(offsets, topics, topic_count, alone)))


def _by_rank(interests: Interests, order: IdArray) -> tuple[OffsetArray, IdArray]:
    """Return the interests in CSR form with the nodes in that order."""
    sizes = interests.sizes[order]
    offsets = np.zeros(len(order) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    source = np.repeat(interests.node_offsets[:-1][order] - offsets[:-1], sizes) + np.arange(len(interests.node_topics))
    return offsets, interests.node_topics[source]


def _pairs(u: IdArray, v: IdArray) -> tuple[IdArray, IdArray]:
    """Return the pairs as (i, j), i < j, ascending."""
    i, j = np.minimum(u, v), np.maximum(u, v)
    order = np.lexsort((j, i))
    return i[order], j[order]


def _absent(i: IdArray, j: IdArray, there_i: IdArray, there_j: IdArray) -> tuple[IdArray, IdArray]:
    """Return the pairs (i, j) that do not exist yet."""
    new = ~np.isin(i.astype(np.int64) << 32 | j, there_i.astype(np.int64) << 32 | there_j)
    return i[new], j[new]


def _with_contributions(
    offsets: OffsetArray, topics: IdArray, rank: IdArray, start_links: Overlay, i: IdArray, j: IdArray
) -> Edges:
    u, v = np.concatenate([rank[start_links.u], i]), np.concatenate([rank[start_links.v], j])
    _, gains = tc_components(offsets, topics, u, v)
    return Edges(i, j, gains[len(start_links) :], np.zeros(0, np.int32))
