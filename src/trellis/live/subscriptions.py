"""Decide which topics a node subscribes to: all that at least one of its ports, or its configuration, wants.

The client port and the MQTT listener each subscribe to a topic once, however many of their clients want it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from trellis.live.clock import monotonic_ms
from trellis.protocols.delivery.outcome import Outcome
from trellis.protocols.effects import Effect, Topic

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

log = logging.getLogger("trellis.live")

_REFUSALS_MS = 10_000  # least time between two log lines about refused subscriptions


class Subscriptions:
    """The subscriptions of one node. Its methods return effects, which the shell carries out."""

    def __init__(self, node: LiveNode) -> None:
        self.node = node
        # topic -> number of ports that want it, plus 1 if the configuration names it
        self._wants: Counter[Topic] = Counter(dict.fromkeys(node.mesh.wanted, 1))
        self._log_ms = 0  # A refused subscription is logged again from this time on.

    def refusal(self, topic: Topic) -> str | None:
        """Return why no client may subscribe to this topic here, or None if it may."""
        limits = self.node.config.limits
        reason = self.node.mesh.refusal(topic, limits.topics_max, limits.topics_bytes_max)
        if reason is not None:
            self._refused("a subscription was refused", reason)
        return reason

    def subscribe(self, topic: Topic) -> Iterable[Effect | Outcome]:
        """Count one more port that wants a topic. If it is the first one, subscribe in the mesh."""
        self._wants[topic] += 1
        if self._wants[topic] > 1:
            return ()
        reason = self.node.mesh.refusal(topic)
        if reason is not None:  # More than peers accept: a wildcard has matched too many topics.
            self._refused(f"cannot take part in topic {topic}, and misses its messages", reason)
            return ()
        return self.node.mesh.subscribe(topic)

    def unsubscribe(self, topic: Topic) -> Iterable[Effect | Outcome]:
        """Count one port less that wants a topic. If it was the last one, unsubscribe in the mesh."""
        self._wants[topic] -= 1
        if self._wants[topic]:
            return ()
        del self._wants[topic]
        return self.node.mesh.unsubscribe(topic)

    def _refused(self, what: str, reason: str) -> None:
        """Count a refused subscription. Log at most one every `_REFUSALS_MS`: a client may ask thousands of times."""
        self.node.counters["topics_refused"] += 1
        now_ms = monotonic_ms()
        if now_ms >= self._log_ms:
            self._log_ms = now_ms + _REFUSALS_MS
            count = self.node.counters["topics_refused"]
            log.warning("%s: %s: %s (refused so far: %d)", self.node.name, what, reason, count)
