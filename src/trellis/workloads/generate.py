"""Generate interests from a configuration and a seed.

I1  The topics of a node are different and ascending.
I2  If nodes are independent (all generators but `spatial` and `hierarchical`), node i is the same for any number of
    nodes and for any range in which it is generated.
I3  A topic that no node draws exists, without subscribers (E-2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trellis import ids
from trellis.model.interests import Interests
from trellis.model.names import Names
from trellis.workloads import kernels
from trellis.workloads.configs import (
    Correlated,
    Exponential,
    Hierarchical,
    Multimodal,
    Spatial,
    Uniform,
    WorkloadConfig,
    Zipf,
)
from trellis.workloads.popularity import Tables, even_bounds, sizes_from, tables_of
from trellis.workloads.sizes import Sizes

# configurations whose nodes are independent of each other
RangeConfig = Uniform | Zipf | Exponential | Correlated | Multimodal
Offsets = npt.NDArray[np.int64]


class Drawn(NamedTuple):
    """Topics of consecutive nodes in CSR form: ids from 0, ascending within a node."""

    offsets: Offsets
    topics: npt.NDArray[np.int32]


def generate(config: WorkloadConfig, seed: int | str) -> Interests:
    """Return the workload as an instance, with nodes n1, n2, ... and topics t1, t2, ... (the most popular first)."""
    if isinstance(config, Spatial):
        from trellis.workloads.spatial import generate_spatial

        return generate_spatial(config, seed)
    if isinstance(config, Hierarchical):
        from trellis.workloads.hierarchical import generate_hierarchical

        return generate_hierarchical(config, seed)
    drawn = generate_range(config, seed, 0, config.nodes)
    return Interests(numbered("n", config.nodes), numbered("t", config.topics), drawn.offsets, drawn.topics)


def generate_range(config: RangeConfig, seed: int | str, first: int, last: int) -> Drawn:
    """Return the topics of the nodes first .. last-1 only, counted from 0. `last` may be larger than `config.nodes`."""
    if isinstance(config, Correlated):
        sizes = np.full(last - first, config.subs)
        bounds = even_bounds(config.topics, config.buckets if config.level != "random" else 1)
        return draw_buckets(sizes, bounds, config.buckets_chosen, seed, first)
    sizes = node_sizes(config.subs, seed, first, last)
    return draw(sizes, tables_of(config), config.b_p if isinstance(config, Multimodal) else 1, seed, first)


def node_sizes(sizes: Sizes, seed: int | str, first: int, last: int) -> Offsets:
    """Return the number of topics of each of the nodes first .. last-1."""
    return sizes_from(sizes, uniform_numbers(seed, "sizes", first, last)[:, 0])


def draw(sizes: Offsets, tables: Tables, picks: int, seed: int | str, first: int = 0, purpose: str = "topics") -> Drawn:
    """Do draw(m, p) for the m of each node: draw different topics independently, and discard repeats."""
    drawn = _room_for(sizes)
    with np.errstate(over="ignore"):  # The streams wrap around by design; only interpreted kernels would warn.
        kernels.draw_topics(
            base_of(seed, purpose),
            first,
            drawn.offsets,
            tables.bounds,
            picks,
            tables.keep,
            tables.other,
            tables.log_weight,
            drawn.topics,
        )
    return drawn


def draw_buckets(sizes: Offsets, bounds: Offsets, picks: int, seed: int | str, first: int = 0) -> Drawn:
    """Draw the topics of each node from `picks` buckets, equally many from each."""
    drawn = _room_for(sizes)
    with np.errstate(over="ignore"):
        kernels.draw_buckets(base_of(seed, "topics"), first, drawn.offsets, bounds, picks, drawn.topics)
    return drawn


def uniform_numbers(seed: int | str, purpose: str, first: int, last: int, per_node: int = 1) -> npt.NDArray[np.float64]:
    """Return the first `per_node` numbers of each node's stream for `purpose`, uniform in [0, 1), one row per node."""
    with np.errstate(over="ignore"):
        numbers: npt.NDArray[np.float64] = kernels.units(base_of(seed, purpose), first, last - first, per_node)
    return numbers


def base_of(seed: int | str, purpose: str) -> np.uint64:
    """Return the base from which all node streams of one purpose are derived."""
    return np.uint64(ids.stream(seed, "workload", purpose) & 0xFFFF_FFFF_FFFF_FFFF)


def numbered(prefix: str, count: int) -> Names:
    """Return the names prefix1 .. prefixCOUNT, which are in shortlex order."""
    numbers = pc.cast(pa.array(np.arange(1, count + 1)), pa.string())
    return Names(pc.binary_join_element_wise(prefix, numbers, ""))


def _room_for(sizes: Offsets) -> Drawn:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return Drawn(offsets, np.empty(offsets[-1], np.int32))
