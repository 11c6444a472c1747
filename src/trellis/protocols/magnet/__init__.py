"""Magnet: subscribers with similar interests side by side on a skewed ring, trees along its greedy routes.  [MG §3]

node.py        the node: joins, home locations, publications
membership.py  samples of the subscribers of every topic, up and down the control ring     [MG §3.4]
similarity.py  how alike two interests are                                                 [MG §2.1]
placement.py   where on the skewed ring: next to the most similar node                     [MG §3.2, Alg. 1]
trees.py       joining, keeping and leaving multicast trees; tree.py: their state          [MG §3.3, Alg. 2]
messages.py, config.py

The strawman is the same code with places by name: `MagnetConfig(placement="name")`.
"""

from trellis.protocols.magnet.config import MagnetConfig
from trellis.protocols.magnet.messages import CODEC
from trellis.protocols.magnet.node import MagnetNode

__all__ = ["CODEC", "MagnetConfig", "MagnetNode"]
