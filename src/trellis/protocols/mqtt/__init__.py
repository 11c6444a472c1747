"""MQTT on a mesh: packets, sessions, topics and wildcards, as state machines without IO.  [docs/mqtt.md]

Every node can be an MQTT broker for its own clients (`host.py`), and a sidecar attaches a node to another broker
(`bridge.py`). Messages of clients travel through the mesh as publications on overlay topics: an overlay topic is the
first levels of an MQTT topic (`topics.py`). `envelope.py` is the format between nodes. Filters with wildcards in these
first levels need more: `directory.py` explains how nodes tell each other which overlay topics are in use.
"""
