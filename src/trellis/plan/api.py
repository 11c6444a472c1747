"""Define `trellis.plan` and `trellis.maintain`, which Python programs call.

The commands of these names print results.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from trellis.errors import InputError
from trellis.model import ChurnTrace, Interests, Overlay
from trellis.model.costs import LinkCaps, LinkCosts
from trellis.plan.candidates import Sampling
from trellis.plan.construction import GREEDY_RULES, Construction, construct, memory_needed
from trellis.plan.edges import Progress
from trellis.plan.maintain import Maintenance
from trellis.plan.maintain_config import MaintainConfig
from trellis.plan.tables import Shape

CANDIDATES = ("auto", "all", "sampled")


def plan(
    interests: Interests,
    algorithm: str = "lowoda",
    *,
    rho: float = 3.0,
    existing: Overlay | None = None,
    candidates: str = "auto",
    sample: int = Sampling.sample,
    keep: int = Sampling.keep,
    connectivity: int = 1,
    costs: LinkCosts | None = None,
    caps: LinkCaps | None = None,
    hops_max: int | None = None,
    seed: int | str = 0,
    memory_bytes_max: int | None = None,
    progress: Progress | None = None,
    on_compile: Callable[[], None] | None = None,
) -> Construction:
    """Return a topic-connected overlay with few links per node, as `.overlay` of the result.

    algorithm         gm takes the fewest links, minmax the lowest maximum degree (give or take one), lowoda comes close
                      to both; ring, random and star are baselines
    rho               lowoda: 1 is nearly gm, inf is nearly minmax
    existing          links to keep and to add to
    candidates        gm, minmax, lowoda: the pairs of nodes to choose links from. all: every pair that shares a topic.
                      sampled: a few for each node, in nearly linear time. auto: all, unless there are more than 20,000
                      nodes and it would take long, or more memory than is allowed
    sample, keep      for sampled candidates: the least number of subscribers of each topic that a node looks at, and
                      how many of all these it keeps
    connectivity      2: add links so that the loss of any one node splits no topic
    costs             gm, lowoda: prefer links that join most for their cost (`trellis.model.costs.read_costs`)
    caps              gm, lowoda: the most links of each node (`trellis.model.costs.read_caps`). If a cap cannot be
                      kept, `.excess` of the result says at which node and why
    hops_max          add links so that no topic has a larger diameter; `.short` tells what that has cost, and for which
                      topics caps prevent it
    seed              breaks ties: the same seed gives the same overlay
    memory_bytes_max  refuse a plan that needs more; by default 60 % of the machine's memory
    progress          called now and then with the number of joined components of topics, and of all
    on_compile        called once if a kernel must be compiled, which takes some seconds
    """
    if candidates not in CANDIDATES:
        raise InputError("--candidates", f'"{candidates}" is unknown', f"choose one of {', '.join(CANDIDATES)}")
    allowed = memory_allowed(memory_bytes_max)
    is_limited = costs is not None or caps is not None
    sampling = _sampling(interests, algorithm, candidates, Sampling(sample, keep), allowed, is_limited)
    needed = memory_needed(interests, sampling, connectivity, is_limited, hops_max)
    if needed > allowed:
        raise InputError(
            "--memory",
            f"the plan needs {needed / 2**20:,.1f} MiB and {allowed / 2**20:,.1f} MiB are allowed",
            "allow more, let candidates be sampled, or plan in parts: trellis pipeline plan --partitions",
        )
    return construct(
        interests,
        algorithm,
        rho=rho,
        existing=existing,
        sampling=sampling,
        connectivity=connectivity,
        costs=costs,
        caps=caps,
        hops_max=hops_max,
        seed=seed,
        progress=progress,
        on_compile=on_compile,
    )


def _sampling(
    interests: Interests, algorithm: str, candidates: str, sampling: Sampling, allowed: int, is_limited: bool
) -> Sampling | None:
    """Return the sampling if candidates are to be drawn, or None if all pairs are compared."""
    if candidates != "auto":
        return sampling if candidates == "sampled" else None
    if algorithm not in GREEDY_RULES:
        return None
    shape = Shape.of(interests.node_offsets, interests.node_topics, len(interests.topics))
    if shape.prefers_sampling(is_limited) or memory_needed(interests, is_limited=is_limited) > allowed:
        return sampling
    return None


def maintain(
    interests: Interests,
    churn: ChurnTrace,
    overlay: Overlay | None = None,
    *,
    algorithm: str = "shadows",
    coverage_factor: int = 3,
    rho: float = 3.0,
    backups: str = "primal-dual",
    components: str = "overlay",
    check_every: int = 0,
    seed: int | str = 0,
    progress: Callable[[int, int], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> Maintenance:
    """Keep an overlay topic-connected while the events of `churn` happen. `.history` of the result has a row for each.

    The result also has `.overlay()` and `.interests()` at the end of the run, and `.split_topics()`.

    overlay          the overlay to start from; by default that of lowoda
    algorithm        shadows: new links near the lost node only; naive: anywhere; rebuild: a new plan after every event
    coverage_factor  backups for each topic of a node (lambda): more give better links, from larger shadow sets
    rho              lowoda's parameter
    backups          how backups are chosen; `trellis maintain --help` lists the choices
    components       which nodes count as already connected; `trellis maintain --help` lists the choices
    check_every      number of rounds between two checks of every topic; 0: never
    progress         called after every round with the number of rounds so far, and of all
    should_stop      called after every round: True ends the run there, and `.history.complete` is False
    """
    config = MaintainConfig(
        algorithm=algorithm,
        rho=rho,
        coverage_factor=coverage_factor,
        backups=backups,
        components=components,
        check_every=check_every,
        seed=seed,
    )
    run = Maintenance(interests, churn, overlay, config)
    for done, _ in enumerate(run.rounds(), start=1):
        if progress is not None:
            progress(done, run.history.rounds_expected)
        if should_stop is not None and should_stop():
            break
    return run


def memory_allowed(asked: int | None) -> int:
    """Return how many bytes a plan may need: those asked for, or 60 % of the machine's memory."""
    return _machine_bytes() * 6 // 10 if asked is None else asked


def _machine_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
