"""Whole nodes with real clients in the simulator, or on real sockets, judged by what the clients saw.

The clients here are ordinary asyncio programs. They run on any event loop: on simulated hosts
(`trellis.simulate.whole`) and on a real network. They write down what they see, and nothing else.

    witness.py   what clients write down
    topics.py    the topics and filters that clients choose from
    natives.py   clients of `trellis.connect`
    mqtt.py      a plain MQTT client that shows everything it hears
    mqttists.py  clients that use it; mqttwriters.py those that publish
"""
