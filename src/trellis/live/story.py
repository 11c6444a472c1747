"""Log the main events of a node: joined, neighbor lost and why, repairs, whole again.  [docs/runbook.md, Logs]

The shell reports each link that comes up or goes down, with the input that it was handling. `RepairClock` reports
repairs. `Health` calls `look` twice a second. Nothing here changes what the node does.

After the loss of a neighbor the node is whole again when each topic that was shared with lost neighbors has another
neighbor, and no repair of a churn event runs here. Sets of topics are ints with one bit for each topic.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trellis.live.health import not_ready
from trellis.live.log import listed
from trellis.live.repair_times import RepairTime
from trellis.protocols.delivery.outcome import Lost, Overflowed
from trellis.protocols.delivery.state import is_internal
from trellis.protocols.effects import NodeId, Topic

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")

JOINED_S_MAX = 10.0  # A node that is ready logs that it has joined when it has a neighbor, or after this time.
WHOLE_S_MAX = 10.0  # After this time, topics without a neighbor count as topics that only this node has.
_RESTARTED = ("Connect", "Heartbeat")  # messages that can show that a neighbor has a new incarnation
_CLOSED = ("Disconnect", "Unlink", "Leave", "Leaving")  # messages with which a neighbor closes a link in order
# Repairs with these causes are logged at level info. Clients and operators cause the others (level debug).
_TOLD = ("crash", "leave", "join")


class Story:
    """Logs what happens to one node."""

    def __init__(self, node: LiveNode, now: float) -> None:
        """`now`: when the node started, by the loop's clock."""
        self.node, self._started = node, now
        self.has_joined = False
        self._ready_at: float | None = None  # when the node became ready
        self._interests: dict[NodeId, int] = {}  # topics of neighbors, as last seen
        # Neighbors that closed their link in order, and the topics that were shared with them. The next `look` finds
        # out whether they have left.
        self._closed: dict[NodeId, int] = {}
        self._lost: dict[NodeId, None] = {}  # neighbors that were lost since the node was last whole
        self._lost_topics = 0  # topics that were shared with them
        self._lost_at = 0.0  # when the first of them was lost

    # Called by the shell, `RepairClock` and `Health`

    def link_up(self, peer: NodeId) -> None:
        """Note that `peer` is a neighbor now."""
        self._remember()
        log.debug("%s: linked with %s", self.node.name, peer)
        self._closed.pop(peer, None)
        if self._lost:
            self._look_whole()

    def link_down(self, peer: NodeId, source: NodeId | None, kind: str) -> None:
        """Note that `peer` is no longer a neighbor. Log the reason, if the neighbor was lost.

        `source` and `kind` are the input that was being handled: the sender and type of a message, a peer and "down",
        or None and "timer" or "request".
        """
        topics = self._interests.pop(peer, 0) & self.node.mesh.overlay.interest
        if self.node.mesh.is_leaving:
            return
        if source == peer and kind in _CLOSED:
            self._closed[peer] = topics
            return
        silent_s = self.node.health.links.silent_s(peer)
        if source == peer and kind == "down":
            why = self.node.transport.why_down
        elif source == peer and kind in _RESTARTED:
            why = "it restarted"
        elif source == peer:
            why = "it no longer knows this link"
        elif source is not None:
            why = f"{source} reported that it is gone"
        elif silent_s >= 2 * self.node.health.links.period_s:
            why = f"it was silent for {silent_s:.1f} s"
        else:
            log.debug("%s: closed the link with %s", self.node.name, peer)
            return
        self._lose(peer, topics, why)

    def repair_began(self, repair: RepairTime) -> None:
        """Log that this node has begun to coordinate a repair."""
        say = log.info if repair.cause in _TOLD else log.debug
        say("%s: repair %d started: %s of %s", self.node.name, repair.number, repair.cause, repair.node)

    def repair_ended(self, repair: RepairTime) -> None:
        """Log that a repair of this node has ended."""
        topics = _topics(repair.topics, repair.topic_count)
        say = log.info if repair.cause in _TOLD else log.debug
        about = (self.node.name, repair.number, repair.ms, repair.cause, repair.node, topics)
        say("%s: repair %d finished after %d ms: %s of %s; %s", *about)

    def look(self) -> None:
        """Log what has become true since the last call: joined, a neighbor left in order, whole again."""
        self._remember()
        if not self.has_joined:
            self._look_joined()
        for peer, topics in list(self._closed.items()):
            del self._closed[peer]
            if peer not in self.node.transport.peers:
                self._lose(peer, topics, "it left in order")
            else:
                log.debug("%s: closed the link with %s", self.node.name, peer)
        if self._lost:
            self._look_whole()

    # Helpers

    def _remember(self) -> None:
        self._interests.update(self.node.mesh.overlay.neighbors())

    def _now(self) -> float:
        return self.node.now()

    def _look_joined(self) -> None:
        """Log that the node has joined, if it has."""
        node = self.node
        if not_ready(node) or not node.transport.peers:
            return
        self._ready_at = self._ready_at or self._now()
        if not node.links and node.mesh.overlay.interest and self._now() - self._ready_at < JOINED_S_MAX:
            return
        self.has_joined = True
        neighbors = f"neighbors {listed(sorted(node.links))}" if node.links else "nobody else has its topics"
        streams = f"streams to {listed(sorted(node.transport.peers))}"
        after_s = self._now() - self._started
        log.info("%s: joined the mesh after %.1f s: %s; %s", node.name, after_s, neighbors, streams)

    def _lose(self, peer: NodeId, topics: int, why: str) -> None:
        """Log the loss of a neighbor. `topics` were shared with it."""
        if not self._lost:
            self._lost_at = self._now()
        self._lost[peer] = None
        self._lost_topics |= topics
        names = self.node.mesh.overlay.table.topics(topics)
        log.info("%s: lost neighbor %s: %s; %s", self.node.name, peer, why, _topics(names, len(names)))

    def messages_lost(self, effect: Lost | Overflowed) -> None:
        """Log lost messages: as a warning, unless nodes published them to each other and will repeat them anyway."""
        is_harmless = isinstance(effect, Lost) and is_internal(effect.topic)
        say = log.debug if is_harmless else log.warning
        say("%s: %s", self.node.name, _loss(effect))

    def _look_whole(self) -> None:
        """Log that the node is whole again, if it is."""
        node, overlay = self.node, self.node.mesh.overlay
        after_s = self._now() - self._lost_at
        missing = self._lost_topics & overlay.interest
        for interest in overlay.neighbors().values():
            missing &= ~interest
        if any(repair.cause in _TOLD for repair, _ in node.repairs.open.values()) or (
            missing and after_s < WHOLE_S_MAX
        ):
            return
        alone = overlay.table.topics(missing)
        rest = f"; topics that only this node has: {listed(alone)}" if alone else ""
        lost, neighbors = listed(self._lost), listed(sorted(node.links)) or "none"
        about = (node.name, after_s, lost, neighbors, rest)
        log.info("%s: whole again %.1f s after the loss of %s: neighbors %s%s", *about)
        self._lost, self._lost_topics = {}, 0


def _topics(names: Iterable[Topic], count: int) -> str:
    if not count:
        return "no shared topics"
    return f"{count} {'topic' if count == 1 else 'topics'}: {listed(names, count)}"


def _loss(effect: Lost | Overflowed) -> str:
    if isinstance(effect, Overflowed):
        return f"{effect.messages} messages were dropped from the window for want of room"
    which = f"message {effect.first}" if effect.first == effect.last else f"messages {effect.first} to {effect.last}"
    return f"{which} of {effect.origin} on {effect.topic} will never be handed over: {effect.why}"
