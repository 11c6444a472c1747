"""The state of a whole mesh as seen from outside: its nodes, links, split topics and recent events.

`MeshView` is fed by snapshots of nodes (`take`, `down`, then `settle`), which the dashboard reads from admin ports. Or
it is fed by a recorded run (`put`, `down`, `link`; `lab/film.py`). It turns changes into events for the dashboard's
page, which applies the same events to a running mesh and to a recording:

    `node`    name, place on the ring, state, topics and incarnation of a node that is new or has changed. `is_news`:
              its state or incarnation has changed
    `link`    u, v and the state of a link: up; broken (one end still reports it, and the other is down); gone
    `mend`    a repair: its coordinator (`by`), its node and cause; `state` is began or ended, with its duration `ms`
    `sample`  one row of the series
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

PAST_MAX = 200  # most past events that a new reader is sent
SERIES_MAX = 900  # most rows of the series that are kept
FORGET_MS = 120_000  # A node that is down is shown for this long.

# silent: it does not answer. unknown: a neighbor reports a link with it, and it was never read.
State = Literal["up", "joining", "leaving", "down", "left", "silent", "unknown"]
LIVING = frozenset(("up", "joining", "leaving"))  # states of nodes that run
MEMBERS = frozenset(("up", "leaving"))  # states of nodes that are part of the overlay
LinkState = Literal["up", "broken", "gone"]
Event = tuple[str, dict[str, Any]]  # kind and data
Pair = tuple[NodeId, NodeId]  # the ends of a link, the smaller name first
Word = Annotated[str, Meta(max_length=64)]
Sentence = Annotated[str, Meta(max_length=512)]


class LinkTold(msgspec.Struct, frozen=True):
    """A link that a node reports."""

    peer: NodeName


class ReportedRepair(msgspec.Struct, frozen=True):
    """A repair that a node reports. The fields are those of `repair_times.RepairTime`."""

    cause: Word
    number: Count
    node: NodeName
    at_ms: Count
    ms: Count | None = None


class RequestTold(msgspec.Struct, frozen=True):
    """A change of a link that an operator has requested (`link_requests.py`)."""

    change: Word  # open or drop
    peer: NodeName
    state: Word  # under way, done or refused
    why: Annotated[str, Meta(max_length=2_048)] = ""


class Snapshot(msgspec.Struct, frozen=True):
    """The parts of /overlay.json that are used. All sizes are limited, since a node could send anything."""

    node: NodeName
    incarnation: Count
    overlay: Word
    topics: Annotated[tuple[Name, ...], Meta(max_length=100_000)]
    links: Annotated[tuple[LinkTold, ...], Meta(max_length=10_000)]
    requests: Annotated[tuple[RequestTold, ...], Meta(max_length=1_000)] = ()
    leaving: bool = False
    joined: bool = True
    mends: Annotated[tuple[ReportedRepair, ...], Meta(max_length=1_000)] = ()
    mending: Annotated[tuple[ReportedRepair, ...], Meta(max_length=1_000)] = ()
    clients: Count = 0
    counters: Annotated[dict[Word, Count], Meta(max_length=64)] = {}
    complaints: Annotated[tuple[Sentence, ...], Meta(max_length=64)] = ()


SNAPSHOT = msgspec.json.Decoder(Snapshot)


class Seen(msgspec.Struct):
    """What is known of one node."""

    name: NodeId
    state: State
    topics: tuple[Topic, ...] = ()
    incarnation: int = 0
    since_ms: int = 0  # since when it has this state or incarnation
    claims: frozenset[NodeId] = frozenset()  # neighbors that it reports
    clients: int = 0
    counters: dict[str, int] = {}  # as it last reported them
    complaints: tuple[str, ...] = ()  # why it is not healthy
    mended: frozenset[int] = frozenset()  # numbers of ended repairs that it last reported; they end in any order
    mending: dict[int, dict[str, Any]] = {}  # running repairs by number, each with the data of its event


class MeshView:
    """The present state of a mesh, and the events that have led to it."""

    def __init__(self) -> None:
        self.nodes: dict[NodeId, Seen] = {}
        self.links: dict[Pair, LinkState] = {}
        self.overlay = ""
        self.news: list[Event] = []  # events since the last `drain`
        self.past: deque[Event] = deque(maxlen=PAST_MAX)
        self.series: deque[dict[str, Any]] = deque(maxlen=SERIES_MAX)
        # sums of the increments of the counters of all nodes and incarnations, since their first snapshots
        self.totals: Counter[str] = Counter()
        self._split: tuple[int, int] | None = None  # result of `split_topics`; None: it has to be computed again
        self._sampled: tuple[int, Counter[str]] | None = None  # time and `totals` of the last sample

    # From a running mesh

    def take(self, snapshot: Snapshot, at_ms: int) -> None:
        """Take in the snapshot of a node. Links follow when `settle` is called."""
        self.overlay = snapshot.overlay
        state: State = "leaving" if snapshot.leaving else "up" if snapshot.joined else "joining"
        before = self.nodes.get(snapshot.node)
        if before is None or before.incarnation != snapshot.incarnation or before.state not in LIVING:
            if before is not None and before.state in LIVING:
                self.down(snapshot.node, "down", at_ms)  # It has restarted between two snapshots.
            fresh = before is None or before.incarnation != snapshot.incarnation
            past = frozenset(repair.number for repair in snapshot.mends)
            mended = before.mended if before is not None and not fresh else past
            self.put(snapshot.node, snapshot.topics, at_ms, state=state, incarnation=snapshot.incarnation)
            self.nodes[snapshot.node].mended = mended
            self.nodes[snapshot.node].counters = dict(snapshot.counters)  # Only later increments count for `totals`.
        else:
            self.put(snapshot.node, snapshot.topics, at_ms, state=state, incarnation=snapshot.incarnation)
        seen = self.nodes[snapshot.node]
        seen.clients, seen.complaints = snapshot.clients, snapshot.complaints
        for key, value in snapshot.counters.items():
            self.totals[key] += max(0, value - seen.counters.get(key, 0))
        seen.counters = dict(snapshot.counters)
        seen.claims = frozenset(link.peer for link in snapshot.links)
        self._mends(seen, snapshot)

    def _mends(self, seen: Seen, snapshot: Snapshot) -> None:
        """Make events of repairs that have begun or ended since the node's last snapshot."""
        running = {
            repair.number: _repair_event(seen.name, repair, "began", repair.at_ms) for repair in snapshot.mending
        }
        for number, data in running.items():
            if number not in seen.mending:
                self._tell("mend", data)
        for repair in snapshot.mends:
            if repair.number not in seen.mended:
                self._tell("mend", _repair_event(seen.name, repair, "ended", repair.at_ms + (repair.ms or 0)))
        seen.mended = frozenset(repair.number for repair in snapshot.mends)
        seen.mending = running

    def settle(self, at_ms: int) -> None:
        """Update all links after some snapshots, and forget nodes that have been down for `FORGET_MS`.

        A link is up if both ends report it, or if one end does and the other is unknown. It is broken if one end
        reports it and the other is down.
        """
        links: dict[Pair, LinkState] = {}
        for seen in list(self.nodes.values()):
            if seen.state not in LIVING:
                if at_ms - seen.since_ms > FORGET_MS:
                    self._forget(seen.name, at_ms)
                continue
            for peer in sorted(seen.claims):
                if peer == seen.name:
                    continue
                seen_peer = self.nodes.get(peer)
                if seen_peer is None:
                    self.put(peer, (), at_ms, state="unknown")
                    seen_peer = self.nodes[peer]
                pair = (seen.name, peer) if seen.name < peer else (peer, seen.name)
                if seen_peer.state == "unknown" or (seen_peer.state in LIVING and seen.name in seen_peer.claims):
                    links[pair] = "up"
                elif seen_peer.state not in LIVING:
                    links[pair] = "broken"
        for pair in [pair for pair in self.links if pair not in links]:
            self.link(*pair, "gone", at_ms)
        for pair, state in links.items():
            self.link(*pair, state, at_ms)

    # From a running mesh or a recording

    def put(
        self, name: NodeId, topics: Iterable[Topic], at_ms: int, *, state: State = "up", incarnation: int = 0
    ) -> None:
        """Set the state, topics and incarnation of a node. It becomes an event if something has changed."""
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
        """Note that a node that ran does not run now. `state` says how it ended: down, left or silent."""
        seen = self.nodes.get(name)
        if seen is None or seen.state not in LIVING:
            return
        seen.state, seen.since_ms, seen.claims, seen.mending = state, at_ms, frozenset(), {}
        seen.complaints = ()
        self._changed(seen, at_ms, True)

    def link(self, u: NodeId, v: NodeId, state: LinkState, at_ms: int) -> None:
        """Set the state of a link, with `u` < `v`. It becomes an event if it has changed."""
        if self.links.get((u, v), "gone") == state:
            return
        if state == "gone":
            del self.links[u, v]
        else:
            self.links[u, v] = state
        self._split = None
        self._tell("link", {"at_ms": at_ms, "u": u, "v": v, "state": state})

    # For readers

    def drain(self) -> list[Event]:
        """Return the events since the last call."""
        news, self.news = self.news, []
        return news

    def whole(self, at_ms: int) -> dict[str, Any]:
        """Return the whole state for a new reader, as /mesh.json shows it."""
        return {
            "mode": "live",
            "at_ms": at_ms,
            "overlay": self.overlay,
            "nodes": [{**self._node(seen), **self._numbers(seen)} for seen in self.nodes.values()],
            "links": [[u, v, state] for (u, v), state in self.links.items()],
            "mending": [repair for seen in self.nodes.values() for repair in seen.mending.values()],
            "series": list(self.series),
            "past": [[kind, data] for kind, data in self.past],
        }

    def sample(self, at_ms: int) -> dict[str, Any]:
        """Add a row to the series. Return it, with the numbers of each node that runs."""
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
        """Forget a node, unless it is unknown and a link leads to it."""
        if self.nodes[name].state == "unknown" and any(name in pair for pair in self.links):
            return
        del self.nodes[name]
        self._tell("node", {"at_ms": at_ms, "name": name, "state": "forgotten"})

    def _tell(self, kind: str, data: dict[str, Any]) -> None:
        """Add an event. Repairs and changes of state are also kept for new readers."""
        self.news.append((kind, data))
        if kind == "mend" or data.get("is_news"):
            self.past.append((kind, {key: value for key, value in data.items() if key != "topics"}))


def _repair_event(by: NodeId, repair: ReportedRepair, state: str, at_ms: int) -> dict[str, Any]:
    """Return the data of an event about a repair that the node `by` coordinates."""
    return {
        "at_ms": at_ms,
        "by": by,
        "number": repair.number,
        "cause": repair.cause,
        "node": repair.node,
        "state": state,
        "ms": repair.ms,
    }


def split_topics(view: MeshView) -> tuple[int, int]:
    """Return how many topics are split into two or more parts, and how many topics there are.

    Only nodes in a state of `MEMBERS` count. Parts are found with a union-find structure over (topic, node).
    """
    parent: dict[tuple[Topic, NodeId], tuple[Topic, NodeId]] = {}
    parts: Counter[Topic] = Counter()
    for seen in view.nodes.values():
        if seen.state in MEMBERS:
            for topic in seen.topics:
                parent[topic, seen.name] = (topic, seen.name)
                parts[topic] += 1

    def root(member: tuple[Topic, NodeId]) -> tuple[Topic, NodeId]:
        while parent[member] != member:
            parent[member] = member = parent[parent[member]]
        return member

    topics = {seen.name: frozenset(seen.topics) for seen in view.nodes.values() if seen.state in MEMBERS}
    for (u, v), state in view.links.items():
        if state == "up" and u in topics and v in topics:
            for topic in topics[u] & topics[v]:
                first, second = root((topic, u)), root((topic, v))
                if first != second:
                    parent[first] = second
                    parts[topic] -= 1
    return sum(count > 1 for count in parts.values()), len(parts)
