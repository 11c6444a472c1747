"""How much memory a run in cycles takes, told before it starts."""

from __future__ import annotations

from pathlib import Path

from trellis.cycles.choice import known_count
from trellis.cycles.neighbor_network import LETTERS, WAKES, task_sizes
from trellis.errors import InputError
from trellis.protocols.spidercast import NeighborConfig, SpiderCastConfig
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


def neighbors_memory_needed(
    nodes: int, topics: int, subscriptions: int, config: NeighborConfig, share: float = 1.0
) -> int:
    """Return the same for SpiderCast and its baselines."""
    sizes = task_sizes(config)
    held = -(-config.quarantine_ms // config.connect_timeout_ms) + WAKES
    covers = isinstance(config, SpiderCastConfig)
    room = sum(most * (subscriptions if covers else nodes) + config.margin * nodes for _, most in sizes)
    a_task = 13 * 4 + 8 + 4 * WAKES + 12 * held + 8 + 28 * LETTERS
    a_subscription = 2 * 4 + 8 + 8 * len(sizes) + 60  # 60: as names, while arrays are made
    views = 8 * subscriptions if share == 1 else 4 * nodes * known_count(nodes, share)
    return (
        _BASE
        + 24 * min(room, len(sizes) * nodes * (nodes - 1))
        + nodes * (a_task * len(sizes) + 2_400)  # 2,400: names, and the overlay while it is looked at
        + topics * 200
        + subscriptions * a_subscription
        + views
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


def require_memory(
    nodes: int, topics: int, subscriptions: int, config: TableConfig | NeighborConfig, share: float = 1.0
) -> None:
    """Refuse a run that does not fit into the memory of this machine."""
    size = nodes, topics, subscriptions
    if isinstance(config, NeighborConfig):
        needed = neighbors_memory_needed(*size, config, share)
    else:
        needed = memory_needed(*size, config)
    free = memory_free()
    if free is not None and needed > free:
        what = f"{nodes:,} nodes with {subscriptions:,} subscriptions need about {needed // _MIB:,} MiB"
        raise InputError("", what, f"{free // _MIB:,} MiB are free: take fewer nodes, or a larger machine")
