"""Heirs: the next node on the ring keeps a copy of a home's registrations.  [docs/delivery.md, Homes]

If the process of a home has certainly ended, its successor becomes home of its range. With a complete copy, the
successor knows at once who subscribes. It need not wait `registered_ms` until everybody has registered again.

At the home: each registration is also sent to the heir (`Register` with `heir_of`), and the heir answers. A new
subscriber is told that it is registered when the heir has answered. Once per tick, while the heir has everything and
the home is sure, the home says so (`Register` without topics). The heir believes this for `LEASE_TICKS`.

At the heir: the copy counts if the home ended within `LEASE_TICKS` after its last statement, and if the range that the
heir gets is the one that the home named.

E1  A home tells a subscriber that it is registered only when the heir has the registration too, or when the heir's
    lease has expired. So an heir that is sure knows every registered subscriber.
"""

from __future__ import annotations

from collections.abc import Iterable

from trellis.protocols.delivery.messages import HOPS_MAX, REGISTERED_MAX, Register, Registered, Unregister
from trellis.protocols.delivery.outcome import CANARY
from trellis.protocols.delivery.registry import Registry
from trellis.protocols.delivery.state import State
from trellis.protocols.effects import NodeId, Send, Topic

LEASE_TICKS = 3
_MARGIN_TICKS = 2  # A home counts a lease longer than its heir does, because the statement took time to arrive.
COPIES_MAX = 262_144  # Most registrations that an heir keeps of one home.
_PROBE = CANARY + "heir"  # A home without registrations sends this one, to see whether its heir keeps copies.


class Inheritance:
    """The registrations of a home, as its heir knows them."""

    def __init__(self, registered_ms: int) -> None:
        self.table = Registry(COPIES_MAX, COPIES_MAX, COPIES_MAX, registered_ms)
        # the start of the home's range, and when the home last said that we have everything
        self.token: tuple[NodeId, int] | None = None

    @property
    def registry(self) -> dict[Topic, dict[NodeId, int]]:
        return self.table.topics


class Heirs:
    """Both sides of the copy: as a home toward its heir, and as the heir of other homes."""

    def __init__(self, state: State) -> None:
        self.state = state
        # As home.
        self.heir: NodeId | None = None
        self._has_answered = False  # Nodes of earlier versions keep no copies and never answer.
        self._uncopied: dict[tuple[NodeId, Topic], None] = {}  # registrations that the heir has not confirmed
        # Those of `_uncopied` whose subscribers have not been told yet, with the numbers of their registrations.
        self._held_back: dict[tuple[NodeId, Topic], int] = {}
        self._told_ms: int | None = None  # When we last told any heir that it has everything.
        # By home: our predecessor on the ring, and the one before it. When we learn that a home has ended, another node
        # may already be our predecessor.
        self.kept: dict[NodeId, Inheritance] = {}

    # As home

    def look(self, registry: dict[Topic, dict[NodeId, int]]) -> None:
        """Send all registrations to a new heir."""
        heir = self.state.overlay.heir()
        if heir == self.heir:
            return
        self.heir, self._has_answered, self._uncopied = heir, False, {}
        self.took_over(registry)

    def took_over(self, registry: dict[Topic, dict[NodeId, int]]) -> None:
        """Send all of `registry` to the heir: the heir is new, or we have just inherited these registrations."""
        if self.heir is None:
            return
        by_node: dict[NodeId, list[Topic]] = {}
        for topic, nodes in registry.items():
            for node in nodes:
                self._uncopied[node, topic] = None
                by_node.setdefault(node, []).append(topic)
        for node, topics in by_node.items():
            self._copy(node, topics)

    def registered(self, node: NodeId, topics: list[Topic], new: Iterable[Topic], number: int) -> list[Topic]:
        """Copy registrations to the heir. Return those whose subscriber may be told at once.

        `number` is that of the subscriber's message.
        """
        if self.heir is None:
            return topics
        new = dict.fromkeys(new)
        self._uncopied.update(((node, topic), None) for topic in new)
        has_lease = self._has_lease()
        for topic in topics:
            if (has_lease and topic in new) or (node, topic) in self._held_back:
                self._held_back[node, topic] = number
        self._copy(node, topics)
        return [topic for topic in topics if (node, topic) not in self._held_back]

    def unregistered(self, node: NodeId, topics: list[Topic]) -> None:
        """Forget registrations, and tell the heir."""
        for topic in topics:
            self._uncopied.pop((node, topic), None)
            self._held_back.pop((node, topic), None)
        if self.heir is not None and topics:
            self.state.out.append(Send(self.heir, Unregister(node, tuple(topics), HOPS_MAX)))

    def on_copied(self, sender: NodeId, node: NodeId, topics: tuple[Topic, ...]) -> None:
        """The heir has confirmed these registrations of `node`: tell the subscriber if it still waits."""
        if sender == self.heir:
            self._has_answered = True
            for topic in topics:
                self._uncopied.pop((node, topic), None)
            self._release([(node, topic) for topic in topics])

    def tick(self, registry: dict[Topic, dict[NodeId, int]], *, is_sure: bool) -> None:
        """Expire old copies, release subscribers whose lease has expired, and renew the heir's lease."""
        self.look(registry)
        for kept in self.kept.values():
            kept.table.forget_old(self.state.now_ms - self.state.config.registered_ms)
        self._uncopied = {key: None for key in self._uncopied if key[0] in registry.get(key[1], ())}
        held_back = self._held_back.items()
        self._held_back = {key: number for key, number in held_back if key[0] in registry.get(key[1], ())}
        if not self._has_lease():
            self._release(list(self._held_back))
        if self.heir is not None and not self._has_answered and not registry:
            self._copy(self.state.id, [_PROBE])
        if self._has_answered and is_sure and not self._uncopied and self.heir is not None:
            self._told_ms = self.state.now_ms
            start = self.state.overlay.home_range()
            self.state.out.append(Send(self.heir, Register(self.state.id, (), HOPS_MAX, start)))

    def _has_lease(self) -> bool:
        """Return whether an heir may still believe that it has everything."""
        lease_ms = (LEASE_TICKS + _MARGIN_TICKS) * self.state.config.tick_ms
        return self._told_ms is not None and self.state.now_ms - self._told_ms <= lease_ms

    def _copy(self, node: NodeId, topics: list[Topic]) -> None:
        """Send registrations of `node` to the heir."""
        assert self.heir is not None
        start = self.state.overlay.home_range()
        for first in range(0, len(topics), REGISTERED_MAX):
            part = tuple(topics[first : first + REGISTERED_MAX])
            self.state.out.append(Send(self.heir, Register(node, part, HOPS_MAX, start)))

    def _release(self, registrations: list[tuple[NodeId, Topic]]) -> None:
        """Tell subscribers that they are registered, if they still wait for that."""
        waiting: dict[tuple[NodeId, int], list[Topic]] = {}
        for node, topic in registrations:
            number = self._held_back.pop((node, topic), None)
            if number is not None:
                waiting.setdefault((node, number), []).append(topic)
        for (node, number), topics in waiting.items():
            self.state.out.append(Send(node, Registered(tuple(topics), number=number)))

    # As heir

    def on_copy(self, sender: NodeId, message: Register) -> None:
        """Take in registrations of our predecessor, or its statement that we have them all."""
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
        """Drop copied registrations that the home says have ended."""
        if sender in self.kept:
            for topic in message.topics:
                self.kept[sender].table.remove(topic, message.node)

    def inherits(self, home: NodeId) -> NodeId | None:
        """Return the start of the range of `home`, whose process has ended, or None if our copy is incomplete."""
        for kept in self.kept.values():
            kept.table.remove_node(home)
        token = self.kept[home].token if home in self.kept else None
        if token is not None and self.kept[home].table.doubts.is_any(self.state.now_ms):
            return None  # there was no space for all of it
        lease_ms = LEASE_TICKS * self.state.config.tick_ms
        return None if token is None or self.state.now_ms - token[1] > lease_ms else token[0]
