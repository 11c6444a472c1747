"""Is every topic connected? Asked of the nodes themselves, by their admin ports; and how long a mend took.

A link counts if both ends say that they have it. A topic is whole if its subscribers that are up and awake reach each
other over links between nodes that take part in it: publishers that do not subscribe may be among these.

A mend is timed from the signal to the end of the first round of snapshots in which every topic is whole among those
who had joined by then. Rounds follow each other at `ROUND_S` at the quickest: times are too long rather than too short.
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
    """`/overlay.json`, as far as it matters here."""

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
        """None where the node does not answer, or not in time."""
        try:
            status, body = await self._client.get("/overlay.json", timeout_s=_ANSWER_S)
            return msgspec.json.decode(body, type=Snapshot) if status == 200 else None
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return None

    def close(self) -> None:
        self._client.close()


def links_of(snapshots: Mapping[str, Snapshot]) -> set[tuple[str, str]]:
    """Those that both ends have, each once."""
    claimed = {(name, link.peer) for name, found in snapshots.items() for link in found.links}
    return {(u, v) for u, v in claimed if u < v and (v, u) in claimed}


def one_sided(snapshots: Mapping[str, Snapshot]) -> set[tuple[str, str]]:
    """Links that only the first of the two has, or that lead to nobody."""
    claimed = {(name, link.peer) for name, found in snapshots.items() for link in found.links}
    return {(u, v) for u, v in claimed if (v, u) not in claimed}


def split_topics(snapshots: Mapping[str, Snapshot], subscribers: Mapping[str, Iterable[str]]) -> set[str]:
    """The topics whose subscribers do not reach each other. One without a snapshot reaches nobody."""
    near: dict[str, set[str]] = {name: set() for name in snapshots}
    for u, v in links_of(snapshots):
        near[u].add(v)
        near[v].add(u)
    taking = {name: frozenset(found.topics) for name, found in snapshots.items()}
    split = set()
    for topic, wanting in subscribers.items():
        wants = set(wanting)
        if len(wants) < 2:
            continue
        start = min(wants)
        reached, stack = {start}, [start] if start in near else []
        while stack:
            new = {one for one in near[stack.pop()] if topic in taking[one]} - reached
            reached |= new
            stack += new
        if not wants <= reached:
            split.add(topic)
    return split


@dataclass(slots=True)
class Mend:
    cause: str  # kill, hang or resume
    nodes: tuple[str, ...]
    at: float
    split: set[str] = field(default_factory=set)  # topics; none: nobody was on the only way between others
    rounds: int = 0
    seconds: float | None = None  # None: not mended yet

    def __str__(self) -> str:
        if self.seconds is None:
            return f"{' '.join(self.nodes)}: not mended, {len(self.split)} topics are split"
        told = f"{len(self.split)} topics were split" if self.split else "no topic was split"
        return f"{self.cause} of {' '.join(self.nodes)}: {told}, whole after {1_000 * self.seconds:.0f} ms"

    def to_json(self) -> dict[str, object]:
        ms = round(1_000 * self.seconds) if self.seconds is not None else None
        return {"cause": self.cause, "nodes": self.nodes, "ms": ms, "split": sorted(self.split), "rounds": self.rounds}


def percentile(values: Iterable[float], share: float) -> float | None:
    """The smallest value that at least `share` of all are not above."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, -(-round(share * 1_000) * len(ordered) // 1_000) - 1)]
