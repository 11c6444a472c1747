"""Perfect routing tables in cycles: each node selects among all others, without gossip.  [VI Alg. 4, Eq. 1]

They show what gossip can come to at best. The selection is that of `tables.py`: true successor and predecessor, the
nodes closest to the drawn distances, and the friends of greatest utility. The candidates come in random order, so ties
are broken at random.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, assignment"

from __future__ import annotations

from typing import Any

import numpy as np

from trellis.cycles.chance import shuffle
from trellis.cycles.newscast import make_views
from trellis.cycles.presence import Presence
from trellis.cycles.tables import Candidates, Links, Rule, Tables, select
from trellis.jit import njit


def fill_tables(tables: Tables, wants: Any, presence: Presence, rule: Rule, chance: Any) -> None:
    """Let each node choose its table among all others. The tables must be empty."""
    nodes = len(tables.count)
    views = make_views(np.full((nodes, 1), -1, np.int32), 1)  # Nobody has samples or links:
    links = Links(np.zeros(nodes + 1, np.int64), np.empty(0, np.uint32))  # a node is told of all others.
    scratch = Candidates(
        np.empty(nodes, np.uint32),
        np.empty(nodes, np.float64),
        np.empty(nodes, np.uint64),
        np.empty(nodes, np.bool_),
        np.empty(rule.size, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(len(wants.topic_places), np.uint8),
        np.empty(nodes, np.uint32),
    )
    select_all(tables, wants, views, links, presence, np.arange(nodes, dtype=np.uint32), scratch, rule, chance)
    tables.told[:] = tables.beside


@njit(folder=True)
def select_all(tables, wants, views, links, presence, order, scratch, rule, chance):
    """Tell each node of all others, in random order, and let it select.

    order  all nodes; it is shuffled
    """
    told, count = scratch.told, len(order) - 1
    if count == 0:
        return
    for node in range(len(order)):
        shuffle(order, chance)
        place = 0
        for other in order:
            if other != node:
                told[place] = other
                place += 1
        first = np.int64(told[0])
        select(tables, wants, views, links, presence, node, first, told, count, scratch, node + 1, rule)
