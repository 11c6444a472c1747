"""The mesh node of a configuration: which overlay, with which parameters."""

from __future__ import annotations

from random import Random

from trellis.live.config import NodeConfig
from trellis.protocols.mesh import (
    DrivenOverlay,
    MagnetOverlay,
    MeshNode,
    OMenOverlay,
    SpiderCastOverlay,
    VitisOverlay,
)


def make_mesh(config: NodeConfig, life: int) -> MeshNode:
    topics = tuple(sorted(dict.fromkeys(config.topics)))
    return MeshNode(_make_overlay(config, topics, life), topics, config.delivery)


def _make_overlay(config: NodeConfig, topics: tuple[str, ...], life: int) -> DrivenOverlay:
    # Seeds are spoken to by their addresses, until their hellos tell their names (transport.py).
    name, contacts, random = config.name, config.seeds, Random()
    match config.overlay:
        case "omen":
            from trellis.protocols.omen import OMenNode

            seed = config.cluster
            omen = OMenNode(name, topics, random, config.omen, contacts=contacts, incarnation=life, seed=seed)
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
