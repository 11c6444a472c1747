"""MQTT on a mesh: packets, sessions, topics and wildcards, as parts without IO.  [docs/mqtt.md]"""
