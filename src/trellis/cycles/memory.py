"""How much memory a run in cycles takes, told before it starts."""

from __future__ import annotations

from pathlib import Path

from trellis.cycles.choice import known_count
from trellis.cycles.gossip_views import gossip_memory_needed
from trellis.cycles.magnet_network import members_room
from trellis.cycles.neighbor_network import CRASHES, LETTERS, WAKES, task_sizes
from trellis.cycles.oscar import GUESTS_WIDTH
from trellis.cycles.relays import PART_BYTES, relay_parts
from trellis.errors import InputError
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet import MagnetConfig
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.views import KNOWN_MAX
from trellis.protocols.opt import OptConfig
from trellis.protocols.spidercast import NeighborConfig, SpiderCastConfig
from trellis.protocols.vitis import TableConfig

_BASE = 260 << 20  # the interpreter, numpy, numba, pyarrow and the compiled kernels
_MIB = 1 << 20


def memory_needed(nodes: int, topics: int, subscriptions: int, config: TableConfig, churns: bool = False) -> int:
    """Return the bytes that a run takes at most, about: arrays, names, and what lies beside them for a moment.

    `churns`: nodes join or leave, so relay paths are kept.
    """
    if isinstance(config, OptConfig):
        return _opt_memory_needed(nodes, topics, subscriptions, config)
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
        + churns * (relay_parts(subscriptions) * PART_BYTES + nodes * config.table_size * 12 + 3 * links * 4)
    )


def _opt_memory_needed(nodes: int, topics: int, subscriptions: int, config: OptConfig) -> int:
    most = config.table_size + config.incoming_max
    links = config.table_size if config.bounded else most
    a_node = (config.view_size + 1) * 4 + links * 25 + config.refusal_rounds * config.table_size * 8 + 400
    return _BASE + nodes * a_node + 8 * links * links + topics * 200 + subscriptions * (2 * 4 + 8 + 60)


def neighbors_memory_needed(
    nodes: int, topics: int, subscriptions: int, config: NeighborConfig, share: float = 1.0
) -> int:
    """Return the same for SpiderCast and its baselines."""
    sizes = task_sizes(config)
    held = -(-config.quarantine_ms // config.connect_timeout_ms) + WAKES + CRASHES
    covers = isinstance(config, SpiderCastConfig)
    room = sum(most * (subscriptions if covers else nodes) + config.margin * nodes for _, most in sizes)
    a_task = 13 * 4 + 8 + 4 * WAKES + 12 * held + 8 + 28 * LETTERS
    a_subscription = 2 * 4 + 8 + 8 * len(sizes) + 60  # 60: as names, while arrays are made
    views = 8 * subscriptions if share == 1 else 4 * nodes * known_count(nodes, share)
    return (
        _BASE
        + 32 * min(room, len(sizes) * nodes * (nodes - 1))
        + nodes * (a_task * len(sizes) + 2_400)  # 2,400: names, and the overlay while it is looked at
        + topics * 200
        + subscriptions * a_subscription
        + views
    )


def magnet_memory_needed(nodes: int, topics: int, subscriptions: int, config: MagnetConfig) -> int:
    """Return the same for Magnet and the strawman. Most of it are the parts of nodes in membership trees.

    A topic's tree has its subscribers, and forwarders on some log n links to its home: as many as the subscribers where
    these are many, and several for each where they are few.
    """
    hops = max(1, nodes.bit_length() - 4)
    parts = min(subscriptions * hops, subscriptions + topics * min(nodes, 2 * subscriptions // max(1, topics) + 64))
    a_part = 6 * 4 + 3 + 4 * config.sample_size + 4 * 4  # with the hash table
    a_tree_part = 3 * 4 + 5 + 4 * 4
    a_ring = 28 + 4 * GUESTS_WIDTH * 4 + 20 * config.skewed.links // 2
    return (
        _BASE
        + 2 * a_part * max(parts, members_room(subscriptions))
        + a_tree_part * 2 * members_room(subscriptions)
        + nodes * (2 * a_ring + 400)
        + topics * (200 + 5 * config.sample_size)
        + subscriptions * 100
    )


def omen_memory_needed(nodes: int, topics: int, subscriptions: int, config: OMenConfig) -> int:
    """Return the same for OMen. Most of it are the tables of nodes whose views are not settled, all at the start."""
    slots, mean = 2 * config.resilience, subscriptions // max(1, nodes)
    known = 0 if config.knowledge == "global" else min(nodes, KNOWN_MAX + 200)
    backups = min(nodes, config.coverage * (mean + 1))
    a_ring = 2 * (config.resilience + 4) * 12
    a_node = 84 + a_ring + 2 * 16 * known + slots * (24 + 2 * 4 * backups) + 2 * 8 * backups * config.resilience + 800
    return _BASE + nodes * a_node + topics * 400 + subscriptions * (2 * 4 + 8 + 60 + 16)


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
    nodes: int,
    topics: int,
    subscriptions: int,
    config: TableConfig | NeighborConfig | MagnetConfig | OMenConfig,
    share: float = 1.0,
    churns: bool = False,
    gossip: GossipViewConfig | None = None,
) -> None:
    """Refuse a run that does not fit into the memory of this machine.

    `churns`: nodes of Vitis or RVR join or leave. `gossip`: how SpiderCast's nodes build views.
    """
    size = nodes, topics, subscriptions
    if isinstance(config, NeighborConfig):
        needed = neighbors_memory_needed(*size, config, share)
        needed += gossip_memory_needed(nodes, gossip) if gossip is not None else 0
    elif isinstance(config, MagnetConfig):
        needed = magnet_memory_needed(*size, config)
    elif isinstance(config, OMenConfig):
        needed = omen_memory_needed(*size, config)
    else:
        needed = memory_needed(*size, config, churns)
    free = memory_free()
    if free is not None and needed > free:
        what = f"{nodes:,} nodes with {subscriptions:,} subscriptions need about {needed // _MIB:,} MiB"
        raise InputError("", what, f"{free // _MIB:,} MiB are free: take fewer nodes, or a larger machine")
