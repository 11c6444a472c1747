"""Limit how much work each peer can cause: a token bucket for each peer.

The transport uses it to bound how many changes of its address book one peer may cause.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from trellis.protocols.effects import NodeId

PEERS_MAX = 4_096  # Most peers that are remembered. The one that used its allowance longest ago is forgotten first.


class Allowance:
    """Keep one bucket for each peer. A peer that is not remembered has a full one."""

    def __init__(self, most: int, per_s: float, now: Callable[[], float]) -> None:
        """`most`: size of a full bucket. `per_s`: amount that is refilled in a second. `now` returns seconds."""
        self.most, self.per_s, self._now = most, per_s, now
        self._used: OrderedDict[NodeId, tuple[float, float]] = OrderedDict()  # amount used, and as of when

    def left(self, peer: NodeId) -> int:
        """Return the amount that a peer may use now. It is negative after a peer has used more than it had."""
        return int(self.most - self._used_by(peer))

    def use(self, peer: NodeId, amount: int) -> None:
        """Take an amount from the bucket of a peer, even if that holds less."""
        if not amount:
            return
        self._used[peer] = (self._used_by(peer) + amount, self._now())
        self._used.move_to_end(peer)
        if len(self._used) > PEERS_MAX:
            self._used.popitem(last=False)

    def _used_by(self, peer: NodeId) -> float:
        """Return the amount that is missing in the bucket of a peer now."""
        used, when = self._used.get(peer, (0.0, 0.0))
        return max(0.0, used - self.per_s * (self._now() - when))
