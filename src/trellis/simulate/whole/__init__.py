"""The whole node in the simulator: the real asyncio shell and clients on simulated hosts, clocks and a simulated TCP."""
