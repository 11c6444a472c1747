"""A mesh of live nodes on one machine, and who keeps its score.  [docs/live.md, "A mesh on one machine"]

    planned     the links that it starts with
    settings    keys of node.toml for all of its nodes
    scenario    what is to happen, as data: for processes and for the simulator
    processes   `trellis node` as child processes: started, killed, stopped, and gone when we are
    relay       the network between them, where a scenario cuts it
    clients     how clients talk to nodes: the nodes' own protocol, MQTT, or MQTT to a broker beside each
    mosquitto   such brokers as child processes
    fleet       processes with a client each: who is up, who wants what
    traffic     test messages
    ledger      what was published, acknowledged and delivered: nothing may be missing, nothing may come twice
    watch       overlay snapshots: is every topic connected, and how long did a mend take?
    score       the sum of it
    up          all of it, from start to end

Nothing here imports numpy, Arrow or Spark, unless a file of interests or churn is read.
"""
