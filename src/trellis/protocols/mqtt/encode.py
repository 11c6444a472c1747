"""Packets of 3.1, 3.1.1 and 5 as bytes.  [MQTT 5 and 3.1.1, 3]"""

from __future__ import annotations

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt import properties as props
from trellis.protocols.mqtt.primitives import PacketError, binary, packet, text, u16
from trellis.protocols.mqtt.reasons import connack_311

_NOTHING = b"\x00"  # no properties


def encode(version: int, one: p.Packet) -> bytes:
    is_5 = version == p.V5
    match one:
        case p.Publish():
            return _publish(one, is_5)
        case p.Ack(kind, number, reason, why):
            first = kind << 4 | (2 if kind == p.PUBREL else 0)
            if not is_5 or (not reason and why is None):
                return packet(first, u16(number))
            return packet(first, u16(number), bytes((reason,)), props.write({props.REASON: why}))
        case p.PingReq():
            return b"\xc0\x00"
        case p.PingResp():
            return b"\xd0\x00"
        case p.Connect():
            return _connect(one, is_5)
        case p.ConnAck():
            return _connack(one, version)
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
            found = {props.SESSION_EXPIRY: expiry_s, props.REASON: why}
            return packet(p.DISCONNECT << 4, bytes((reason,)), props.write(found))
        case p.Auth(reason):
            return packet(p.AUTH << 4, bytes((reason,)), _NOTHING)


def _connect(one: p.Connect, is_5: bool) -> bytes:
    flags, will = one.clean_start << 1, one.will
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
    flags |= (one.user is not None) << 7 | (one.password is not None) << 6
    name = "MQIsdp" if one.version == p.V31 else "MQTT"
    out = [text(name), bytes((one.version, flags)), u16(one.keep_alive_s)]
    if is_5:
        found = {
            props.SESSION_EXPIRY: one.expiry_s or None,
            props.RECEIVE_MAX: one.receive_max if one.receive_max != 65_535 else None,
            props.PACKET_MAX: one.packet_bytes_max,
            props.ALIAS_MAX: one.alias_max or None,
            props.PROBLEM_INFO: None if one.wants_reasons else 0,
            props.METHOD: one.method,
        }
        out.append(props.write(found))
    out.append(text(one.client))
    if will is not None:
        if is_5:
            out.append(props.write({props.WILL_DELAY: will.delay_s or None, **_content(will.content)}))
        out += [text(will.topic), binary(will.payload)]
    if one.user is not None:
        out.append(text(one.user))
    if one.password is not None:
        out.append(binary(one.password))
    return packet(p.CONNECT << 4, *out)


def _connack(one: p.ConnAck, version: int) -> bytes:
    if version != p.V5:
        code = connack_311(one.reason)
        if code is None:
            raise PacketError(f"3.1.1 has no CONNACK for reason {one.reason:#x}")
        is_present = one.session_present and version != p.V31  # 3.1 leaves this byte unused
        return packet(p.CONNACK << 4, bytes((is_present, code)))
    found = {
        props.SESSION_EXPIRY: one.expiry_s,
        props.ASSIGNED: one.assigned_client,
        props.KEEP_ALIVE: one.keep_alive_s,
        props.RECEIVE_MAX: one.receive_max,
        props.PACKET_MAX: one.packet_bytes_max,
        props.ALIAS_MAX: one.alias_max,
        props.RETAIN: None if one.retain_available else 0,
        props.SHARED: None if one.shared_available else 0,
        props.REASON: one.text,
    }
    return packet(p.CONNACK << 4, bytes((one.session_present, one.reason)), props.write(found))


def _publish(one: p.Publish, is_5: bool) -> bytes:
    first = p.PUBLISH << 4 | one.dup << 3 | one.qos << 1 | one.retain
    number = u16(one.id) if one.qos and one.id else b""
    if not is_5:
        return packet(first, text(one.topic), number, one.payload)
    content = one.content
    if not one.subscriptions and one.alias is None and (content is p.PLAIN or content == p.PLAIN):
        return packet(first, text(one.topic), number, _NOTHING, one.payload)
    found = {props.ALIAS: one.alias, props.SUBSCRIPTION: one.subscriptions, **_content(content)}
    return packet(first, text(one.topic), number, props.write(found), one.payload)


def _content(content: p.Content) -> props.Properties:
    return {
        props.FORMAT: content.format or None,
        props.EXPIRY: content.expiry_s,
        props.CONTENT_TYPE: content.content_type,
        props.RESPONSE_TOPIC: content.response_topic,
        props.CORRELATION: content.correlation,
        props.USER: content.user,
    }


def _asked(one: p.Asked, is_5: bool) -> bytes:
    options = one.qos
    if is_5:
        options |= one.no_local << 2 | one.retain_as_published << 3 | one.retain_handling << 4
    return text(one.filter) + bytes((options,))
