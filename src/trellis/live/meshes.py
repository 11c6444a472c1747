"""The mesh node of a configuration: which overlay, with which parameters."""

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
from trellis.protocols.omen.planned import Plan


def make_mesh(config: NodeConfig, life: int) -> MeshNode:
    topics = tuple(sorted(dict.fromkeys(config.topics)))
    overlay = _make_overlay(config, topics, life)
    overlay.table.is_shared = False  # nobody else in this process has bitsets of it
    return MeshNode(overlay, topics, config.delivery)


def _make_overlay(config: NodeConfig, topics: tuple[str, ...], life: int) -> DrivenOverlay:
    # Seeds are spoken to by their addresses, until their hellos tell their names (transport.py).
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
    """Lives count tenths of a second (`shell.life_now`)."""
    wait_s, neighbours = config.planned.wait_s, config.planned.neighbours
    periods = math.ceil(1_000 * wait_s / config.omen.period_ms)
    return Plan(neighbours=neighbours, periods=periods, oldest=life - round(10 * wait_s))
