"""A mesh of live nodes on one machine, and the score of its run.  [docs/live.md, "A mesh on one machine"]

    interests   which node subscribes to which topics
    planned     the links that it starts with
    settings    keys of node.toml for all of its nodes
    scenario    what is to happen, as data: for processes and for the simulator
    trace       a churn trace as steps of a scenario
    processes   `trellis node` as child processes, which end with their parent
    relay       the network between them, where a scenario cuts it
    clients     how clients talk to nodes: the nodes' own protocol, MQTT, or MQTT to a broker beside each
    mosquitto   such brokers as child processes
    fleet       processes with a client each: their states and their subscriptions
    traffic     test messages
    ledger      what was published, acknowledged and delivered: nothing may be missing, nothing may come twice
    witness     a ledger that also writes the history of its run
    watch       overlay snapshots: is every topic connected, and how long did a repair take?
    steps       carries out the steps of a scenario on a fleet
    simulated   a scenario in the simulator
    score       the numbers of a run, and its verdict
    up          a whole run, from start to end

Nothing here imports numpy, Arrow or Spark, unless a file of interests or churn is read.
"""
