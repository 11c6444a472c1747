"""Relay paths: lookups of hash(topic) leave soft state at the nodes they pass, and merge into a tree.

[VI §III-B, §III-D]

`up[topic]` is the next hop towards the rendezvous node. None: this node is the rendezvous node, as far as it knows. The
hops in the other direction are the neighbors that list the topic in their profiles, or ask for it with a `Relay`. A
lookup ends at a node that relays the topic already. In Vitis it also ends at a subscriber: the subscriber's own gateway
is at least as close to the topic, so the subscriber is connected (A-VIT-17).

The state is soft: a path stays while a gateway (in RVR: a subscriber) renews it with every profile. A path that is not
listed any more may be used for some rounds ("Links that linger" in docs/vitis.md; A-VIT-18). It is *fading* then.

R1  `up` has exactly the topics that we look up for ourselves or for others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from trellis.protocols.effects import Effects, NodeId, Send, Topic
from trellis.protocols.lookup import Compass
from trellis.protocols.ring import identifier
from trellis.protocols.vitis.messages import Relay
from trellis.protocols.vitis.neighbors import Neighbor, Neighbors


class RelayPaths:
    """The relay paths that pass one node."""

    def __init__(
        self, owner: NodeId, neighbors: Neighbors, stops_here: Callable[[Topic], bool], linger_rounds: int
    ) -> None:
        """Create the state. `stops_here` says whether lookups of other nodes for a topic end at this node."""
        self.neighbors, self.stops_here, self.linger_rounds = neighbors, stops_here, linger_rounds
        self.compass = Compass(owner)
        self.up: dict[Topic, NodeId | None] = {}  # topic -> next hop
        self.own: set[Topic] = set()  # topics that we look up for ourselves
        self._down: dict[Topic, dict[NodeId, None]] = {}  # the neighbors for which we relay a topic
        # the neighbors for which we relayed it before, and the round in which that ended
        self._fading: dict[Topic, dict[NodeId, int]] = {}
        self._fades: deque[tuple[int, Topic, NodeId]] = deque()  # the same entries, oldest first
        self._via: dict[NodeId, dict[Topic, None]] = {}  # next hop -> topics; the inverse of `up`
        self._lists: dict[NodeId, tuple[Topic, ...]] = {}  # the same, as profiles have it
        self._new: dict[NodeId, list[Topic]] = {}  # next hop -> topics that it must be asked for at once
        self._version = -1
        self.changes = 0  # Counts the changes of what `relayed` and `shared_with` return.

    def relays(self, topic: Topic) -> bool:
        """Return whether this node is on a path of the topic."""
        return topic in self.up or topic in self._down

    def relayed(self) -> list[Topic]:
        """Return all topics on whose paths this node is, subscribed or not."""
        return [*self.up, *(topic for topic in self._down if topic not in self.up)]

    def shared_with(self, neighbor: Neighbor) -> frozenset[Topic]:
        """Return the topics whose paths use the link to this neighbor, in either direction, without fading ones."""
        via = self._via.get(neighbor.node)
        return neighbor.relays.union(via) if via else neighbor.relays

    def links(self, topic: Topic) -> list[NodeId]:
        """Return the neighbors on paths of a topic, in both directions, with fading ones."""
        linked = dict(self._down.get(topic, ()))
        linked.update((node, None) for node in self._fading.get(topic, ()) if node in self.neighbors)
        hop = self.up.get(topic)
        if hop is not None:
            linked[hop] = None
        return list(linked)

    def listed_for(self, node: NodeId) -> tuple[Topic, ...]:
        """Return the topics whose lookups are forwarded through this neighbor, as the profile for it lists them."""
        known = self._lists.get(node)
        if known is None:
            known = self._lists[node] = tuple(sorted(self._via.get(node, ())))
        return known

    def look_up(self, topics: Iterable[Topic]) -> None:
        """Look up exactly these topics for ourselves from now on.  [Alg. 5, l. 20-21: RequestRelay]"""
        before, self.own = self.own, set(topics)
        for topic in sorted(self.own - before):
            if topic not in self.up:
                self._route(topic)
        for topic in sorted(before - self.own):
            self._forget_if_needless(topic)

    def update(self, now: int) -> None:
        """Begin a round: drop what has faded, and change the next hops if the neighbors have changed."""
        oldest = now - self.linger_rounds
        while self._fades and self._fades[0][0] < oldest:
            since, topic, node = self._fades.popleft()
            if self._fading.get(topic, {}).get(node) == since:  # It has not been listed again since.
                self._faded(topic, node)
        if self._version != self.neighbors.version:
            self._version = self.neighbors.version
            self.compass.set(neighbor.node for neighbor in self.neighbors.firm())
            self._lists = {node: listed for node, listed in self._lists.items() if node in self.neighbors}
            next_hop = self.compass.next_hop
            moved = [topic for topic, hop in self.up.items() if next_hop(identifier(topic)) != hop]
            for topic in moved:
                self._route(topic)

    def ask(self) -> Effects:
        """Return the requests for new paths since the last call."""
        effects: Effects = [Send(node, Relay(tuple(topics))) for node, topics in self._new.items()]
        self._new = {}
        return effects

    def told(self) -> None:
        """Drop the pending requests, because the profiles that are sent now say the same."""
        self._new = {}

    def on_list(self, neighbor: Neighbor, listed: tuple[Topic, ...], now: int) -> None:
        """Take in the list of topics that a neighbor's profile says it relays through us."""
        before, neighbor.relays = neighbor.relays, frozenset(listed)
        for topic in sorted(before - neighbor.relays):
            self._fading.setdefault(topic, {})[neighbor.node] = now
            self._fades.append((now, topic, neighbor.node))
            self._one_less(neighbor, topic)
        for topic in listed:
            if topic not in before:
                self._one_more(neighbor, topic)

    def on_relay(self, neighbor: Neighbor, topics: Iterable[Topic]) -> None:
        """Take in a neighbor's request for paths."""
        new = [topic for topic in topics if topic not in neighbor.relays]
        neighbor.relays = neighbor.relays.union(new)
        for topic in new:
            self._one_more(neighbor, topic)

    def drop(self, neighbor: Neighbor) -> None:
        """Forget the paths of a neighbor that is gone or has forgotten us."""
        relays, neighbor.relays = neighbor.relays, frozenset()
        for topic in sorted(relays):
            self._one_less(neighbor, topic)

    def reconsider(self, topics: Iterable[Topic]) -> None:
        """Update topics for which the answer of `stops_here` has changed."""
        for topic in topics:
            if topic in self._down and topic not in self.up and not self.stops_here(topic):
                self._route(topic)
            else:
                self._forget_if_needless(topic)

    def check(self) -> None:
        """Assert the invariant R1."""
        down = {topic for topic in self._down if not self.stops_here(topic)}
        assert set(self.up) == self.own | down, f"R1: {set(self.up) ^ (self.own | down)}"
        listed: dict[Topic, set[NodeId]] = {}
        for node, neighbor in self.neighbors.all.items():
            for topic in neighbor.relays:
                listed.setdefault(topic, set()).add(node)
        assert listed == {topic: set(nodes) for topic, nodes in self._down.items()}, "R1: children miscounted"

    def _one_more(self, neighbor: Neighbor, topic: Topic) -> None:
        """Relay a topic for one more neighbor."""
        if neighbor.node in self._fading.get(topic, ()):
            self._faded(topic, neighbor.node)
        self._down.setdefault(topic, {})[neighbor.node] = None
        self.changes += 1
        if topic not in self.up and not self.stops_here(topic):
            self._route(topic)

    def _one_less(self, neighbor: Neighbor, topic: Topic) -> None:
        """Relay a topic for one neighbor less."""
        left = self._down[topic]
        del left[neighbor.node]
        self.changes += 1
        if not left:
            del self._down[topic]
            self._forget_if_needless(topic)

    def _faded(self, topic: Topic, node: NodeId) -> None:
        """Remove a fading entry."""
        left = self._fading[topic]
        del left[node]
        if not left:
            del self._fading[topic]

    def _forget_if_needless(self, topic: Topic) -> None:
        """End our lookup of a topic if neither we nor others need it."""
        if topic in self.up and topic not in self.own and (topic not in self._down or self.stops_here(topic)):
            self._leave(self.up.pop(topic), topic)
            self.changes += 1

    def _route(self, topic: Topic) -> None:
        """Set the next hop of a topic by the present neighbors."""
        hop = self.compass.next_hop(identifier(topic))
        if topic in self.up:
            before = self.up[topic]
            if hop == before:
                return
            self._leave(before, topic)
        self.up[topic] = hop
        self.changes += 1
        if hop is not None:
            self._via.setdefault(hop, {})[topic] = None
            self._lists.pop(hop, None)
            self._new.setdefault(hop, []).append(topic)

    def _leave(self, hop: NodeId | None, topic: Topic) -> None:
        """Remove a topic from the list of a former next hop."""
        if hop is None:
            return
        via = self._via[hop]
        del via[topic]
        if not via:
            del self._via[hop]
        self._lists.pop(hop, None)
        asked = self._new.get(hop)
        if asked is not None and topic in asked:
            asked.remove(topic)
            if not asked:
                del self._new[hop]
