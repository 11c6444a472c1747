"""How much each peer may still make this node do: an amount that is used up, and that grows back with time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from trellis.protocols.effects import NodeId

PEERS_MAX = 4_096  # that are remembered; the one that used its allowance longest ago is forgotten first


class Allowance:
    def __init__(self, most: int, per_s: float, now: Callable[[], float]) -> None:
        """`most` is what a peer has at first, and at most. `per_s` grows back in a second."""
        self.most, self.per_s, self._now = most, per_s, now
        self._used: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()  # what was used up, and when

    def left(self, peer: NodeId) -> int:
        return int(self.most - self._used_by(peer))

    def use(self, peer: NodeId, amount: int) -> None:
        if not amount:
            return
        self._used[peer] = (self._used_by(peer) + amount, self._now())
        self._used.move_to_end(peer)
        if len(self._used) > PEERS_MAX:
            self._used.popitem(last=False)

    def _used_by(self, peer: NodeId) -> float:
        used, when = self._used.get(peer, (0.0, 0.0))
        return max(0.0, used - self.per_s * (self._now() - when))
