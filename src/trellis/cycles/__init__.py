"""The cycle engine: gossip systems round by round, on arrays, for networks of the papers' sizes and beyond.

chance.py    streams of chance for kernels
newscast.py  peer sampling
cyclon.py    the other peer sampling
ring.py      the identifier ring, by T-Man
instance.py  nodes, topics and interests as arrays
tables.py    routing tables of Vitis and RVR, by T-Man                        [VI Alg. 2-4]
gateways.py  gateway election                                                 [VI Alg. 5]
spread.py    relay paths, and how events travel                               [VI §III-B, §III-C]
network.py   all state of a run of Vitis or RVR

wheel.py     timers
mail.py      messages that are under way
choice.py    whom SpiderCast and its baselines ask for a link                 [SC Fig. 5, §3.9.1]
neighbors.py records of neighbors, and how they cover topics                  [SC Fig. 1, Fig. 3]
answers.py   what nodes do about messages                                     [SC Fig. 4]
tasks.py     neighbor maintenance                                             [SC Fig. 2]
neighbor_network.py  all state of a run of SpiderCast or its baselines

memory.py    how much memory a run takes

docs/cycles.md says what a cycle is, what it leaves out, and how the engine is held equal to `trellis.protocols`.
"""
