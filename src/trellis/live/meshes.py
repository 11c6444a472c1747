"""Make the mesh node that a configuration describes: its overlay protocol with its parameters, and delivery on top."""

from __future__ import annotations

from trellis.live.addresses import parse_seed
from trellis.live.config import NodeConfig
from trellis.live.machine import machine
from trellis.protocols.mesh import DrivenOverlay, MeshNode
from trellis.protocols.overlays import Birth, load, overlay_of


def make_mesh(config: NodeConfig, life: int) -> MeshNode:
    """Return a mesh node that has not started. `life` is its incarnation."""
    topics = tuple(sorted(dict.fromkeys(config.topics)))
    # The overlay sends to seeds by address. The transport learns their names from their hellos (dialing.py).
    contacts = tuple(map(parse_seed, config.seeds))
    birth = Birth(config.name, topics, contacts, life, machine().random(), config)
    overlay: DrivenOverlay = load(overlay_of(config.overlay).maker)(birth)
    overlay.table.is_shared = False  # Only this node uses the table, so it may forget unused topics.
    return MeshNode(overlay, topics, config.delivery)
