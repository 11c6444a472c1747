"""Run whole nodes in the simulator: the real shell and real clients, on simulated hosts, clocks and TCP.

`World` holds virtual time, `Host` is a machine, `HostLoop` is the event loop of a process on it, `End` is one end of a
TCP connection, and `Faults` disturbs them. `Mesh` starts nodes and simple clients.
"""
