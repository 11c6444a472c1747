"""Magnet and the strawman: relays on their trees.  [MG §4]

Everybody joins, one by one; then all trees are joined; then relays are read off the trees. Cost = relays per published
message, topics weighted by rate (E-17). Cases with `engine: cycles` run on the cycle engine, all others run the
protocol's own code message by message. A case with `model` "converged" runs neither: it takes tables as perfect as the
protocol could make them from `trellis.lab.converged`.
"""

from __future__ import annotations

import statistics
from math import log2
from typing import Any, cast

import msgspec
import numpy as np

from trellis.cycles.instance import make_instance
from trellis.cycles.magnet_network import MagnetNetwork
from trellis.lab.converged import build
from trellis.lab.converged import relays as read_off
from trellis.lab.experiment import Parameters
from trellis.lab.inputs import Inputs
from trellis.lab.table import Found
from trellis.measure.distributions import Distribution
from trellis.measure.powerlaw import ccdf_slope, fit_power_law
from trellis.model import Interests
from trellis.simulate.engine import Engine
from trellis.simulate.run import topics_by_node
from trellis.simulate.system import World
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.magnet import Magnet, node_of, reach_all
from trellis.workloads.configs import Hierarchical, Multimodal, Spatial, Uniform, WorkloadConfig
from trellis.workloads.generate import generate
from trellis.workloads.hierarchical import grow
from trellis.workloads.rates import rates
from trellis.workloads.sizes import Sizes

GAP_MS, FIRST_GAP_MS, LARGE = 20, 500, 1000
TRIES = 60
SYSTEMS = {"Magnet": "magnet", "strawman": "scribe"}


def config_of(parameters: Parameters) -> WorkloadConfig:
    told, nodes = dict(parameters), int(parameters["nodes"])
    match told["workload"]:
        case "multi":
            sizes = Sizes(told.get("subs", 50), told.get("subs", 50))
            return Multimodal(
                nodes, told.get("topics", 1000), sizes, told["b_p"], told["b_n"], told.get("popularity", 1.0)
            )
        case "spatial":
            return Spatial(nodes=nodes, mean=told["mean"])
        case "hier":
            chosen = {key: told[key] for key in ("z", "init_frac", "lambda_") if key in told}
            return Hierarchical(nodes=nodes, topics=nodes, **chosen)
        case _:
            return Uniform(nodes, told.get("topics", 1000), Sizes(told.get("subs", 50), told.get("subs", 50)))


def interests_of(parameters: Parameters, seed: int, inputs: Inputs) -> Interests:
    return inputs.interests(parameters, seed) if "interests" in parameters else generate(config_of(parameters), seed)


def system_of(system: str, parameters: Parameters, nodes: int, by_topic: dict[str, float]) -> Magnet:
    """Return the system, with trees that wait until all have joined."""
    options = {"links": int(parameters.get("links", 19)), "tree": str(parameters.get("tree", "graft"))}
    first = FIRST_GAP_MS if nodes >= LARGE else 0  # a large ring needs its first nodes in good places
    gaps = {"join_gap_ms": GAP_MS, "first_gap_ms": first}
    made = cast(Magnet, maker_of(SYSTEMS[system])(**options, **gaps, period_ms=10_000, sample_ms=20_000))
    if "walk_steps" in parameters:
        skewed = msgspec.structs.replace(made.config.skewed, walk_steps=int(parameters["walk_steps"]))
        made.config = msgspec.structs.replace(made.config, skewed=skewed)
    made.trees_ms = made.begins_ms(nodes)[-1] + 10_000
    made.topic_rates = by_topic if parameters.get("alpha") else None  # A-MAG-1: weighted wherever rates differ
    return made


def grown(
    system: str, parameters: Parameters, interests: Interests, seed: int
) -> tuple[Engine, list[Any], dict[str, float]]:
    """Both rings and all trees stand. The engine, what a publication on each topic would reach, and the rates."""
    wanted, by_topic = topics_by_node(interests), rates_of(parameters, interests, seed)
    made = system_of(system, parameters, len(wanted), by_topic)
    engine = Engine(made, wanted, seed=seed)
    engine.run(built_ms(made, len(wanted)))
    found = reach_all(engine.world)
    for _ in range(TRIES):  # until everybody hangs on its trees
        if all(len(one.subscribers) == one.reached for one in found):
            break
        engine.run(engine.world.now_ms + 2_000)
        found = reach_all(engine.world)
    return engine, found, by_topic


def grown_by_cycles(
    system: str, parameters: Parameters, interests: Interests, seed: int
) -> tuple[MagnetNetwork, dict[str, float]]:
    """The same on the cycle engine, where a tree join is over at once."""
    wanted, by_topic = topics_by_node(interests), rates_of(parameters, interests, seed)
    made = system_of(system, parameters, len(wanted), by_topic)
    instance = make_instance(wanted, made.topic_rates)
    network = MagnetNetwork(instance, made.config, made.begins_ms(len(wanted)), made.trees_ms, seed)
    network.run(built_ms(made, len(wanted)))
    return network, by_topic


def built_ms(made: Magnet, nodes: int) -> int:
    """Return when all trees stand."""
    return made.trees_ms + made.begins_ms(nodes)[-1] // 2 + 5_000


def rates_of(parameters: Parameters, interests: Interests, seed: int) -> dict[str, float]:
    alpha = float(parameters.get("alpha", 0.0))
    values = rates(interests, "powerlaw" if alpha else "uniform", alpha=alpha or 0.75, seed=seed)
    return dict(zip(interests.topics, map(float, values), strict=True))


def cost(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    interests = interests_of(parameters, seed, inputs)
    if parameters.get("model") == "converged":
        rate, links = rates_of(parameters, interests, seed), int(parameters.get("links", 19))
        known = rate if parameters.get("alpha") else None  # A-MAG-1
        net = build(topics_by_node(interests), seed, similar=system == "Magnet", links=links, rates=known)
        relays, missed = read_off(net, seed, str(parameters.get("tree", "graft"))), 0
        degrees = [2 * len(down) for down in net.down]  # each link is a finger of one end and a guest at the other
    elif parameters.get("engine") == "cycles":
        network, rate = grown_by_cycles(system, parameters, interests, seed)
        reached = network.reached()
        relays = dict(zip(network.instance.topics, reached.relays.tolist(), strict=True))
        missed = interests.subscriptions - int(reached.reached.sum())
        degrees = np.bincount(np.concatenate(network.links()), minlength=len(interests.nodes)).tolist()
    else:
        engine, found, rate = grown(system, parameters, interests, seed)
        relays = {one.topic: len(one.relays) for one in found}
        missed = sum(len(one.subscribers) - one.reached for one in found)
        degrees = [len(engine.world.claims(name)) for name in engine.world.living]
    popularity = dict(zip(interests.topics, interests.popularity.tolist(), strict=True))
    order = sorted(relays, key=lambda topic: (-popularity[topic], topic))
    relayed = np.cumsum([rate[topic] * relays[topic] for topic in order])
    wanted = np.cumsum([rate[topic] * popularity[topic] for topic in order])
    values, counts = np.unique(degrees, return_counts=True)
    more = {}
    if parameters.get("workload") == "hier":
        more["initial share %"] = 100 * grow(cast(Hierarchical, config_of(parameters)), seed).initial_share
    return {
        "cost": sum(rate[t] * n for t, n in relays.items()) / sum(rate[t] for t in relays),
        "relays per topic": statistics.mean(relays.values()),
        "missed": float(missed),
        "degree": statistics.mean(degrees),
        "degrees": (values, counts / len(degrees)),
        "share": 100 * relayed / (relayed + wanted),
        "subscriptions": interests.subscriptions / len(interests.nodes),
        **more,
    }


def partitions(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """Ranks of the medians that nodes estimate, over n / 2^j.  [MG Fig. 1] Strawman: uniform labels.

    By the protocol these are each node's last estimate. In cycles every node estimates once more at the end.
    """
    interests = generate(Multimodal(int(parameters["nodes"]), 20, Sizes(2, 2), 1, 10), seed)
    if parameters.get("engine") == "cycles":
        network, _ = grown_by_cycles(system, parameters, interests, seed)
        ranks = network.median_ranks()
    else:
        ranks = median_ranks(grown(system, parameters, interests, seed)[0].world)
    ratios = []
    for place in range(int(log2(len(ranks))) - 2):
        sizes = [found[place] for found in ranks if len(found) > place]
        ratios.append(statistics.mean(sizes) / (len(ranks) / 2 ** (place + 1)))
    return {"ratio": ratios}


def median_ranks(world: World) -> list[list[int]]:
    """Return for each node how many nodes away its medians are, from far to near."""
    ring = sorted(world.living, key=lambda node: cast(Any, node_of(world, node)).skewed.me.label)
    rank = {node: place for place, node in enumerate(ring)}
    medians = [node_of(world, node).skewed.fingers.medians for node in ring]
    return [[(rank[m.node] - rank[n]) % len(ring) for m in found] for n, found in zip(ring, medians, strict=True)]


def tail(system: str, parameters: Parameters, seed: int, inputs: Inputs) -> Found:
    """The CCDF of topic popularity; no protocol.  [MG Fig. 7]"""
    popularity = Distribution.of(generate(config_of(parameters), seed).popularity)
    slope, fit = ccdf_slope(popularity), fit_power_law(popularity)
    assert slope is not None
    shown = popularity.values > 0
    return {
        "slope": slope.slope,
        "R^2": slope.r_squared,
        "decades": slope.decades,
        "exponent": fit.exponent if fit else float("nan"),
        "ccdf": (popularity.values[shown], popularity.ccdf[shown]),
    }
