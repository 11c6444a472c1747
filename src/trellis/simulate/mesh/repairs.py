"""Check how long repairs took, from what nodes report to operators. A repair must not wait for a node that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.history import Disturbed, Down, History, Up
from trellis.simulate.whole.whole import Mesh

REPAIR_S_MAX = 3.0  # seconds after a crash while the network is whole; nodes that hang are no excuse
_SETTLE_S = 5.0  # time before a crash in which a fault still excuses: messages that were sent into a cut come late
_ROUNDED_S = 0.002  # Nodes report times in whole milliseconds.
_HANGS = ("pause", "freeze")


def slow_repairs(mesh: Mesh, history: History, jumped: set[str]) -> Iterator[str]:
    """Yield a sentence for each crash after which no repair ended soon: all took long, or began late.

    `jumped` are nodes whose wall clock has jumped, so it is unknown when their repairs began.
    """
    disturbances = [one for one in history.events if isinstance(one, Disturbed)]
    crashes = [one.t for one in history.events if isinstance(one, Down)]
    # crash -> (end, begin, node) of the repair that ended first
    first: dict[tuple[str, float], tuple[float, float, str]] = {}
    for name, node in mesh.nodes.items():
        wall_s = mesh.host(name).wall_s()
        for repair in node.repairs.latest:
            begin = mesh.world.now_s - (wall_s - repair.at_ms / 1_000)
            end = begin + (repair.ms or 0) / 1_000
            if name in jumped or repair.cause != "crash" or repair.node not in mesh.names:
                continue  # A hostile peer disappears without notice, and what it said about its links was not true.
            crash = repair.node, _seen_at(history, repair.node, begin)
            first[crash] = min(first.get(crash, (end, begin, name)), (end, begin, name))
    for (crashed, since), (end, begin, name) in first.items():
        is_excused = any(_excuses(one, name, since - _SETTLE_S, end) for one in disturbances)
        is_excused = is_excused or any(since < t < end for t in crashes)  # another crash happened during the repair
        if end - since > REPAIR_S_MAX and not is_excused:
            yield (
                f"{name}: the repair after the crash of {crashed} at {since:.3f} s began after "
                f"{begin - since:.1f} s and took {end - begin:.1f} s"
            )


def _seen_at(history: History, node: str, begin: float) -> float:
    """Return when others could notice that `node` had crashed.

    A crash that the network does not report shows by silence.
    """
    known = begin + _ROUNDED_S
    changes = [one for one in history.events if isinstance(one, Down | Up) and one.node == node and one.t <= known]
    last = changes[-1] if changes else None
    return last.t if isinstance(last, Down) and not last.silent and not last.leave else begin


def _excuses(one: Disturbed, name: str, begin: float, end: float) -> bool:
    if one.t > end or one.until < begin:
        return False
    return one.kind not in _HANGS or name in one.nodes
