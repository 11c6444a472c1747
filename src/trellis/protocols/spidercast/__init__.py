"""SpiderCast: each node, alone, keeps links so that every topic of its interest is covered K times.  [SC §2]

node.py      the node: two tasks, heartbeats, suspicion, interest changes, the adaptive scheme
task.py      the neighbour maintenance task: MAINTAINNEIGHBORS and the handlers     [SC Fig. 2-4]
neighbors.py records of neighbours, and the choices among them                       [SC Fig. 1, 3, 4]
goals.py     what a task wants: K-coverage, or a fixed degree for the baselines      [SC Fig. 3, §3.9.1]
links.py     which tasks hold a link with whom
select.py    whom it asks next: greedy, random, similar, anybody                     [SC Fig. 5, §3.9.1]
messages.py  CONNECT, CONNECT-OK, REDIRECT, DISCONNECT, DISCONNECT-OK, LEAVE, heartbeats
config.py    the parameters of the paper, and the alternatives where it is ambiguous
"""

from trellis.protocols.spidercast.config import NeighborConfig, SimilarityConfig, SpiderCastConfig
from trellis.protocols.spidercast.messages import CODEC
from trellis.protocols.spidercast.node import SpiderCastNode

__all__ = ["CODEC", "NeighborConfig", "SimilarityConfig", "SpiderCastConfig", "SpiderCastNode"]
