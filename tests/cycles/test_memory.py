"""The memory that is told before a run, against the bytes that the run really allocates."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

import trellis
from both_engines import interests_of
from trellis.cycles import memory
from trellis.errors import InputError
from trellis.model import Interests
from trellis.protocols.vitis import VitisConfig
from trellis.simulate import run as by_events
from trellis.simulate.systems import maker_of

SYSTEMS: dict[str, tuple[float, dict[str, Any]]] = {  # seconds after which a run has all of its arrays
    "vitis": (8, {}),
    "rvr": (8, {}),
    "opt": (8, {}),
    "spidercast": (8, {}),
    "spidercast by gossip": (8, {"gossip": True}),
    "similarity": (8, {}),
    "random": (8, {}),
    "omen": (12, {}),
    "omen-g": (12, {"knowledge": "global"}),
    "magnet": (30, {"join_gap_ms": 30}),
    "scribe": (30, {"join_gap_ms": 30}),
}
NODES = 200


@pytest.fixture(scope="module")
def interests() -> Interests:
    return interests_of(NODES, 100, 10, "random", 1)


@pytest.mark.parametrize("system", SYSTEMS)
def test_no_run_takes_more_than_it_was_told_to(system, interests):
    """What the arrays and objects of a run take at once at most, without the interpreter and its packages."""
    seconds, options = SYSTEMS[system]
    name = system.partition(" ")[0].removesuffix("-g")
    overlay = trellis.plan(interests, "lowoda", seed=1).overlay if name == "omen" else None

    def simulate(duration_s: float) -> None:
        trellis.simulate(name, interests, engine="cycles", duration_s=duration_s, options=options, overlay=overlay)

    simulate(1)  # Kernels are loaded, which takes memory once.
    sizes = len(interests.nodes), len(interests.topics), interests.subscriptions
    made: Any = maker_of(name)(**options)
    told = memory.estimate(*sizes, made.config, gossip=getattr(made, "gossip", None), seconds=seconds)
    told += getattr(made, "publications", 0) * NODES * memory.PUBLICATION_BYTES - memory._BASE
    tracemalloc.start()
    try:
        simulate(seconds)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used <= told, f"{system}: {used:,} bytes were used and {told:,} told"
    assert told <= 12 * used + (memory._PLANNED if name == "omen" else 0), f"{system}: {used:,} and {told:,}"


def test_a_network_that_does_not_fit_is_told_how_many_nodes_do(interests, monkeypatch):
    free = memory.memory_needed(150, 100, 1_500, VitisConfig())
    monkeypatch.setattr(memory, "memory_free", lambda: free)
    with pytest.raises(InputError, match=r"200 nodes with 2,000 subscriptions.*about 150 nodes like these fit"):
        trellis.simulate("vitis", interests, engine="cycles", duration_s=0.001)


@pytest.mark.parametrize(("engine", "where"), [("cycles", memory), ("events", by_events)])
@pytest.mark.parametrize("system", ["vitis", "rvr", "opt"])
def test_more_events_than_fit_are_refused_with_the_number_that_does(system, engine, where, interests, monkeypatch):
    monkeypatch.setattr(where, "memory_free", lambda: 2 << 30)
    with pytest.raises(
        InputError, match=r"6,000,000,000 events, 30,000,000 of each node, .* give at most [\d,]+$"
    ) as told:
        trellis.simulate(system, interests, engine=engine, options={"publications": 30_000_000})
    fits = int(told.value.remedy.rpartition(" ")[2].replace(",", ""))
    assert 100 < fits < 30_000
    with pytest.raises(InputError, match="give at most"):
        trellis.simulate(system, interests, engine=engine, options={"publications": fits + 1}, duration_s=0.001)
