"""Long links by a Symphony draw: a distance x of the circle with density proportional to 1/x.  [VI §III-A1]

With n nodes x lies in [1/n, 1]: x = n^(u - 1), u uniform in [0, 1); the link goes to the node closest to own + x. With
k such links greedy lookups take O((1/k) log^2 n) hops.

Deviation: [VI Alg. 4, l. 8] draws a distance in every round. Here u is drawn once per link, or links would never settle
and relay paths would flap (A-VIT-3).

A-SUB-3: n is estimated from the distances to the nearest nodes on the ring, and what was estimated is kept until it is
wrong by a factor of 2; or it is configured.
"""

from __future__ import annotations

from math import exp, log
from random import Random

from trellis.protocols.ring import RING, clockwise


class LongLinks:
    """Where the long links of one node should lead."""

    def __init__(self, own: int, count: int, random: Random, network_size: int = 0) -> None:
        """`network_size` 0: estimate it."""
        self.own, self.configured = own, network_size
        self.size = max(2.0, float(network_size))
        self._draws = [random.random() for _ in range(count)]
        self._distances: list[int] = []
        self._place()

    def distances(self, successor: int, predecessor: int) -> list[int]:
        """How far from here the links should lead, clockwise, given the identifiers of the neighbours on the ring."""
        if not self.configured and self._draws:
            estimate = max(2.0, 2 * RING / max(1, clockwise(predecessor, successor) or RING))
            if not self.size / 2 <= estimate <= 2 * self.size:
                self.size = estimate
                self._place()
        return self._distances

    def _place(self) -> None:
        self._distances = [int(RING * exp(log(self.size) * (draw - 1))) for draw in self._draws]
