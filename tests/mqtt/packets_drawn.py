"""Packets as hypothesis draws them: valid ones of a version."""

from __future__ import annotations

from hypothesis import strategies as st

from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.topics import has_wildcard, is_filter
from trellis.protocols.wire import is_clean

TEXT = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=12).filter(is_clean)
SOME = TEXT.filter(bool)
FILTERS = SOME.filter(lambda one: not has_wildcard(one) or is_filter(one))
IDS = st.integers(1, 65_535)
U32 = st.integers(0, 2**32 - 1)
BYTES = st.binary(max_size=24)


def maybe(what):
    return st.none() | what


CONTENTS = st.builds(
    p.Content,
    format=st.integers(0, 1),
    expiry_s=maybe(U32),
    content_type=maybe(TEXT),
    response_topic=maybe(SOME.filter(lambda one: not has_wildcard(one))),
    correlation=maybe(BYTES),
    user=st.lists(st.tuples(TEXT, TEXT), max_size=3).map(tuple),
)


def packets(version: int) -> st.SearchStrategy[p.Packet]:
    is_5 = version == p.V5
    content = CONTENTS if is_5 else st.just(p.PLAIN)
    will = st.builds(
        p.Will,
        topic=SOME,
        payload=BYTES,
        qos=st.integers(0, 2),
        retain=st.booleans(),
        delay_s=U32 if is_5 else st.just(0),
        content=content,
    )
    connect = st.builds(
        p.Connect,
        version=st.just(version),
        client=TEXT,
        clean_start=st.booleans(),
        keep_alive_s=st.integers(0, 65_535),
        will=maybe(will),
        user=SOME,
        password=maybe(BYTES),
        **(
            {
                "expiry_s": U32,
                "receive_max": IDS,
                "packet_bytes_max": maybe(st.integers(1, 2**32 - 1)),
                "alias_max": st.integers(0, 65_535),
                "wants_reasons": st.booleans(),
                "method": maybe(TEXT),
            }
            if is_5
            else {}
        ),
    )
    if not is_5:
        connect = connect.map(lambda one: p.msgspec.structs.replace(one, expiry_s=0 if one.clean_start else 2**32 - 1))
    quality = st.integers(0, 2)
    publish = quality.flatmap(
        lambda qos: st.builds(
            p.Publish,
            topic=SOME,
            payload=BYTES,
            qos=st.just(qos),
            retain=st.booleans(),
            dup=st.booleans() if qos else st.just(False),
            id=IDS if qos else st.none(),
            alias=maybe(IDS) if is_5 else st.none(),
            subscriptions=st.lists(st.integers(1, 268_435_455), max_size=2).map(tuple) if is_5 else st.just(()),
            content=content,
        )
    )
    why = maybe(TEXT) if is_5 else st.none()
    ack = st.sampled_from([p.PUBACK, p.PUBREC, p.PUBREL, p.PUBCOMP]).flatmap(
        lambda kind: st.builds(
            p.Ack,
            st.just(kind),
            IDS,
            st.sampled_from([0, 0x92] if kind in (p.PUBREL, p.PUBCOMP) else [0, 0x10, 0x83, 0x97])
            if is_5
            else st.just(0),
            why,
        )
    )
    asked = st.builds(
        p.Asked,
        FILTERS,
        quality,
        st.booleans() if is_5 else st.just(False),
        st.booleans() if is_5 else st.just(False),
        quality if is_5 else st.just(0),
    )
    reasons = st.lists(st.sampled_from([0, 1, 2, 0x80]), min_size=1, max_size=4).map(tuple)
    several = [
        connect,
        publish,
        ack,
        st.builds(
            p.Subscribe,
            IDS,
            st.lists(asked, min_size=1, max_size=3).map(tuple),
            maybe(st.integers(1, 268_435_455)) if is_5 else st.none(),
        ),
        st.builds(p.SubAck, IDS, reasons, why),
        st.builds(p.Unsubscribe, IDS, st.lists(FILTERS, min_size=1, max_size=3).map(tuple)),
        st.builds(p.UnsubAck, IDS, st.just((0, 0x11)) if is_5 else st.just(())),
        st.just(p.PingReq()),
        st.just(p.PingResp()),
        st.builds(p.Disconnect, st.sampled_from([0, 4, 0x82]), maybe(U32), why) if is_5 else st.just(p.Disconnect()),
    ]
    several.append(
        st.builds(
            p.ConnAck,
            reason=st.sampled_from([0, 0x86, 0x87]),
            session_present=st.booleans(),
            assigned_client=maybe(TEXT),
            receive_max=maybe(IDS),
            packet_bytes_max=maybe(IDS),
            alias_max=maybe(IDS),
            keep_alive_s=maybe(IDS),
            expiry_s=maybe(U32),
            text=why,
        )
        if is_5
        else st.builds(
            p.ConnAck, reason=st.just(0), session_present=st.just(False) if version == p.V31 else st.booleans()
        )
    )
    return st.one_of(several)
