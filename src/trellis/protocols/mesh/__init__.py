"""The node of a mesh: an overlay that repairs itself, and delivery over it.

node.py      the node: subscriptions, publications, leaving
driven.py    what it asks of an overlay; omen.py, spidercast.py, vitis.py, magnet.py: one adapter each
codecs.py    the messages between nodes of a mesh, as bytes
"""

from trellis.protocols.mesh.codecs import CODECS
from trellis.protocols.mesh.driven import DrivenOverlay
from trellis.protocols.mesh.magnet import MagnetOverlay
from trellis.protocols.mesh.node import MeshNode
from trellis.protocols.mesh.omen import OMenOverlay
from trellis.protocols.mesh.spidercast import SpiderCastOverlay
from trellis.protocols.mesh.vitis import VitisOverlay

__all__ = [
    "CODECS",
    "DrivenOverlay",
    "MagnetOverlay",
    "MeshNode",
    "OMenOverlay",
    "SpiderCastOverlay",
    "VitisOverlay",
]
