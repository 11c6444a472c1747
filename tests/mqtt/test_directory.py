"""How wildcards follow new topics: hosts on a mesh that delays, and keeps no order between topics."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mqtt.delayed import Mesh
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.envelope import unwrap
from trellis.protocols.mqtt.host import Host

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
    other.directory.confirmed("$mqtt/ask")
    other.directory.confirmed("$mqtt/in/x")
    (asked,) = [payload for _, payload, which in other.directory.emits if which == "ask"]
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


def test_a_wildcard_is_confirmed_when_the_last_node_has_answered_and_not_before():
    """Whatever `spread_ms` is: an answer that is late is waited for."""
    mesh = Mesh("abc", Random(1), 100)
    mesh.pass_time(20_000)
    assert all(one.directory.is_informed for one in mesh.hosts.values())
    mesh.deaf = "c"
    mesh.subscribe("a", "x/#")
    mesh.pass_time(8_000)
    assert mesh.confirmed["a", "$mqtt/in/x"] > 0
    assert not mesh.subacks["a"]
    mesh.deaf = ""
    mesh.pass_time(5_000)  # the question is repeated
    assert mesh.subacks["a"] == 1
    mesh.send("c", "x/1/t", b"first")
    mesh.pass_time(2_000)
    assert mesh.got["a"] == [("x/1/t", b"first")]


def test_nobody_waits_for_a_node_that_is_gone():
    """One that left says so; one that crashed is not waited for longer than ten seconds."""
    mesh = Mesh("abcd", Random(1), 100)
    mesh.pass_time(20_000)
    mesh.hosts["b"].at(mesh.now_ms, mesh.now_ms)
    mesh.hosts["b"].shut_down()
    mesh.carry_out("b")
    mesh.stop("b")
    mesh.pass_time(500)
    mesh.subscribe("a", "x/#")
    mesh.pass_time(5_000)
    assert mesh.subacks["a"] == 1
    mesh.stop("c")
    mesh.subscribe("a", "y/#")
    mesh.pass_time(9_000)
    assert mesh.subacks["a"] == 1
    mesh.pass_time(6_000)
    assert mesh.subacks["a"] == 2
    assert mesh.hosts["a"].directory.counters["members silent"] == 1


def test_a_node_with_more_patterns_than_one_message_holds_gets_what_each_asks_for():
    mesh = Mesh("ab", Random(1), 100, 200)
    mesh.pass_time(20_000)
    for number in range(0, 1_100, 550):
        mesh.subscribe("a", *(f"d{one}/#" for one in range(number, number + 550)))
    mesh.pass_time(6_000)
    assert mesh.subacks["a"] == 2
    for number in (0, 700, 1_099):
        mesh.send("b", f"d{number}/x/y", b"%d" % number)
    mesh.pass_time(2_000)
    assert sorted(mesh.got["a"]) == [(f"d{one}/x/y", b"%d" % one) for one in (0, 1_099, 700)]
