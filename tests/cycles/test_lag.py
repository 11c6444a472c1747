"""Relay paths that lag behind the tables, in cycles: against a slow twin."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trellis.cycles.churn import known_links
from trellis.cycles.instance import make_instance
from trellis.cycles.spread import RVR, VITIS, Instants, Lag, find_paths, make_scratch, no_lag
from trellis.cycles.tables import Links
from trellis.protocols.lookup import Compass
from trellis.protocols.ring import identifier

NAMES = [f"v{number:02}" for number in range(12)]
Pairs = set[tuple[int, int]]


def csr(pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    rows = [sorted(b for a, b in pairs if a == node) for node in range(len(NAMES))]
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return offsets, np.array([peer for row in rows for peer in row], np.uint32)


def hop_of(pairs: Pairs, node: int, topic: str) -> int | None:
    """The next hop of the protocol."""
    found = Compass(NAMES[node], [NAMES[b] for a, b in pairs if a == node]).next_hop(identifier(topic))
    return None if found is None else NAMES.index(found)


def slow_paths(now, before, late, looks_up, looked_up, alive, wanting, topic, stops) -> Pairs:
    """Each link of a path as (from, to). `late`: those that use the links of the instant before."""
    links: Pairs = set()
    for node in sorted(wanting):
        if not alive[node] or node not in (looked_up if node in late else looks_up):
            continue
        seen = set()
        while node not in seen:
            seen.add(node)
            hop = hop_of(before if node in late else now, node, topic)
            if hop is None or not alive[hop]:
                break
            links.add((node, hop))
            if node in late and hop not in late and (hop, node) not in now:
                break
            links.add((hop, node))
            if stops and hop in wanting and alive[hop]:
                break
            node = hop
    return links


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
@pytest.mark.parametrize("kind", [VITIS, RVR])
def test_paths_of_nodes_that_lag_are_those_of_the_twin(kind, seed, lags):
    random, count = Random(seed), len(NAMES)
    wanted = {name: ("t",) if random.random() < 0.6 else ("u",) for name in NAMES}
    wanted[NAMES[0]] = ("t", "u")
    wants = make_instance(wanted).wants
    now, before = (
        {pair for a in range(count) for b in range(a) if random.random() < 0.25 for pair in ((a, b), (b, a))}
        for _ in range(2)
    )
    alive = np.array([random.random() < 0.8 for _ in NAMES])
    beats = np.array([random.getrandbits(32) for _ in NAMES], np.uint32)
    moment = random.getrandbits(32)
    slots = {n: int(wants.offsets[n]) for n in range(count) if "t" in wanted[NAMES[n]]}  # "t" comes before "u".
    looks_up, looked_up = ({n for n in slots if random.random() < 0.5} for _ in range(2))
    flags = np.zeros((2, len(wants.topics)), np.bool_)
    for node, slot in slots.items():
        flags[:, slot] = node in looks_up, node in looked_up
    scratch = make_scratch(count)
    scratch.stamps[1] = 7
    for node in slots:
        if alive[node]:
            scratch.wave.wants[node] = 7
    lag = Lag(beats, *csr(before), flags[1]) if lags else no_lag()
    offsets, peers = csr(now)
    find_paths(0, wants, alive, Instants(offsets[None], peers, flags[:1]), lag, moment, kind, scratch)
    paths, found = scratch.paths, set()
    for node in paths.nodes[: paths.ends[1]].tolist():
        link = paths.first[node]
        while link >= 0:
            found.add((node, int(paths.to[link])))
            link = paths.following[link]
    late = {n for n in range(count) if lags and beats[n] / 2**32 > (1 + moment / 2**32) / 2}
    assert found == slow_paths(now, before, late, looks_up, looked_up, alive, set(slots), "t", kind == VITIS)


@given(st.integers(0, 2**32))
def test_proposals_are_heard_over_links_that_stood_before(seed):
    random, count = Random(seed), len(NAMES)
    now, before = ({(random.randrange(count), random.randrange(count)) for _ in range(30)} for _ in range(2))
    found = known_links(Links(*csr(now)), Links(*csr(before)), np.zeros(count, np.int32))
    expected = csr(now & before)
    assert [part.tolist() for part in found] == [part.tolist() for part in expected]
