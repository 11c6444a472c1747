"""MQTT doors of a live node.  [docs/mqtt.md]"""
