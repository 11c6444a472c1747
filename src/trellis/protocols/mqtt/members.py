"""The nodes with an MQTT listener or sidecar, as far as this node knows them, and whether it knows all of them.

A node that has joined says `Who`. Every other node answers (`Heard`), and names the nodes that it knows. A node is
*informed* when all nodes that were named have answered, and one of them was informed itself. Then it knows all patterns
that are held, and all nodes that must learn its own patterns.

Why this suffices: of two nodes, the one that joined later says `Who` when the other one is already subscribed, so the
other one hears it. If two nodes join at about the same time, an informed node hears one of them first, and names it in
its answer to the other one. If no node is informed (all start at once), the mesh's acknowledgement and a time limit
decide instead.

A node that does not answer for `SILENT_MS` is removed from the list. It is added again when it says anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from trellis.protocols.effects import Incarnation, NodeId
from trellis.protocols.mqtt.envelope import MEMBERS_MAX, NO_INCARNATION

SILENT_MS = 10_000


@dataclass
class Member:
    """Another node with a listener or sidecar."""

    incarnation: Incarnation  # `NO_INCARNATION` if it was only named so far
    has_answered: bool = False  # It has answered our `Who`.
    asked_ms: int | None = None  # since when it owes an answer


class Members:
    """The list of these nodes."""

    def __init__(self, me: NodeId) -> None:
        self.me = me
        self.nodes: dict[NodeId, Member] = {}
        self.is_informed = False
        self._is_vouched = False  # an informed node has answered
        self._is_anybody_there = True  # False if the mesh cannot tell whether there are other nodes.
        self._spread_ms: int | None = None  # from this time on, answers of nodes that are not informed suffice
        self._fallback_ms: int | None = None  # informed at this time at the latest

    def joined(self, informed_ms: int) -> None:
        """We say `Who`. Without any answer we count as informed at `informed_ms`."""
        self.is_informed = self._is_vouched = False
        self._fallback_ms, self._spread_ms = informed_ms, None
        for member in self.nodes.values():
            member.has_answered, member.asked_ms = False, None

    def acknowledged(self, others: int | None, spread_ms: int) -> None:
        """The mesh has acknowledged our `Who`: `others` other nodes hold it. None: the mesh cannot tell.

        With 0, the mesh has proven that there is no other node. From `spread_ms` on, answers of nodes that are not
        informed suffice.
        """
        self._spread_ms, self._is_anybody_there = spread_ms, others is not None
        if others == 0:
            self._inform()

    def joins(self, node: NodeId, incarnation: Incarnation) -> bool:
        """A node says `Who`. Return whether it is new here, or a new incarnation.

        It joined after us, so it may not have heard our `Who`, and we hear everything that it tells.
        """
        is_new = self.heard(node, incarnation)
        if node in self.nodes:
            self.nodes[node].has_answered, self.nodes[node].asked_ms = True, None
        return is_new

    def heard(self, node: NodeId, incarnation: Incarnation) -> bool:
        """A node says something. Return whether it is new here, or a new incarnation."""
        if node == self.me:
            return False
        known = self.nodes.get(node)
        if known is None:
            if len(self.nodes) >= MEMBERS_MAX:
                return False
            self.nodes[node] = Member(incarnation)
            return True
        is_new = known.incarnation < incarnation and known.incarnation > 0
        known.incarnation = max(known.incarnation, incarnation)
        if is_new:
            known.asked_ms = None
        return is_new

    def answered(self, node: NodeId, is_informed: bool, names: tuple[NodeId, ...]) -> None:
        """A node answers our `Who`, and names the nodes that it knows."""
        if self.is_informed or node not in self.nodes:
            return
        self.nodes[node].has_answered, self.nodes[node].asked_ms = True, None
        self._is_vouched = self._is_vouched or is_informed
        for name in names:
            if name != self.me and name not in self.nodes and len(self.nodes) < MEMBERS_MAX:
                self.nodes[name] = Member(NO_INCARNATION)

    def left(self, node: NodeId, incarnation: Incarnation) -> None:
        """A node has said that it leaves."""
        known = self.nodes.get(node)
        if known is not None and known.incarnation <= incarnation:
            del self.nodes[node]

    def tick(self, now_ms: int) -> int:
        """Drop silent nodes, and find out whether we are informed. Return how many were dropped."""
        waits = not self.is_informed and self._fallback_ms is not None
        silent = []
        for node, member in self.nodes.items():
            if waits and not member.has_answered and member.asked_ms is None:
                member.asked_ms = now_ms
            if member.asked_ms is not None and now_ms - member.asked_ms > SILENT_MS:
                silent.append(node)
        for node in silent:
            del self.nodes[node]
        if waits:
            assert self._fallback_ms is not None
            has_all = all(member.has_answered for member in self.nodes.values())
            has_all = has_all and (bool(self.nodes) or not self._is_anybody_there)
            is_spread = self._spread_ms is not None and now_ms >= self._spread_ms
            if now_ms >= self._fallback_ms or (has_all and (self._is_vouched or is_spread)):
                self._inform()
        return len(silent)

    def _inform(self) -> None:
        self.is_informed = True
        for member in self.nodes.values():
            member.asked_ms = None
