"""Make the mesh node that a configuration describes: its overlay protocol with its parameters, and delivery on top.

The packages of overlays are imported only when they are used, so that a node starts fast.
"""

from __future__ import annotations

import math

from trellis.live.addresses import parse_seed
from trellis.live.config import NodeConfig
from trellis.live.machine import machine
from trellis.protocols.mesh import (
    DrivenOverlay,
    MagnetOverlay,
    MeshNode,
    OMenOverlay,
    SpiderCastOverlay,
    VitisOverlay,
)
from trellis.protocols.omen.links.planned import Plan


def make_mesh(config: NodeConfig, life: int) -> MeshNode:
    """Return a mesh node that has not started. `life` is its incarnation."""
    topics = tuple(sorted(dict.fromkeys(config.topics)))
    overlay = _make_overlay(config, topics, life)
    overlay.table.is_shared = False  # Only this node uses the table, so it may forget unused topics.
    return MeshNode(overlay, topics, config.delivery)


def _make_overlay(config: NodeConfig, topics: tuple[str, ...], life: int) -> DrivenOverlay:
    # The overlay sends to seeds by address. The transport learns their names from their hellos (dialing.py).
    contacts = tuple(map(parse_seed, config.seeds))
    name, random = config.name, machine().random()
    match config.overlay:
        case "omen":
            from trellis.protocols.omen import OMenNode

            seed, plan = config.cluster, _plan(config, life)
            omen = OMenNode(
                name, topics, random, config.omen, contacts=contacts, plan=plan, incarnation=life, seed=seed
            )
            return OMenOverlay(omen)
        case "spidercast":
            from trellis.protocols.spidercast import SpiderCastNode

            parameters = config.spidercast
            spider = SpiderCastNode(
                name, topics, random, parameters, contacts=contacts, gossip=config.gossip, incarnation=life
            )
            return SpiderCastOverlay(spider, life)
        case "vitis":
            from trellis.protocols.vitis import VitisNode

            return VitisOverlay(VitisNode(name, topics, random, config.vitis, contacts=contacts, incarnation=life))
        case "magnet":
            from trellis.protocols.magnet import MagnetNode

            return MagnetOverlay(MagnetNode(name, topics, random, config.magnet, contacts=contacts, incarnation=life))


def _plan(config: NodeConfig, life: int) -> Plan:
    """Return the plan for the node's first links.

    Nodes that started at most `wait_s` before this one count as started together with it. Incarnations count tenths of
    a second (`clock.life_now`), hence the factor 10.
    """
    wait_s, neighbours = config.planned.wait_s, config.planned.neighbours
    periods = math.ceil(1_000 * wait_s / config.omen.period_ms)
    return Plan(neighbours=neighbours, periods=periods, oldest=life - round(10 * wait_s))
