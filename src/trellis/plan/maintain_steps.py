"""Handle one churn event, from the change to the repaired overlay: Steps I to III.  [SH V-B to V-E]

NaiveDynAlg and ShadowDynAlg take the same steps. They differ in the nodes that they offer as ends of new links, which
`ShadowSets` returns. The network waits only for Step II, so its time is measured separately.

A node that stays may change its subscriptions. The papers leave that open ("can be extended", SH IV):
- It subscribes to t. G(t) was connected, so one link to a subscriber is enough, and none is needed if a neighbor has t.
- It drops t. Only t may split, among its neighbors that have t. Links of the node that served only t are dropped,
  because they serve nothing any more. Then t is repaired. Links that shared no topic before stay: they have other
  reasons.
"""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from trellis.model.names import IdArray
from trellis.plan.maintain_overlay import CurrentOverlay
from trellis.plan.maintain_rows import union
from trellis.plan.mend import NO_LINKS, NewLinks, connect_newcomer, reconnect, required_after


class ShadowSets(Protocol):
    """The nodes that an algorithm offers as ends of new links.

    Sets are ascending and never hold the node that churns.
    """

    def of_joiner(self, node: int, round_: int) -> IdArray:
        """Do Step I of a join. Return a node for each topic of `node` that has another subscriber."""

    def of_leavers(self, nodes: IdArray) -> IdArray:
        """Return at least all their neighbors. The nodes are still present."""

    def of_subscriber(self, node: int, topic: int, round_: int) -> IdArray:
        """Return subscribers of the topic that the node just subscribed to: at least one if there is another."""

    def of_unsubscriber(self, node: int, topic: int) -> IdArray:
        """Return at least its neighbors that have the topic. The node still has it."""

    def after_leave(self, nodes: IdArray, round_: int) -> None:
        """Do Step III."""

    def after_unsubscribe(self, node: int, topic: int, round_: int) -> None:
        """Do Step III."""


class Repair(NamedTuple):
    """What was done about one event."""

    added: NewLinks
    removed: int  # including links lost with their node (A-MOD-2)
    shadow_set: int  # |S|
    seconds: float  # processor time of Step II


class IncrementalMaintenance:
    """Keeps the existing links, and adds the missing ones."""

    def __init__(self, current: CurrentOverlay, shadows: ShadowSets, rho: float, components: str = "overlay") -> None:
        self.current, self.shadows = current, shadows
        self.rho, self.components = rho, components

    def join(self, node: int, topics: IdArray, round_: int) -> Repair:
        """Handle a join.  [SH Alg. 3; Alg. 9, 10]"""
        self.current.admit(node, topics)
        shadow = self.shadows.of_joiner(node, round_)  # Step I
        begin = time.process_time()
        added = self._connect(node, topics, shadow)
        # S includes the joining node. [Alg. 10, l. 2]
        return Repair(added, 0, len(shadow) + 1, time.process_time() - begin)

    def leave(self, nodes: npt.ArrayLike, round_: int) -> Repair:
        """Handle the leave of one node, or of several as one event.  [SH Alg. 4; Alg. 7, 8]"""
        gone = np.asarray(nodes, np.int32)
        begin, links = time.process_time(), self.current.links
        shadow = self.shadows.of_leavers(gone)
        apart = required_after(self.current, gone)
        for node in gone:
            self.current.dismiss(int(node))
        removed = links - self.current.links
        added = reconnect(self.current, apart, shadow, rho=self.rho, components=self.components)
        self.current.link(*added)
        seconds = time.process_time() - begin
        self.shadows.after_leave(gone, round_)  # Step III
        return Repair(added, removed, len(shadow), seconds)

    def subscribe(self, node: int, topic: int, round_: int) -> Repair:
        self.current.add_topics(node, [topic])
        shadow = self.shadows.of_subscriber(node, topic, round_)
        begin = time.process_time()
        served = len(self.current.subscribers_among(self.current.neighbors[node], topic))
        added = NO_LINKS if served else self._connect(node, np.array([topic], np.int32), shadow)
        return Repair(added, 0, len(shadow) + 1, time.process_time() - begin)

    def unsubscribe(self, node: int, topic: int, round_: int) -> Repair:
        begin = time.process_time()
        shadow = self.shadows.of_unsubscriber(node, topic)
        apart = required_after(self.current, [node], topic)
        served = self.current.subscribers_among(self.current.neighbors[node], topic)
        self.current.drop_topic(node, topic)
        idle = served[self.current.shared_topics(node, served) == 0]
        self.current.unlink(node, idle)
        added = reconnect(self.current, apart, shadow, rho=self.rho, components=self.components)
        self.current.link(*added)
        seconds = time.process_time() - begin
        self.shadows.after_unsubscribe(node, topic, round_)
        return Repair(added, len(idle), len(shadow), seconds)

    def _connect(self, node: int, topics: IdArray, shadow: IdArray) -> NewLinks:
        candidates = union(shadow, np.array([node], np.int32))
        added = connect_newcomer(self.current, node, topics, candidates, rho=self.rho, components=self.components)
        self.current.link(*added)
        return added
