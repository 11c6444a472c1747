"""Joins and departures in a run of OMen in cycles: who coordinates them, when, and what comes of it.  [OM Alg. 5-6]

The closest living successor of a node coordinates its departure and its join, once its view for that node is ready. A
joiner asks the node that it takes for its successor, which may know a nearer one. A departure is noticed at once where
the node leaves in order, and some rounds later where it has crashed. Events do not wait for each other.

Below all repairs is the root rendezvous: topics that are split after an event are joined some rounds later. A joiner
alone on topics is linked as by a join of these topics. Otherwise the roots of the parts are linked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from trellis.cycles.chance import below
from trellis.cycles.newscast import peers_of
from trellis.cycles.omen_run.repair import RepairRun, describe
from trellis.cycles.pool import find_in_row
from trellis.cycles.view_state import DEGREE, WEIGHT
from trellis.cycles.wanted import JOINS, LEAVES
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.omen.rendezvous.roots import ALONE_PATIENCE

if TYPE_CHECKING:
    from trellis.cycles.omen_run.network import OMenNetwork

JOIN_TICKS = 2  # A joiner asks for the first time after so many periods, as `OMenNode` does.


@dataclass(eq=False)
class Event:
    """A join or departure that is not over yet."""

    kind: str  # leave (also after a crash) or join
    node: int
    due: int  # The round in which its coordinator knows of it.
    coordinator: int = -1


class Events:
    """All open events of a run, in the order in which they came."""

    def __init__(self, network: OMenNetwork) -> None:
        self.network = network
        self.open: list[Event] = []
        self.repairs = {"leave": 0, "join": 0}
        self.closures = 0  # Repairs that covered more than one departed node.
        self.gave_up = 0
        self.links = {"leave": 0, "join": 0}  # Links that repairs have opened.
        self.repair_ms: list[int] = []  # Virtual time of each repair after a departure.
        self.met = 0  # Links that the root rendezvous has opened.
        self.sent: dict[str, int] = {}
        self._around = np.argsort(network.instance.wants.places, kind="stable")
        self._place = np.empty(len(self._around), np.int64)
        self._place[self._around] = np.arange(len(self._around))
        self._split: dict[int, int] = {}  # topic -> the round in which its roots meet
        self._numbers = 0

    def add_departure(self, node: int, due: int) -> None:
        """A node has crashed, or leaves. Its coordinator knows of it from the round `due` on."""
        self.open = [event for event in self.open if event.node != node]  # Its join, if that was not over.
        self.open.append(Event("leave", node, due))

    def departure(self, node: int) -> Event | None:
        return next((event for event in self.open if event.node == node and event.kind == "leave"), None)

    def by_node(self) -> tuple[Any, Any, Any]:
        """Return the events that each node knows of: offsets by node, the nodes of the events, and their kinds.

        The coordinator of an event knows of it, and its L successors, which stand by.
        """
        network, known = self.network, list[tuple[int, int, int]]()
        length, rings = network.config.resilience, network.rings
        for event in self.open:
            if event.coordinator >= 0:
                near = rings.peers[event.coordinator, : min(length, int(rings.count[event.coordinator]))].tolist()
                kind = JOINS if event.kind == "join" else LEAVES
                known += [(one, event.node, kind) for one in (event.coordinator, *near) if one != event.node]
        lines = np.array(sorted(known), np.int64).reshape(-1, 3)
        offsets = np.zeros(len(network.alive) + 1, np.int64)
        np.cumsum(np.bincount(lines[:, 0], minlength=len(network.alive)), out=offsets[1:])
        return offsets, lines[:, 1].copy(), lines[:, 2].copy()

    def execute(self) -> None:
        """Let joiners ask, execute the events whose views are ready, and let roots of split topics meet."""
        network = self.network
        for node in np.flatnonzero(network.joining & network.alive).tolist():
            self._ask_to_join(node)
        for event in list(self.open):
            if event in self.open and event.due <= network.round:
                done = self._join(event) if event.kind == "join" else self._depart(event)
                if done:
                    self.open = [one for one in self.open if one is not event]
        for topic in [topic for topic, due in self._split.items() if due <= network.round]:
            del self._split[topic]
            self._meet(topic)

    def successor(self, node: int) -> int:
        """Return the closest living successor of a node that is not leaving, or -1."""
        count, leaving = len(self._around), {event.node for event in self.open if event.kind == "leave"}
        for step in range(1, count):
            other = int(self._around[(self._place[node] + step) % count])
            if self.network.alive[other] and other not in leaving:
                return other
        return -1

    # Joins

    def _ask_to_join(self, node: int) -> None:
        """Let a joiner ask the node that it takes for its successor."""
        network = self.network
        if network.periods.ticks[node] <= JOIN_TICKS or not network.rings.count[node]:
            return
        if any(event.node == node for event in self.open):
            return
        asked = int(network.rings.peers[node, 0])
        if not network.alive[asked]:
            return
        network.tell_ring(asked, node)
        if self._is_coordinator(asked, node):
            self.open.append(Event("join", node, network.round + 1, asked))

    def _is_coordinator(self, one: int, node: int) -> bool:
        """Return whether `one` is the closest successor of a node, as far as it knows."""
        network = self.network
        places: Any = network.instance.wants.places
        known = network.rings.peers[one, : network.rings.count[one]]
        known = known[known != node]
        away = places[np.append(known, one)] - places[node]  # Arrays wrap around the ring without a warning.
        return not bool((away[:-1] < away[-1]).any())

    def _join(self, event: Event) -> bool:
        """Link a joiner as soon as the view for it is ready. Return whether the event is over."""
        network, node, one = self.network, event.node, event.coordinator
        if not network.alive[node] or not network.alive[one] or not self._is_coordinator(one, node):
            return True  # The joiner asks again.
        slot = network.view_of(one, node)
        is_ready = slot >= 0 and bool(network.views.ready[one, slot])
        if not is_ready and network.round - event.due < network.config.ready_wait:
            return False
        backups = network.backups_of(one, slot) if slot >= 0 else []
        topics = network.overlay.topics(node)
        repair = self._repair("join", node, one, topics, backups or self._known_subscribers(one, topics, node))
        if not repair.procedure.gave_up:
            network.joining[node] = False
            self._look_at(topics, ALONE_PATIENCE)
        return True

    # Departures

    def _depart(self, event: Event) -> bool:
        """Repair a departure as soon as the view of its coordinator is ready. Return whether it is over."""
        network, node = self.network, event.node
        if not network.alive[node] and not network.gone[node]:
            network.notice(node)
        one = event.coordinator
        if one < 0 or not network.alive[one]:
            one = event.coordinator = self.successor(node)
        if one >= 0 and network.links.count[node]:
            slot = network.view_of(one, node)
            is_ready = slot >= 0 and bool(network.views.ready[one, slot])
            if not is_ready and network.round - event.due < network.config.repair_wait:
                return False
            backups = [peer for peer in network.backups_of(one, slot) if not network.gone[peer]] if slot >= 0 else []
            repair = self._repair("leave", node, one, (), backups)
            self.repair_ms.append(repair.ms)
            self.closures += len(repair.departed) > 1
            covered = repair.departed
        else:
            covered = [node]
        for other in covered:
            if other == node or (not network.alive[other] and self.departure(other) is not None):
                if not network.gone[other]:
                    network.notice(other)
                network.close_links(other)
        over = set(covered)
        self.open = [one for one in self.open if one.kind != "leave" or one.node not in over]
        for other in covered:
            self._look_at(network.overlay.topics(other), network.config.root_patience)
        return True

    # Repairs

    def _repair(self, kind: str, node: int, one: int, topics: Any, backups: list[int]) -> RepairRun:
        self._numbers += 1
        repair = RepairRun(
            self.network.overlay, kind, node, one, self._numbers, lambda peer: self.described(one, peer), topics
        )
        repair.run(backups)
        self.repairs[kind] += 1
        self.gave_up += repair.procedure.gave_up
        self.links[kind] += self.network.open_links(repair.new)
        for message, count in repair.sent.items():
            self.sent[message] = self.sent.get(message, 0) + count
        return repair

    def described(self, one: int, peer: int) -> Descriptor | None:
        """Return what gossip has told a node about another: by its table, else by its ring, else by its samples."""
        network = self.network
        known = network.views.known
        place = find_in_row(known, one, peer)
        if place >= 0:
            line = known.data[known.start[one] + place]
            return describe(network.overlay, peer, int(line[WEIGHT]), int(line[DEGREE]))
        if peer in network.rings.peers[one, : network.rings.count[one]] or peer in peers_of(network.samples, one):
            degree = int(network.links.count[peer])
            return describe(network.overlay, peer, degree + int(network.standing.primaries[peer]), degree)
        return None

    def _known_subscribers(self, one: int, topics: Any, but: int) -> list[int]:
        """Return up to lambda known subscribers of each topic, those of the lowest weight first."""
        network, overlay = self.network, self.network.overlay
        known = network.views.known
        table = known.data[known.start[one] : known.start[one] + known.count[one]]
        degrees: Any = network.links.count
        weight = {int(peer): (int(w), int(d)) for peer, _, w, d in table.tolist()}
        near = peers_of(network.samples, one).tolist()
        near += network.rings.peers[one, : network.rings.count[one]].tolist()
        if network.terms.everybody:
            near += np.flatnonzero(network.alive).tolist()
        for peer in near:
            weight[peer] = (int(degrees[peer]) + int(network.standing.primaries[peer]), int(degrees[peer]))
        wanted, counts, found = max(network.config.coverage, 1), dict.fromkeys(topics, 0), list[int]()
        for peer in sorted(weight, key=lambda peer: (weight[peer], overlay.key(peer))):
            shared = [topic for topic in overlay.topics(peer) if counts.get(topic, wanted) < wanted]
            if peer in (but, one) or network.gone[peer] or not shared:
                continue
            for topic in shared:
                counts[topic] += 1
            found.append(peer)
        return found

    # The root rendezvous

    def _look_at(self, topics: Any, patience: int) -> None:
        """Let the roots of topics that are split meet after a while."""
        network = self.network
        if not network.config.net:
            return
        for topic in topics:
            if topic not in self._split and network.overlay.count_parts(topic) > 1:
                wait = patience + below(network.chance("fallback"), network.config.net_periods)
                self._split[topic] = network.round + 1 + wait

    def _meet(self, topic: int) -> None:
        """Link the roots of a topic's parts. A node alone on several topics is linked once for all of them."""
        network = self.network
        first, *others = network.overlay.roots(topic) or [-1]
        for root in others:
            if network.joining[root] or network.joining[first]:
                self._look_at((topic,), network.config.net_periods)
            elif self._is_alone(root, topic):
                alone = [one for one in network.overlay.topics(root) if self._is_alone(root, one)]
                met = [network.overlay.roots(one)[0] for one in alone]
                known = self._known_subscribers(root, alone, root)
                backups = list(dict.fromkeys([*(one for one in met if one != root), *known]))
                self.met += len(self._repair("join", root, root, tuple(alone), backups).new)
            else:
                self.met += network.open_links([(root, first)])

    def _is_alone(self, node: int, topic: int) -> bool:
        """Return whether no neighbor of a node has a topic."""
        overlay = self.network.overlay
        return not any(topic in overlay.topics(peer) for peer in overlay.neighbors(node))
