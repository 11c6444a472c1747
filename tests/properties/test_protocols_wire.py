"""Bytes from anywhere into every decoder: a message within the limits or a `WireError`, and nothing else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trellis.errors import InputError
from trellis.live.addresses import parse_address, show_address
from trellis.live.config import NodeConfig
from trellis.live.frames import HOST_PATTERN, Address, Addresses, Hello, pack_control, read_control
from trellis.live.talk import TO_NODE, Subscribe
from trellis.protocols import cyclon, detector, newscast, tman
from trellis.protocols.delivery.messages import Registered
from trellis.protocols.descriptors import AGE_MAX, Descriptor
from trellis.protocols.effects import SetTimer
from trellis.protocols.mesh import CODECS as MESH
from trellis.protocols.spidercast import CODEC as SPIDERCAST
from trellis.protocols.spidercast import messages as sc
from trellis.protocols.wire import (
    MESSAGE_BYTES_MAX,
    NAME_LETTERS_MAX,
    NODE_LETTERS_MAX,
    PEERS_MAX,
    TOPICS_MAX,
    NodeName,
    WireError,
    name_fault,
)

names = st.from_regex(NodeName.__metadata__[0].pattern).filter(lambda name: len(name) <= NODE_LETTERS_MAX)
words = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
topics = st.lists(words, max_size=4).map(tuple)
counts = st.integers(0, 2**53)
sizes = st.integers(0, 1_000_000)
tasks = st.sampled_from(["greedy", "random"])
stamps = st.builds(sc.Stamp, counts, counts)
states = st.none() | st.builds(sc.State, sizes, sizes)
descriptors = st.lists(
    st.builds(Descriptor, names, st.integers(0, AGE_MAX), counts, topics, st.lists(counts, max_size=3).map(tuple)),
    max_size=4,
).map(tuple)

CODECS = {
    "spidercast": SPIDERCAST,
    "newscast": newscast.CODEC,
    "cyclon": cyclon.CODEC,
    "tman": tman.CODEC,
    "detector": detector.CODEC,
}
MESSAGES = {
    "spidercast": st.one_of(
        st.builds(sc.Connect, tasks, sizes, sizes, topics, stamps),
        st.builds(sc.ConnectOk, tasks, sizes, sizes, topics, stamps),
        st.builds(sc.Redirect, tasks, st.none() | names, topics),
        st.builds(sc.Disconnect, tasks),
        st.builds(sc.DisconnectOk, tasks),
        st.builds(sc.Leave, tasks),
        st.builds(sc.Heartbeat, stamps, states, states, st.none() | topics),
        st.just(sc.Inquire()),
        st.builds(newscast.NewscastRequest, descriptors),
        st.builds(newscast.NewscastReply, descriptors),
    ),
    "newscast": st.builds(newscast.NewscastRequest, descriptors) | st.builds(newscast.NewscastReply, descriptors),
    "cyclon": st.builds(cyclon.CyclonRequest, descriptors) | st.builds(cyclon.CyclonReply, descriptors),
    "tman": st.builds(tman.TManRequest, words, descriptors) | st.builds(tman.TManReply, words, descriptors),
    "detector": st.builds(detector.Ping, counts) | st.builds(detector.Pong, counts),
}
systems = st.sampled_from(sorted(CODECS))


def assert_within_limits(value):
    """What came through is no larger than the limits say, all the way down."""
    if isinstance(value, str):
        assert len(value) <= NAME_LETTERS_MAX
    elif isinstance(value, int):
        assert 0 <= value <= 2**53
    elif isinstance(value, tuple):
        assert len(value) <= max(TOPICS_MAX, PEERS_MAX)
        for part in value:
            assert_within_limits(part)
    elif isinstance(value, msgspec.Struct):
        for part in msgspec.structs.astuple(value):
            assert_within_limits(part)


def decoded_or_refused(system, data):
    try:
        message = CODECS[system].decode(data)
    except WireError:
        return None
    assert_within_limits(message)
    return message


@given(systems, st.binary(max_size=300))
@example("spidercast", b"")
@example("spidercast", b"\xc1")
@example("spidercast", b"\x91" * 3_000)  # nested without end
@example("spidercast", b"\x81\xa4type\xa7connect\xdd\xff\xff\xff\xff")  # an array of four billion
@example("newscast", b"\xdb\xff\xff\xff\xff")
def test_any_bytes_are_a_message_or_a_wire_error(system, data):
    decoded_or_refused(system, data)


@given(st.data())
def test_a_message_survives_the_wire(data):
    system = data.draw(systems)
    message = data.draw(MESSAGES[system])
    assert CODECS[system].decode(CODECS[system].encode(message)) == message


strange = st.text(
    st.sampled_from(" :.-aZ0/\\\0\n\x1f\x7f\x85\xa0\u200b\u2028\u202e\ufeff\ud800é北\U0001f331"), max_size=6
)
long = st.builds(lambda letter, size: letter * size, st.sampled_from("aé\U0001f331"), st.integers(250, 515))


@given(strange | long | st.text(max_size=4))
def test_a_node_may_have_exactly_the_names_that_others_believe(name):
    try:
        NodeConfig(name=name)
        is_admitted = True
    except InputError:
        is_admitted = False
    try:
        found = newscast.CODEC.decode(newscast.CODEC.encode(newscast.NewscastReply((Descriptor(name),))))
        assert found.descriptors[0].node == name
        is_believed = True
    except (WireError, UnicodeEncodeError):
        is_believed = False
    assert is_admitted == is_believed


@given(strange | long | st.text(max_size=4))
def test_what_a_configuration_or_a_client_names_is_a_topic_for_every_node(topic):
    if name_fault(topic) is None:
        NodeConfig(name="a", topics=(topic,), cluster=topic)
        assert read_control(pack_control(Hello("p", 1, topic, "o", Address("a", 1, "h", 1)))[4:]).cluster == topic
        assert TO_NODE.decode(TO_NODE.encode(Subscribe(topic))).topic == topic
        assert MESH["omen"].decode(MESH["omen"].encode(Registered((topic,)))).topics == (topic,)
    else:
        for field in ("topics", "cluster"):
            with pytest.raises(InputError):
                NodeConfig(name="a", **{field: (topic,) if field == "topics" else topic})
        with pytest.raises((WireError, UnicodeEncodeError)):
            TO_NODE.decode(TO_NODE.encode(Subscribe(topic)))


@given(st.from_regex(HOST_PATTERN) | st.text(st.sampled_from(".-_aZ0:%[]\0é "), max_size=70) | long)
@example("." * 3)
@example("x" * 64 + ".example")
@example("fe80::1%eth0")
@example("host.example.")
def test_a_host_that_is_believed_is_one_that_the_resolver_takes(host):
    """The resolver encodes names by IDNA, and raises UnicodeError where it cannot."""
    try:
        address = read_control(pack_control(Addresses((Address("a", 1, host, 7001),)))[4:]).known[0]
    except (WireError, UnicodeEncodeError):
        with pytest.raises(InputError):
            parse_address(f"[{host}]:7001" if ":" in host else f"{host}:7001")
        return
    address.host.encode("idna")
    assert "\0" not in host
    assert parse_address(show_address(host, 7001)) == (host, 7001)


@given(st.data())
def test_a_damaged_message_is_a_message_or_a_wire_error(data):
    system = data.draw(systems)
    frame = bytearray(CODECS[system].encode(data.draw(MESSAGES[system])))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(frame)))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "repeat"])):
            case "flip" if place < len(frame):
                frame[place] ^= data.draw(st.integers(1, 255))
            case "cut":
                del frame[place : place + data.draw(st.integers(1, 8))]
            case "insert":
                frame[place:place] = data.draw(st.binary(max_size=8))
            case "repeat":
                frame[place:place] = frame[: data.draw(st.integers(0, 40))]
    decoded_or_refused(system, bytes(frame))


@pytest.mark.parametrize(
    "message",
    [
        sc.Leave("both"),
        sc.Connect("greedy", -1, 0, (), sc.Stamp(1, 0)),
        sc.Connect("greedy", 0, 1_000_001, (), sc.Stamp(1, 0)),
        sc.Connect("greedy", 0, 0, ("",), sc.Stamp(1, 0)),
        sc.Connect("greedy", 0, 0, ("x" * (NAME_LETTERS_MAX + 1),), sc.Stamp(1, 0)),
        sc.Connect("greedy", 0, 0, ("x",) * (TOPICS_MAX + 1), sc.Stamp(1, 0)),
        sc.Redirect("greedy", ""),
        sc.Heartbeat(sc.Stamp(1, -1)),
        newscast.NewscastReply((Descriptor("n"),) * (PEERS_MAX + 1)),
        newscast.NewscastReply((Descriptor("n", age=-1),)),
        newscast.NewscastReply((Descriptor("n", numbers=(1,) * 17),)),
        SetTimer("not a message", 1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_is_over_a_limit_is_refused_by_the_decoder(message):
    with pytest.raises(WireError):
        SPIDERCAST.decode(msgspec.msgpack.encode(message))


def test_a_message_over_the_limit_is_neither_sent_nor_read():
    lists = tuple(Descriptor(f"n{place}", interest=("t" * 500,) * 1_200) for place in range(60))
    with pytest.raises(WireError):
        SPIDERCAST.encode(newscast.NewscastReply(lists))
    with pytest.raises(WireError):
        SPIDERCAST.decode(b"\x00" * (MESSAGE_BYTES_MAX + 1))
