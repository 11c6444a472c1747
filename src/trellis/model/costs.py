"""Read what links cost and how many links a node may have: two tables that `trellis plan` takes beside the interests.

Costs are given between nodes (a table u, v, cost), or between regions (the same table with regions as u and v, and a
table node, region). Both directions of a link cost the same, so a pair is listed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from trellis.errors import InputError
from trellis.model.kinds import CAPS, COSTS, REGIONS
from trellis.model.names import IdArray, Names
from trellis.model.read import Rows, first_repeated, read_rows, refuse_unknown

CostArray = npt.NDArray[np.float64]

COST_MAX = 1e15  # limit that keeps sums of costs exact enough
LINKS_MAX = 2**31 - 1  # the cap of a node that has none


@dataclass(frozen=True, eq=False)
class LinkCosts:
    """The cost of a link between any two nodes. Create it with `read_costs`, `between_nodes` or `between_regions`."""

    nodes: Names
    place: IdArray  # for each node, the place that determines its costs: the node itself, or its region
    places: Names  # the names of these places
    keys: npt.NDArray[np.int64]  # one key for each priced pair of places: lower * len(places) + higher; ascending
    values: CostArray  # the cost of each of these pairs
    default: float | None = None  # the cost of all other pairs; None: they have no cost
    source: str = ""  # the file of the costs, for error texts
    unused: int = 0  # rows about places without a node

    def of(self, u: npt.ArrayLike, v: npt.ArrayLike) -> CostArray:
        """Return the cost of each link (u, v), given by the ids of its ends.

        Raise InputError for a pair without a cost.
        """
        first, second = self.place[np.asarray(u, np.int64)], self.place[np.asarray(v, np.int64)]
        wanted = np.minimum(first, second).astype(np.int64) * len(self.places) + np.maximum(first, second)
        at = np.minimum(np.searchsorted(self.keys, wanted), max(len(self.keys) - 1, 0))
        known = self.keys[at] == wanted if len(self.keys) else np.zeros(len(wanted), bool)
        if not known.all() and self.default is None:
            missing = np.unique(wanted[~known])
            low, high = divmod(int(missing[0]), len(self.places))
            more = f" (and {len(missing) - 1:,} pairs more)" if len(missing) > 1 else ""
            what = f'there is no cost between "{self.places[low]}" and "{self.places[high]}"{more}'
            raise InputError(self.source, what, "add a row u, v, cost, or give a cost for all others: --cost-default")
        costs = np.full(len(wanted), 0.0 if self.default is None else self.default)
        costs[known] = self.values[at[known]]
        return costs

    def total(self, u: npt.ArrayLike, v: npt.ArrayLike) -> float:
        """Return the sum of the costs of all links (u, v)."""
        return float(self.of(u, v).sum())

    @property
    def is_complete(self) -> bool:
        """Return whether every two nodes have a cost."""
        if self.default is not None:
            return True
        if self.places is self.nodes:
            return len(self.keys) == len(self.nodes) * (len(self.nodes) - 1) // 2
        used, counts = np.unique(self.place, return_counts=True)
        low, high = (used[ends].astype(np.int64) for ends in np.triu_indices(len(used)))
        wanted = (low * len(self.places) + high)[(low != high) | np.isin(low, used[counts > 1])]
        return bool(np.all(np.isin(wanted, self.keys)))

    def over(self, nodes: Names) -> LinkCosts:
        """Return the same costs for a subset of the nodes."""
        return LinkCosts(
            nodes,
            self.place[self.nodes.ids_of(nodes.array)],
            self.places,
            self.keys,
            self.values,
            self.default,
            self.source,
            self.unused,
        )


@dataclass(frozen=True, eq=False)
class LinkCaps:
    """The largest number of links of each node."""

    nodes: Names
    links_max: npt.NDArray[np.int64]  # for each node; LINKS_MAX if it has no cap

    @classmethod
    def of_names(cls, nodes: Names, caps: dict[str, int]) -> LinkCaps:
        """Make caps from {node: links_max}. All other nodes have no cap."""
        links_max = np.full(len(nodes), LINKS_MAX, np.int64)
        for name, most in caps.items():
            links_max[nodes.id_of(name)] = most
        return cls(nodes, links_max)

    def over(self, nodes: Names) -> LinkCaps:
        """Return the same caps for a subset of the nodes."""
        return LinkCaps(nodes, self.links_max[self.nodes.ids_of(nodes.array)])


def between_nodes(
    nodes: Names, costs: dict[tuple[str, str], float], default: float | None = None, source: str = ""
) -> LinkCosts:
    """Make costs from {(node, node): cost}. For small instances and tests."""
    place = np.arange(len(nodes), dtype=np.int32)
    return _priced(nodes, place, nodes, costs, default, source)


def between_regions(
    nodes: Names,
    regions: dict[str, str],
    costs: dict[tuple[str, str], float],
    default: float | None = None,
    source: str = "",
) -> LinkCosts:
    """Make costs from {node: region} and {(region, region): cost}. For small instances and tests."""
    places = Names(sorted(set(regions.values())))
    place = np.array([places.id_of(regions[name]) for name in nodes], np.int32)
    return _priced(nodes, place, places, costs, default, source)


def _priced(
    nodes: Names,
    place: IdArray,
    places: Names,
    costs: dict[tuple[str, str], float],
    default: float | None,
    source: str,
) -> LinkCosts:
    u, v = (np.array([places.id_of(pair[end]) for pair in costs], np.int64) for end in (0, 1))
    keys = np.minimum(u, v) * len(places) + np.maximum(u, v)
    order = np.argsort(keys)
    values = np.array(list(costs.values()), np.float64)
    return LinkCosts(nodes, place, places, keys[order], values[order], default, source)


def read_costs(
    path: str | Path, nodes: Names, *, regions: str | Path | None = None, default: float | None = None
) -> LinkCosts:
    """Read the costs of links between `nodes`.

    path     a table u, v, cost: of nodes, or of regions if `regions` is given
    regions  a table node, region, with a row for every node
    default  the cost of pairs that are not listed; without it, `LinkCosts.of` refuses such a pair
    """
    if default is not None and not 0 <= default <= COST_MAX:
        raise InputError("--cost-default", f"{default:g} is no cost", f"give a number from 0 to {COST_MAX:g}")
    rows = read_rows(path, COSTS)
    values = np.asarray(rows.table["cost"], np.float64)
    wrong = np.flatnonzero(~((values >= 0) & (values <= COST_MAX)))
    if len(wrong):
        what = "is negative" if values[wrong[0]] < 0 else "is too great"
        remedy = f"costs are numbers from 0 to {COST_MAX:g}"
        raise InputError(rows.where(int(wrong[0])), f"cost {values[wrong[0]]:g} {what}", remedy)
    if regions is None:
        place, places = np.arange(len(nodes), dtype=np.int32), nodes
    else:
        place, places = _read_regions(regions, nodes)
    u, v = rows.ids("u", places), rows.ids("v", places)
    unused = 0
    if regions is None:
        for column, ids in (("u", u), ("v", v)):
            remedy = "remove the row, or name the regions of the nodes: --regions FILE"
            refuse_unknown(rows, column, ids, "no node of the interests", remedy)
        _refuse_loops(rows, u, v)
    else:  # A table may list more regions than the nodes are in.
        unused = int(np.count_nonzero((u < 0) | (v < 0)))
    keys = _refuse_repeated(rows, u, v, len(places))
    order = np.argsort(keys)
    order = order[keys[order] >= 0]
    return LinkCosts(nodes, place, places, keys[order], values[order], default, str(path), unused)


def _read_regions(path: str | Path, nodes: Names) -> tuple[IdArray, Names]:
    rows = read_rows(path, REGIONS)
    ids = rows.ids("node", nodes)
    refuse_unknown(rows, "node", ids, "no node of the interests", "remove the row")
    _refuse_second(rows, ids, nodes, "is in a region already")
    places = rows.names("region")
    place = np.full(len(nodes), -1, np.int32)
    place[ids] = rows.ids("region", places)
    without = np.flatnonzero(place < 0)
    if len(without):
        more = f" (and {len(without) - 1:,} nodes more)" if len(without) > 1 else ""
        raise InputError(str(path), f'node "{nodes[without[0]]}" has no region{more}', "add a row for every node")
    return place, places


def read_caps(path: str | Path, nodes: Names) -> LinkCaps:
    """Read how many links nodes may have, from a table node, links_max. Nodes without a row have no cap."""
    rows = read_rows(path, CAPS)
    ids, values = rows.ids("node", nodes), np.asarray(rows.table["links_max"], np.float64)
    refuse_unknown(rows, "node", ids, "no node of the interests", "remove the row")
    wrong = np.flatnonzero(~((values >= 0) & (values <= LINKS_MAX) & (values == np.floor(values))))
    if len(wrong):
        remedy = "give a whole number of 0 or more, or remove the row for a node without a cap"
        raise InputError(rows.where(int(wrong[0])), f"links_max {values[wrong[0]]:g} is no number of links", remedy)
    _refuse_second(rows, ids, nodes, "has a cap already")
    links_max = np.full(len(nodes), LINKS_MAX, np.int64)
    links_max[ids] = values.astype(np.int64)
    return LinkCaps(nodes, links_max)


def _refuse_second(rows: Rows, ids: IdArray, nodes: Names, what: str) -> None:
    again = first_repeated(ids)
    if again >= 0:
        raise InputError(rows.where(again), f'node "{nodes[ids[again]]}" {what}', "remove one of the two rows")


def _refuse_loops(rows: Rows, u: IdArray, v: IdArray) -> None:
    loops = np.flatnonzero(u == v)
    if len(loops):
        name = rows.table["u"][int(loops[0])].as_py()
        raise InputError(rows.where(int(loops[0])), f'"{name}" has no link to itself', "remove the row")


def _refuse_repeated(rows: Rows, u: IdArray, v: IdArray, count: int) -> npt.NDArray[np.int64]:
    """Return the key of each row's pair, or -1 if a place is unknown. Raise InputError if a pair is listed twice."""
    low, high = np.minimum(u, v).astype(np.int64), np.maximum(u, v).astype(np.int64)
    keys = np.where(low >= 0, low * count + high, -1)
    known = np.flatnonzero(keys >= 0)
    again = first_repeated(keys[known])
    if again >= 0:
        row = int(known[again])
        pair = f'"{rows.table["u"][row].as_py()}" and "{rows.table["v"][row].as_py()}"'
        what = f"{pair} have a cost already (the order of the two does not matter)"
        raise InputError(rows.where(row), what, "remove one of the two rows")
    return keys
