"""Read from telemetry which subscriptions are in force when it ends, without Spark.

`pipeline.stages.interests.final_subscriptions` has the same rules. A node that left has no subscription. Otherwise the
latest event of a node and topic counts, if it is not older than the node's latest join or departure. At one time a
departure comes first, then a join, then changes of subscriptions, and a subscribe comes after an unsubscribe.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trellis.errors import InputError
from trellis.model.interests import Interests
from trellis.model.kinds import CHURN
from trellis.model.layout import OURS, Layout
from trellis.model.lines import is_lines
from trellis.model.names import IdArray, Names
from trellis.model.read import Rows, read_rows
from trellis.model.telemetry import BOUNDARIES, CHANGES, EVENTS, telemetry_files

_EVENTS = Names(EVENTS)
_SAME_NAMES = Layout({name: name for name in CHURN.columns})  # further columns are ignored


class InForce(NamedTuple):
    """The subscriptions in force, and the number of events that tell them."""

    interests: Interests
    events: int


def interests_in_force(path: str | Path) -> InForce:
    """Return the subscriptions in force at the end of the telemetry: a file, or a folder of files."""
    path = Path(path)
    files = telemetry_files(path)
    if not files:
        raise InputError(str(path), "is no telemetry", "name a file that nodes write ([telemetry] file), or a folder")
    tables = []
    for file in files:
        rows = read_rows(file, CHURN, OURS if is_lines(file) else _SAME_NAMES)
        _refuse_wrong(rows)
        tables.append(rows.table)
    rows = Rows(CHURN, path, pa.concat_tables(tables).unify_dictionaries().combine_chunks())
    nodes, topics = rows.names("node"), rows.names("topic")
    if not rows.table.num_rows or not len(topics):
        raise InputError(str(path), "there is no subscription in it", "name telemetry of nodes that subscribe")
    time = np.asarray(rows.table["time"], np.float64)
    event = rows.ids("event", _EVENTS)
    node, topic = _in_force(time, rows.ids("node", nodes), event, rows.ids("topic", topics), len(nodes), len(topics))
    if not len(node):
        raise InputError(str(path), "no subscription is in force at its end", "name telemetry of nodes that run")
    (wanted_nodes, node_ids), (wanted_topics, topic_ids) = _only(nodes, node), _only(topics, topic)
    return InForce(Interests.from_ids(wanted_nodes, wanted_topics, node_ids, topic_ids), rows.table.num_rows)


def _in_force(
    time: npt.NDArray[np.float64], node: IdArray, event: IdArray, topic: IdArray, nodes: int, topics: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return node and topic of each subscription in force."""
    is_boundary = event < len(BOUNDARIES)
    reset = np.full(nodes, -np.inf)  # the latest join or departure of each node
    np.maximum.at(reset, node[is_boundary], time[is_boundary])
    is_last = is_boundary & (time == reset[node])
    joined = np.zeros(nodes, bool)
    joined[node[is_last & (event == EVENTS.index("join"))]] = True
    gone = np.where(np.isfinite(reset) & ~joined, reset, -np.inf)  # when a node left that has not come back

    counts = np.isin(event, [EVENTS.index(name) for name in CHANGES]) & (time >= reset[node])
    time, event = time[counts], event[counts]
    pair = node[counts].astype(np.int64) * topics + topic[counts]
    wanted = event == EVENTS.index("subscribe")
    order = np.lexsort([wanted, time, pair])
    pair, time, wanted = pair[order], time[order], wanted[order]
    is_latest = np.append(pair[1:] != pair[:-1], True)[: len(pair)]
    pair, time, wanted = pair[is_latest], time[is_latest], wanted[is_latest]
    # A node that subscribes after it left has restarted, and its join was lost from the log.
    kept = pair[wanted & (time > gone[pair // topics])]
    return kept // topics, kept % topics


def _only(names: Names, ids: npt.NDArray[np.int64]) -> tuple[Names, npt.NDArray[np.intp]]:
    """Return the names that occur, and the ids for them."""
    used, places = np.unique(ids, return_inverse=True)
    return Names(names.take(used)), places.ravel()


def _refuse_wrong(rows: Rows) -> None:
    event = rows.ids("event", _EVENTS)
    unknown = np.flatnonzero(event < 0)
    if len(unknown):
        name = rows.table["event"][int(unknown[0])].as_py()
        raise InputError(rows.where(int(unknown[0])), f'event "{name}" is unknown', f"write one of {', '.join(EVENTS)}")
    without = rows.ids("topic", rows.names("topic")) < 0
    wrong = np.flatnonzero(np.isin(event, [EVENTS.index(name) for name in CHANGES]) & without)
    if len(wrong):
        raise InputError(rows.where(int(wrong[0])), "a subscription has no topic", "name the topic")
