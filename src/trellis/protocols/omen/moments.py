"""Moments: what an OMen node announces about itself to observers, such as clocks, metrics and logs.

A node has no clock and writes no log. An observer calls `OMenNode.moments.subscribe` and is called at each moment. It
must neither call the node nor change anything that it is given, so a run is the same with and without observers.
`LinkUp`, `LinkDown` and `Left` are no moments, because drivers get them as effects.

| moment                         | who announces it                                    |
| ------------------------------ | --------------------------------------------------- |
| `RepairStarted`                | `Repairs`, when a repair or join is created         |
| `RepairFinished`               | `Repairs`, when it is done                          |
| `RepairDropped`                | `Repairs`, when another coordinator does it instead |
| `ChoiceStarted`, `ChoiceEnded` | a repair, around the computation of its next step   |
| `ViewsStarted`, `ViewsBuilt`   | `Views`, around the choice of backups               |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from trellis.protocols.effects import NodeId, Topic

# The cause of a repair in an operator's words. The topics of `subscribe` are ours; `relink` is a lost link; with `cut`
# the node has looked whether its own loss would split a topic.
Cause = Literal["crash", "leave", "join", "subscribe", "unsubscribe", "relink", "cut"]


class RepairStarted(msgspec.Struct, frozen=True, gc=False):
    """This node has begun a repair or a join."""

    number: int  # Unique in all runs of this node.
    cause: Cause
    node: NodeId  # The node whose churn event is repaired.


class RepairFinished(msgspec.Struct, frozen=True, gc=False):
    """A repair or join is done: its links are up, or it has given up."""

    number: int
    cause: Cause
    node: NodeId
    topics: tuple[Topic, ...]


class RepairDropped(msgspec.Struct, frozen=True, gc=False):
    """A repair ends here because another coordinator does it."""

    number: int


class ChoiceStarted(msgspec.Struct, frozen=True, gc=False):
    """A repair begins to compute its next step: the parts of topics, and Alg. 1."""

    number: int


class ChoiceEnded(msgspec.Struct, frozen=True, gc=False):
    """A repair has computed its next step."""

    number: int


class ViewsStarted(msgspec.Struct, frozen=True, gc=False):
    """Backups are about to be chosen for the views of these nodes."""

    nodes: tuple[NodeId, ...]


class ViewsBuilt(msgspec.Struct, frozen=True, gc=False):
    """Backups were chosen for the views of these nodes."""

    nodes: tuple[NodeId, ...]


Moment = RepairStarted | RepairFinished | RepairDropped | ChoiceStarted | ChoiceEnded | ViewsStarted | ViewsBuilt
Announce = Callable[[Moment], None]


class Moments:
    """The observers of a node."""

    def __init__(self) -> None:
        self._observers: list[Announce] = []

    def subscribe(self, observer: Announce) -> None:
        """Call `observer` at each moment from now on."""
        self._observers.append(observer)

    def announce(self, moment: Moment) -> None:
        """Tell all observers, in the order of their subscriptions."""
        for observer in self._observers:
            observer(moment)


def unobserved(moment: Moment) -> None:
    """Announce nothing. For parts that are used without a node."""
