"""SpiderCast: each node on its own keeps links so that K neighbors cover every topic of its interest.  [SC §2]

A node knows a part of the other nodes with their interests, and chooses neighbors among them. It runs the neighbor
maintenance task twice: for greedy coverage, where a new neighbor covers as many topics as possible, and for random
coverage. A task asks for links while topics are covered by fewer than K neighbors. It gives up links that neither end
needs.

node.py      the node: two tasks, heartbeats, suspicion, interest changes, the adaptive scheme
task.py      the neighbor maintenance task: MAINTAINNEIGHBORS and the handlers      [SC Fig. 2-4]
neighbors.py records of neighbors, and the choices among them                        [SC Fig. 1, 3, 4]
goals.py     the goal of a task: K-coverage, or a fixed degree for the baselines     [SC Fig. 3, §3.9.1]
links.py     which tasks hold a link with which node
select.py    the node to ask next: greedy, random, similar, any                      [SC Fig. 5, §3.9.1]
messages.py  CONNECT, CONNECT-OK, REDIRECT, DISCONNECT, DISCONNECT-OK, LEAVE, heartbeats
config.py    the settings of the paper, and the alternatives where it is ambiguous
"""

from trellis.protocols.spidercast.config import NeighborConfig, SimilarityConfig, SpiderCastConfig
from trellis.protocols.spidercast.messages import CODEC
from trellis.protocols.spidercast.node import SpiderCastNode

__all__ = ["CODEC", "NeighborConfig", "SimilarityConfig", "SpiderCastConfig", "SpiderCastNode"]
