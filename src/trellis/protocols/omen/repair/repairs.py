"""All repairs and joins that this node runs, by number.

`Coordinator`, `Survivor`, `Interest` and `Roots` create them here. `OMenNode` passes messages and timers to `get`.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.omen.moments import Cause, RepairDropped, RepairFinished, RepairStarted
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.procedure import Context
from trellis.protocols.omen.repair.repair import Repair, RepairKind
from trellis.protocols.omen.signals import Outcomes


class Repairs:
    """The repairs and joins of this node."""

    def __init__(self, context: Context, incarnation: int, was_announced: Callable[[NodeId, int], bool]) -> None:
        """Create it without repairs. `was_announced` returns whether a departed node has said that it leaves."""
        self.context, self.was_announced = context, was_announced
        self.make_repair = Repair  # Tests put a broken one in its place.
        self.running: dict[int, Repair | Join] = {}  # By number.
        self.finished = 0  # Repairs and joins that are over.
        self.closures = 0  # Repairs that covered more than one departed node.
        # Number of the last repair. An answer names the repair that asked for it, and no incarnation. So incarnations
        # start from different numbers: an answer to a question of an earlier one finds no repair.
        self._numbers = incarnation

    def next_number(self) -> int:
        """Return the number of a new repair, or of a new request that asks questions. Answers carry the number."""
        self._numbers += 1
        return self._numbers

    def repair(self, kind: RepairKind, node: NodeId, incarnation: int, topics: tuple[Topic, ...] = ()) -> Repair:
        """Create a repair. The caller sets its nodes, and calls its `start`. A departure finds its topics itself."""
        repair = self.make_repair(self.next_number(), kind, node, incarnation, self.context, topics)
        self._begin(repair)
        return repair

    def join(self, node: NodeId, incarnation: int, topics: tuple[Topic, ...], backups: list[NodeId]) -> Join:
        """Create a join on these topics. The caller calls its `start`. `backups` may be ends of new links."""
        join = Join(self.next_number(), node, incarnation, self.context, topics)
        join.backups = backups
        self._begin(join)
        return join

    def _begin(self, repair: Repair | Join) -> None:
        self.running[repair.number] = repair
        self.context.announce(RepairStarted(repair.number, self.cause_of(repair), repair.node))

    def get(self, number: int) -> Repair | Join | None:
        """Return the repair or join of this number. None: it is over."""
        return self.running.get(number)

    def on_dead(self, node: NodeId) -> Outcomes:
        """Tell all repairs that a node is suspected."""
        return [effect for repair in list(self.running.values()) for effect in repair.on_dead(node)]

    def covers(self, node: NodeId) -> bool:
        """Return whether a repair after a departure counts this node as departed."""
        return any(
            isinstance(repair, Repair) and repair.kind == "leave" and node in repair.departed
            for repair in self.running.values()
        )

    def joins(self, node: NodeId) -> bool:
        """Return whether a join of this node is under way."""
        return any(isinstance(one, Join) and one.node == node for one in self.running.values())

    def cause_of(self, repair: Repair | Join) -> Cause:
        """Return the cause of a repair in an operator's words."""
        if isinstance(repair, Join):
            return "subscribe" if repair.node == self.context.me else "join"
        if repair.kind == "leave":
            return "leave" if self.was_announced(repair.node, repair.incarnation) else "crash"
        return repair.kind

    def drop(self, repair: Repair | Join) -> None:
        """Forget a repair that another coordinator does instead."""
        del self.running[repair.number]
        self.context.announce(RepairDropped(repair.number))

    def end(self, repair: Repair | Join) -> None:
        """Forget a repair that is done, and count it."""
        self.context.announce(RepairFinished(repair.number, self.cause_of(repair), repair.node, repair.topics))
        del self.running[repair.number]
        self.finished += 1
        self.closures += isinstance(repair, Repair) and len(repair.departed) > 1
