"""Long links by a Symphony draw: a distance x along the ring with density proportional to 1/x.  [VI §III-A1]

The ring has length 1. With n nodes, x lies in [1/n, 1]: x = n^(u - 1), with u uniform in [0, 1). The link goes to the
node closest to the position `own` + x. With k such links, greedy lookups take O((1/k) log^2 n) hops.

Deviation: [VI Alg. 4, l. 8] draws a distance in every round. Here u is drawn once for each link. Otherwise links would
never settle, and relay paths would change all the time (A-VIT-3).

A-SUB-3: n is configured, or estimated from the distance between the next and the previous node on the ring. An estimate
is kept until it is wrong by a factor of 2.
"""

from __future__ import annotations

from math import exp, log
from random import Random

from trellis.protocols.ring import RING, clockwise


class LongLinks:
    """The distances that the long links of one node should span."""

    def __init__(self, own: int, count: int, random: Random, network_size: int = 0) -> None:
        """Draw `count` distances. If `network_size` is 0, it is estimated."""
        self.own, self.configured = own, network_size
        self.size = max(2.0, float(network_size))
        self._draws = [random.random() for _ in range(count)]
        self._distances: list[int] = []
        self._compute()

    def distances(self, successor: int, predecessor: int) -> list[int]:
        """Return the distances clockwise from this node.

        The arguments are the identifiers of the next and the previous node on the ring.
        """
        if not self.configured and self._draws:
            estimate = max(2.0, 2 * RING / max(1, clockwise(predecessor, successor) or RING))
            if not self.size / 2 <= estimate <= 2 * self.size:
                self.size = estimate
                self._compute()
        return self._distances

    def _compute(self) -> None:
        """Compute the distances from the draws and the size of the network."""
        self._distances = [int(RING * exp(log(self.size) * (draw - 1))) for draw in self._draws]
