"""How much memory a run in cycles takes, told before it starts."""

from __future__ import annotations

from pathlib import Path

from trellis.errors import InputError
from trellis.protocols.vitis import TableConfig

_BASE = 260 << 20  # the interpreter, numpy, numba, pyarrow and the compiled kernels
_MIB = 1 << 20


def memory_needed(nodes: int, topics: int, subscriptions: int, config: TableConfig) -> int:
    """Return the bytes that a run takes at most, about: arrays, names, and what lies beside them for a moment."""
    instants = config.linger_rounds + 1
    links = 2 * config.table_size * nodes  # ends of links at most
    a_node = (config.view_size + 1) * 4 + config.table_size * 30 + 400  # 400: names, contacts, marks, tallies
    a_subscription = 2 * 4 + 8 + 9 + 3 * instants + 60  # 60: as names, while arrays are made
    return (
        _BASE
        + nodes * (a_node + 16 * instants)
        + 3 * links * 4 * (instants + 1)
        + topics * 200
        + subscriptions * a_subscription
    )


def memory_free() -> int | None:
    """Return the bytes that this machine can give; None where it does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def require_memory(nodes: int, topics: int, subscriptions: int, config: TableConfig) -> None:
    """Refuse a run that does not fit into the memory of this machine."""
    needed, free = memory_needed(nodes, topics, subscriptions, config), memory_free()
    if free is not None and needed > free:
        what = f"{nodes:,} nodes with {subscriptions:,} subscriptions need about {needed // _MIB:,} MiB"
        raise InputError("", what, f"{free // _MIB:,} MiB are free: take fewer nodes, or a larger machine")
