"""Relay paths: lookups of hash(topic) leave soft state along the way, and merge into a tree.  [VI §III-B, §III-D]

`up[topic]` is the next hop towards the rendezvous node (None: we are it, as far as we know); the way down is what
neighbours list in their profiles, or ask for at once by `Relay`. A lookup stops where the topic is relayed already, and
in Vitis at a subscriber: its own gateway is at least as close to the topic, so it is connected (A-VIT-17).

State is soft: a path lives as long as a gateway (RVR: a subscriber) renews it with every profile. A path that is no
longer listed may linger ("Links that linger" in docs/vitis.md; A-VIT-18).

R1  up holds exactly the topics that we look up ourselves or on behalf of others.
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
    def __init__(
        self, owner: NodeId, neighbors: Neighbors, stops_here: Callable[[Topic], bool], linger_rounds: int
    ) -> None:
        """`stops_here`: lookups of others end at us, whether we look up the topic ourselves or not."""
        self.neighbors, self.stops_here, self.linger_rounds = neighbors, stops_here, linger_rounds
        self.compass = Compass(owner)
        self.up: dict[Topic, NodeId | None] = {}
        self.own: set[Topic] = set()  # what we look up for ourselves
        self._down: dict[Topic, dict[NodeId, None]] = {}  # the neighbours that we relay a topic for
        self._fading: dict[Topic, dict[NodeId, int]] = {}  # those that we did it for until that round
        self._fades: deque[tuple[int, Topic, NodeId]] = deque()  # the same, oldest first
        self._via: dict[NodeId, dict[Topic, None]] = {}  # next hop -> topics
        self._lists: dict[NodeId, tuple[Topic, ...]] = {}  # the same, as it stands in profiles
        self._new: dict[NodeId, list[Topic]] = {}  # to be asked for at once
        self._version = -1
        self.changes = 0  # of what `relayed` and `shared_with` answer

    def relays(self, topic: Topic) -> bool:
        """Are we on a path of this topic?"""
        return topic in self.up or topic in self._down

    def relayed(self) -> list[Topic]:
        """All topics whose paths we are on, whether we want them or not."""
        return [*self.up, *(topic for topic in self._down if topic not in self.up)]

    def shared_with(self, neighbor: Neighbor) -> frozenset[Topic]:
        """The topics whose paths go over the link to this neighbour, up or down; nothing that fades."""
        via = self._via.get(neighbor.node)
        return neighbor.relays.union(via) if via else neighbor.relays

    def links(self, topic: Topic) -> list[NodeId]:
        """The neighbours on paths of this topic, up and down; what fades is still used."""
        found = dict(self._down.get(topic, ()))
        found.update((node, None) for node in self._fading.get(topic, ()) if node in self.neighbors)
        hop = self.up.get(topic)
        if hop is not None:
            found[hop] = None
        return list(found)

    def listed_for(self, node: NodeId) -> tuple[Topic, ...]:
        """The topics whose lookups go on through this neighbour: a part of the profile that it gets."""
        known = self._lists.get(node)
        if known is None:
            known = self._lists[node] = tuple(sorted(self._via.get(node, ())))
        return known

    def look_up(self, topics: Iterable[Topic]) -> None:
        """From now on we look up these topics for ourselves, and no others.  [Alg. 5, l. 20-21: RequestRelay]"""
        before, self.own = self.own, set(topics)
        for topic in sorted(self.own - before):
            if topic not in self.up:
                self._route(topic)
        for topic in sorted(before - self.own):
            self._forget_if_needless(topic)

    def update(self, now: int) -> None:
        """Once per round: routes follow the neighbours, and what has faded goes."""
        oldest = now - self.linger_rounds
        while self._fades and self._fades[0][0] < oldest:
            since, topic, node = self._fades.popleft()
            if self._fading.get(topic, {}).get(node) == since:  # it did not come back meanwhile
                self._faded(topic, node)
        if self._version != self.neighbors.version:
            self._version = self.neighbors.version
            self.compass.set(one.node for one in self.neighbors.firm())
            self._lists = {node: listed for node, listed in self._lists.items() if node in self.neighbors}
            next_hop = self.compass.next_hop
            moved = [topic for topic, hop in self.up.items() if next_hop(identifier(topic)) != hop]
            for topic in moved:
                self._route(topic)

    def ask(self) -> Effects:
        """Sends on what was asked for since the last time."""
        effects: Effects = [Send(node, Relay(tuple(topics))) for node, topics in self._new.items()]
        self._new = {}
        return effects

    def told(self) -> None:
        """Profiles have gone out: they said everything."""
        self._new = {}

    def on_list(self, neighbor: Neighbor, listed: tuple[Topic, ...], now: int) -> None:
        """A profile says what its sender relays through us."""
        before, neighbor.relays = neighbor.relays, frozenset(listed)
        for topic in sorted(before - neighbor.relays):
            self._fading.setdefault(topic, {})[neighbor.node] = now
            self._fades.append((now, topic, neighbor.node))
            self._one_less(neighbor, topic)
        for topic in listed:
            if topic not in before:
                self._one_more(neighbor, topic)

    def on_relay(self, neighbor: Neighbor, topics: Iterable[Topic]) -> None:
        """A neighbour asks for a path at once."""
        new = [topic for topic in topics if topic not in neighbor.relays]
        neighbor.relays = neighbor.relays.union(new)
        for topic in new:
            self._one_more(neighbor, topic)

    def drop(self, neighbor: Neighbor) -> None:
        """The neighbour is gone, or forgot everything."""
        relays, neighbor.relays = neighbor.relays, frozenset()
        for topic in sorted(relays):
            self._one_less(neighbor, topic)

    def reconsider(self, topics: Iterable[Topic]) -> None:
        """Whether lookups of these topics end at us has changed."""
        for topic in topics:
            if topic in self._down and topic not in self.up and not self.stops_here(topic):
                self._route(topic)
            else:
                self._forget_if_needless(topic)

    def check(self) -> None:
        down = {topic for topic in self._down if not self.stops_here(topic)}
        assert set(self.up) == self.own | down, f"R1: {set(self.up) ^ (self.own | down)}"
        listed: dict[Topic, set[NodeId]] = {}
        for node, one in self.neighbors.all.items():
            for topic in one.relays:
                listed.setdefault(topic, set()).add(node)
        assert listed == {topic: set(nodes) for topic, nodes in self._down.items()}, "R1: children miscounted"

    def _one_more(self, neighbor: Neighbor, topic: Topic) -> None:
        if neighbor.node in self._fading.get(topic, ()):
            self._faded(topic, neighbor.node)
        self._down.setdefault(topic, {})[neighbor.node] = None
        self.changes += 1
        if topic not in self.up and not self.stops_here(topic):
            self._route(topic)

    def _one_less(self, neighbor: Neighbor, topic: Topic) -> None:
        left = self._down[topic]
        del left[neighbor.node]
        self.changes += 1
        if not left:
            del self._down[topic]
            self._forget_if_needless(topic)

    def _faded(self, topic: Topic, node: NodeId) -> None:
        left = self._fading[topic]
        del left[node]
        if not left:
            del self._fading[topic]

    def _forget_if_needless(self, topic: Topic) -> None:
        if topic in self.up and topic not in self.own and (topic not in self._down or self.stops_here(topic)):
            self._leave(self.up.pop(topic), topic)
            self.changes += 1

    def _route(self, topic: Topic) -> None:
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
