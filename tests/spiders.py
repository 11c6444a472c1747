"""SpiderCast nodes for tests: who wants what, and who knows whom, in a line each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from trellis.ids import stream
from trellis.protocols.membership import KnownInterests
from trellis.protocols.spidercast import NeighborConfig, SpiderCastConfig, SpiderCastNode
from trellis.protocols.spidercast.messages import Connect, ConnectOk, Stamp, Task
from trellis.protocols.topics import TopicTable


def spider(
    name: str,
    interests: Mapping[str, str],
    knows: Iterable[str] | None = None,
    *,
    config: NeighborConfig | None = None,
    seed: int = 1,
    table: TopicTable | None = None,
    incarnation: int = 1,
    kind: type[SpiderCastNode] = SpiderCastNode,
    **fields: Any,
) -> SpiderCastNode:
    """`spider("a", {"a": "xy", "b": "x"}, "b", coverage_greedy=1)`: a topic is a letter; it knows b, or everybody."""
    table = table if table is not None else TopicTable()
    known = {other: table.bits(tuple(sorted(interests[other]))) for other in (interests if knows is None else knows)}
    return kind(
        name,
        tuple(sorted(interests[name])),
        Random(stream(seed, "node", name, incarnation)),
        config or SpiderCastConfig(**fields),
        view=KnownInterests(name, Random(stream(seed, "view", name)), known),
        table=table,
        incarnation=incarnation,
    )


def spiders(interests: Mapping[str, str], knows: Mapping[str, Iterable[str]] | None = None, **fields: Any):
    """All of them, with one table of topics."""
    table = TopicTable()
    knows = knows or {}
    return [spider(name, interests, knows.get(name), table=table, **fields) for name in interests]


def connect(degree: int, target: int, topics: str, task: Task = "greedy", version: int = 0, life: int = 1) -> Connect:
    return Connect(task, degree, target, tuple(sorted(topics)), Stamp(life, version))


def connect_ok(
    degree: int, target: int, topics: str, task: Task = "greedy", version: int = 0, life: int = 1
) -> ConnectOk:
    return ConnectOk(task, degree, target, tuple(sorted(topics)), Stamp(life, version))
