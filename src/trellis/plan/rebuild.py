"""Define LowODA-Re: after every event, discard the overlay and build it from scratch.  [OMen §6.1]

The number of changed links depends on ties (A-LOW-7). Ours go by keys, which do not change when nodes join and leave.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from trellis.model.names import IdArray
from trellis.plan.construction import construct
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_steps import Repair
from trellis.plan.mend import NewLinks


class RebuildMaintenance:
    """Has the methods of `IncrementalMaintenance`, and builds a new overlay at every event."""

    def __init__(self, current: CurrentOverlay, rho: float, seed: int | str) -> None:
        self.current, self.rho, self.seed = current, rho, seed

    def join(self, node: int, topics: IdArray, round_: int) -> Repair:
        before = self._links()
        self.current.admit(node, topics)
        return self._rebuilt(before)

    def leave(self, nodes: npt.ArrayLike, round_: int) -> Repair:
        before = self._links()
        for node in np.asarray(nodes, np.int32):
            self.current.dismiss(int(node))
        return self._rebuilt(before)

    def subscribe(self, node: int, topic: int, round_: int) -> Repair:
        before = self._links()
        self.current.add_topics(node, [topic])
        return self._rebuilt(before)

    def unsubscribe(self, node: int, topic: int, round_: int) -> Repair:
        before = self._links()
        self.current.drop_topic(node, topic)
        return self._rebuilt(before)

    def _rebuilt(self, before: npt.NDArray[np.int64]) -> Repair:
        """Replace the overlay by a new plan, and return what that changed."""
        interests = self.current.interests()
        begin = time.process_time()
        overlay = construct(interests, "lowoda", rho=self.rho, seed=self.seed).overlay
        seconds = time.process_time() - begin
        self.current.unlink_all()
        self.current.link_as(overlay)
        after = self._links()
        us, ws = np.divmod(np.setdiff1d(after, before, assume_unique=True), len(self.current.names))
        removed = len(before) + len(us) - len(after)
        return Repair(NewLinks(us.astype(np.int32), ws.astype(np.int32)), removed, self.current.nodes, seconds)

    def _links(self) -> npt.NDArray[np.int64]:
        """Return each link as one number, ascending."""
        us, ws = self.current.pairs()
        return us.astype(np.int64) * len(self.current.names) + ws
