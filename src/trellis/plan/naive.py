"""Define NaiveDynAlg: any two nodes may be linked. OMen calls it LowODA-Inc.  [SH Alg. 3, 4; OMen §6.1]"""

from __future__ import annotations

import numpy as np

from trellis.model.names import IdArray
from trellis.plan.maintain_overlay import CurrentOverlay


class Everyone:
    """The largest possible shadow set, V': always safe, never small.  [SH V-C]"""

    def __init__(self, current: CurrentOverlay) -> None:
        self.current = current

    def of_joiner(self, node: int, round_: int) -> IdArray:
        return self._but([node], self.current.everyone)

    def of_leavers(self, nodes: IdArray) -> IdArray:
        return self._but(nodes, self.current.everyone)

    def of_subscriber(self, node: int, topic: int, round_: int) -> IdArray:
        return self._but([node], self.current.members[topic])

    def of_unsubscriber(self, node: int, topic: int) -> IdArray:
        return self._but([node], self.current.members[topic])

    def after_leave(self, nodes: IdArray, round_: int) -> None:
        pass

    def after_unsubscribe(self, node: int, topic: int, round_: int) -> None:
        pass

    @staticmethod
    def _but(nodes: IdArray | list[int], some: IdArray) -> IdArray:
        return np.delete(some, np.searchsorted(some, nodes))
