"""How long repairs took, as nodes tell their operators: a repair must not wait for a node that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.history import Disturbed, Down, History, Up
from trellis.simulate.whole.whole import Mesh

REPAIR_S_MAX = 3.0  # after a crash, where the network is whole; nodes that hang do not count as a disturbance
_SETTLE_S = 5.0  # before a repair began: what was sent into a cut comes late
_HANGS = ("pause", "freeze")


def slow_repairs(mesh: Mesh, history: History, jumped: set[str]) -> Iterator[str]:
    """Yield a sentence for each repair that was over too late: it took long, or began long after the crash.

    `jumped` are nodes whose clock on the wall has jumped: nobody knows when their repairs began.
    """
    disturbances = [one for one in history.events if isinstance(one, Disturbed)]
    for name, node in mesh.nodes.items():
        if name in jumped:
            continue
        wall_s = mesh.host(name).wall_s()
        for repair in node.mends.latest:
            begin = mesh.world.now_s - (wall_s - repair.at_ms / 1_000)
            end = begin + (repair.ms or 0) / 1_000
            if repair.cause != "crash" or repair.node not in mesh.names:
                continue  # a hostile peer goes without a word, and what it said about its links was not true
            since = _seen_at(history, repair.node, begin)
            if end - since > REPAIR_S_MAX and not any(
                _excuses(one, name, since - _SETTLE_S, end) for one in disturbances
            ):
                yield (
                    f"{name}: the repair after the crash of {repair.node} at {since:.3f} s began after "
                    f"{begin - since:.1f} s and took {end - begin:.1f} s"
                )


def _seen_at(history: History, node: str, begin: float) -> float:
    """Return when the others could see that `node` had crashed. A crash that nobody is told of is seen by silence."""
    changes = [one for one in history.events if isinstance(one, Down | Up) and one.node == node and one.t <= begin]
    last = changes[-1] if changes else None
    return last.t if isinstance(last, Down) and not last.silent and not last.leave else begin


def _excuses(one: Disturbed, name: str, begin: float, end: float) -> bool:
    if one.t > end or one.until < begin:
        return False
    return one.kind not in _HANGS or name in one.nodes
