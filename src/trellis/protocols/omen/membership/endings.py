"""The messages that end a churn event whose repair or join is over.  [OM Alg. 6, notifySuccRange]"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.omen.membership.events import Event
from trellis.protocols.omen.messages import Finished, JoinDone, ReportOk
from trellis.protocols.omen.repair.join import Join
from trellis.protocols.omen.repair.repair import Repair
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.ring import identifier

# Sends a message toward a ring position, around the given nodes.
Route = Callable[[int, msgspec.Struct, Collection[NodeId]], Outcomes]


def join_over(join: Join, successors: list[NodeId]) -> Outcomes:
    """Tell the joiner and our successors that a join is over. If it gave up, tell none: the joiner asks again."""
    if join.gave_up:
        return []
    over = Finished(join.node, join.incarnation, "join")
    return [
        Send(join.node, JoinDone(join.incarnation)),
        *[Send(peer, over) for peer in successors if peer != join.node],
    ]


def departure_over(event: Event, repair: Repair, successors: list[NodeId], route: Route) -> Outcomes:
    """Tell our successors and the survivors that a departure is repaired. A node that leaves is told as well."""
    finished = Finished(event.node, event.incarnation, "leave")
    done = ReportOk(event.node, event.incarnation, "done")
    # Deviation: [OM Alg. 6, notifySuccRange] names the L successors of the churned node. Ours are those of its
    # coordinator: the same nodes, and one more behind them.
    effects: Outcomes = [Send(peer, finished) for peer in successors]
    effects += _group_over(repair, route)
    survivors = dict.fromkeys(event.reporters)
    if not event.is_announced:  # A node that leaves closes its links itself, so its neighbors wait for nothing.
        survivors |= dict.fromkeys(repair.departed[event.node].neighbors)
    effects += [Send(survivor, done) for survivor in survivors if survivor in event.counted]
    if event.is_announced:
        effects.append(Send(event.node, done))
    return effects


def _group_over(repair: Repair, route: Route) -> Outcomes:
    """Tell the coordinators and the survivors of the other members of a group that the repair covers them too."""
    effects: Outcomes = []
    for name, one in repair.departed.items():
        if name == repair.node or not one.neighbors or repair.gave_up:
            continue
        finished, done = Finished(name, one.incarnation, "leave"), ReportOk(name, one.incarnation, "done")
        effects += route(identifier(name), finished, repair.departed)
        effects += [Send(survivor, done) for survivor in one.neighbors if survivor in repair.questions.answers.told]
    return effects
