"""Tells the operator about messages that were refused, or set aside because their receiver ended each connection."""

from __future__ import annotations

import logging

from trellis.live.clock import monotonic_s
from trellis.live.log import one_line
from trellis.protocols.mqtt.effects import NotCarried, SetAside
from trellis.protocols.mqtt.suspicion import TIMES_MAX

log = logging.getLogger("trellis.live")

_COMPLAIN_S = 600.0  # how long the last message is reported by /healthz
_LETTERS_MAX = 128  # most letters of a topic or a name that are shown
_WHY = f"{TIMES_MAX} times in a row the connection was ended when it had been sent"


class Aside:
    """Logs such messages, and remembers the last one."""

    def __init__(self, node: str) -> None:
        self.node = node
        self._last = ""
        self._last_s = 0.0

    def tell(self, effect: NotCarried | SetAside) -> None:
        """Log an effect of the host."""
        match effect:
            case NotCarried(topic, why):
                log.warning("%s: a publication on %s was refused: %s", self.node, topic[:_LETTERS_MAX], why)
            case SetAside(client, topic, size):
                self.put(f"client {client}", topic, size)

    def put(self, receiver: str, topic: str, size: int) -> None:
        """Log a message that was set aside."""
        receiver, topic = one_line(receiver[:_LETTERS_MAX]), one_line(topic[:_LETTERS_MAX])
        log.warning("%s: set a message for %s aside: topic %s, %d bytes: %s", self.node, receiver, topic, size, _WHY)
        self._last = f"A message on {topic} ({size} bytes) was set aside, since {receiver} does not take it."
        self._last_s = monotonic_s()

    def too_large(self, sender: str, topic: str, size: int) -> None:
        """Remember a message that was not kept, because it is larger than the mesh carries."""
        sender, topic = one_line(sender[:_LETTERS_MAX]), one_line(topic[:_LETTERS_MAX])
        self._last = f"A message of {sender} on {topic} ({size} bytes) was left out: it is too large for the mesh."
        self._last_s = monotonic_s()

    def complaints(self) -> list[str]:
        """Return a sentence about the last message, for ten minutes after it."""
        return [self._last] if self._last and monotonic_s() - self._last_s < _COMPLAIN_S else []
