"""A mesh as somebody sees it from outside: who is up, which links stand, which topics are split, what happened.

It is fed by snapshots of nodes (`take`, `lost`) or by a recorded run (`put`, `down`, `link`), and tells changes as
events. The page applies the same events, whether they come as they happen or from a recording:

    node    a node's name, place, state, topics and incarnation: new, or changed (is_news: its state has)
    link    u, v and its state: up; broken (one end still claims it, the other is down); gone
    mend    by whom, about whom, its cause; began, or ended after some ms
    sample  one row of the series
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.ring import place
from trellis.protocols.wire import Count, Name, NodeName

PAST_MAX = 200  # events that a new reader is told
SERIES_MAX = 900
FORGET_MS = 120_000  # a node that is down is shown for so long

State = Literal["up", "joining", "leaving", "down", "left", "silent", "unknown"]
LIVING = frozenset(("up", "joining", "leaving"))
MEMBERS = frozenset(("up", "leaving"))
LinkState = Literal["up", "broken", "gone"]
Event = tuple[str, dict[str, Any]]
Pair = tuple[NodeId, NodeId]
Word = Annotated[str, Meta(max_length=64)]
Sentence = Annotated[str, Meta(max_length=512)]


class LinkTold(msgspec.Struct, frozen=True):
    peer: NodeName


class MendTold(msgspec.Struct, frozen=True):
    cause: Word
    number: Count
    node: NodeName
    at_ms: Count
    ms: Count | None = None


class RequestTold(msgspec.Struct, frozen=True):
    """What an operator has asked a node to do with a link."""

    change: Word
    peer: NodeName
    state: Word
    why: Annotated[str, Meta(max_length=2_048)] = ""


class Snapshot(msgspec.Struct, frozen=True):
    """/overlay.json, as it is believed. A node could send anything: everything has a limit."""

    node: NodeName
    incarnation: Count
    overlay: Word
    topics: Annotated[tuple[Name, ...], Meta(max_length=100_000)]
    links: Annotated[tuple[LinkTold, ...], Meta(max_length=10_000)]
    requests: Annotated[tuple[RequestTold, ...], Meta(max_length=1_000)] = ()
    leaving: bool = False
    joined: bool = True
    mends: Annotated[tuple[MendTold, ...], Meta(max_length=1_000)] = ()
    mending: Annotated[tuple[MendTold, ...], Meta(max_length=1_000)] = ()
    clients: Count = 0
    counters: Annotated[dict[Word, Count], Meta(max_length=64)] = {}
    complaints: Annotated[tuple[Sentence, ...], Meta(max_length=64)] = ()


SNAPSHOT = msgspec.json.Decoder(Snapshot)


class Seen(msgspec.Struct):
    """A node, as far as it is known here."""

    name: NodeId
    state: State
    topics: tuple[Topic, ...] = ()
    incarnation: int = 0
    since_ms: int = 0  # of its state
    claims: frozenset[NodeId] = frozenset()
    clients: int = 0
    counters: dict[str, int] = {}
    complaints: tuple[str, ...] = ()  # why it is not healthy
    mended: frozenset[int] = frozenset()  # repairs that were over when it was last asked: they may end in any order
    mending: dict[int, dict[str, Any]] = {}  # repairs that go on: by number, as they were told


class MeshView:
    def __init__(self) -> None:
        self.nodes: dict[NodeId, Seen] = {}
        self.links: dict[Pair, LinkState] = {}
        self.overlay = ""
        self.news: list[Event] = []  # since it was last taken
        self.past: deque[Event] = deque(maxlen=PAST_MAX)
        self.series: deque[dict[str, Any]] = deque(maxlen=SERIES_MAX)
        self.totals: Counter[str] = Counter()  # of all nodes and lives, since we look
        self._split: tuple[int, int] | None = None  # split topics and topics; None: something has changed
        self._sampled: tuple[int, Counter[str]] | None = None

    # From a running mesh

    def take(self, told: Snapshot, at_ms: int) -> None:
        self.overlay = told.overlay
        state: State = "leaving" if told.leaving else "up" if told.joined else "joining"
        before = self.nodes.get(told.node)
        if before is None or before.incarnation != told.incarnation or before.state not in LIVING:
            if before is not None and before.state in LIVING:
                self.down(told.node, "down", at_ms)  # it has come back between two looks
            fresh = before is None or before.incarnation != told.incarnation
            past = frozenset(one.number for one in told.mends)
            mended = before.mended if before is not None and not fresh else past
            self.put(told.node, told.topics, at_ms, state=state, incarnation=told.incarnation)
            self.nodes[told.node].mended = mended
            self.nodes[told.node].counters = dict(told.counters)  # what was before we looked is no news
        else:
            self.put(told.node, told.topics, at_ms, state=state, incarnation=told.incarnation)
        seen = self.nodes[told.node]
        seen.clients, seen.complaints = told.clients, told.complaints
        for key, value in told.counters.items():
            self.totals[key] += max(0, value - seen.counters.get(key, 0))
        seen.counters = dict(told.counters)
        seen.claims = frozenset(link.peer for link in told.links)
        self._mends(seen, told)

    def _mends(self, seen: Seen, told: Snapshot) -> None:
        running = {one.number: _mend(seen.name, one, "began", one.at_ms) for one in told.mending}
        for number, data in running.items():
            if number not in seen.mending:
                self._tell("mend", data)
        for one in told.mends:
            if one.number not in seen.mended:
                self._tell("mend", _mend(seen.name, one, "ended", one.at_ms + (one.ms or 0)))
        seen.mended = frozenset(one.number for one in told.mends)
        seen.mending = running

    def settle(self, at_ms: int) -> None:
        """After some snapshots: which links follow from what both ends claim?"""
        found: dict[Pair, LinkState] = {}
        for seen in list(self.nodes.values()):
            if seen.state not in LIVING:
                if at_ms - seen.since_ms > FORGET_MS:
                    self._forget(seen.name, at_ms)
                continue
            for peer in sorted(seen.claims):
                if peer == seen.name:
                    continue
                other = self.nodes.get(peer)
                if other is None:
                    self.put(peer, (), at_ms, state="unknown")
                    other = self.nodes[peer]
                pair = (seen.name, peer) if seen.name < peer else (peer, seen.name)
                if other.state == "unknown" or (other.state in LIVING and seen.name in other.claims):
                    found[pair] = "up"
                elif other.state not in LIVING:
                    found[pair] = "broken"
        for pair in [pair for pair in self.links if pair not in found]:
            self.link(*pair, "gone", at_ms)
        for pair, state in found.items():
            self.link(*pair, state, at_ms)

    # From anything

    def put(
        self, name: NodeId, topics: Iterable[Topic], at_ms: int, *, state: State = "up", incarnation: int = 0
    ) -> None:
        topics, seen = tuple(topics), self.nodes.get(name)
        if seen is not None and (seen.state, seen.topics, seen.incarnation) == (state, topics, incarnation):
            return
        is_news = seen is None or (seen.state, seen.incarnation) != (state, incarnation)
        if seen is None or seen.incarnation != incarnation:
            seen = self.nodes[name] = Seen(name, state, topics, incarnation, at_ms)
        seen.since_ms = at_ms if is_news else seen.since_ms
        seen.state, seen.topics = state, topics
        self._changed(seen, at_ms, is_news)

    def down(self, name: NodeId, state: State, at_ms: int) -> None:
        seen = self.nodes.get(name)
        if seen is None or seen.state not in LIVING:
            return
        seen.state, seen.since_ms, seen.claims, seen.mending = state, at_ms, frozenset(), {}
        seen.complaints = ()
        self._changed(seen, at_ms, True)

    def link(self, u: NodeId, v: NodeId, state: LinkState, at_ms: int) -> None:
        if self.links.get((u, v), "gone") == state:
            return
        if state == "gone":
            del self.links[u, v]
        else:
            self.links[u, v] = state
        self._split = None
        self._tell("link", {"at_ms": at_ms, "u": u, "v": v, "state": state})

    # To whoever looks

    def drain(self) -> list[Event]:
        news, self.news = self.news, []
        return news

    def whole(self, at_ms: int) -> dict[str, Any]:
        return {
            "mode": "live",
            "at_ms": at_ms,
            "overlay": self.overlay,
            "nodes": [{**self._node(seen), **self._numbers(seen)} for seen in self.nodes.values()],
            "links": [[u, v, state] for (u, v), state in self.links.items()],
            "mending": [one for seen in self.nodes.values() for one in seen.mending.values()],
            "series": list(self.series),
            "past": [[kind, data] for kind, data in self.past],
        }

    def sample(self, at_ms: int) -> dict[str, Any]:
        """One row of the series, and the numbers of each node."""
        living = [seen.name for seen in self.nodes.values() if seen.state in LIVING]
        degrees: Counter[NodeId] = Counter(dict.fromkeys(living, 0))
        for pair, state in self.links.items():
            if state == "up":
                degrees.update(pair)
        if self._split is None:
            self._split = split_topics(self)
        then_ms, before = self._sampled or (at_ms, self.totals)
        seconds = max(at_ms - then_ms, 1) / 1_000
        self._sampled = at_ms, Counter(self.totals)
        numbers = [degrees[name] for name in living]
        row = {
            "at_ms": at_ms,
            "nodes": len(living),
            "links": sum(state == "up" for state in self.links.values()),
            "degree_max": max(numbers, default=0),
            "degree_mean": round(sum(numbers) / max(len(numbers), 1), 3),
            "topics": self._split[1],
            "split_topics": self._split[0],
            "mends_running": sum(len(self.nodes[name].mending) for name in living),
            **{
                f"{key}_s": round((self.totals[key] - before[key]) / seconds, 2)
                for key in ("published", "acknowledged", "delivered")
            },
        }
        self.series.append(row)
        return {**row, "numbers": {name: self._numbers(self.nodes[name]) for name in living}}

    def _node(self, seen: Seen) -> dict[str, Any]:
        return {
            "name": seen.name,
            "place": place(seen.name),
            "state": seen.state,
            "topics": seen.topics,
            "incarnation": seen.incarnation,
            "since_ms": seen.since_ms,
        }

    def _numbers(self, seen: Seen) -> dict[str, Any]:
        return {"clients": seen.clients, "counters": seen.counters, "complaints": seen.complaints}

    def _changed(self, seen: Seen, at_ms: int, is_news: bool) -> None:
        self._split = None
        self._tell("node", {"at_ms": at_ms, "is_news": is_news, **self._node(seen)})

    def _forget(self, name: NodeId, at_ms: int) -> None:
        if self.nodes[name].state == "unknown" and any(name in pair for pair in self.links):
            return
        del self.nodes[name]
        self._tell("node", {"at_ms": at_ms, "name": name, "state": "forgotten"})

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        self.news.append((kind, data))
        if kind == "mend" or data.get("is_news"):
            self.past.append((kind, {key: value for key, value in data.items() if key != "topics"}))


def _mend(by: NodeId, one: MendTold, state: str, at_ms: int) -> dict[str, Any]:
    return {
        "at_ms": at_ms,
        "by": by,
        "number": one.number,
        "cause": one.cause,
        "node": one.node,
        "state": state,
        "ms": one.ms,
    }


def split_topics(view: MeshView) -> tuple[int, int]:
    """How many topics are in more than one part, and how many topics there are. Who still joins is no part of any."""
    parent: dict[tuple[Topic, NodeId], tuple[Topic, NodeId]] = {}
    parts: Counter[Topic] = Counter()
    for seen in view.nodes.values():
        if seen.state in MEMBERS:
            for topic in seen.topics:
                parent[topic, seen.name] = (topic, seen.name)
                parts[topic] += 1

    def root(one: tuple[Topic, NodeId]) -> tuple[Topic, NodeId]:
        while parent[one] != one:
            parent[one] = one = parent[parent[one]]
        return one

    topics = {seen.name: frozenset(seen.topics) for seen in view.nodes.values() if seen.state in MEMBERS}
    for (u, v), state in view.links.items():
        if state == "up" and u in topics and v in topics:
            for topic in topics[u] & topics[v]:
                one, other = root((topic, u)), root((topic, v))
                if one != other:
                    parent[one] = other
                    parts[topic] -= 1
    return sum(count > 1 for count in parts.values()), len(parts)
