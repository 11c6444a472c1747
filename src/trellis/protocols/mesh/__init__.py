"""The node of a mesh: an overlay that repairs itself, and delivery over it.

node.py      the node: subscriptions, publications, leaving
driven.py    what it asks of an overlay; omen.py, spidercast.py, vitis.py, magnet.py: one adapter each
codecs.py    the messages between nodes of a mesh, as bytes

`trellis.protocols.overlays` lists the overlays. An adapter is imported when it is used, so that a node starts fast.
"""

from trellis.protocols.mesh.codecs import CODECS
from trellis.protocols.mesh.driven import DrivenOverlay
from trellis.protocols.mesh.node import MeshNode

__all__ = ["CODECS", "DrivenOverlay", "MeshNode"]
