"""MQTT on a live node: the listener for clients, and the sidecar at another broker.  [docs/mqtt.md]

`protocols/mqtt` decides what to do. This package adds sockets, TLS, files and the clock.
"""
