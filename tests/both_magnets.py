"""One run of Magnet or of the strawman on each engine, measured alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import mean, pstdev
from typing import Any, cast

import numpy as np

from trellis.cycles.instance import make_instance
from trellis.cycles.magnet_network import MagnetNetwork
from trellis.cycles.oscar import Oscar
from trellis.model import Interests
from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.magnet import Magnet, node_of, reach_all
from trellis.workloads.configs import Multimodal
from trellis.workloads.generate import generate
from trellis.workloads.sizes import Sizes

WAIT_MS = 10_000  # from the last join until the first tree is joined
AFTER_MS = 8_000  # from the last tree until everything is measured


def interests_of(nodes: int, topics: int, subs: int, modes: tuple[int, int], seed: int) -> Interests:
    return generate(Multimodal(nodes, topics, Sizes(subs, subs), *modes), seed)


def system_of(name: str, nodes: int, **options: Any) -> Magnet:
    """Return the system, with trees that wait until all have joined, and the time that it needs."""
    made = cast(Magnet, maker_of(name)(**{"join_gap_ms": 20, "period_ms": 10_000, "sample_ms": 20_000, **options}))
    made.trees_ms = made.begins_ms(nodes)[-1] + WAIT_MS
    return made


def ended_ms(system: Magnet, nodes: int) -> int:
    return system.trees_ms + system.begins_ms(nodes)[-1] // 4 + AFTER_MS


def run_events(system: Magnet, interests: Interests, seed: int) -> dict[str, float]:
    wanted = topics_by_node(interests)
    engine = Engine(system, wanted, seed=seed)
    engine.run(ended_ms(system, len(wanted)))
    world = engine.world
    rings = []
    for layer in ("skewed", "control"):
        tables = {name: getattr(node_of(world, name), layer).table for name in world.living}
        rings.append(
            (
                sorted(tables, key=lambda name: tables[name].me.label),
                {name: list(table.fingers) for name, table in tables.items()},
                {name: len(table.guests) for name, table in tables.items()},
            )
        )
    found = reach_all(world)
    reached = [len(one.path(node)) - 1 for one in found for node in one.subscribers if node in one.parents]
    return measures(
        wanted,
        rings,
        [len(world.claims(name)) for name in world.living],
        {one.topic: len(one.relays) for one in found},
        reached,
        [len(one.parents) - 1 - sum(not tree_children(world, one, node) for node in one.parents) for one in found],
    )


def tree_children(world: Any, one: Any, node: str) -> bool:
    tree = node_of(world, node).trees.forest.get(one.topic)
    return tree is not None and bool(tree.children)


def run_cycles(system: Magnet, interests: Interests, seed: int) -> dict[str, float]:
    wanted = topics_by_node(interests)
    network = MagnetNetwork(make_instance(wanted), system.config, system.begins_ms(len(wanted)), system.trees_ms, seed)
    network.run(ended_ms(system, len(wanted)))
    return network_measures(network, wanted)


def network_measures(network: MagnetNetwork, wanted: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    names, state = network.instance.nodes, network.state
    rings = [by_name(ring, names) for ring in (state.skewed, state.control)]
    found, trees = network.reached(), state.trees
    hops = np.repeat(found.hops / np.maximum(1, found.reached), found.reached)
    used = int(trees.parts.used[0])
    inner = np.bincount(
        trees.parts.topic[:used][(trees.parent[:used] != -1) & (trees.children[:used] > 0)],
        minlength=len(network.instance.topics),
    )
    ends = np.concatenate(network.links())
    degrees = np.bincount(ends, minlength=len(names)).tolist()
    relays = dict(zip(network.instance.topics, found.relays.tolist(), strict=True))
    return measures(wanted, rings, degrees, relays, hops.tolist(), (inner - 1).tolist())


def by_name(ring: Oscar, names: Any) -> tuple[list[str], dict[str, list[str]], dict[str, int]]:
    """Return the nodes in the order of the ring, their fingers, and how often each is a finger."""
    order = [names[node] for node in np.argsort(ring.labels, kind="stable")]
    fingers = {name: [names[peer] for peer in ring.fingers[node] if peer >= 0] for node, name in enumerate(names)}
    return order, fingers, {name: int(ring.guest_count[node]) for node, name in enumerate(names)}


def measures(
    wanted: Mapping[str, tuple[str, ...]],
    rings: list[tuple[list[str], dict[str, list[str]], dict[str, int]]],
    degrees: list[int],
    relays: Mapping[str, int],
    hops: list[float],
    inner: list[int],
) -> dict[str, float]:
    (ring, fingers, guests), (control, control_fingers, control_guests) = rings
    sets = {name: set(topics) for name, topics in wanted.items()}
    alike = likeness(sets)
    return {
        "relays": mean(relays.values()),
        "relays deviation": pstdev(relays.values()),
        "hops": mean(hops),
        "inner": mean(inner),
        "degree": mean(degrees),
        "degree deviation": pstdev(degrees),
        "degree max": float(max(degrees)),
        "likeness of successors": mean(alike(ring[at - 1], ring[at]) for at in range(len(ring))),
        "likeness of fingers": mean(alike(name, peer) for name in ring for peer in fingers[name]),
        "fingers": mean(map(len, fingers.values())),
        "finger rank": rank_of(ring, fingers),
        "guests deviation": pstdev(guests.values()),
        "control fingers": mean(map(len, control_fingers.values())),
        "control finger rank": rank_of(control, control_fingers),
        "control guests deviation": pstdev(control_guests.values()),
    }


def rank_of(ring: list[str], fingers: Mapping[str, list[str]]) -> float:
    """Return the mean logarithm of how many nodes further a finger leads."""
    place = {name: at for at, name in enumerate(ring)}
    far = [(place[peer] - place[name]) % len(ring) for name in ring for peer in fingers[name]]
    return float(np.log2(np.array(far)).mean())


def likeness(sets: Mapping[str, set[str]]) -> Callable[[str, str], float]:
    return lambda one, other: len(sets[one] & sets[other]) / max(1, len(sets[one] | sets[other]))
