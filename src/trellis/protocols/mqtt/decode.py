"""Decodes packets of MQTT 3.1, 3.1.1 and 5, strictly: a reserved bit that is set is an error.  [MQTT 5 and 3.1.1, 3]

MQTT 3.1 calls such bits unused, so they are ignored there. `framing.py` has separated the packets and checked their
sizes. Nothing but `PacketError` is raised.

Why not the `mqtt5` package, which has a codec for version 5? In release 0.8.0, text that is not UTF-8 ends in a panic
(which is no `Exception`, and prints a trace on standard error) that any client can cause. U+0000, identifier 0,
reserved bits of SUBSCRIBE and an empty SUBSCRIBE pass. Our tests use it as a second opinion on what is well-formed.
"""

from __future__ import annotations

from collections.abc import Callable

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import properties as props
from trellis.protocols.mqtt import reasons
from trellis.protocols.mqtt.primitives import PacketError, Reader
from trellis.protocols.mqtt.topics import LEVELS_MAX, SHARED, has_wildcard, is_filter, levels_of

FILTERS_MAX = 4_096  # most filters in one SUBSCRIBE or UNSUBSCRIBE


def decode_from_client(version: int, first: int, body: bytes) -> p.Packet:
    """Return a packet of a client, as `decode` does.

    Packets that only servers send are refused before they are read. So are acknowledgements with other reason codes
    than the standard has for them.  [MQTT 5, 4.13.1]
    """
    kind, flags = first >> 4, first & 0x0F
    # Flags that are set are malformed. Mosquitto looks at those of CONNACK last.
    if kind == p.CONNACK or (kind in _OF_SERVERS and not flags):
        raise PacketError(f"packet type {kind}, which only servers send", reasons.PROTOCOL_ERROR)
    if kind == p.AUTH:  # a CONNECT that asks for an authentication method is refused  [MQTT-4.12.0-7]
        raise PacketError("AUTH without an authentication method", reasons.PROTOCOL_ERROR)
    packet = decode(version, first, body)
    if isinstance(packet, p.Ack) and packet.reason not in _REASONS[packet.kind]:
        # [MQTT-3.4.2-1, 3.5.2-1, 3.6.2-1, 3.7.2-1]
        raise PacketError(f"reason {packet.reason:#x} of packet type {packet.kind}", reasons.PROTOCOL_ERROR)
    return packet


def decode(version: int, first: int, body: bytes, *, is_strict: bool = True) -> p.Packet:
    """Return the packet. `is_strict`: also refuse what many receivers refuse, so that no client can pass it on.

    A sidecar is not strict with its broker: the broker would send the same message again after each reconnection.
    """
    kind, flags = first >> 4, first & 0x0F
    if kind == p.PUBLISH:
        return _publish(Reader(body, is_strict=is_strict), flags, version)
    decoder = _KINDS.get(kind)
    if decoder is None or (kind == p.AUTH and version != p.V5):
        raise PacketError(f"packet type {kind}", reasons.PROTOCOL_ERROR)
    if flags != _FLAGS.get(kind, 0) and version != p.V31:
        raise PacketError(f"flags {flags:#x} of packet type {kind}")  # [MQTT-2.1.3-1]
    reader = Reader(body, is_strict=is_strict)
    packet = decoder(reader, kind, version == p.V5)
    reader.done()
    return packet


def _connect(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    reader.binary()  # the protocol's name: `framing.version_of` has looked at it
    version, flags = reader.u8(), reader.u8()
    if version not in p.VERSIONS:
        raise PacketError(f"protocol version {version}", reasons.VERSION)
    if version == p.V31:  # ignore the unused bit, and the will's flags if there is no will  [MQTT 3.1, 3.1]
        flags &= ~0x01 if flags & 0x04 else ~0x39
    if flags & 0x01:
        raise PacketError("the reserved flag of CONNECT")  # [MQTT-3.1.2-3]
    has_will, will_qos, will_retain = flags & 0x04, flags >> 3 & 0x03, flags & 0x20
    if will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise PacketError("will flags of CONNECT")  # [MQTT-3.1.2-11, -12, -13]
    has_user, has_password = flags & 0x80, flags & 0x40
    if has_password and not has_user and not is_5:
        raise PacketError("a password without a user name")  # [MQTT 3.1.1: MQTT-3.1.2-22]
    keep_alive_s = reader.u16()
    properties = props.read(reader, props.OF_CONNECT) if is_5 else {}
    if props.DATA in properties and props.METHOD not in properties:
        raise PacketError("authentication data without a method", reasons.PROTOCOL_ERROR)
    client = reader.text(reasons.CLIENT_ID if is_5 else reasons.MALFORMED)  # [MQTT-3.1.3-8]
    will = None
    if has_will:
        will_properties = props.read(reader, props.OF_WILL) if is_5 else {}
        topic, payload = reader.text(), reader.binary()
        delay_s = will_properties.get(props.WILL_DELAY, 0)
        will = p.Will(
            topic=topic,
            payload=payload,
            qos=will_qos,
            retain=bool(will_retain),
            delay_s=delay_s,
            content=_content(will_properties, reader.is_strict),
        )
    clean = bool(flags & 0x02)
    if version == p.V31 and not reader:  # The packet's length counts for more than these flags.  [MQTT 3.1, 3.1]
        has_user = 0
    user = reader.text() if has_user else None
    if version == p.V31 and not reader:
        has_password = 0
    return p.Connect(
        version=version,
        client=client,
        clean_start=clean,
        keep_alive_s=keep_alive_s,
        will=will,
        user=user,
        password=reader.binary() if has_password else None,
        # A session of 3.1.1 lasts for ever, or as long as its connection.
        expiry_s=properties.get(props.SESSION_EXPIRY, 0) if is_5 else (0 if clean else 0xFFFF_FFFF),
        receive_max=properties.get(props.RECEIVE_MAX, 65_535),
        packet_bytes_max=properties.get(props.PACKET_MAX),
        alias_max=properties.get(props.ALIAS_MAX, 0),
        wants_reasons=bool(properties.get(props.PROBLEM_INFO, 1)),
        method=properties.get(props.METHOD),
    )


def _connack(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    flags, reason = reader.u8(), reader.u8()
    if flags > 1:
        raise PacketError("reserved flags of CONNACK")  # [MQTT-3.2.2-1]
    properties = props.read(reader, props.OF_CONNACK) if is_5 else {}
    return p.ConnAck(
        reason=reason,
        session_present=bool(flags),
        assigned_client=properties.get(props.ASSIGNED),
        expiry_s=properties.get(props.SESSION_EXPIRY),
        keep_alive_s=properties.get(props.KEEP_ALIVE),
        receive_max=properties.get(props.RECEIVE_MAX),
        packet_bytes_max=properties.get(props.PACKET_MAX),
        alias_max=properties.get(props.ALIAS_MAX),
        qos_max=properties.get(props.QOS_MAX),
        retain_available=bool(properties.get(props.RETAIN, 1)),
        shared_available=bool(properties.get(props.SHARED, 1)),
        text=properties.get(props.REASON),
    )


def _publish(reader: Reader, flags: int, version: int) -> p.Packet:
    qos, dup, retain = flags >> 1 & 0x03, bool(flags & 0x08), bool(flags & 0x01)
    if qos == 3:
        raise PacketError("QoS 3")  # [MQTT-3.3.1-4]
    if dup and not qos:
        if version != p.V31:
            raise PacketError("DUP with QoS 0")  # [MQTT-3.3.1-2]
        dup = False
    topic = _topic(reader)
    number = reader.id() if qos else None
    if version != p.V5:
        return p.Publish(topic=topic, payload=reader.rest(), qos=qos, retain=retain, dup=dup, id=number)
    properties = props.read(reader, props.OF_PUBLISH)
    return p.Publish(
        topic=topic,
        payload=reader.rest(),
        qos=qos,
        retain=retain,
        dup=dup,
        id=number,
        alias=properties.get(props.ALIAS),
        subscriptions=tuple(properties.get(props.SUBSCRIPTION, ())),
        content=_content(properties, reader.is_strict),
    )


def _content(properties: props.Properties, is_strict: bool) -> p.Content:
    if not properties:
        return p.PLAIN
    response_topic = properties.get(props.RESPONSE_TOPIC)
    if is_strict and response_topic == "":
        raise PacketError("an empty response topic", reasons.PROTOCOL_ERROR)  # [MQTT-4.7.3-1]
    if is_strict and has_wildcard(response_topic or ""):
        raise PacketError("a response topic with wildcards", reasons.PROTOCOL_ERROR)  # [MQTT-3.3.2-14]
    return p.Content(
        format=properties.get(props.FORMAT, 0),
        expiry_s=properties.get(props.EXPIRY),
        content_type=properties.get(props.CONTENT_TYPE),
        response_topic=properties.get(props.RESPONSE_TOPIC),
        correlation=properties.get(props.CORRELATION),
        user=tuple(properties.get(props.USER, ())),
    )


def _ack(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    number, reason, text = reader.id(), 0, None
    if is_5 and reader:
        reason = reader.u8()
        if reader:
            text = props.read(reader, props.OF_ACK).get(props.REASON)
    return p.Ack(kind, number, reason, text)


def _topic(reader: Reader) -> str:
    """Read a topic or a filter. Too many levels make a packet malformed, as at Mosquitto: each one costs memory."""
    text = reader.text()
    if reader.is_strict and levels_of(text) > LEVELS_MAX:
        raise PacketError(f"a topic of more than {LEVELS_MAX} levels")
    return text


def _filter(reader: Reader) -> str:
    """Read a filter. SUBACK has no reason code for one that is not well-formed.  [MQTT-4.7.1-1, -2; 3.1.1: 4.8.0-1]"""
    text = _topic(reader)
    if reader.is_strict and has_wildcard(text) and not text.startswith(SHARED) and not is_filter(text):
        raise PacketError("a filter with a wildcard at the wrong place")
    return text


def _subscribe(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    number = reader.id(reasons.MALFORMED)
    properties = props.read(reader, props.OF_SUBSCRIBE, reasons.MALFORMED) if is_5 else {}
    subscriptions = properties.get(props.SUBSCRIPTION, [None])
    if len(subscriptions) > 1:
        raise PacketError("two subscription identifiers", reasons.PROTOCOL_ERROR)
    asked: list[p.Asked] = []
    while reader:
        filter_, options = _filter(reader), reader.u8()
        if not filter_:
            raise PacketError("an empty topic filter")  # [MQTT-4.7.3-1]
        if options & 0x03 == 3 or options & 0x30 == 0x30 or options & (0xC0 if is_5 else 0xFC):
            raise PacketError(f"subscription options {options:#x}")  # [MQTT-3.8.3-5; 3.1.1: MQTT-3-8.3-4]
        asked.append(p.Asked(filter_, options & 0x03, bool(options & 0x04), bool(options & 0x08), options >> 4 & 0x03))
        if len(asked) > FILTERS_MAX:
            raise PacketError(f"more than {FILTERS_MAX} filters", reasons.QUOTA)
    if not asked:
        raise PacketError("a SUBSCRIBE without filters", reasons.PROTOCOL_ERROR)  # [MQTT-3.8.3-2]
    return p.Subscribe(number, tuple(asked), subscriptions[0])


def _suback(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    number = reader.id()
    text = props.read(reader, props.OF_ACK).get(props.REASON) if is_5 else None
    return p.SubAck(number, tuple(reader.rest()), text)


def _unsubscribe(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    number = reader.id(reasons.MALFORMED)
    if is_5:
        props.read(reader, props.OF_UNSUBSCRIBE, reasons.MALFORMED)
    filters: list[str] = []
    while reader:
        filters.append(_filter(reader))
        if not filters[-1]:
            raise PacketError("an empty topic filter")  # [MQTT-4.7.3-1]
        if len(filters) > FILTERS_MAX:
            raise PacketError(f"more than {FILTERS_MAX} filters", reasons.QUOTA)
    if not filters:
        raise PacketError("an UNSUBSCRIBE without filters", reasons.PROTOCOL_ERROR)  # [MQTT-3.10.3-2]
    return p.Unsubscribe(number, tuple(filters))


def _unsuback(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    number = reader.id()
    if is_5:
        props.read(reader, props.OF_ACK)
    return p.UnsubAck(number, tuple(reader.rest()) if is_5 else ())


def _ping(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    return p.PingReq() if kind == p.PINGREQ else p.PingResp()


def _disconnect(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    reason, properties = 0, {}
    if is_5 and reader:
        reason = reader.u8()
        if reader:
            properties = props.read(reader, props.OF_DISCONNECT)
    return p.Disconnect(reason, properties.get(props.SESSION_EXPIRY), properties.get(props.REASON))


def _auth(reader: Reader, kind: int, is_5: bool) -> p.Packet:
    reason = 0
    if reader:
        reason = reader.u8()
        if reader:
            props.read(reader, props.OF_AUTH)
    return p.Auth(reason)


_OF_SERVERS = {p.SUBACK, p.UNSUBACK, p.PINGRESP}
_OF_ANSWERS = frozenset({0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99})
_OF_RELEASES = frozenset({0x00, 0x92})
_REASONS = {p.PUBACK: _OF_ANSWERS, p.PUBREC: _OF_ANSWERS, p.PUBREL: _OF_RELEASES, p.PUBCOMP: _OF_RELEASES}
_FLAGS = {p.PUBREL: 2, p.SUBSCRIBE: 2, p.UNSUBSCRIBE: 2}
_KINDS: dict[int, Callable[[Reader, int, bool], p.Packet]] = {
    p.CONNECT: _connect,
    p.CONNACK: _connack,
    **dict.fromkeys((p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP), _ack),
    p.SUBSCRIBE: _subscribe,
    p.SUBACK: _suback,
    p.UNSUBSCRIBE: _unsubscribe,
    p.UNSUBACK: _unsuback,
    p.PINGREQ: _ping,
    p.PINGRESP: _ping,
    p.DISCONNECT: _disconnect,
    p.AUTH: _auth,
}
