"""Magnet: subscribers with similar interests are near each other on a skewed ring that carries trees.  [MG §3]

Every node is on two rings. On the control ring its position is the hash of its name. The node that is responsible there
for the hash of a topic t is the home location of t, home(t). On the skewed ring its position is next to the most
similar node that it knows. The multicast tree of a topic has its root at home(t) and follows greedy routes on the
skewed ring. As similar nodes are near each other, few nodes on these routes are not subscribed.

node.py        the node: joins, home locations, publications
membership.py  samples of the subscribers of every topic, up and down the control ring     [MG §3.4]
similarity.py  how alike two interests are                                                 [MG §2.1]
placement.py   the position on the skewed ring: next to the most similar node              [MG §3.2, Alg. 1]
trees.py       joining, keeping and leaving multicast trees; tree.py: their state          [MG §3.3, Alg. 2]
messages.py, config.py

The paper's strawman is the same code with positions by name: `MagnetConfig(placement="name")`.
"""

from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.messages import CODEC
from trellis.protocols.magnet.node import MagnetNode

__all__ = ["CODEC", "MagnetConfig", "MagnetNode"]
