"""What the MQTT parts want done: towards the mesh, and towards the clients of this door."""

from __future__ import annotations

import msgspec

from trellis.protocols.effects import Topic
from trellis.protocols.mqtt.packets import Packet

Connection = int


class Want(msgspec.Struct, frozen=True, gc=False):
    topic: Topic


class Unwant(msgspec.Struct, frozen=True, gc=False):
    topic: Topic


class Emit(msgspec.Struct, frozen=True, gc=False):
    """Publish; the mesh's answer comes back under `number`."""

    topic: Topic
    payload: bytes
    number: int


class ToClient(msgspec.Struct, frozen=True, gc=False):
    connection: Connection
    packet: Packet


class Close(msgspec.Struct, frozen=True, gc=False):
    """After what was sent."""

    connection: Connection
    why: str = ""  # It is counted, so it is one of `reasons.NAMES`. Empty: in order.
    text: str = ""  # for the log: it may hold what the client sent


class Check(msgspec.Struct, frozen=True, gc=False):
    """Is this the user's password? Answered by `checked`; nothing of this connection is read until then."""

    connection: Connection
    user: str | None
    password: bytes | None


class Pause(msgspec.Struct, frozen=True, gc=False):
    """Read on (or not): too much of this client waits for the mesh."""

    connection: Connection
    is_reading: bool


class NotCarried(msgspec.Struct, frozen=True, gc=False):
    """A publication was refused. Tell the operator: the publisher may not hear of it."""

    topic: str
    why: str


class SetAside(msgspec.Struct, frozen=True, gc=False):
    """A message is not sent again, because its client ended the connection each time. Tell the operator."""

    client: str
    topic: str
    size: int


MqttEffect = Want | Unwant | Emit | ToClient | Close | Check | Pause | NotCarried | SetAside
