"""RVR: rendezvous routing on a small-world ring, whatever the interests, with a multicast tree for each topic.

[VI §IV]
"""

from trellis.protocols.rvr.node import RvrNode

__all__ = ["RvrNode"]
