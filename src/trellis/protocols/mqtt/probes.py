"""Probes: whether a broker sends us what is published there, and which other sidecars are attached to it.

A broker may grant a subscription and then send nothing: Mosquitto's `acl_file` decides at each message. So after each
SUBACK the sidecar publishes a *probe* on a topic of its own, and waits until it comes back. Other sidecars at the same
broker receive it too.  [docs/mqtt.md, Probes]

H1  Once a probe has come back, no more are published on this connection, except as an answer to a new sidecar, and
    while another sidecar is heard. So clients that read `#` see few of them.
H2  A probe has QoS 0, except the first one of an MQTT 5 connection. So probes do not pile up in the sessions of
    disconnected clients.
H3  A broker that does not allow probes is not judged by them. Neither is one that sends us messages of its clients.
"""

from __future__ import annotations

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.echoes import PROBE_ID, PROBES, UNHEARD_MS
from trellis.protocols.mqtt.learn import PROBE_CLIENTS

PROBE_FILTER = f"{PROBES}+"
_EVERY_MS = 4_000  # pause between two probes while none has come back
_ANSWER_MS = 1_000  # least time between two answers
_OTHER_MS = 15_000  # another sidecar that was not heard for this long has left
_OTHERS_MAX = 8  # most names of other sidecars that are kept
_NAME_LETTERS_MAX = 128
_ENDS_MAX = 2  # A broker that ends this many connections in a row while it has a probe may do so because of the probe.
_EXPIRY_S = 30  # message expiry of a probe with QoS 1


def probe_topic(client: str) -> str:
    """Return the topic of a sidecar's probes."""
    return PROBES + "".join("-" if letter in "/+#" else letter for letter in client)


class Probes:
    """The probes of one sidecar, and the other sidecars that it hears."""

    def __init__(self, topic: str, mark: str, *, is_judged: bool) -> None:
        """`mark`: unique to this run of the process. `is_judged`: this sidecar reads messages of clients."""
        self.topic, self.mark, self.is_judged = topic, mark, is_judged
        self.others: dict[str, int] = {}  # other sidecars at this broker, by client name: when each was last heard
        self.is_probe_unacknowledged = False  # The broker has not acknowledged the first probe of this connection.
        self.is_forbidden = False  # The broker does not allow probes.
        self.now_ms = 0
        self._is_up = False
        self._owes_answer = False  # A new sidecar must hear of us.
        self._number = 0
        self._ends = 0  # connections in a row that the broker ended while it had the first probe
        self._sent_ms = -_ANSWER_MS
        self._since_ms: int | None = None  # since when a probe is awaited
        self.is_heard = self._has_read = False  # On this connection: a probe came back; a client's message arrived.

    @property
    def is_unheard(self) -> bool:
        """Whether the broker does not send us what is published."""
        if self._since_ms is None or self.is_forbidden or not self.is_judged:
            return False
        return self.now_ms - self._since_ms >= UNHEARD_MS

    # The connection

    def up(self, now_ms: int) -> None:
        """Begin a connection."""
        self.now_ms, self._since_ms = now_ms, None
        self._is_up = self.is_heard = self._has_read = self.is_probe_unacknowledged = self._owes_answer = False
        self.is_forbidden = self._ends >= _ENDS_MAX

    def down(self, *, is_refusal: bool) -> None:
        """End a connection. `is_refusal`: the broker ended it, and not because it stops."""
        self._ends += is_refusal and self.is_probe_unacknowledged
        self._is_up = self.is_probe_unacknowledged = False
        self._since_ms = None

    def subscribed(self, is_granted: bool, qos: int) -> list[p.Publish]:
        """SUBACK has come. Return the first probe."""
        self._is_up = True
        self.is_forbidden = self.is_forbidden or not is_granted
        if self.is_forbidden:
            return []
        self.is_probe_unacknowledged = qos > 0
        return [self._probe(qos)]

    def acknowledged(self, reason: int) -> None:
        """PUBACK of the first probe has come."""
        self.is_probe_unacknowledged, self._ends = False, 0
        if reason >= reasons.UNSPECIFIED:
            self.is_forbidden = True

    def tick(self, now_ms: int, is_held: bool) -> list[p.Publish]:
        """Return the probes to send now.

        `is_held`: we have not acknowledged earlier messages of the broker, so a probe may wait behind them.
        """
        self.now_ms = now_ms
        for name in [name for name, heard_ms in self.others.items() if now_ms - heard_ms >= _OTHER_MS]:
            del self.others[name]
        if is_held and self._since_ms is not None:
            self._since_ms = now_ms
        if not self._is_up or self.is_forbidden:
            return []
        is_open = not self.is_heard and not self._has_read  # H1
        if (is_open or self.others) and now_ms - self._sent_ms >= _EVERY_MS:
            return [self._probe(0)]
        return self._answer()

    # Messages

    def read(self) -> None:
        """A message of a client of the broker has arrived."""
        self._has_read, self._since_ms = True, None

    def returned(self, packet: p.Publish) -> bool:
        """A probe on our topic has arrived. Return whether this process has sent it."""
        if not packet.payload.startswith(f"{self.mark}/".encode()):
            return False
        self.is_heard, self._since_ms = True, None
        return True

    def heard(self, packet: p.Publish) -> list[p.Publish]:
        """A probe of another sidecar has arrived. Return an answer, so that it hears of us."""
        if packet.retain:
            return []  # nobody has published it now
        name = packet.topic[len(PROBES) :][:_NAME_LETTERS_MAX]
        is_new = name not in self.others
        if not name.startswith(PROBE_CLIENTS):
            if is_new and len(self.others) >= _OTHERS_MAX:
                return []
            self.others[name] = self.now_ms
        if not is_new or not self._is_up or self.is_forbidden:
            return []
        self._owes_answer = True
        return self._answer()

    def _answer(self) -> list[p.Publish]:
        """Return an answer that is owed, if the last probe was not sent just now."""
        if not self._owes_answer or self.now_ms - self._sent_ms < _ANSWER_MS:
            return []
        return [self._probe(0, is_waited_for=False)]

    def _probe(self, qos: int, *, is_waited_for: bool = True) -> p.Publish:
        self._number += 1
        self._sent_ms, self._owes_answer = self.now_ms, False
        if is_waited_for and self._since_ms is None:
            self._since_ms = self.now_ms
        payload = f"{self.mark}/{self._number}".encode()
        if not qos:
            return p.Publish(topic=self.topic, payload=payload)
        content = p.Content(expiry_s=_EXPIRY_S)
        return p.Publish(topic=self.topic, payload=payload, qos=1, id=PROBE_ID, content=content)
