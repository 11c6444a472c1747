"""RVR: rendezvous routing on a small-world ring, oblivious to interests; a multicast tree per topic.  [VI §IV]"""

from trellis.protocols.rvr.node import RvrNode

__all__ = ["RvrNode"]
