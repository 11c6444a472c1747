"""Whole nodes in the simulator: the real shell and real clients, on simulated hosts, clocks and TCP."""
