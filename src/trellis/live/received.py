"""Messages as the application of a native client gets them: without the envelopes of MQTT.  [docs/mqtt.md]

Nodes carry messages of MQTT clients in envelopes, on the same topics as those of native clients. MQTT listeners also
send each other messages of their own on these topics. `Reader` unwraps the former and leaves out the latter.
"""

from __future__ import annotations

import msgspec

from trellis.live import talk
from trellis.protocols.effects import NodeId
from trellis.protocols.mqtt.arrivals import SIDECAR
from trellis.protocols.mqtt.envelope import MAGIC, Envelope, unwrap
from trellis.protocols.mqtt.packets import Content
from trellis.protocols.mqtt.parts import Assembly
from trellis.protocols.wire import WireError

SEEN_MAX = 10_000  # most messages of sidecars that are remembered, so that a repeated one is left out


class Mqtt(msgspec.Struct, frozen=True):
    """The MQTT fields of a message that an MQTT client published."""

    topic: str  # the whole MQTT topic; `Message.topic` is its first levels (`mqtt.depth`)
    qos: int  # the QoS with which it was published: 0, 1 or 2
    retain: bool  # the retain flag with which it was published
    client: str  # the identifier of the MQTT client that published it
    properties: Content  # its properties: format, expiry_s, content_type, response_topic, correlation, user


class Message(msgspec.Struct, frozen=True):
    """A publication, as a subscriber gets it."""

    topic: str
    origin: str  # the name of the node at which it was published
    sequence: int  # counts the publications of this node on this topic, from 1 after each start of the node
    payload: bytes
    mqtt: Mqtt | None = None  # set if an MQTT client published it, else None
    position: int = 0  # Grows with each message of a durable subscription. 0: the subscription is not durable.


class Reader:
    """Turns the messages that a node sends to one client into those for its application."""

    def __init__(self) -> None:
        # Messages of sidecars that came, oldest first: node, its incarnation, its number for the message.
        self._seen: dict[tuple[str, int, int], None] = {}
        self._assembly = Assembly()

    def read(self, message: talk.Message) -> Message | None:
        """Return the message for the application. None: it is a message between MQTT listeners, or it came before."""
        given = (message.topic, message.origin, message.sequence)
        if not message.payload.startswith(MAGIC):
            return Message(*given, message.payload)
        try:
            said = unwrap(message.payload)
        except WireError:
            return Message(*given, message.payload)  # It begins like an envelope, and is none.
        if not isinstance(said, Envelope) or self._is_repeated(message.origin, said):
            return None
        whole = self._assembly.take(NodeId(message.origin), said, 0)  # a large message comes in parts
        if whole is None:
            return None
        said = whole
        if not said.incarnation:  # A native client published it, with a payload that begins like an envelope.
            return Message(*given, said.payload)
        return Message(*given, said.payload, Mqtt(said.topic, said.qos, said.retain, said.client, said.content))

    def _is_repeated(self, origin: str, said: Envelope) -> bool:
        """Return whether this message came before, and remember it.

        Only sidecars repeat messages: they publish one again under the same identity until the mesh acknowledges it.
        """
        if not said.client.startswith(SIDECAR):
            return False
        identity = (origin, said.incarnation, said.number)
        if identity in self._seen:
            return True
        self._seen[identity] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        return False
