"""Repairs of OMen in cycles: the protocol's own, with messages that arrive within a round.  [OM Alg. 1, Alg. 5]

A coordinator of the protocol sends questions, waits for answers, and has links opened. The protocol's `Repair` decides
all of that after a departure, and its `Join` for a joiner. Both are used here as they are, with numbers in place of
names: node i is the i-th name in order, and so is topic i, so that ties fall as they do there. This module plays the
other nodes. It makes their answers from the arrays of the run, lets each message take `LATENCY_MS`, and lets timers
fire. A node that is not there does not answer.

What records and hints would say is taken from the overlay: a record names all links of its node, and a hint is the
shortest path to the root of a topic's part (`paths.py`), as it was before the departure. A neighbor of a node that has
crashed has noticed that, and has chosen another path.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import heappop, heappush
from typing import Any, cast

import numpy as np

from trellis import ids
from trellis.cycles.instance import Instance
from trellis.cycles.paths import Search, label_parts, make_search, tree_of
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Send, SetTimer
from trellis.protocols.omen.config import OMenConfig
from trellis.protocols.omen.links.hints import root_key
from trellis.protocols.omen.me import REFUTATIONS
from trellis.protocols.omen.messages import (
    PATH_MAX,
    Answer,
    Ask,
    Hint,
    LinkOpened,
    Neighbor,
    NodeRun,
    Opened,
    OpenLink,
    Record,
    Relayed,
    pack,
)
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.procedure import DONE, Context
from trellis.protocols.omen.repair.repair import Departed, Repair
from trellis.protocols.omen.shadow import low_edges

LATENCY_MS = 10  # the event engine's default
# Messages from the request to open a link until the coordinator is told: OpenLink, Record, RecordOk, Connect, Record,
# RecordOk, ConnectOk, LinkOpened.
OPENING = 8


class Overlay:
    """What repairs read of a run: who is there, who wants what, and the links."""

    def __init__(self, instance: Instance, config: OMenConfig, seed: int, alive: Any, lives: Any, joining: Any) -> None:
        self.instance, self.config, self.seed = instance, config, seed
        self.alive, self.lives, self.joining = alive, lives, joining
        self.links: Any = None  # The pool of links; the network sets it.
        self.search: Search = make_search(len(instance.nodes))
        self._keys: dict[int, int] = {}
        self._topics: dict[int, tuple[int, ...]] = {}
        self._orders: dict[int, Any] = {}

    def key(self, node: int) -> int:
        """Return the key by which ties between nodes are broken, as `Parts.key` does."""
        found = self._keys.get(node)
        if found is None:
            found = self._keys[node] = ids.key(self.seed, self.instance.nodes[node])
        return found

    def topics(self, node: int) -> tuple[int, ...]:
        found = self._topics.get(node)
        if found is None:
            wants = self.instance.wants
            found = tuple(wants.topics[wants.offsets[node] : wants.offsets[node + 1]].tolist())
            self._topics[node] = found
        return found

    def members(self, topic: int) -> Any:
        """Return all nodes that have a topic, also those that are not there."""
        wants = self.instance.wants
        return wants.subscribers[wants.topic_offsets[topic] : wants.topic_offsets[topic + 1]]

    def order(self, topic: int) -> Any:
        """Return the places of the members in the order of their keys: the first that is there is the root."""
        found = self._orders.get(topic)
        if found is None:
            names, name = self.instance.nodes, self.instance.topics[topic]
            keys = [root_key(name, names[node]) for node in self.members(topic).tolist()]
            found = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int32)
            self._orders[topic] = found
        return found

    def neighbors(self, node: int) -> list[int]:
        """Return the neighbors of a node, also those that have crashed and are not repaired around yet."""
        begin = self.links.start[node]
        found: list[int] = self.links.data[begin : begin + self.links.count[node], 0].tolist()
        return found

    def living_neighbors(self, node: int) -> list[int]:
        begin = self.links.start[node]
        row = self.links.data[begin : begin + self.links.count[node], 0]
        found: list[int] = row[self.alive[row]].tolist()
        return found

    def incarnation(self, node: int) -> int:
        return int(self.lives[node]) * REFUTATIONS

    def labels(self, topic: int, nodes: list[int], gone: Collection[int]) -> dict[int, int]:
        """Return the part of each of these nodes in the whole overlay. This is the oracle of OMen-G."""
        out = np.array(sorted(gone), np.int64)
        starts = np.array(nodes, np.int64)
        labels = label_parts(self.links, self.alive, self.members(topic), starts, out, self.search).tolist()
        return {node: label for node, label in zip(nodes, labels, strict=True) if label >= 0}

    def count_parts(self, topic: int) -> int:
        """Return how many parts a topic has."""
        members, none = self.members(topic), np.empty(0, np.int64)
        labels = label_parts(self.links, self.alive, members, members.astype(np.int64), none, self.search)
        return len(np.unique(labels[labels >= 0]))

    def roots(self, topic: int) -> list[int]:
        """Return the root of each part of a topic, the one of smallest key first."""
        members = self.members(topic)[self.order(topic)].astype(np.int64)
        none = np.empty(0, np.int64)
        labels = label_parts(self.links, self.alive, members, members, none, self.search)
        first = np.unique(labels[labels >= 0])
        return [int(members[place]) for place in first]


class Hints:
    """Root paths as they were before a departure. `crashed`: nodes whose neighbors have noticed that they are gone."""

    def __init__(self, overlay: Overlay, also: int, crashed: Collection[int]) -> None:
        self.overlay, self.also, self.crashed = overlay, also, crashed
        self._parents: dict[int, dict[int, int]] = {}
        self._paths: dict[int, dict[int, tuple[int, ...]]] = {}  # topic -> the paths that were followed so far

    def path(self, topic: int, node: int) -> tuple[int, ...]:
        """Return the nodes from the next hop to the root."""
        parents = self._parents.get(topic)
        if parents is None:
            parents = self._tree(topic)
        if self.crashed and parents.get(node, -1) in self.crashed:
            return self._other_path(topic, node)
        return self._follow(topic, node)

    def _follow(self, topic: int, node: int) -> tuple[int, ...]:
        """Return the path in the tree. The paths of the first steps are often known already."""
        paths, parents = self._paths[topic], self._parents[topic]
        path = paths.get(node)
        if path is not None:
            return path
        found, step = list[int](), parents.get(node, -1)
        while step >= 0 and len(found) < PATH_MAX:
            found.append(step)
            path = paths.get(step)
            if path is not None:
                found += path
                break
            step = parents[step]
        path = paths[node] = tuple(found[:PATH_MAX])
        return path

    def _other_path(self, topic: int, node: int) -> tuple[int, ...]:
        """Return the path of a node whose next hop has crashed: the best one that another neighbor has told."""
        parents, best = self._parents[topic], tuple[int, ...]()
        for peer in sorted(self.overlay.neighbors(node)):
            if peer in parents and peer not in self.crashed:
                path = (peer, *self._follow(topic, peer))
                if node not in path and (not best or len(path) < len(best)):
                    best = path
        return best

    def _tree(self, topic: int) -> dict[int, int]:
        """Return the next hop of each member. Search for it where the topic is new."""
        one = self.overlay
        count = tree_of(one.links, one.alive, one.members(topic), one.order(topic), self.also, one.search)
        met = one.search.queue[:count]
        self._paths[topic] = {}
        found = self._parents[topic] = dict(zip(met.tolist(), one.search.parent[met].tolist(), strict=True))
        return found


class RepairRun:
    """One repair or join, from its start until its links stand."""

    def __init__(
        self,
        overlay: Overlay,
        kind: str,
        node: int,
        me: int,
        number: int,
        described: Any,
        topics: Iterable[int] = (),
    ) -> None:
        """Create it without a message sent.

        `kind`        leave or join
        `me`          the coordinator
        `described`   returns what gossip says about a node, or None
        `topics`      what a joiner needs links for; a departure finds its topics itself
        """
        self.overlay, self.sent = overlay, dict[str, int]()
        self.new: list[tuple[int, int]] = []  # The links to open, in the order in which they came up.
        self.ms = 0  # virtual time since its start
        self._hints = Hints(overlay, node, () if overlay.alive[node] else (node,))
        self._asked: tuple[int, ...] = ()  # the topics of the question
        self._masked: dict[int, int] = {}  # topic -> its bit in the question
        self._masks: dict[int, int] = {}  # node -> which topics of the question it has
        self._named: dict[int, Neighbor] = {}  # node -> how its neighbors name it in their answers
        self._queue: list[tuple[int, int, Any, tuple[Any, ...]]] = []
        self._count = 0
        self._timer = 0
        is_global = overlay.config.knowledge == "global"
        oracle: Any = overlay.labels if is_global else None
        key: Any = overlay.key
        context = Context(
            _name(me), overlay.config, low_edges, key, held=self._record, described=described, oracle=oracle
        )
        incarnation = overlay.incarnation(node)
        self.procedure: Repair | Join
        if kind == "join":
            self.procedure = Join(number, _name(node), incarnation, context, tuple(map(_name, topics)))
        else:
            self.procedure = Repair(number, "leave", _name(node), incarnation, context)
            self.procedure.departed[_name(node)] = Departed(incarnation, frozenset(), {}, False)

    def run(self, backups: Iterable[int] = ()) -> None:
        """Run it to its end. `backups` may be ends of new links."""
        self.procedure.backups = list(map(_name, backups))
        self._perform(self.procedure.start())
        while self._queue and self.procedure.state != DONE:
            self.ms, _, action, arguments = heappop(self._queue)
            self._perform(action(*arguments))

    @property
    def departed(self) -> list[int]:
        """Return the nodes that the repair has covered: the one that departed, and others that did not answer."""
        return [int(node) for node in self.procedure.departed] if isinstance(self.procedure, Repair) else []

    def _perform(self, effects: Iterable[Any]) -> None:
        """Carry out what the coordinator does. `run` notices itself that the repair is done."""
        for effect in effects:
            if isinstance(effect, Send):
                message: Any = effect.message
                if isinstance(message, Ask):
                    self._ask(effect.to, message)
                elif isinstance(message, OpenLink):
                    self._open(effect.to, message)
            elif isinstance(effect, SetTimer):
                self._timer += 1
                self._at(effect.delay_ms, self._on_timer, self._timer)

    def _at(self, wait_ms: int, action: Any, *arguments: Any) -> None:
        self._count += 1
        heappush(self._queue, (self.ms + wait_ms, self._count, action, arguments))

    def _on_timer(self, number: int) -> Iterable[Any]:
        """Fire, unless the timer was set again since."""
        return self.procedure.on_timer() if number == self._timer else ()

    def _sends(self, kind: str, count: int = 1) -> None:
        self.sent[kind] = self.sent.get(kind, 0) + count

    def _ask(self, to: Any, question: Ask) -> None:
        """Let a node answer, or all nodes on a route, if all are there."""
        left: Any = question.way.left if question.way is not None else ()
        way = [to, *left]
        there = [bool(self.overlay.alive[node]) for node in way]
        asked = len(way) if all(there) else there.index(False) + 1
        self._sends("Ask", asked)
        if not all(there):
            return
        answers = [self._answer(node, question) for node in way]
        for node, one in zip(way[:-1], answers, strict=False):
            answers[-1] = _passed_on(answers[-1], node, one)
        self._sends("Answer")
        self._at((len(way) + 1) * LATENCY_MS, self.procedure.on_answer, way[-1], answers[-1])

    def _mask(self, node: int) -> int:
        """Return which topics of the question a node has."""
        found = self._masks.get(node)
        if found is None:
            masked = self._masked
            found = self._masks[node] = sum(masked[topic] for topic in self.overlay.topics(node) if topic in masked)
        return found

    def _neighbor(self, node: int) -> Neighbor:
        """Return how a neighbor names a node in its answer."""
        found = self._named.get(node)
        if found is None:
            mask = pack(self._mask(node))
            found = self._named[node] = Neighbor(_name(node), self.overlay.incarnation(node), mask)
        return found

    def _answer(self, node: int, question: Ask) -> Answer:
        """Return what a node knows about the topics of a question, as `protocols.omen.repair.answers.answer` does."""
        one, topics = self.overlay, cast(tuple[int, ...], question.topics)
        if topics != self._asked:
            self._asked, self._masks, self._named = topics, {}, {}
            self._masked = {topic: 1 << place for place, topic in enumerate(topics)}
        peers = one.living_neighbors(node)
        named = tuple([self._neighbor(peer) for peer in peers])
        hints: list[Hint] = []
        if one.config.knowledge == "hints":
            known = [(topic, self._hints.path(topic, node)) for topic in one.topics(node) if topic in self._masked]
            hints = [Hint(_name(topic), cast(Any, path)) for topic, path in known if path]
        return Answer(
            question.mend, question.attempt, one.incarnation(node), len(peers), pack(self._mask(node)), b"",
            named, tuple(hints), bool(one.joining[node]), 1,
        )  # fmt: skip

    def _open(self, to: Any, message: OpenLink) -> None:
        """Let one end open links, and tell the coordinator when they are up."""
        peers: list[Any] = [message.peer, *[one.node for one in message.more]]
        self._sends("OpenLink")
        if not self.overlay.alive[to]:
            return
        up = [peer for peer in peers if self.overlay.alive[peer]]
        if not up:
            return
        self._sends("Connect", len(up))
        self._sends("ConnectOk", len(up))
        self._sends("LinkOpened")
        opened = LinkOpened(self.procedure.number, up[0], 1, 1, tuple(Opened(peer, 1) for peer in up[1:]))
        self._at(OPENING * LATENCY_MS, self._on_opened, to, up, opened)

    def _on_opened(self, to: Any, up: list[Any], opened: LinkOpened) -> Iterable[Any]:
        self.new += [(int(to), int(peer)) for peer in up]
        return self.procedure.on_opened(to, opened)

    def _record(self, name: Any, life: int) -> Record:
        """Return the record of a node. Its holders always have it."""
        one, node = self.overlay, int(name)
        runs = tuple(NodeRun(_name(peer), one.incarnation(peer)) for peer in one.neighbors(node))
        topics: Any = one.topics(node)
        return Record(one.incarnation(node), 1, topics, runs)


def _name(number: int) -> Any:
    """Return a number in the place of a name."""
    return number


def _passed_on(last: Answer, node: int, one: Answer) -> Answer:
    """Return the answer of the last node on a route, with the answer of another one added."""
    relayed = Relayed(
        _name(node), one.incarnation, one.degree, one.wants, one.leaving, one.neighbours, one.hints, one.joining,
        one.topics_version,
    )  # fmt: skip
    return Answer(
        last.mend, last.attempt, last.incarnation, last.degree, last.wants, last.leaving, last.neighbours, last.hints,
        last.joining, last.topics_version, (*last.more, relayed),
    )  # fmt: skip


def describe(overlay: Overlay, node: int, weight: int, degree: int) -> Descriptor:
    """Return a descriptor as gossip would carry it."""
    topics: Any = overlay.topics(node)
    return Descriptor(_name(node), 0, overlay.incarnation(node), topics, (weight, degree))
