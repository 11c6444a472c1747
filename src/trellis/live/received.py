"""Messages as a client's application gets them: what MQTT clients published is unwrapped.  [docs/mqtt.md]

Nodes carry messages of MQTT clients in envelopes. MQTT listeners also talk to each other on the topics that they share.
An application sees neither.
"""

from __future__ import annotations

import msgspec

from trellis.live import talk
from trellis.protocols.mqtt.arrivals import SIDECAR
from trellis.protocols.mqtt.envelope import MAGIC, Envelope, unwrap
from trellis.protocols.mqtt.packets import Content
from trellis.protocols.wire import WireError

SEEN_MAX = 10_000  # identities of messages that a sidecar may publish again


class Mqtt(msgspec.Struct, frozen=True):
    """What an MQTT client published beside the payload."""

    topic: str  # in full; the message's own topic is its first levels (`mqtt.depth`)
    qos: int
    retain: bool
    client: str  # the name of the MQTT client
    properties: Content  # format, expiry_s, content_type, response_topic, correlation, user


class Message(msgspec.Struct, frozen=True):
    """A publication, as a subscriber gets it: by whom, and the number that its publisher gave it on this topic."""

    topic: str
    origin: str  # the node at which it was published
    sequence: int
    payload: bytes
    mqtt: Mqtt | None = None  # None: it was not published by an MQTT client


class Reader:
    """Unwraps the messages of one client."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, int], None] = {}

    def read(self, message: talk.Message) -> Message | None:
        """Return the message for the application; None if it is talk of MQTT listeners, or came before."""
        given = (message.topic, message.origin, message.sequence)
        if not message.payload.startswith(MAGIC):
            return Message(*given, message.payload)
        try:
            said = unwrap(message.payload)
        except WireError:
            return Message(*given, message.payload)  # it only begins like an envelope
        if not isinstance(said, Envelope) or self._is_repeated(message.origin, said):
            return None
        if not said.incarnation:  # no MQTT client published it: its payload begins like an envelope
            return Message(*given, said.payload)
        return Message(*given, said.payload, Mqtt(said.topic, said.qos, said.retain, said.client, said.content))

    def _is_repeated(self, origin: str, said: Envelope) -> bool:
        """A sidecar publishes a message again, under the same identity, until the mesh has acknowledged it."""
        if not said.client.startswith(SIDECAR):
            return False
        identity = (origin, said.incarnation, said.number)
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return False
