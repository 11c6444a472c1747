"""Vitis: clusters of similar nodes on a small-world ring, joined by relay paths from gateways.  [VI §III]

A node keeps a bounded routing table: its successor and predecessor on the identifier ring, some long links, and
friends, which are nodes with similar interests. Subscribers of a topic that are connected by such links form a cluster
of the topic. Each cluster elects gateways. A gateway looks up the topic's position on the ring, and the nodes that its
lookup passes become relays. The lookups of all gateways end at the same node, the rendezvous node, so relay paths
connect the clusters.

node.py       the node
overlay.py    what Vitis, RVR and OPT share: samples, table, heartbeats, events           [VI Alg. 1, 6, 7]
table.py      the routing table: T-Man with a selection                                   [VI Alg. 2-3]
select.py     selectNeighbors: ring, long links, friends by utility                       [VI Alg. 4, Eq. 1]
neighbors.py  the neighbors of a node, and the state of each link
gateways.py   gateway election                                                            [VI Alg. 5]
relays.py     relay paths                                                                 [VI §III-B]
ring_node.py  what Vitis and RVR share: the ring, lookups, relay paths
events.py     notify and pull                                                             [VI §III-C]
messages.py, config.py
"""

from trellis.protocols.vitis.config import TableConfig, VitisConfig
from trellis.protocols.vitis.messages import CODEC
from trellis.protocols.vitis.node import VitisNode

__all__ = ["CODEC", "TableConfig", "VitisConfig", "VitisNode"]
