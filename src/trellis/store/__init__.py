"""The store of a node: an append-only log of checksummed records on a disk.  [docs/durable.md]

| module       | what it holds                                                            |
| ------------ | ------------------------------------------------------------------------ |
| `disk.py`    | the interface of a disk, and a folder of the real one                    |
| `records.py` | the bytes of segments and indexes                                        |
| `log.py`     | appending, group commit, recovery, removal of old segments               |
| `checks.py`  | `trellis store check` and `copy`: look at a store that may be in use     |

The log knows bytes only. `protocols/delivery/records.py` says what the heads of records mean.
"""
