"""How long repairs took, as nodes tell their operators: a repair must not wait for a node that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.history import Disturbed, Down, History, Up
from trellis.simulate.whole.whole import Mesh

REPAIR_S_MAX = 3.0  # after a crash, where the network is whole; nodes that hang do not count as a disturbance
_SETTLE_S = 5.0  # before a repair began: what was sent into a cut comes late
_ROUNDED_S = 0.002  # nodes tell times in whole milliseconds
_HANGS = ("pause", "freeze")


def slow_repairs(mesh: Mesh, history: History, jumped: set[str]) -> Iterator[str]:
    """Yield a sentence for each crash after which no repair was over soon: all took long, or began late.

    `jumped` are nodes whose clock on the wall has jumped: nobody knows when their repairs began.
    """
    disturbances = [one for one in history.events if isinstance(one, Disturbed)]
    crashes = [one.t for one in history.events if isinstance(one, Down)]
    first: dict[tuple[str, float], tuple[float, float, str]] = {}  # by crash: the repair that was over first
    for name, node in mesh.nodes.items():
        wall_s = mesh.host(name).wall_s()
        for repair in node.mends.latest:
            begin = mesh.world.now_s - (wall_s - repair.at_ms / 1_000)
            end = begin + (repair.ms or 0) / 1_000
            if name in jumped or repair.cause != "crash" or repair.node not in mesh.names:
                continue  # a hostile peer goes without a word, and what it said about its links was not true
            crash = repair.node, _seen_at(history, repair.node, begin)
            first[crash] = min(first.get(crash, (end, begin, name)), (end, begin, name))
    for (crashed, since), (end, begin, name) in first.items():
        is_excused = any(_excuses(one, name, since - _SETTLE_S, end) for one in disturbances)
        is_excused = is_excused or any(since < t < end for t in crashes)  # another crash came in between
        if end - since > REPAIR_S_MAX and not is_excused:
            yield (
                f"{name}: the repair after the crash of {crashed} at {since:.3f} s began after "
                f"{begin - since:.1f} s and took {end - begin:.1f} s"
            )


def _seen_at(history: History, node: str, begin: float) -> float:
    """Return when the others could see that `node` had crashed. A crash that nobody is told of is seen by silence."""
    known = begin + _ROUNDED_S
    changes = [one for one in history.events if isinstance(one, Down | Up) and one.node == node and one.t <= known]
    last = changes[-1] if changes else None
    return last.t if isinstance(last, Down) and not last.silent and not last.leave else begin


def _excuses(one: Disturbed, name: str, begin: float, end: float) -> bool:
    if one.t > end or one.until < begin:
        return False
    return one.kind not in _HANGS or name in one.nodes
