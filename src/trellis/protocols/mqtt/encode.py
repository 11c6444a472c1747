"""Encodes packets of MQTT 3.1, 3.1.1 and 5.  [MQTT 5 and 3.1.1, 3]"""

from __future__ import annotations

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import properties as props
from trellis.protocols.mqtt.primitives import PacketError, binary, packet, text, u16
from trellis.protocols.mqtt.reasons import connack_311

_NOTHING = b"\x00"  # no properties


def encode(version: int, given: p.Packet) -> bytes:
    """Return a packet as bytes. Raises `PacketError` if this version of MQTT cannot express it."""
    is_5 = version == p.V5
    match given:
        case p.Publish():
            return _publish(given, is_5)
        case p.Ack(kind, number, reason, why):
            first = kind << 4 | (2 if kind == p.PUBREL else 0)
            if not is_5 or (not reason and why is None):
                return packet(first, u16(number))
            # Without properties, their length may be left out.  [MQTT 5, 3.4.2.2.1]
            tail = b"" if why is None else props.write({props.REASON: why})
            return packet(first, u16(number), bytes((reason,)), tail)
        case p.PingReq():
            return b"\xc0\x00"
        case p.PingResp():
            return b"\xd0\x00"
        case p.Connect():
            return _connect(given, is_5)
        case p.ConnAck():
            return _connack(given, version)
        case p.Subscribe(number, asked, subscription):
            listed = [subscription] if subscription is not None else []
            head = props.write({props.SUBSCRIPTION: listed}) if is_5 else b""
            return packet(p.SUBSCRIBE << 4 | 2, u16(number), head, *(_asked(each, is_5) for each in asked))
        case p.SubAck(number, reasons, why):
            head = props.write({props.REASON: why}) if is_5 else b""
            return packet(p.SUBACK << 4, u16(number), head, bytes(reasons))
        case p.Unsubscribe(number, filters):
            head = _NOTHING if is_5 else b""
            return packet(p.UNSUBSCRIBE << 4 | 2, u16(number), head, *(text(each) for each in filters))
        case p.UnsubAck(number, reasons):
            return packet(p.UNSUBACK << 4, u16(number), _NOTHING + bytes(reasons) if is_5 else b"")
        case p.Disconnect(reason, expiry_s, why):
            if not is_5 or (not reason and expiry_s is None and why is None):
                return packet(p.DISCONNECT << 4)
            if expiry_s is None and why is None:  # [MQTT 5, 3.14.2.2.1]
                return packet(p.DISCONNECT << 4, bytes((reason,)))
            properties = {props.SESSION_EXPIRY: expiry_s, props.REASON: why}
            return packet(p.DISCONNECT << 4, bytes((reason,)), props.write(properties))
        case p.Auth(reason):
            return packet(p.AUTH << 4, bytes((reason,)), _NOTHING)


def _connect(connect: p.Connect, is_5: bool) -> bytes:
    flags, will = connect.clean_start << 1, connect.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (connect.user is not None) << 7 | (connect.password is not None) << 6
    name = "MQIsdp" if connect.version == p.V31 else "MQTT"
    out = [text(name), bytes((connect.version, flags)), u16(connect.keep_alive_s)]
    if is_5:
        properties = {
            props.SESSION_EXPIRY: connect.expiry_s or None,
            props.RECEIVE_MAX: connect.receive_max if connect.receive_max != 65_535 else None,
            props.PACKET_MAX: connect.packet_bytes_max,
            props.ALIAS_MAX: connect.alias_max or None,
            props.PROBLEM_INFO: None if connect.wants_reasons else 0,
            props.METHOD: connect.method,
        }
        out.append(props.write(properties))
    out.append(text(connect.client))
    if will is not None:
        if is_5:
            out.append(props.write({props.WILL_DELAY: will.delay_s or None, **_content(will.content)}))
        out += [text(will.topic), binary(will.payload)]
    if connect.user is not None:
        out.append(text(connect.user))
    if connect.password is not None:
        out.append(binary(connect.password))
    return packet(p.CONNECT << 4, *out)


def _connack(answer: p.ConnAck, version: int) -> bytes:
    if version != p.V5:
        code = connack_311(answer.reason)
        if code is None:
            raise PacketError(f"3.1.1 has no CONNACK for reason {answer.reason:#x}")
        is_present = answer.session_present and version != p.V31  # 3.1 leaves this byte unused
        return packet(p.CONNACK << 4, bytes((is_present, code)))
    properties = {  # in the order of Mosquitto, since tools that compare bytes know that one
        props.ALIAS_MAX: answer.alias_max,
        props.SESSION_EXPIRY: answer.expiry_s,
        props.ASSIGNED: answer.assigned_client,
        props.KEEP_ALIVE: answer.keep_alive_s,
        props.RETAIN: None if answer.retain_available else 0,
        props.PACKET_MAX: answer.packet_bytes_max,
        props.RECEIVE_MAX: answer.receive_max,
        props.QOS_MAX: answer.qos_max,
        props.SHARED: None if answer.shared_available else 0,
        props.REASON: answer.text,
    }
    return packet(p.CONNACK << 4, bytes((answer.session_present, answer.reason)), props.write(properties))


def _publish(message: p.Publish, is_5: bool) -> bytes:
    first = p.PUBLISH << 4 | message.dup << 3 | message.qos << 1 | message.retain
    number = u16(message.id) if message.qos and message.id else b""
    if not is_5:
        return packet(first, text(message.topic), number, message.payload)
    content = message.content
    if not message.subscriptions and message.alias is None and (content is p.PLAIN or content == p.PLAIN):
        return packet(first, text(message.topic), number, _NOTHING, message.payload)
    properties = {props.ALIAS: message.alias, props.SUBSCRIPTION: message.subscriptions, **_content(content)}
    return packet(first, text(message.topic), number, props.write(properties), message.payload)


def _content(content: p.Content) -> props.Properties:
    return {
        props.FORMAT: content.format or None,
        props.EXPIRY: content.expiry_s,
        props.CONTENT_TYPE: content.content_type,
        props.RESPONSE_TOPIC: content.response_topic,
        props.CORRELATION: content.correlation,
        props.USER: content.user,
    }


def _asked(asked: p.Asked, is_5: bool) -> bytes:
    options = asked.qos
    if is_5:
        options |= asked.no_local << 2 | asked.retain_as_published << 3 | asked.retain_handling << 4
    return text(asked.filter) + bytes((options,))
