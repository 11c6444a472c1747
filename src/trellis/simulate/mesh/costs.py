"""Charge virtual time for computing. Otherwise a callback takes no virtual time, while a real node would be busy.

The most expensive inputs of a node are charged to its event loop: publications, messages of peers, and every input that
changes its topics, because the overlay then looks at all topics of the node. The cost of a topic was measured on one
core of a server; the others are estimates. Some seeds run on machines that are ten times slower.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from trellis.live.shell import LiveNode
from trellis.simulate.schedule import Schedule
from trellis.simulate.whole.loop import HostLoop

PUBLICATION_US = 100
MESSAGE_US = 40
TIMER_US = 20
TOPIC_US = 0.5  # for each topic of the node, whenever its topics change
_SLOWNESS = (0, 1, 10)  # factors; 0: computing takes no time
_BUSY = ("flood", "many-topics")  # faults that keep a node busy: with them, slow nodes are drawn more often


def draw_slowness(random: Random, schedule: Schedule) -> int:
    """Draw the factor by which computing is slow. It is large more often with floods."""
    return random.choice((*_SLOWNESS, 10, 10) if has_floods(schedule) else _SLOWNESS)


def has_floods(schedule: Schedule) -> bool:
    """Return whether an attack of the schedule keeps a node busy."""
    return any(one.kind in _BUSY for one in schedule.faults)


def charge(node: LiveNode, loop: HostLoop, slowness: int) -> None:
    """Make the inputs of a node take virtual time. Call this before the node starts."""
    if not slowness:
        return
    mesh = node.mesh

    def charged(call: Callable[..., Any], cost_us: int) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            before = mesh.overlay.interest
            try:
                return call(*arguments)
            finally:
                loop.spent_us += slowness * cost_us
                if mesh.overlay.interest != before:
                    loop.spent_us += slowness * TOPIC_US * mesh.topics_count

        return run

    wrapped: Any = node
    wrapped.publish = charged(node.publish, PUBLICATION_US)
    wrapped.take_in = charged(node.take_in, MESSAGE_US)
    wrapped.timers._run = charged(node.timers._run, TIMER_US)
