"""A broker node: an overlay that mends itself, and delivery over it."""

from trellis.protocols.mesh.codecs import CODECS
from trellis.protocols.mesh.node import MeshNode
from trellis.protocols.mesh.overlays import DrivenOverlay, OMenOverlay, SpiderCastOverlay

__all__ = ["CODECS", "DrivenOverlay", "MeshNode", "OMenOverlay", "SpiderCastOverlay"]
