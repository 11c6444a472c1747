"""OSCAR: a small-world ring for identifiers of any distribution, however skewed.  [MG §2.2, Fig. 1]

labels.py    identifiers: exact binary fractions of any length
table.py     the routing table of a node, and greedy routing
ring.py      successors and predecessor: joining, repairing and merging rings
fingers.py   medians by random walks, long-range links, heartbeats
respace.py   spreading out a part of the ring where labels have grown too long
oscar.py     all of it as one part of a node
"""

from trellis.protocols.oscar.config import OscarConfig
from trellis.protocols.oscar.messages import OscarMessage, Peer
from trellis.protocols.oscar.oscar import Oscar

__all__ = ["Oscar", "OscarConfig", "OscarMessage", "Peer"]
