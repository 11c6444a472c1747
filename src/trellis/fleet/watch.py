"""Read from the nodes' admin ports whether every topic is connected, and measure how long a repair takes.

A link counts if both ends have it. A topic is whole if its subscribers that run reach each other over links between
nodes that take part in it. Publishers that do not subscribe may be among these nodes.

A repair is measured from the signal that killed or stopped a node, until the end of the first round of snapshots in
which every topic is whole among the nodes that have joined. Rounds are at least `ROUND_S` apart, so a measured time may
be a little too long, and is never too short.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from trellis.live.http_client import HttpClient

ROUND_S = 0.02
_ANSWER_S = 2.0


class Link(msgspec.Struct, frozen=True):
    peer: str
    topics: tuple[str, ...] = ()


class Snapshot(msgspec.Struct, frozen=True):
    """The fields of `/overlay.json` that are used here."""

    node: str
    incarnation: int
    topics: tuple[str, ...]
    links: tuple[Link, ...]
    leaving: bool = False


class AdminPort:
    """Reads snapshots of one node."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = HttpClient(address)

    async def snapshot(self) -> Snapshot | None:
        """Return a snapshot, or None if the node does not answer in time."""
        try:
            status, body = await self._client.get("/overlay.json", timeout_s=_ANSWER_S)
            return msgspec.json.decode(body, type=Snapshot) if status == 200 else None
        except (OSError, ValueError):  # The errors of msgspec are ValueErrors.
            return None

    def close(self) -> None:
        self._client.close()


def links_of(snapshots: Mapping[str, Snapshot]) -> set[tuple[str, str]]:
    """Return the links that both ends have, each once."""
    claimed = {(name, link.peer) for name, snapshot in snapshots.items() for link in snapshot.links}
    return {(u, v) for u, v in claimed if u < v and (v, u) in claimed}


def one_sided(snapshots: Mapping[str, Snapshot]) -> set[tuple[str, str]]:
    """Return the links that only one end has, as (this end, the other end). The other end may be unknown."""
    claimed = {(name, link.peer) for name, snapshot in snapshots.items() for link in snapshot.links}
    return {(u, v) for u, v in claimed if (v, u) not in claimed}


def split_topics(snapshots: Mapping[str, Snapshot], subscribers: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the topics whose subscribers do not all reach each other. A node without a snapshot reaches no other."""
    near: dict[str, set[str]] = {name: set() for name in snapshots}
    for u, v in links_of(snapshots):
        near[u].add(v)
        near[v].add(u)
    taking = {name: frozenset(snapshot.topics) for name, snapshot in snapshots.items()}
    split = set()
    for topic, names in subscribers.items():
        subscribed = set(names)
        if len(subscribed) < 2:
            continue
        start = min(subscribed)
        reached, stack = {start}, [start] if start in near else []
        while stack:
            new = {peer for peer in near[stack.pop()] if topic in taking[peer]} - reached
            reached |= new
            stack += new
        if not subscribed <= reached:
            split.add(topic)
    return split


@dataclass(slots=True)
class Repair:
    """A fault, and how long it took until every topic was connected again."""

    cause: str  # kill, hang or resume
    nodes: tuple[str, ...]
    at: float  # time of the fault
    split: set[str] = field(default_factory=set)  # topics that were seen split; none if other links connect them
    rounds: int = 0  # rounds of snapshots since the fault
    seconds: float | None = None  # None while some topic is still split

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{' '.join(self.nodes)}: not repaired, {len(self.split)} topics are split"
        split = f"{len(self.split)} topics were split" if self.split else "no topic was split"
        return f"{self.cause} of {' '.join(self.nodes)}: {split}, whole after {1_000 * self.seconds:.0f} ms"

    def to_json(self) -> dict[str, object]:
        ms = round(1_000 * self.seconds) if self.seconds is not None else None
        return {"cause": self.cause, "nodes": self.nodes, "ms": ms, "split": sorted(self.split), "rounds": self.rounds}


def percentile(values: Iterable[float], share: float) -> float | None:
    """Return the smallest value that at least a share of `share` of all values does not exceed."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, -(-round(share * 1_000) * len(ordered) // 1_000) - 1)]
