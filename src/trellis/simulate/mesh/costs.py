"""What computing costs. In virtual time a callback is free, however much it computes; a real node is busy meanwhile.

The dearest inputs of a node are charged to its event loop: publications, messages of peers, and every input that
changes its topics, since the overlay then looks at all topics that the node takes part in. The cost of a topic was
measured on one core of a server; the others are estimates. Some seeds run on machines that are ten times slower.
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
TOPIC_US = 0.5  # for each topic of the node, at every change of its topics
_SLOWNESS = (0, 1, 10)  # 0: computing is free
_BUSY = ("flood", "many-topics")  # faults that keep a node busy: then it is slow more often


def draw_slowness(random: Random, schedule: Schedule) -> int:
    return random.choice((*_SLOWNESS, 10, 10) if has_floods(schedule) else _SLOWNESS)


def has_floods(schedule: Schedule) -> bool:
    return any(one.kind in _BUSY for one in schedule.faults)


def charge(node: LiveNode, loop: HostLoop, slowness: int) -> None:
    """Have the inputs of a node take virtual time. To be called before the node starts."""
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
