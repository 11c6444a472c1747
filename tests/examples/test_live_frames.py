"""Frames: whatever bytes come, in whatever pieces, they are frames or a WireError."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trellis.live.addresses import AddressBook
from trellis.live.frames import (
    BODY_BYTES_MAX,
    HELLO_BYTES_MAX,
    Address,
    Addresses,
    Bye,
    Hello,
    Oversized,
    Refused,
    Splitter,
    pack,
    pack_control,
    pack_message,
    read_control,
)
from trellis.live.talk import TO_CLIENT, TO_NODE, Publish, pack_to_node
from trellis.protocols.mesh import CODECS
from trellis.protocols.wire import FRAME_BYTES_MAX, NAME_LETTERS_MAX, NODE_LETTERS_MAX, WireError

HELLO = Hello("trellis-mesh", 1, "demo", "omen", Address("a", 7, "127.0.0.1", 7001))
CORPUS = [pack_control(one)[4:] for one in (HELLO, Refused("cluster", "no"), Addresses((HELLO.address,)), Bye())]
CORPUS += [
    pack_to_node(Publish(1, "t", b"x"))[4:],
    b"\x00",
    b"\x01",
    b"\x00" * 64,
    b"\xff" * 64,
    b"\x00\xdf\xff\xff\xff\xff",
]
DECODERS: list[Callable[[bytes], object]] = [read_control, TO_NODE.decode, TO_CLIENT.decode, CODECS["omen"].decode]


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[first:last] for first, last in itertools.pairwise(places)]


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(0, 10_000), max_size=20))
def test_bodies_come_out_as_they_went_in_however_the_stream_is_cut(bodies, cuts):
    splitter = Splitter(50)
    sent = b"".join(map(pack, bodies))
    assert [body for piece in pieces(sent, cuts) for body in splitter.feed(piece)] == bodies
    assert splitter.held_bytes == 0


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=8), st.integers(1, 64))
def test_no_bytes_make_a_splitter_hold_more_than_it_may(data, cuts, limit):
    splitter = Splitter(limit)
    longest = 0
    try:
        for piece in pieces(data, cuts):
            longest = max(longest, len(piece))
            assert all(0 < len(body) <= limit for body in splitter.feed(piece))
            assert splitter.held_bytes < 4 + limit
    except Oversized:
        assert splitter.held_bytes <= 4 + limit + longest


def test_a_length_is_refused_before_its_body_comes():
    with pytest.raises(Oversized):
        list(Splitter(HELLO_BYTES_MAX).feed((HELLO_BYTES_MAX + 1).to_bytes(4, "big")))
    with pytest.raises(Oversized):
        list(Splitter(HELLO_BYTES_MAX).feed(bytes(4)))


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """One of the corpus with some bytes changed, put in or cut out."""
    data = bytearray(draw(st.sampled_from(CORPUS)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["change", "put in", "cut out"])):
            case "change" if place < len(data):
                data[place] = draw(st.integers(0, 255))
            case "put in":
                data[place:place] = draw(st.binary(max_size=6))
            case "cut out":
                del data[place : place + draw(st.integers(1, 6))]
    return bytes(data)


@pytest.mark.parametrize("decode", DECODERS, ids=["control", "to node", "to client", "mesh"])
@given(data=st.one_of(st.binary(max_size=200), mutated()))
def test_only_a_wire_error_escapes_a_decoder(decode, data):
    with contextlib.suppress(WireError):
        decode(data)


def test_what_is_said_first_fits_into_what_may_be_said_first():
    cluster, name = "\U0001f331" * NAME_LETTERS_MAX, "\U0001f331" * NODE_LETTERS_MAX
    host = ".".join(["h" * 63] * 4)
    hello = Hello("p" * 64, 1, cluster, "o" * 64, Address(name, 2**53, host, 65_535))
    packed = pack_control(hello)
    assert len(packed) - 4 <= HELLO_BYTES_MAX
    assert read_control(packed[4:]) == hello


def test_what_may_be_sent_at_once_fits_into_a_frame():
    largest = bytes(FRAME_BYTES_MAX)
    assert list(Splitter(BODY_BYTES_MAX).feed(pack_message(largest))) == [b"\x01" + largest]


# The address book


def entry(node: str, incarnation: int = 1, port: int = 1) -> Address:
    return Address(node, incarnation, "127.0.0.1", port)


def test_a_later_life_moves_and_an_earlier_one_does_not():
    book = AddressBook("me")
    book.learn([entry("a", 2, 20)])
    book.learn([entry("a", 1, 10), entry("me", 9)])
    assert book.find("a") == entry("a", 2, 20)
    assert book.find("me") is None


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5))), st.integers(0, 30))
def test_what_changed_since_a_version_brings_another_book_up_to_date(told, when):
    book, copy = AddressBook("me"), AddressBook("copy")
    for node, incarnation in told[:when]:
        book.learn([entry(node, incarnation)])
    copy.learn(book.since(0))
    version = book.version
    for node, incarnation in told[when:]:
        book.learn([entry(node, incarnation)])
    copy.learn(book.since(version))
    assert {node: copy.find(node) for node in "abcdef"} == {node: book.find(node) for node in "abcdef"}


def test_a_full_book_forgets_the_oldest_that_is_not_kept():
    book = AddressBook("me", entries_max=2)
    book.meet(entry("a"))
    book.learn([entry("b"), entry("c")], connected={"a"})
    assert [book.find(node) is not None for node in "abc"] == [True, False, True]


def test_nobody_changes_the_address_of_a_node_that_is_connected():
    book = AddressBook("me")
    book.meet(entry("a", 5, 20))
    book.learn([entry("a", 9, 1)], connected={"a"})
    assert book.find("a") == entry("a", 5, 20)
    assert book.is_first_hand("a")


def test_what_a_node_says_of_itself_wins_over_a_later_incarnation_that_others_tell_of():
    book = AddressBook("me")
    book.learn([entry("a", 900, 1)])
    assert not book.is_first_hand("a")
    book.meet(entry("a", 5, 20))
    assert book.find("a") == entry("a", 5, 20)
    assert book.is_first_hand("a")


def test_a_false_address_does_not_outlast_the_dials_that_fail():
    book = AddressBook("me")
    book.learn([entry("a", 5, 20)])
    book.learn([entry("a", 900, 1)])  # a lie
    assert book.find("a") == entry("a", 900, 1)
    book.failed("a")
    assert book.find("a") == entry("a", 5, 20)
    book.failed("a")  # the true one may be away for a while: both are tried
    assert book.find("a") == entry("a", 900, 1)
    book.learn([entry("a", 6, 30)])  # it has restarted, and others say so
    book.failed("a")
    assert book.find("a") == entry("a", 6, 30)
    book.forget("a")
    book.failed("a")
    assert book.find("a") is None
