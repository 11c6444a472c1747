"""Which nodes of the ring the detector watches: our neighbors there, and in live nodes all that never answered us.

A peer may tell us names that it has invented. They take places in our ring table, and some become our neighbors there.
If only neighbors were watched, invented names would be found out L at a time on either side. Each time our neighbors
would be other invented names, and the range that we are home for would change again. Watched all at once, they are
gone `silence_max` periods after the last of them was told, if the ring table has room for all.
"""

from __future__ import annotations

from trellis.protocols.detector import HeartbeatDetector
from trellis.protocols.effects import NodeId
from trellis.protocols.ring import Ring


class Watch:
    def __init__(self, ring: Ring, detector: HeartbeatDetector, *, unheard: bool) -> None:
        """`unheard`: nodes of the ring table that never answered are watched as well."""
        self._ring, self._detector, self._has_unheard = ring, detector, unheard
        self._heard: set[NodeId] = set()  # Nodes of the ring table that have answered the detector.

    def tick(self) -> None:
        """Watch the nodes that are to be watched in this period, and no others."""
        near = [*self._ring.predecessors, *self._ring.successors, *self._unheard()]
        suspicion, wanted = self._detector.suspicion, set(near)
        if suspicion.watches_just(wanted):
            return
        for peer in suspicion.watched:
            if peer not in wanted:
                self._detector.unwatch(peer)
        for peer in near:
            self._detector.watch(peer)

    def _unheard(self) -> list[NodeId]:
        """Return the nodes of the ring table that have never answered us, if these are watched."""
        if not self._has_unheard:
            return []
        peers, incarnation_of = self._ring.tman.peers, self._detector.suspicion.incarnation_of
        self._heard = {peer for peer in peers if peer in self._heard or incarnation_of(peer)}
        return [peer for peer in peers if peer not in self._heard]
