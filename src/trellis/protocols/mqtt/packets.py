"""The packets of MQTT, the same for all versions: 3.1 and 3.1.1 leave the properties out.  [MQTT 5, 2 and 3]

`decode.py` and `encode.py` translate them from and to bytes. Field names of `Content` are also sent between nodes.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trellis.protocols.wire import is_clean

V31: Literal[3] = 3
V311: Literal[4] = 4
V5: Literal[5] = 5
VERSIONS = (V31, V311, V5)

TEXT_BYTES_MAX = 65_535  # most bytes of a text or of binary data in a packet
USER_PROPERTIES_MAX = 256  # most user properties of one message

Text = Annotated[str, Meta(max_length=TEXT_BYTES_MAX)]
UserProperties = Annotated[tuple[tuple[Text, Text], ...], Meta(max_length=USER_PROPERTIES_MAX)]


class Content(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Properties of a message that reach its readers unchanged.  [MQTT-3.3.2-4, -15, -16, -17, -20]"""

    format: Annotated[int, Meta(ge=0, le=1)] = 0  # payload format indicator: 1 is text
    expiry_s: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] | None = None
    content_type: Text | None = None
    response_topic: Text | None = None
    correlation: Annotated[bytes, Meta(max_length=TEXT_BYTES_MAX)] | None = None
    user: UserProperties = ()

    @property
    def size(self) -> int:
        """Roughly how much memory the properties take, in bytes."""
        if self is PLAIN:
            return 0
        texts = (self.content_type, self.response_topic, self.correlation)
        pairs = sum(len(name) + len(value) + _PAIR_BYTES for name, value in self.user) if self.user else 0
        return pairs + sum(len(text) for text in texts if text)

    @property
    def is_sound(self) -> bool:
        """Whether a packet can hold the properties and a client accepts them. They may come from another node."""
        texts = [text for pair in self.user for text in pair]
        texts += [text for text in (self.content_type, self.response_topic) if text]
        return all(map(is_text, texts)) and not any(wildcard in (self.response_topic or "") for wildcard in "+#")


def is_text(text: str) -> bool:
    """Return whether a packet can hold a text, and every receiver accepts it.  [MQTT-1.5.4-2, 1.5.4]"""
    is_short = 4 * len(text) <= TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) <= TEXT_BYTES_MAX
    return is_short and is_clean(text)


_PAIR_BYTES = 128  # memory that a user property takes besides its text
PLAIN = Content()


class Will(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is published if a client's connection ends without DISCONNECT."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    delay_s: int = 0
    content: Content = PLAIN

    @property
    def size(self) -> int:
        """Roughly how much memory it takes, in bytes."""
        return len(self.payload) + len(self.topic) + self.content.size + 256


class Connect(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    client: str
    clean_start: bool
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    expiry_s: int = 0  # session expiry interval
    receive_max: int = 65_535
    packet_bytes_max: int | None = None
    alias_max: int = 0
    wants_reasons: bool = True  # "request problem information" of CONNECT
    method: str | None = None  # enhanced authentication method


class ConnAck(msgspec.Struct, frozen=True, kw_only=True):
    reason: int
    session_present: bool = False
    assigned_client: str | None = None
    expiry_s: int | None = None
    keep_alive_s: int | None = None
    receive_max: int | None = None
    packet_bytes_max: int | None = None
    alias_max: int | None = None
    qos_max: int | None = None  # None: 2. Never 2 itself.  [MQTT-3.2.2-9]
    retain_available: bool = True
    shared_available: bool = True
    text: str | None = None


class Publish(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    id: int | None = None
    alias: int | None = None
    subscriptions: tuple[int, ...] = ()
    content: Content = PLAIN


class Ack(msgspec.Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, by `kind`."""

    kind: int
    id: int
    reason: int = 0
    text: str | None = None


class Asked(msgspec.Struct, frozen=True, gc=False):
    """One filter of a SUBSCRIBE."""

    filter: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    id: int
    asked: tuple[Asked, ...]
    subscription: int | None = None


class SubAck(msgspec.Struct, frozen=True):
    id: int
    reasons: tuple[int, ...]
    text: str | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    id: int
    filters: tuple[str, ...]


class UnsubAck(msgspec.Struct, frozen=True):
    id: int
    reasons: tuple[int, ...]  # left out in 3.1.1


class PingReq(msgspec.Struct, frozen=True):
    pass


class PingResp(msgspec.Struct, frozen=True):
    pass


class Disconnect(msgspec.Struct, frozen=True):
    reason: int = 0
    expiry_s: int | None = None
    text: str | None = None


class Auth(msgspec.Struct, frozen=True):
    reason: int = 0


Packet = (
    Connect
    | ConnAck
    | Publish
    | Ack
    | Subscribe
    | SubAck
    | Unsubscribe
    | UnsubAck
    | PingReq
    | PingResp
    | Disconnect
    | Auth
)

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15
