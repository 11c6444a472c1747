"""Define ShadowDynAlg: new links only among neighbors and backups of the node that churns.  [SH Alg. 6-12]"""

from __future__ import annotations

import numpy as np

from trellis.model.names import IdArray
from trellis.plan.backups import BackupSets
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_rows import union


class Shadows:
    """Shadow sets made from backup sets, which are built for all nodes at once.  [SH Alg. 6]"""

    def __init__(self, current: CurrentOverlay, routine: str, coverage_factor: int, seed: int | str) -> None:
        self.current = current
        self.backups = BackupSets(current, routine, coverage_factor, seed)
        self.backups.build(current.everyone, 0)  # by rank: the order of the instance, seeded (A-SHD-7)

    def of_joiner(self, node: int, round_: int) -> IdArray:
        """Return B(v').  [SH Alg. 9; Alg. 10, l. 2]"""
        if self.backups.coverage_factor == 0:
            # Deviation: with S = {v'} nothing could be linked [3.7 b]. One cover is used now, and no node keeps it.
            return np.sort(self.backups.choose(np.array([node], np.int32), 1, round_)[1])
        self.backups.build([node], round_)
        return self.backups.backups_of[node]

    def of_leavers(self, nodes: IdArray) -> IdArray:
        """Return N(v') and B(v') of all of them.  [SH Alg. 7, l. 1]"""
        shadow = np.empty(0, np.int32)
        for node in nodes:
            shadow = union(shadow, union(self.current.neighbors[node], self.backups.backups_of[node]))
        return shadow if len(nodes) == 1 else np.setdiff1d(shadow, nodes)

    def of_subscriber(self, node: int, topic: int, round_: int) -> IdArray:
        """Return the subscribers of the topic in B(v), which is extended to cover it."""
        listed = np.array([node], np.int32)
        if self.backups.coverage_factor == 0:
            return np.sort(self.backups.choose(listed, 1, round_, topic)[1])
        self.backups.extend(listed, topic, round_)
        return self.current.subscribers_among(self.backups.backups_of[node], topic)

    def of_unsubscriber(self, node: int, topic: int) -> IdArray:
        """Return the subscribers of the topic in N(v) and B(v)."""
        return self.current.subscribers_among(self.of_leavers(np.array([node], np.int32)), topic)

    def after_leave(self, nodes: IdArray, round_: int) -> None:
        """Build new sets for the nodes that had one of them as a backup.  [SH Alg. 8]"""
        bereft = np.unique(np.concatenate([self.backups.forget(int(node)) for node in nodes]))
        self.backups.build(np.setdiff1d(bereft, nodes), round_)

    def after_unsubscribe(self, node: int, topic: int, round_: int) -> None:
        """End pairs without a common topic. Nodes that this node backed on the topic get another backup."""
        primaries = self.current.subscribers_among(self.backups.primaries_of[node], topic)
        self.backups.part_strangers(node)
        self.backups.extend(primaries, topic, round_)
