"""Record what was published, acknowledged and delivered in a run, and judge it.  [docs/delivery.md]"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from trellis.protocols.delivery import DeliveryConfig
from trellis.protocols.delivery.outcome import Acknowledged, Published
from trellis.protocols.effects import Deliver, Incarnation, NodeId, Topic
from trellis.simulate.system import Violation, Watcher, World

if TYPE_CHECKING:
    from trellis.simulate.systems.delivery import Client

# After a topic was connected for this long, all its subscribers have every message that one of them held.
_SPREAD_MS = 15_000


class Publication(msgspec.Struct):
    """One message, and what happened to it."""

    topic: Topic
    origin: NodeId
    incarnation: Incarnation
    sequence: int
    time_ms: int
    qualified: dict[NodeId, int]  # confirmed subscribers when it was published -> their incarnations
    copies: int = 0  # as acknowledged; 0 until then
    acknowledged_ms: int = 0
    delivered: dict[NodeId, int] = {}  # node -> incarnation to which it was delivered
    crashes: int = 0  # crashes of nodes that held it
    departures: int = 0
    extinct_ms: int | None = None  # when, after a crash, no node held it

    def __str__(self) -> str:
        return f"{self.topic} {self.sequence} of {self.origin} (incarnation {self.incarnation}, at {self.time_ms} ms)"


class Ledger(Watcher):
    """Records all publications, acknowledgements and deliveries. It reads nodes and changes none."""

    def __init__(self, world: World, config: DeliveryConfig, *, proves_copies: bool, late_ms: int | None) -> None:
        """`proves_copies`: an acknowledgement with too few copies is allowed only if there are too few subscribers.

        `late_ms`: messages published from this time on must reach all subscribers. Nothing else is required.
        """
        self.world, self.copies, self.window_ms = world, config.copies, config.window_ms
        self.proves_copies, self.late_ms = proves_copies, late_ms
        self.clients: dict[NodeId, Client] = {}
        self.publications: dict[bytes, Publication] = {}
        self.refused = 0
        self._by_identity: dict[tuple[NodeId, int, Topic, int], Publication] = {}
        self._last: dict[tuple[NodeId, int, NodeId, int, Topic], int] = {}
        self._unsubscribed: dict[tuple[NodeId, Topic], int] = {}
        self._subscribed: dict[tuple[NodeId, Topic], int] = {}  # when they subscribed
        self._topics: dict[NodeId, tuple[Topic, ...]] = {}
        # topic -> intervals [first, last] in which every look found it connected
        self._whole: dict[Topic, list[list[int]]] = {}
        self._is_whole: set[Topic] = set()
        self._skipped: Counter[tuple[NodeId, int]] = Counter()
        self._overflows = 0  # of nodes that are gone

    # Called during the run

    def on_published(self, node: NodeId, outcome: Published, payload: bytes) -> None:
        """Record a publication, with the subscribers that are confirmed at this time."""
        qualified = {
            name: self.clients[name].incarnation
            for name in self.world.living
            if name in self.clients and self.clients[name].is_confirmed(outcome.topic)
        }
        identity = (node, outcome.incarnation, outcome.topic, outcome.sequence)
        made = Publication(outcome.topic, node, outcome.incarnation, outcome.sequence, self.world.now_ms, qualified)
        self.publications[payload] = self._by_identity[identity] = made

    def on_acknowledged(self, node: NodeId, outcome: Acknowledged) -> None:
        """Record an acknowledgement, and check the copies that it names."""
        publication = self._by_identity[node, outcome.incarnation, outcome.topic, outcome.sequence]
        if publication.copies:
            raise Violation(f"{publication} was acknowledged twice")
        publication.copies, publication.acknowledged_ms = outcome.copies, self.world.now_ms
        if len(set(outcome.holders)) != outcome.copies or node not in outcome.holders:
            raise Violation(f"{publication} was acknowledged with {outcome.copies} copies at {outcome.holders}")
        strangers = [name for name in outcome.holders if name != node and self._is_stranger(name, publication)]
        if self.proves_copies and strangers:
            raise Violation(f"{publication} was acknowledged with a copy at {strangers[0]}, which does not subscribe")
        there = {node, *self._entitled(publication)}
        if self.proves_copies and outcome.copies < self.copies <= len(there):
            raise Violation(f"{publication} was acknowledged with {outcome.copies} copies; {len(there)} nodes want it")

    def on_deliver(self, node: NodeId, delivery: Deliver) -> None:
        """Record a delivery, and check that it is no repeat, in order, and subscribed to."""
        publication = self.publications.get(delivery.payload)
        incarnation = self.world.incarnation(node)
        if publication is None or (publication.origin, publication.sequence) != (delivery.origin, delivery.sequence):
            raise Violation(f"{node} delivered {delivery}, which nobody published")
        if delivery.topic not in self.world.topics_of(node):
            raise Violation(f"{node} delivered {publication} and does not subscribe")
        if publication.delivered.get(node) == incarnation:
            raise Violation(f"{node} delivered {publication} twice")
        publication.delivered[node] = incarnation
        key = (node, incarnation, publication.origin, publication.incarnation, publication.topic)
        last = self._last.get(key, 0)
        if last >= publication.sequence:
            raise Violation(f"{node} delivered {publication} after {last}")
        self._last[key] = publication.sequence
        if last and (node, publication.topic) not in self._unsubscribed:
            self._skipped[node, incarnation] += publication.sequence - last - 1
            if self._skipped[node, incarnation] > self.clients[node].mesh.delivery.state.counters.lost:
                raise Violation(f"{node} delivered {publication} after {last}, and lost what lies between silently")

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._topics[node] = topics
        self._subscribed.update(((node, topic), self.world.now_ms) for topic in topics)

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        for topic in set(self._topics.get(node, ())).difference(topics):
            self._unsubscribed[node, topic] = self.world.now_ms
        for topic in set(topics).difference(self._topics.get(node, ())):
            self._subscribed[node, topic] = self.world.now_ms
        self._topics[node] = topics

    def on_node_down(self, node: NodeId, how: str) -> None:
        gone = self.clients.pop(node)
        self._overflows += gone.mesh.delivery.state.store.overflows
        living = [self.clients[name] for name in self.world.living if name in self.clients]
        for publication in self.publications.values():
            if not gone.holds(publication):
                continue
            publication.crashes += how == "crash"
            publication.departures += how == "leave"
            if how == "crash" and not any(client.holds(publication) for client in living):
                publication.extinct_ms = self.world.now_ms

    def look(self) -> None:
        """Note which topics are connected now. It is called every second."""
        if self.late_ms is not None:
            return
        now, split = self.world.now_ms, self._split_topics()
        for topic in self.world.topics.names:
            if topic in split:
                self._is_whole.discard(topic)
                continue
            times = self._whole.setdefault(topic, [])
            if topic not in self._is_whole:
                self._is_whole.add(topic)
                times.append([now, now])
            times[-1][1] = now

    # The verdict

    def judge(self) -> None:
        """Raise Violation if a message is missing that was promised."""
        if self.late_ms is not None:
            self._judge_late(self.late_ms)
            return
        for publication in self.publications.values():
            if publication.copies and self._is_inside(publication) and self._was_whole_in_time(publication):
                missing = [name for name in self._entitled(publication) if not self._has(name, publication)]
                if missing:
                    fate = f"{publication.crashes} crashes and {publication.departures} departures of holders"
                    raise Violation(
                        f"{publication}, acknowledged with {publication.copies} copies, is missing at "
                        f"{', '.join(missing)} after {fate}"
                    )

    def _judge_late(self, late_ms: int) -> None:
        """Raise Violation unless every message published from `late_ms` on is acknowledged and at all subscribers."""
        late = [one for one in self.publications.values() if one.time_ms >= late_ms]
        if not late:
            raise Violation("nothing was published after the repair")
        for publication in late:
            wanting = [name for name in self.world.living if publication.topic in self.world.topics_of(name)]
            missing = [name for name in wanting if name not in publication.delivered]
            if missing:
                raise Violation(f"{publication} is missing at {', '.join(missing)} although all was healed before")
            if not publication.copies:
                raise Violation(f"{publication} was not acknowledged although all was healed before")

    def counts(self) -> dict[str, int]:
        """Return what became of acknowledged publications made during faults, for which nothing is promised."""
        early = [one for one in self.publications.values() if one.copies and one.time_ms < (self.late_ms or 0)]
        due = {str(one): self._entitled(one) for one in early}
        missed = [name for one in early for name in due[str(one)] if not self._has(name, one)]
        return {
            "acknowledged publications under faults": len(early),
            "deliveries due of them": sum(map(len, due.values())),
            "of these missing": len(missed),
            "relays at the end": sum(len(client.relayed()) for client in self.clients.values()),
        }

    def _is_inside(self, publication: Publication) -> bool:
        """Return whether the message is inside the promise.

        It is not if at least as many holders are gone as it had copies, the last one by a crash, before it could
        spread.
        """
        if publication.extinct_ms is None or publication.crashes + publication.departures < publication.copies:
            return True
        return self._was_whole(publication.topic, publication.acknowledged_ms, publication.extinct_ms)

    def _was_whole_in_time(self, publication: Publication) -> bool:
        """Return whether the topic was connected long enough within the window.

        An overflowed window promises nothing.
        """
        if self._overflows or any(client.mesh.delivery.state.store.overflows for client in self.clients.values()):
            return False
        return self._was_whole(publication.topic, publication.time_ms, publication.time_ms + self.window_ms)

    def _was_whole(self, topic: Topic, first_ms: int, last_ms: int) -> bool:
        """Return whether the topic was connected for `_SPREAD_MS` between these times."""
        times = self._whole.get(topic, ())
        return any(min(last_ms, end) - max(first_ms, start) >= _SPREAD_MS for start, end in times)

    def _split_topics(self) -> set[Topic]:
        """Return the topics whose subscribers are not connected through each other."""
        near: dict[NodeId, set[NodeId]] = {name: set() for name in self.world.living}
        for u, v in self.world.links():
            near[u].add(v)
            near[v].add(u)
        found = set()
        for topic in self.world.topics.names:
            wants = {name for name in near if topic in self.world.topics_of(name)}
            reached, stack = set(list(wants)[:1]), list(wants)[:1]
            while stack:
                new = (near[stack.pop()] & wants) - reached
                reached |= new
                stack += new
            if reached != wants:
                found.add(topic)
        return found

    def _entitled(self, publication: Publication) -> list[NodeId]:
        """Return nodes that are alive and have been subscribed since before the publication."""
        return [
            name
            for name, incarnation in publication.qualified.items()
            if name in self.clients
            and self.clients[name].incarnation == incarnation
            and not self.clients[name].mesh.is_leaving
            and self._unsubscribed.get((name, publication.topic), -1) < publication.time_ms
            and publication.topic in self.world.topics_of(name)
        ]

    def _is_stranger(self, name: NodeId, publication: Publication) -> bool:
        """Return whether the node is up and was not subscribed at any time since the publication."""
        is_subscribed = publication.topic in self.world.topics_of(name) if name in self.clients else True
        return not is_subscribed and self._unsubscribed.get((name, publication.topic), -1) < publication.time_ms

    def _has(self, name: NodeId, publication: Publication) -> bool:
        """Return whether the message was delivered, or waits for a missing one that this node may be owed.

        A missing message that is owed is judged by itself. Messages from before the subscription are no excuse.
        """
        if publication.delivered.get(name) == publication.qualified.get(name):
            return True
        since_ms = self._subscribed.get((name, publication.topic), 0)
        return any(
            gap.time_ms >= since_ms
            for sequence in self.clients[name].gap_before(publication)
            if (
                gap := self._by_identity.get((publication.origin, publication.incarnation, publication.topic, sequence))
            )
        )
