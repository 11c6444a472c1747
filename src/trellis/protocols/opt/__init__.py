"""OPT: an overlay per topic, with few links where interests correlate; like SpiderCast, on T-Man.  [VI §IV]"""

from trellis.protocols.opt.node import OptConfig, OptNode

__all__ = ["OptConfig", "OptNode"]
