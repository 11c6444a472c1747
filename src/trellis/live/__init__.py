"""The asyncio shell around the protocols: a node is one process on TCP.  [docs/live.md]"""
