"""How wildcards follow new topics: hosts on a mesh that delays, and keeps no order between topics."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt.delayed import Mesh
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.directory import Directory
from trellis.protocols.mqtt.envelope import unwrap
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.interests import QUESTIONS, Interests

FILTERS = {"a": "#", "b": "x/+/t", "c": "x/#", "d": "x/2/t"}


@settings(max_examples=25, deadline=None)
@example(4_194_304, False, 441)  # a copy that overtook a message that was not copied
@given(st.integers(0, 2**32), st.booleans(), st.integers(0, 12_000))
def test_from_its_suback_on_a_wildcard_misses_nothing_gets_nothing_twice_and_in_order(seed, is_calm, head_start_ms):
    """Whatever the delays: publishers on new and old topics before, while and after readers come."""
    random = Random(seed)
    mesh = Mesh("abcd", random, 800 if not is_calm else 50)
    mesh.pass_time(head_start_ms)
    sent: list[tuple[int, str, str, bytes]] = []  # when, publisher, topic, payload
    subscribed: dict[str, int] = {}
    for turn in range(250):
        name = random.choice("abcd")
        if turn % 40 == 20:
            missing = [one for one in FILTERS if one not in subscribed]
            if missing:
                subscribed[missing[0]] = -1
                mesh.subscribe(missing[0], FILTERS[missing[0]])
        topic = f"x/{random.randrange(4)}/t"
        payload = f"{name} {topic} {turn}".encode()
        mesh.send(name, topic, payload)
        sent.append((mesh.now_ms, name, topic, payload))
        mesh.pass_time(random.choice([20, 100, 400]))
        for reader, since in subscribed.items():
            if since < 0 and mesh.subacks[reader]:
                subscribed[reader] = mesh.now_ms
    mesh.pass_time(8_000)
    for reader, since in subscribed.items():
        assert since > 0, f"{reader} was never told that it is subscribed"
        got = mesh.got[reader]
        assert len(set(got)) == len(got), "a message came twice"
        wanted = [one for one in sent if FILTERS[reader] != "x/2/t" or one[2] == "x/2/t"]
        missed = [one for one in wanted if one[0] > since and (one[2], one[3]) not in got]
        assert not missed, f"{reader} missed {missed}"
        for publisher in "abcd":
            for topic in {one[2] for one in sent}:
                turns = [
                    int(payload.split()[2])
                    for where, payload in got
                    if (where, payload[:1].decode()) == (topic, publisher)
                ]
                assert turns == sorted(turns), "out of order"


def test_without_wildcards_the_directory_is_silent():
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "x/1/t")
    mesh.pass_time(20_000)
    mesh.copies = 0
    for number in range(20):
        mesh.send("b", f"x/{number}/t", b"")
        mesh.pass_time(100)
    assert mesh.copies == 0


def test_copies_end_when_the_holders_have_joined():
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "#")
    mesh.pass_time(20_000)
    for number in range(300):
        mesh.send("b", "x/1/t", b"%d" % number)
        mesh.pass_time(100)
    mesh.pass_time(2_000)
    assert mesh.got["a"] == [("x/1/t", b"%d" % number) for number in range(300)]
    assert mesh.copies < 100


def test_a_holder_that_joins_a_topic_slowly_gets_copies_until_it_has():
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "#")
    mesh.pass_time(20_000)
    mesh.confirm_ms_max = 30_000
    sent = [b"%d" % number for number in range(200)]
    for one in sent:
        for topic in ("x/1", "x/2", "x/3"):
            mesh.send("b", topic, one)
        mesh.pass_time(200)
    mesh.pass_time(4_000)
    for topic in ("x/1", "x/2", "x/3"):
        assert [payload for where, payload in mesh.got["a"] if where == topic] == sent


def test_a_door_that_has_just_opened_introduces_its_topics_to_wildcards_that_it_has_not_heard_of():
    mesh = Mesh("a", Random(1))
    mesh.subscribe("a", "x/#")
    mesh.pass_time(20_000)
    mesh.got["z"], mesh.subacks["z"] = [], 0
    mesh.start("z")
    for number in range(60):
        mesh.send("z", "x/1/t", b"%d" % number)
        mesh.pass_time(200)
    mesh.pass_time(2_000)
    assert mesh.got["a"] == [("x/1/t", b"%d" % number) for number in range(60)]


def test_a_topic_that_is_silent_for_long_is_left_and_introduced_again():
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "#")
    mesh.pass_time(20_000)
    mesh.send("b", "x/1/t", b"first")
    mesh.pass_time(20_000)
    assert "x/1" in mesh.hosts["a"].interests.wanted
    mesh.pass_time(60_000)
    assert "x/1" not in mesh.hosts["a"].interests.wanted
    mesh.send("b", "x/1/t", b"again")
    mesh.pass_time(5_000)
    assert [payload for _, payload in mesh.got["a"]] == [b"first", b"again"]


def test_a_node_of_another_depth_is_counted():
    mesh = Mesh("ab", Random(1))
    other = Host("c", 1, MqttConfig(depth=3))
    other.interests.add("x/y/#")
    other.directory.confirmed("$mqtt/in/x")
    (asked,) = [payload for _, payload, _ in other.directory.emits]
    mesh.hosts["a"].delivered("$mqtt/ask", "c", asked)
    assert mesh.hosts["a"].directory.counters["other depth"] == 1


@pytest.mark.parametrize("payload", [b"\xc1tm1", b"\xc1tm1\x00", b"\xc1tm1" + bytes(40)])
def test_a_damaged_envelope_is_counted_and_dropped(payload):
    mesh = Mesh("a", Random(1))
    mesh.subscribe("a", "x/1")
    mesh.pass_time(5_000)
    mesh.hosts["a"].delivered("x/1", "b", payload)
    assert mesh.hosts["a"].counters["garbage"] == 1
    assert unwrap(b"plain") is None


def test_a_wildcard_is_ready_though_the_mesh_answers_later_than_the_question_is_repeated():
    """Before, each repetition made the answer to the last one worthless."""
    config = MqttConfig(listen="127.0.0.1:0", ask_s=2, spread_ms=500)
    interests = Interests(config.depth)
    directory = Directory("a", 1, config, interests)
    directory.start()
    directory.confirmed(QUESTIONS)
    interests.add("t/#")
    directory.confirmed("$mqtt/in/t")
    asked, directory.emits = [one for one in directory.emits if one[2] == "ask"], []
    assert len(asked) == 1
    directory.asked(1, "ask")
    for number in (2, 3):
        directory.tick(directory.now_ms + 2_001)
        assert [which for _, _, which in directory.emits] == ["ask"]
        directory.emits = []
        directory.asked(number, "ask")
    directory.acknowledged(1)
    assert not directory.is_ready("t/#")
    directory.tick(directory.now_ms + 500)
    assert directory.is_ready("t/#")
