"""How much memory a run in cycles takes, told before it starts."""

from __future__ import annotations

from bisect import bisect_right

from trellis.cycles.choice import known_count
from trellis.cycles.gossip_views import gossip_memory_needed
from trellis.cycles.magnet_network import members_room
from trellis.cycles.neighbor_network import CRASHES, LETTERS, WAKES, task_sizes
from trellis.cycles.oscar import GUESTS_WIDTH
from trellis.cycles.relays import PART_BYTES, relay_parts
from trellis.errors import InputError
from trellis.free_memory import memory_free
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.magnet import MagnetConfig
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.views import KNOWN_MAX
from trellis.protocols.opt import OptConfig
from trellis.protocols.spidercast import NeighborConfig, SpiderCastConfig
from trellis.protocols.vitis import TableConfig

_BASE = 268 << 20  # the interpreter, numpy, numba, pyarrow and the compiled kernels
_PLANNED = 30 << 20  # the planner of a first overlay, for OMen
_POOL_BYTES = 72  # of a node that a node of OMen knows: 16 for its entry, 4.5 times, as measured
PUBLICATION_BYTES = 400  # an event that a node will publish by itself
SAMPLE_BYTES = 4_000  # the rows of the series for one second
_MIB = 1 << 20


def memory_needed(nodes: int, topics: int, subscriptions: int, config: TableConfig, churns: bool = False) -> int:
    """Return the bytes that a run takes at most, about: arrays, names, and what lies beside them for a moment.

    `churns`: nodes join or leave, so relay paths are kept.
    """
    if isinstance(config, OptConfig):
        return _opt_memory_needed(nodes, topics, subscriptions, config)
    instants = config.linger_rounds + 1
    links = 2 * config.table_size * nodes  # ends of links at most
    a_node = (config.view_size + 1) * 4 + config.table_size * 30 + 1_200  # 1,200: names, contacts, marks, events
    a_subscription = 2 * 4 + 8 + 9 + 3 * instants + 120  # 120: as names, while arrays are made
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
    a_node = (config.view_size + 1) * 4 + links * 25 + config.refusal_rounds * config.table_size * 8 + 3_000
    return _BASE + nodes * a_node + 8 * links * links + topics * 200 + subscriptions * (2 * 4 + 8 + 120)


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
    """Return the same for OMen. Most of it are the tables of nodes whose views are not settled, all at the start.

    A table has twice the room that it needs, and when it grows out of it the old rows stay for a while. While all
    tables get more room, both the old and the new ones are there.
    """
    slots, mean = 2 * config.resilience, subscriptions // max(1, nodes)
    known = 0 if config.knowledge == "global" else min(nodes, KNOWN_MAX + 200)
    backups = min(nodes, config.coverage * (mean + 1))
    a_ring = 2 * (config.resilience + 4) * 12
    a_node = (
        84 + a_ring + _POOL_BYTES * known + slots * (24 + 2 * 4 * backups) + 2 * 8 * backups * config.resilience + 800
    )
    return _BASE + _PLANNED + nodes * a_node + topics * 400 + subscriptions * (2 * 4 + 8 + 60 + 16)


Config = TableConfig | NeighborConfig | MagnetConfig | OMenConfig


def estimate(
    nodes: int,
    topics: int,
    subscriptions: int,
    config: Config,
    share: float = 1.0,
    churns: bool = False,
    gossip: GossipViewConfig | None = None,
    seconds: float = 0,
) -> int:
    """Return the bytes that a run of any system takes at most, about.

    `churns`: nodes of Vitis or RVR join or leave. `gossip`: how SpiderCast's nodes build views. `seconds`: virtual time
    of the run, if that is given.
    """
    size = nodes, topics, subscriptions
    if isinstance(config, NeighborConfig):
        found = neighbors_memory_needed(*size, config, share)
        found += gossip_memory_needed(nodes, gossip) if gossip is not None else 0
    elif isinstance(config, MagnetConfig):
        found = magnet_memory_needed(*size, config)
    elif isinstance(config, OMenConfig):
        found = omen_memory_needed(*size, config)
    else:
        found = memory_needed(*size, config, churns)
    return found + int(seconds) * SAMPLE_BYTES


def require_memory(
    nodes: int,
    topics: int,
    subscriptions: int,
    config: Config,
    share: float = 1.0,
    churns: bool = False,
    gossip: GossipViewConfig | None = None,
    publications: int = 0,
    seconds: float = 0,
) -> None:
    """Refuse a run that does not fit into the memory of this machine. Say what would fit.

    `publications`: events that each node publishes by itself. The others are those of `estimate`.
    """

    def needed_for(count: int) -> int:
        part = subscriptions * count // max(1, nodes)
        return estimate(count, topics, part, config, share, churns, gossip, seconds)

    needed, free = needed_for(nodes), memory_free()
    if free is None:
        return
    if needed > free:
        fits = bisect_right(range(nodes), free, key=needed_for) - 1
        what = f"{nodes:,} nodes with {subscriptions:,} subscriptions need about {needed // _MIB:,} MiB"
        instead = f"about {fits:,} nodes like these fit" if fits > 0 else "no network fits"
        raise InputError("", what, f"{free // _MIB:,} MiB are free: {instead}")
    require_publications(publications, nodes, PUBLICATION_BYTES, free - needed)


def require_publications(publications: int, nodes: int, bytes_each: int, free: int | None) -> None:
    """Refuse more publications of each node than fit into `free` bytes. Say how many do."""
    needed = publications * nodes * bytes_each
    if free is not None and needed > free:
        what = f"{publications * nodes:,} events, {publications:,} of each node, need about {needed // _MIB:,} MiB more"
        fits = free // (nodes * bytes_each)
        raise InputError("--publications", what, f"{free // _MIB:,} MiB are free: give at most {fits:,}")
