"""What the MQTT parts want done: in the mesh, and at the connections of clients."""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.packets import Packet

Connection = int


class Want(msgspec.Struct, frozen=True, gc=False):
    """Take part in an overlay topic."""

    topic: Topic


class Unwant(msgspec.Struct, frozen=True, gc=False):
    """Stop taking part in an overlay topic."""

    topic: Topic


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Publish in the mesh. The answer comes back under `number`."""

    topic: Topic
    payload: bytes
    number: int
    copy_of: int = 0  # the number of the message of which this is a copy: it must not travel if that one is refused


class ToClient(msgspec.Struct, frozen=True, gc=False):
    """Send a packet to a client."""

    connection: Connection
    packet: Packet


class Close(msgspec.Struct, frozen=True, gc=False):
    """Close a connection after what was sent."""

    connection: Connection
    why: str = ""  # One of `reasons.NAMES`: it is the label of a metric. Empty: the connection ends normally.
    text: str = ""  # for the log; it may contain what the client sent


class Check(msgspec.Struct, frozen=True, gc=False):
    """Check a user's password. `Host.checked` takes the answer; nothing of this connection is read until then."""

    connection: Connection
    user: str | None
    password: bytes | None


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Stop or resume reading from a client, because too many of its messages wait for the mesh."""

    connection: Connection
    is_reading: bool


class NotCarried(msgspec.Struct, frozen=True, gc=False):
    """Tell the operator that a publication was refused. The publisher may not be told."""

    topic: str
    why: str


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """Tell the operator that a message is not sent again, because its client ended the connection each time."""

    client: str
    topic: str
    size: int


MqttEffect = Want | Unwant | Emit | ToClient | Close | Check | Pause | NotCarried | SetAside
