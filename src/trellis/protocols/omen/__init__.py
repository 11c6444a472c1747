"""OMen: a topic-connected overlay with few links per node, mended locally from backup sets.  [OM]"""

from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.messages import CODEC, CONTROL
from trellis.protocols.omen.node import OMenNode

__all__ = ["CODEC", "CONTROL", "OMenConfig", "OMenNode"]
