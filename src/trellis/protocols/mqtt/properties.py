"""Properties of MQTT 5: in which packets each is allowed, its type, and how often it may occur.  [MQTT 5, 2.2.2]"""

from __future__ import annotations

from typing import Any

from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.packets import USER_PROPERTIES_MAX
from trellis.protocols.mqtt.primitives import PacketError, Reader, binary, text, u16, varint

FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 0x01, 0x02, 0x03, 0x08, 0x09
SUBSCRIPTION, SESSION_EXPIRY, ASSIGNED, KEEP_ALIVE, METHOD, DATA = 0x0B, 0x11, 0x12, 0x13, 0x15, 0x16
PROBLEM_INFO, WILL_DELAY, RESPONSE_INFO, RESPONSE, REFERENCE, REASON = 0x17, 0x18, 0x19, 0x1A, 0x1C, 0x1F
RECEIVE_MAX, ALIAS_MAX, ALIAS, QOS_MAX, RETAIN, USER, PACKET_MAX = 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27
WILDCARDS, SUBSCRIPTION_IDS, SHARED = 0x28, 0x29, 0x2A

_FLAGS = {FORMAT, PROBLEM_INFO, RESPONSE_INFO, QOS_MAX, RETAIN, WILDCARDS, SUBSCRIPTION_IDS, SHARED}
_U16 = {KEEP_ALIVE, RECEIVE_MAX, ALIAS_MAX, ALIAS}
_U32 = {EXPIRY, SESSION_EXPIRY, WILL_DELAY, PACKET_MAX}
_TEXT = {CONTENT_TYPE, RESPONSE_TOPIC, ASSIGNED, METHOD, RESPONSE, REFERENCE, REASON}
_BINARY = {CORRELATION, DATA}
_NOT_ZERO = {RECEIVE_MAX, ALIAS, PACKET_MAX, SUBSCRIPTION}
_ALL = _FLAGS | _U16 | _U32 | _TEXT | _BINARY | {SUBSCRIPTION, USER}

OF_MESSAGE = frozenset({FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION, USER})
OF_PUBLISH = OF_MESSAGE | {ALIAS, SUBSCRIPTION}
OF_WILL = OF_MESSAGE | {WILL_DELAY}
OF_CONNECT = frozenset(
    {SESSION_EXPIRY, METHOD, DATA, PROBLEM_INFO, RESPONSE_INFO, RECEIVE_MAX, ALIAS_MAX, USER, PACKET_MAX}
)
OF_CONNACK = frozenset(
    {SESSION_EXPIRY, ASSIGNED, KEEP_ALIVE, METHOD, DATA, RESPONSE, REFERENCE, REASON, RECEIVE_MAX, ALIAS_MAX, QOS_MAX}
    | {RETAIN, USER, PACKET_MAX, WILDCARDS, SUBSCRIPTION_IDS, SHARED}
)
OF_ACK = frozenset({REASON, USER})
OF_SUBSCRIBE = frozenset({SUBSCRIPTION, USER})
OF_UNSUBSCRIBE = frozenset({USER})
OF_DISCONNECT = frozenset({SESSION_EXPIRY, REASON, USER, REFERENCE})
OF_AUTH = frozenset({METHOD, DATA, REASON, USER})

Properties = dict[int, Any]


def read(reader: Reader, allowed: frozenset[int], misplaced: int = reasons.PROTOCOL_ERROR) -> Properties:
    """Read properties: user properties as a list of pairs, subscription identifiers as a list, others as one value.

    User properties of a message are kept, so at most `USER_PROPERTIES_MAX` are accepted. Those of other packets mean
    nothing to us: they are read and dropped.

    `misplaced`: the reason code for a known property that does not belong into this packet. The standard calls the
    packet malformed (2.2.2.2). Mosquitto, whose answers clients know, does so for SUBSCRIBE and UNSUBSCRIBE only.
    """
    count = reader.varint()
    if not count:
        return {}
    at = reader.take(count)
    inner = Reader(reader.data, at, at + count, is_strict=reader.is_strict)
    properties: Properties = {}
    while inner:
        key = inner.varint()
        if key not in _ALL:
            raise PacketError(f"property {key:#x} is unknown")
        if key == USER:
            pair = (inner.text(), inner.text())
            if not allowed >= OF_MESSAGE:
                continue
            pairs = properties.setdefault(key, [])
            pairs.append(pair)
            if len(pairs) > USER_PROPERTIES_MAX:
                raise PacketError(f"more than {USER_PROPERTIES_MAX} user properties", reasons.QUOTA)
            continue
        value = _read_value(inner, key)
        if key not in allowed:
            raise PacketError(f"property {key:#x} does not belong here", misplaced)
        if key == SUBSCRIPTION:
            properties.setdefault(key, []).append(value)
        elif key in properties:
            raise PacketError(f"property {key:#x} twice", reasons.PROTOCOL_ERROR)
        else:
            properties[key] = value
    return properties


def _read_value(inner: Reader, key: int) -> Any:
    value: Any
    if key in _FLAGS:
        value = inner.u8()
        if value > 1:
            raise PacketError(f"property {key:#x} is {value}", reasons.PROTOCOL_ERROR)
        return value
    if key in _U16:
        value = inner.u16()
    elif key in _U32:
        value = inner.u32()
    elif key == SUBSCRIPTION:
        value = inner.varint()
    elif key in _TEXT:
        return inner.text()
    else:
        return inner.binary()
    if not value and key in _NOT_ZERO:
        raise PacketError(f"property {key:#x} is 0", reasons.ALIAS_INVALID if key == ALIAS else reasons.PROTOCOL_ERROR)
    return value


def write(properties: Properties) -> bytes:
    """Return the bytes of properties. None and empty lists are left out."""
    out: list[bytes] = []
    for key, value in properties.items():
        if value is None:
            continue
        head = bytes((key,))
        if key == USER:
            out += [head + text(name) + text(content) for name, content in value]
        elif key == SUBSCRIPTION:
            out += [head + varint(number) for number in value]
        elif key in _FLAGS:
            out.append(head + bytes((value,)))
        elif key in _U16:
            out.append(head + u16(value))
        elif key in _U32:
            out.append(head + value.to_bytes(4, "big"))
        elif key in _TEXT:
            out.append(head + text(value))
        else:
            assert key in _BINARY
            out.append(head + binary(value))
    body = b"".join(out)
    return varint(len(body)) + body
