"""Keep backup sets and primaries: the nodes to ask for new links when a node is gone.  [SH V-C, V-G; OMen §4.2]

I1  u is in v's backups iff v is in u's primaries (A-SHD-8). No node backs itself. Both are present.
I2  Each backup shares a topic with its primary  [SH Eq. 1, individual commitment].
I3  Each topic of v is covered `coverage_factor` times, or as often as other subscribers allowed when the set was built
    or extended (A-SHD-2, A-SHD-9: a new node changes no existing set).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trellis import ids
from trellis.model.names import IdArray
from trellis.plan import backups_kernels as kernels
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_rows import Rows

ROUTINES = {
    "primal-dual": kernels.PRIMAL_DUAL,
    "primal-dual-carry": kernels.PRIMAL_DUAL_CARRY,
    "primal-dual-uncovered": kernels.PRIMAL_DUAL_UNCOVERED,
    "greedy": kernels.GREEDY,
    "greedy-weighted": kernels.GREEDY_WEIGHTED,
}


class BackupSets:
    """All backup sets of an overlay. At first none is built."""

    def __init__(self, current: CurrentOverlay, routine: str, coverage_factor: int, seed: int | str) -> None:
        self.current, self.seed = current, seed
        self.keys = current.names.keys(seed)
        self.routine = ROUTINES[routine]
        self.coverage_factor = min(coverage_factor, len(current.names))  # No node has more others than that.
        self.backups_of = Rows(len(current.names))
        self.primaries_of = Rows(len(current.names))

    def build(self, nodes: npt.ArrayLike, round_: int) -> None:
        """Build new sets for these nodes, in this order.  [SH Alg. 6, 8, 9]"""
        listed = np.asarray(nodes, np.int32)
        offsets, chosen, _ = self.choose(listed, self.coverage_factor, round_)
        dropped = [self.backups_of[node] for node in listed]
        self._release(np.repeat(listed, [len(backups) for backups in dropped]), _joined(dropped))
        self._record(np.repeat(listed, np.diff(offsets)), chosen)

    def choose(
        self, nodes: IdArray, covers: int | npt.NDArray[np.int64], round_: int, only_topic: int = -1
    ) -> tuple[npt.NDArray[np.int64], IdArray, IdArray]:
        """Return what the routine would choose, without recording it: offsets into backups, and the cover of each."""
        return kernels.build(
            self.routine,
            nodes,
            np.broadcast_to(np.int64(covers), len(nodes)).copy() if np.ndim(covers) == 0 else covers,
            self._draws(nodes, round_),
            *self.current.topics_of.arrays,
            *self.current.members.arrays,
            *self.backups_of.arrays,
            self.current.degrees + self.primaries_of.length,  # weight(u)
            np.int64(only_topic),
        )

    def extend(self, nodes: IdArray, topic: int, round_: int) -> None:
        """Add backups for a topic of these nodes that is covered too few times, and keep the present ones."""
        covered = [len(self.current.subscribers_among(self.backups_of[node], topic)) for node in nodes]
        missing = np.maximum(self.coverage_factor - np.array(covered, np.int64), 0)
        offsets, chosen, _ = self.choose(nodes, missing, round_, topic)
        self._record(np.repeat(nodes, np.diff(offsets)), chosen)

    def forget(self, node: int) -> IdArray:
        """Remove a node that is gone: it backs no node and no node backs it. Return the nodes that it backed."""
        primaries = self.primaries_of[node]
        self.backups_of.remove(primaries, node)
        self.primaries_of.clear(node)
        self._release(node, self.backups_of[node])
        return primaries

    def part_strangers(self, node: int) -> None:
        """End the pairs with `node` that no longer share a topic.  [SH Eq. 1]"""
        backups, primaries = self.backups_of[node], self.primaries_of[node]
        self._release(node, backups[self.current.shared_topics(node, backups) == 0])
        self._release(primaries[self.current.shared_topics(node, primaries) == 0], node)

    def _record(self, nodes: IdArray, backups: IdArray) -> None:
        self.backups_of.insert(nodes, backups)
        self.primaries_of.insert(backups, nodes)

    def _release(self, nodes: IdArray | int, backups: IdArray | int) -> None:
        self.backups_of.remove(nodes, backups)
        self.primaries_of.remove(backups, nodes)

    def _draws(self, nodes: IdArray, round_: int) -> npt.NDArray[np.uint64]:
        """Return one random stream per (seed, round, node), as the first state of a generator.

        A state must not be 0.
        """
        if self.routine in (kernels.GREEDY, kernels.GREEDY_WEIGHTED):
            return np.ones(len(nodes), np.uint64)
        return first_states(self.seed, round_, self.keys[nodes])


def first_states(seed: int | str, round_: int, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the first state of each node: a stream of the round, mixed with the node's key.

    The mixing function is that of splitmix64 (Steele, Lea, Flood 2014).
    """
    mixed = keys ^ np.uint64(ids.stream(seed, "backups", round_) % 2**64)
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ mixed >> np.uint64(31)) | np.uint64(1)


def _joined(pieces: list[IdArray]) -> IdArray:
    return np.concatenate(pieces) if pieces else np.empty(0, np.int32)
