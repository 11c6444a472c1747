"""Run whole nodes in the simulator: the real shell and real clients, on simulated hosts, clocks and TCP.

`World` holds virtual time and `Host` is a machine. `HostLoop` is the event loop of a process on it. `End` is one end of
a TCP connection. `Faults` disturbs all of these. `Mesh` starts nodes and simple clients.
"""
