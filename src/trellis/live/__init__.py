"""Run the protocols of `trellis.protocols` as a real node: one process, with asyncio, on TCP.  [docs/live.md]

`shell.py` is the entry point (`LiveNode`). It feeds inputs to the protocols and carries out their effects:

- `transport.py`, `dialing.py`, `handshake.py`: streams to other nodes
- `client_port.py` and `mqtt/`: the client port and the MQTT listener
- `admin.py`, `health.py`, `series.py`: the admin port with health, metrics, and the node's part of the overlay
- `client.py`: the Python client of a node
- `config.py`: node.toml
"""
