"""The cycle engine: gossip systems round by round, on arrays, for networks of the papers' sizes and beyond.

chance.py    streams of chance for kernels
newscast.py  peer sampling
cyclon.py    the other peer sampling
ring.py      the identifier ring, by T-Man
instance.py  nodes, topics and interests as arrays
tables.py    routing tables of Vitis and RVR, by T-Man                        [VI Alg. 2-4]
gateways.py  gateway election                                                 [VI Alg. 5]
spread.py    relay paths, and how events travel                               [VI §III-B, §III-C]
network.py   all state of a run
memory.py    how much memory a run takes

In each cycle every node, in random order, has its round; messages take no time. docs/cycles.md says what this leaves
out, and how the engine is held equal to `trellis.protocols`.
"""
