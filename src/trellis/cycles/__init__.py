"""The cycle engine: gossip systems round by round, on arrays, for networks of the papers' sizes and beyond.

chance.py    streams of chance for kernels
newscast.py  peer sampling
cyclon.py    the other peer sampling
ring.py      the identifier ring, by T-Man
instance.py  nodes, topics and interests as arrays
tables.py    routing tables of Vitis and RVR, by T-Man                        [VI Alg. 2-4]
gateways.py  gateway election                                                 [VI Alg. 5]
spread.py    relay paths, and how events travel                               [VI §III-B, §III-C]
presence.py  which nodes are there, and whom they miss                        [VI §III-D]
churn.py     joins and leaves                                                 [VI Alg. 1, Alg. 6]
cover.py     OPT's choice of links                                            [VI §IV]
opt.py       links of OPT, and how both ends agree to them                    [VI §IV]
network.py   all state of a run of Vitis, RVR or OPT

wheel.py     timers
mail.py      messages that are under way
choice.py    whom SpiderCast and its baselines ask for a link                 [SC Fig. 5, §3.9.1]
neighbors.py records of neighbors, and how they cover topics                  [SC Fig. 1, Fig. 3]
answers.py   what nodes do about messages                                     [SC Fig. 4]
tasks.py     neighbor maintenance                                             [SC Fig. 2]
gossip_views.py, gossip_rows.py  views by gossip                            [SC §2.2]
neighbor_churn.py  nodes that join, leave and crash                          [SC §2.4]
neighbor_network.py  all state of a run of SpiderCast or its baselines

calendar.py  what is due when
oscar.py     OSCAR's ring, its links, and greedy routing                      [MG §2.1-2.2]
fingers.py   OSCAR's medians by random walks, and its fingers                 [MG §2.2, Fig. 1]
estimates.py estimates that are under way                                     [MG §2.2]
parts.py     the parts that nodes play for topics
members.py   samples of the subscribers of every topic                        [MG §3.4]
trees.py     multicast trees                                                  [MG §3.3, Alg. 2]
magnet.py    how nodes of Magnet or of the strawman join, and what they do    [MG §3.2, Alg. 1]
magnet_network.py  all state of a run of Magnet or the strawman

pool.py      rows of different lengths
backups.py   OMen's choice of backups                                         [OM §4.2, SH Alg. 12]
view_state.py, build_views.py  OMen's local views, and how they are built      [OM Alg. 4]
local_views.py  gossip about backups                                           [OM Alg. 2-3]
wanted.py    whose views nodes keep, and whom they tell that they count on them
paths.py     parts of topics, and paths to their roots
omen_run/    all state of a run of OMen or OMen-G, its events and repairs     [OM Alg. 1, Alg. 5]

memory.py    how much memory a run takes

docs/cycles.md says what a cycle is, what it leaves out, and how the engine is held equal to `trellis.protocols`.
"""
