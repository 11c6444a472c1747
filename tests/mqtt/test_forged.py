"""What a hostile member tells about wildcards and retained messages, and what it costs: nothing ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt.desk import WALL_MS, Desk
from trellis.protocols.mqtt import arrivals, directory, members, pattern_holders, recall, wildcards
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.arrivals import Arrivals
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.directory import Directory
from trellis.protocols.mqtt.envelope import (
    NEVER,
    Answer,
    Ask,
    Bye,
    Copy,
    Envelope,
    Heard,
    Hold,
    Introduce,
    Joined,
    Kept,
    Recall,
    Who,
    unwrap,
    wrap,
)
from trellis.protocols.mqtt.interests import QUESTIONS, ROOT, WITHIN, Interests
from trellis.protocols.mqtt.pattern_holders import PatternHolders
from trellis.protocols.wire import COUNT_MAX, WireError

LONG = "\N{SNOWMAN}" * 30_000  # 90,000 bytes in UTF-8
COUNTS = st.sampled_from([0, 1, 2, 7, 2**32, COUNT_MAX])
NODES = st.sampled_from(["n", "m", "evil", "x" * 255])
TEXTS = st.sampled_from(["", "a/b", "a/b/c", "a/+", "#", "$SYS/x", "a/b\0", "x" * 65_535, LONG, "/"])
PREFIXES = st.lists(st.sampled_from(["a/b", "a/c", "a/+", "+/b", "#", "$mqtt/ask", "a/b/c", "/"]), max_size=4).map(
    tuple
)
NUMBERS = st.lists(COUNTS, max_size=4).map(tuple)
CONTENTS = st.builds(
    p.Content,
    format=st.sampled_from([0, 1]),
    expiry_s=st.sampled_from([None, 0, 1, 0xFFFF_FFFF]),
    content_type=st.none() | TEXTS,
    response_topic=st.none() | TEXTS,
    correlation=st.sampled_from([None, b"", b"x" * 65_535]),
    user=st.lists(st.tuples(TEXTS, TEXTS), max_size=2).map(tuple),
)
ENVELOPES = st.builds(
    Envelope, TEXTS, st.sampled_from([b"", b"p"]), st.sampled_from([0, 1, 2]), st.booleans(), TEXTS, COUNTS, COUNTS,
    COUNTS, st.booleans(), COUNTS, COUNTS, CONTENTS,
)  # fmt: skip
SAID = st.one_of(
    ENVELOPES,
    st.builds(Introduce, PREFIXES),
    st.builds(Copy, st.sampled_from(["a/b", "a/c", "$mqtt/ask", "#"]), ENVELOPES),
    st.builds(Ask, COUNTS, st.sampled_from([2, 3]), PREFIXES, NUMBERS, COUNTS, PREFIXES, st.booleans(), st.booleans()),
    st.builds(Who, COUNTS, st.booleans()),
    st.builds(
        Heard,
        COUNTS,
        st.lists(st.builds(Answer, NODES, COUNTS, NUMBERS, st.booleans()), max_size=3).map(tuple),
        st.booleans(),
        st.lists(NODES, max_size=3).map(tuple),
    ),
    st.builds(Joined, COUNTS, COUNTS, PREFIXES),
    st.builds(Hold, PREFIXES, COUNTS),
    st.builds(Bye, COUNTS),
    st.just(Recall()),
    st.builds(Kept, st.lists(NODES, max_size=3).map(tuple), st.lists(ENVELOPES, max_size=3).map(tuple)),
)
TOPICS = st.sampled_from([QUESTIONS, ROOT, f"{WITHIN}a", "a/b"])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TOPICS, NODES, SAID), max_size=12))
@example([(QUESTIONS, "m", Ask(7, 2, ("+/b",), (), 2, ("+/b",)))])  # held and dropped in one breath
def test_nothing_that_a_member_says_breaks_a_node_or_reaches_a_client_malformed(told):
    desk = Desk()
    client = desk.welcome("c", expiry_s=600)
    client.subscribe("#", "a/b", "a/+")
    client.publish("a/b", b"kept", retain=True)
    client.got.clear()
    for topic, origin, said in told:
        try:
            payload = wrap(said)
            unwrap(payload)
        except WireError:
            continue  # it does not come so far
        desk.host.delivered(topic, origin, payload)
        desk.carry_out()  # packets for the client pass the codec both ways, which is strict
        desk.pass_time(200)
    for packet in client.got:
        assert not isinstance(packet, p.Publish) or packet.topic in ("a/b", "a/b/c")
    desk.pass_time(1_000)
    assert client.closed is None


@pytest.mark.parametrize(
    ("topic", "content"),
    [
        ("other/x", p.PLAIN), ("a/b/#", p.PLAIN), ("a/b/\0", p.PLAIN), ("$SYS/x", p.PLAIN),
        ("a/b", p.Content(content_type="\0")), ("a/b", p.Content(user=((LONG, ""),))),
        ("a/b", p.Content(response_topic=LONG)),
    ],
)  # fmt: skip
def test_a_forged_message_that_no_client_could_have_published_there_is_dropped(topic, content):
    desk = Desk()
    client = desk.welcome("c")
    client.subscribe("a/b/#", "other/x")
    client.got.clear()
    forged = Envelope(topic, b"forged", 1, False, "x", 1, 1, WALL_MS, content=content)
    desk.host.delivered("a/b", "evil", wrap(forged))
    desk.host.delivered(ROOT, "evil", wrap(Copy("a/b", forged)))
    desk.host.delivered("a/b", "evil", wrap(Kept(("evil",), (forged,))))
    desk.carry_out()
    assert not client.got
    assert desk.host.counters["garbage"] == 1
    desk.host.delivered("a/b", "evil", wrap(Envelope("a/b/c", b"fine", 1, False, "x", 1, 1, WALL_MS)))
    desk.carry_out()
    assert client.payloads() == [b"fine"]


@pytest.mark.parametrize("fields", [{"expiry_s": 2**32}, {"format": 2}, {"user": (("n", "v"),) * 257}])
def test_properties_that_no_packet_can_hold_are_no_message(fields):
    content = p.Content(**fields)
    with pytest.raises(WireError):
        unwrap(wrap(Envelope("a/b", b"p", 1, False, "x", 1, 1, 1, content=content)))


# What it costs


def a_directory(**fields: Any) -> Directory:
    config = MqttConfig(listen="127.0.0.1:0", **fields)
    found = Directory("n", 1, config, Interests(config.depth))
    found.at(1_000)
    found.start()
    found.confirmed(QUESTIONS)
    return found


def test_patterns_of_invented_names_take_no_more_memory_than_is_allowed(monkeypatch):
    monkeypatch.setattr(pattern_holders, "PATTERNS_ALL_MAX", 100)
    monkeypatch.setattr(pattern_holders, "LETTERS_ALL_MAX", 450)
    one = PatternHolders(2)
    for origin in range(50):
        patterns = tuple(f"l{number}/+" for number in range(10))
        one.hear(f"evil{origin}", Ask(1, 2, patterns, tuple(range(1, 11)), NEVER), 0)
        one.check()
    assert sum(len(each.patterns) for each in one.nodes.values()) == 100
    one.expire(1)
    one.hear("good", Ask(1, 2, ("a/+",), (1,), NEVER), 2)
    assert one.covering("a/b") == {"good": 1}
    one.check()


def calls_of(work: Callable[[], object]) -> int:
    """Return how many functions a piece of work calls."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_a_hold_costs_no_more_where_many_patterns_are_held():
    one = a_directory()
    topics = [f"a/t{number}" for number in range(100)]
    for number, topic in enumerate(topics):
        one.publishes(topic, number + 1)
    for part in range(3):
        patterns = tuple(f"+/x{part}{number}" for number in range(1_000))
        one.on_said(QUESTIONS, "evil", Ask(1, 2, patterns, tuple(range(1, 1_001)), NEVER))
    assert calls_of(lambda: one.on_said(QUESTIONS, "evil", Hold(tuple(topics)))) < 10 * len(topics)


def test_an_ask_costs_no_more_where_many_overlay_topics_are_in_use():
    one = a_directory()
    for number in range(1_000):
        one.publishes(f"a/t{number}", number + 1)
    patterns = tuple(f"+/x{number}" for number in range(300))
    assert calls_of(lambda: one.on_said(QUESTIONS, "evil", Ask(1, 2, patterns, tuple(range(1, 301)), NEVER))) < 20_000


def test_an_introduction_costs_no_more_where_a_node_holds_many_patterns():
    one = a_directory()
    for number in range(1_000):
        one.interests.add(f"+/x{number}/y")
    prefixes = tuple(f"a/t{number}" for number in range(300))
    assert calls_of(lambda: one.on_said(ROOT, "evil", Introduce(prefixes))) < 5_000


def test_messages_whose_predecessors_never_come_are_bounded_over_all_streams(monkeypatch):
    monkeypatch.setattr(arrivals, "HELD_MAX", 10)
    interests = Interests(2)
    interests.add("#")
    one = Arrivals(1_000, interests, {ROOT: 1}, lambda *_: False)
    handed = 0
    for number in range(100):
        message = Envelope("a/b", b"p", 1, False, "c", 1, 2 * number + 2, 1, True, 2 * number + 1)
        handed += len(one.take("a/b", f"evil{number}", message, "a/b"))
        one.check()
    assert handed == 90
    assert one.counters["out of order"] == 90
    one.now_ms = 2_000
    assert len(one.tick()) == 10


def test_answers_and_questions_of_invented_names_are_bounded(monkeypatch):
    for module in (members, directory, wildcards):
        monkeypatch.setattr(module, "MEMBERS_MAX", 5)
    one = a_directory()
    one.interests.add("a/+/c")
    one.confirmed(f"{WITHIN}a")
    for number in range(50):
        one.on_said(QUESTIONS, f"evil{number}", Heard(1, (Answer("n", 1, tuple(range(9)), True),), True))
        one.on_said(QUESTIONS, f"evil{number}", Who(1, True))
        one.on_said(QUESTIONS, f"evil{number}", Ask(1, 2, ("b/+",), (1,), 1, (), False, True))
    assert len(one.members.nodes) == 5
    (wildcard,) = one.wildcards.values()
    assert len(wildcard.answered) <= 6  # this node as well
    assert len(one.owed.whos) <= 5
    assert len(one._newcomers) <= 5
    assert len(one._owed) <= 5
    one.check()


def test_what_is_retained_is_told_at_most_once_a_second_however_often_somebody_asks():
    desk = Desk()
    client = desk.welcome("c")
    for number in range(20):
        client.publish(f"a/b/{number}", b"p", retain=True)
    desk.emitted.clear()
    for _ in range(50):
        desk.host.delivered("a/b", "evil", wrap(Recall()))
        desk.carry_out()
        desk.pass_time(20)
    told = [one for one in desk.emitted if isinstance(unwrap(one.payload), Kept)]
    assert 1 <= len(told) <= 3
    desk.pass_time(2_000)
    assert len([one for one in desk.emitted if isinstance(unwrap(one.payload), Kept)]) <= 4


def test_what_others_told_about_retained_messages_is_noted_within_bounds(monkeypatch):
    monkeypatch.setattr(recall, "HEARD_MAX", 10)
    desk = Desk()
    client = desk.welcome("c")
    client.publish("a/b/0", b"p", retain=True)
    desk.host.delivered("a/b", "evil", wrap(Recall()))
    for number in range(100):
        message = Envelope(f"a/b/{number}", b"x", 1, True, "x", 1, number, 1)
        desk.host.delivered("a/b", "evil", wrap(Kept(("evil",), (message,))))
    (question,) = desk.host.recaller._questions.values()
    assert len(question.heard) == 10
