"""A home's heir: the next node on the ring keeps a copy of the home's registrations.  [docs/delivery.md, Homes]

When the process of a home has ended for certain, its successor becomes home of its range. With a complete copy it is
sure at once who subscribes, and need not wait for `registered_ms` until everybody has registered anew.

At a home. Each registration goes to the heir as well (`Register` with `heir_of`), and the heir answers. A new
subscriber is told that it is registered when the heir has answered. Once per tick, while the heir has everything and
the home is sure, the home says so (`Register` without topics). The heir believes this for `LEASE_TICKS`.

At an heir. The copy counts if the home ended within `LEASE_TICKS` after it last said so, and if the range that falls
to the heir is the one that the home named.

E1  a home tells a subscriber that it is registered only when its heir has the registration too, or when all that it
    has told the heir has run out. So an heir that is sure knows every registered subscriber.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.delivery.messages import HOPS_MAX, REGISTERED_MAX, Register, Registered, Unregister
from trellis.protocols.delivery.outcome import CANARY
from trellis.protocols.delivery.registry import Registry
from trellis.protocols.delivery.state import State
from trellis.protocols.effects import NodeId, Send, Topic

LEASE_TICKS = 3
_MARGIN_TICKS = 2  # a home counts longer than its heir does: its word was under way for a while
COPIES_MAX = 262_144  # registrations of a predecessor
_PROBE = CANARY + "heir"  # registered by a home without registrations, to see whether its heir keeps copies


class Inheritance:
    """The registry of a home, as its heir knows it."""

    def __init__(self, registered_ms: int) -> None:
        self.table = Registry(COPIES_MAX, COPIES_MAX, COPIES_MAX, registered_ms)
        self.token: tuple[NodeId, int] | None = None  # the start of its range, and when it said that we have all

    @property
    def registry(self) -> dict[Topic, dict[NodeId, int]]:
        return self.table.topics


class Heirs:
    def __init__(self, state: State) -> None:
        self.state = state
        # As home.
        self.heir: NodeId | None = None
        self._has_answered = False  # nodes of earlier versions do not keep copies, and never answer
        self._uncopied: dict[tuple[NodeId, Topic], None] = {}  # registrations that the heir has not answered for
        self._held_back: dict[tuple[NodeId, Topic], None] = {}  # of these, those whose subscribers are not told yet
        self._told_ms: int | None = None  # when we last said that an heir has everything; to whichever heir
        # As heir.
        # By home: our predecessor, and the one before it. A home that has ended may have a successor in that place
        # already when we learn of its end.
        self.kept: dict[NodeId, Inheritance] = {}

    # As home

    def look(self, registry: dict[Topic, dict[NodeId, int]]) -> None:
        """Give a new heir everything."""
        heir = self.state.overlay.heir()
        if heir == self.heir:
            return
        self.heir, self._has_answered, self._uncopied = heir, False, {}
        self.took_over(registry)

    def took_over(self, registry: dict[Topic, dict[NodeId, int]]) -> None:
        """Give the heir all of `registry`: it is new, or these are registrations that we have inherited ourselves."""
        if self.heir is None:
            return
        by_node: dict[NodeId, list[Topic]] = {}
        for topic, nodes in registry.items():
            for node in nodes:
                self._uncopied[node, topic] = None
                by_node.setdefault(node, []).append(topic)
        for node, topics in by_node.items():
            self._copy(node, topics)

    def registered(self, node: NodeId, topics: list[Topic], new: Iterable[Topic]) -> list[Topic]:
        """Pass on registrations. Return those of which the subscriber may be told at once."""
        if self.heir is None:
            return topics
        new = dict.fromkeys(new)
        self._uncopied.update(((node, topic), None) for topic in new)
        if self._has_lease():
            self._held_back.update(((node, topic), None) for topic in new)
        self._copy(node, topics)
        return [topic for topic in topics if (node, topic) not in self._held_back]

    def unregistered(self, node: NodeId, topics: list[Topic]) -> None:
        for topic in topics:
            self._uncopied.pop((node, topic), None)
            self._held_back.pop((node, topic), None)
        if self.heir is not None and topics:
            self.state.out.append(Send(self.heir, Unregister(node, tuple(topics), HOPS_MAX)))

    def on_copied(self, sender: NodeId, node: NodeId, topics: tuple[Topic, ...]) -> None:
        """The heir has these registrations of `node`."""
        if sender == self.heir:
            self._has_answered = True
            for topic in topics:
                self._uncopied.pop((node, topic), None)
            self._tell(node, [topic for topic in topics if self._held_back.pop((node, topic), 0) is None])

    def tick(self, registry: dict[Topic, dict[NodeId, int]], *, is_sure: bool) -> None:
        self.look(registry)
        for kept in self.kept.values():
            kept.table.forget_old(self.state.now_ms - self.state.config.registered_ms)
        self._uncopied = {key: None for key in self._uncopied if key[0] in registry.get(key[1], ())}
        self._held_back = {key: None for key in self._held_back if key[0] in registry.get(key[1], ())}
        if self._held_back and not self._has_lease():
            by_node: dict[NodeId, list[Topic]] = {}
            for node, topic in self._held_back:
                by_node.setdefault(node, []).append(topic)
            self._held_back = {}
            for node, topics in by_node.items():
                self._tell(node, topics)
        if self.heir is not None and not self._has_answered and not registry:
            self._copy(self.state.id, [_PROBE])
        if self._has_answered and is_sure and not self._uncopied and self.heir is not None:
            self._told_ms = self.state.now_ms
            start = self.state.overlay.home_range()
            self.state.out.append(Send(self.heir, Register(self.state.id, (), HOPS_MAX, start)))

    def _has_lease(self) -> bool:
        """May an heir still believe that it has everything?"""
        lease_ms = (LEASE_TICKS + _MARGIN_TICKS) * self.state.config.tick_ms
        return self._told_ms is not None and self.state.now_ms - self._told_ms <= lease_ms

    def _copy(self, node: NodeId, topics: list[Topic]) -> None:
        assert self.heir is not None
        start = self.state.overlay.home_range()
        for first in range(0, len(topics), REGISTERED_MAX):
            part = tuple(topics[first : first + REGISTERED_MAX])
            self.state.out.append(Send(self.heir, Register(node, part, HOPS_MAX, start)))

    def _tell(self, node: NodeId, topics: list[Topic]) -> None:
        if topics:
            self.state.out.append(Send(node, Registered(tuple(topics))))

    # As heir

    def on_copy(self, sender: NodeId, message: Register) -> None:
        """Our predecessor passes on registrations, or says that we have them all."""
        state = self.state
        if sender != state.overlay.home_range() or sender == state.id or message.heir_of is None:
            return
        if sender not in self.kept:
            self.kept = {**dict(list(self.kept.items())[-1:]), sender: Inheritance(state.config.registered_ms)}
        kept = self.kept[sender]
        if not message.topics:
            kept.token = (message.heir_of, state.now_ms)
            return
        taken = []
        for topic in dict.fromkeys(message.topics):
            kept.table.add(topic, message.node, message.node, state.now_ms, state.now_ms)
            taken.append(topic)
        if taken:
            state.out.append(Send(sender, Registered(tuple(taken), message.node)))

    def on_uncopy(self, sender: NodeId, message: Unregister) -> None:
        if sender in self.kept:
            for topic in message.topics:
                self.kept[sender].table.remove(topic, message.node)

    def inherits(self, home: NodeId) -> NodeId | None:
        """The process of `home` has ended. Return the start of its range if our copy of its registry is complete."""
        for kept in self.kept.values():
            kept.table.remove_node(home)
        token = self.kept[home].token if home in self.kept else None
        if token is not None and self.kept[home].table.doubts.is_any(self.state.now_ms):
            return None  # we had no room for all of it
        lease_ms = LEASE_TICKS * self.state.config.tick_ms
        return None if token is None or self.state.now_ms - token[1] > lease_ms else token[0]
