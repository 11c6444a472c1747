"""OMen: a topic-connected overlay with few links per node, repaired locally after churn.  [OM; docs/omen.md]

Nodes sit on an identifier ring. Each node keeps its record (its neighbors and topics) at its L ring successors, and
prepares sets of backups for its L predecessors by gossip. When a node crashes or leaves, its closest living successor
coordinates the repair. It asks the neighbors of the departed node, finds the topics that are split, and has few new
links opened. If repairs miss a split, the root rendezvous finds it later.

`node.py` is the entry point and lists the classes that act. `parts.py` lists the state. `messages.py` has all messages.
`signals.py` has what parts tell the node, and `moments.py` what the node tells observers.
"""

from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.messages import CODEC, CONTROL
from trellis.protocols.omen.node import OMenNode

__all__ = ["CODEC", "CONTROL", "OMenConfig", "OMenNode"]
