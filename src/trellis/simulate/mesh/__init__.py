"""Run whole nodes with real clients in the simulator, or on real sockets, and judge what the clients saw.

The clients here are ordinary asyncio programs. They run on any event loop: on simulated hosts
(`trellis.simulate.whole`) and on a real network. They only record what they see.

    trial.py     one seed, from its start to its verdict; seeds.py many of them
    draw.py      the faults of a seed; inject.py carries them out
    witness.py   the record of what clients saw
    topics.py    the topics and filters that clients choose from
    natives.py   clients of `trellis.connect`
    mqtt.py      a plain MQTT client that reports everything it receives
    mqttists.py  clients that use it; mqttwriters.py those that publish

docs/simulator.md describes all files.
"""
