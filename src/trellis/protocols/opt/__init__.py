"""OPT: an overlay for each topic, with few links where interests correlate. Like SpiderCast, on T-Man.  [VI §IV]"""

from trellis.protocols.opt.node import OptConfig, OptNode

__all__ = ["OptConfig", "OptNode"]
