"""The choice of nodes on the ring that the failure detector watches.

They are the L predecessors and the L successors. Live nodes also watch all nodes of the ring table that have never
answered them (`watch_unheard`). A peer may tell us names that it has invented. They fill our ring table, and some
become our predecessors or successors. If only these were watched, invented names would be found out L at a time on
either side. Each time other invented names would follow, and the range that we are home for would change again. If all
are watched at once, they are removed `silence_max` periods after the last of them was told. That holds if the ring
table has room for all of them.
"""

from __future__ import annotations

from trellis.protocols.detector import HeartbeatDetector
from trellis.protocols.effects import NodeId
from trellis.protocols.ring import Ring


class Watch:
    """Keeps the watch list of the detector up to date."""

    def __init__(self, ring: Ring, detector: HeartbeatDetector, *, unheard: bool) -> None:
        """Watch no node yet. `unheard`: nodes of the ring table that have never answered are watched as well."""
        self._ring, self._detector, self._has_unheard = ring, detector, unheard
        self._heard: set[NodeId] = set()  # Nodes of the ring table that have answered the detector.

    def tick(self) -> None:
        """Watch the nodes that must be watched in this period, and no others."""
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
