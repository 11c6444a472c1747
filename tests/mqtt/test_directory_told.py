"""What nodes tell each other about wildcards: stale, lost and repeated messages, one case each."""

from __future__ import annotations

from random import Random

from mqtt.delayed import Mesh
from mqtt.desk import WALL_MS, Desk
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.config import MqttConfig
from trellis.protocols.mqtt.effects import Emit
from trellis.protocols.mqtt.envelope import Answer, Ask, Heard, Joined, Who, unwrap, wrap
from trellis.protocols.mqtt.host import Host
from trellis.protocols.mqtt.interests import QUESTIONS
from trellis.protocols.mqtt.members import SILENT_MS, Members
from trellis.protocols.mqtt.pattern_holders import PatternHolders


def pending(mesh: Mesh, publisher: str, prefix: str) -> list[str]:
    return sorted(mesh.hosts[publisher].directory.introductions.active[prefix].pending)


def test_a_word_from_before_a_pattern_was_taken_up_again_ends_no_copies():
    desk = Desk()
    directory = desk.host.directory
    directory.on_said(QUESTIONS, "m", Ask(1, 2, ("x/#",), (5,), 5, (), True))
    assert directory.publishes("x/1", 1) == (("$mqtt/in/x",), 0, 0)
    directory.on_said(QUESTIONS, "m", Joined(1, 4, ("x/1",)))
    assert directory.publishes("x/1", 2)[0] == ("$mqtt/in/x",)
    directory.on_said(QUESTIONS, "m", Joined(1, 5, ("x/1",)))
    assert directory.publishes("x/1", 3)[0] == ()


def test_a_pattern_that_was_dropped_gets_no_copies_any_more():
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "x/#")
    mesh.pass_time(20_000)
    mesh.hosts["a"].received(1, p.Unsubscribe(1, ("x/#",)))
    mesh.carry_out("a")
    mesh.pass_time(2_000)
    mesh.copies = 0
    mesh.send("b", "x/new/t", b"")
    mesh.pass_time(1_000)
    assert mesh.copies == 0


def test_a_holder_that_has_forgotten_a_topic_that_is_still_in_use_gets_copies_again():
    """It heard nothing of it for long, though the publisher went on."""
    mesh = Mesh("ab", Random(1))
    mesh.subscribe("a", "x/#")
    mesh.pass_time(20_000)
    mesh.send("b", "x/1/t", b"first")
    mesh.pass_time(10_000)
    assert not pending(mesh, "b", "x/1")
    mesh.deaf = "a"
    for _ in range(16):
        mesh.send("b", "x/1/t", b"not heard")
        mesh.pass_time(5_000)
    mesh.deaf = ""
    assert "x/1" not in mesh.hosts["a"].interests.wanted
    assert pending(mesh, "b", "x/1") == ["a"]
    mesh.send("b", "x/1/t", b"again")
    mesh.pass_time(5_000)
    assert mesh.got["a"] == [("x/1/t", b"first"), ("x/1/t", b"again")]


def test_a_publisher_that_did_not_hear_that_a_holder_has_joined_hears_it_later():
    mesh = Mesh("ab", Random(1), 100, 200)
    mesh.subscribe("a", "x/#")
    mesh.pass_time(20_000)
    mesh.deaf = "b"
    for _ in range(20):
        mesh.send("b", "x/1/t", b"")
        mesh.pass_time(100)
    mesh.deaf = ""
    assert pending(mesh, "b", "x/1") == ["a"]
    for _ in range(30):
        mesh.send("b", "x/1/t", b"")
        mesh.pass_time(100)
    assert not pending(mesh, "b", "x/1")


def test_what_an_earlier_incarnation_said_is_not_believed():
    holders = PatternHolders(2)
    assert holders.hear("m", Ask(2, 2, ("x/#",), (1,), 1, (), True), 0) == (["x/#"], [1])
    assert holders.hear("m", Ask(1, 2, ("y/#",), (9,), 9, (), True), 0) is None
    assert list(holders.covering("x/1")) == ["m"]
    assert not holders.covering("y/1")
    assert holders.hear("m", Ask(3, 2, ("y/#",), (1,), 1), 0) == (["y/#"], [1])
    assert not holders.covering("x/1")


def test_an_older_statement_takes_away_nothing_newer():
    holders = PatternHolders(2)
    holders.hear("m", Ask(1, 2, ("x/#", "y/#"), (1, 4), 4, (), True), 0)
    holders.hear("m", Ask(1, 2, ("x/#",), (1,), 3, ("y/#",), True), 0)  # said before y/# was taken up again
    assert list(holders.covering("y/1")) == ["m"]
    holders.hear("m", Ask(1, 2, ("x/#",), (1,), 5, (), True), 0)
    assert not holders.covering("y/1")


def test_a_node_that_was_named_must_answer_before_a_newcomer_is_informed():
    members = Members("z")
    members.joined(60_000)
    members.acknowledged(1, 5_000)
    members.heard("y", 1)
    members.answered("y", True, ("x", "z"))
    members.tick(100)
    assert not members.is_informed
    members.heard("x", 1)
    members.answered("x", False, ())
    members.tick(200)
    assert members.is_informed


def test_a_newcomer_is_told_all_nodes():
    mesh = Mesh("abc", Random(1), 100)
    mesh.pass_time(20_000)
    directory = mesh.hosts["a"].directory
    directory.on_said(QUESTIONS, "z", Who(1, True))
    directory.at(mesh.now_ms + 1_000)
    directory.tick()
    (heard,) = [unwrap(payload) for _, payload, which in directory.emits if which == "heard"]
    assert heard == Heard(1, (Answer("z", 1, (), True),), True, tuple(directory.members.nodes))
    assert set(heard.members) == {"b", "c", "z"}


def test_a_named_node_that_is_silent_is_given_up():
    members = Members("z")
    members.joined(60_000)
    members.heard("y", 1)
    members.answered("y", True, ("dead",))
    assert members.tick(0) == 0
    assert members.tick(SILENT_MS + 1) == 1
    assert members.is_informed


def test_answers_of_nodes_that_are_not_informed_need_a_time():
    members = Members("z")
    members.joined(60_000)
    members.heard("y", 1)
    members.answered("y", False, ())
    members.tick(3_000)
    assert not members.is_informed
    members.acknowledged(1, 5_000)
    members.tick(4_000)
    assert not members.is_informed
    members.tick(5_000)
    assert members.is_informed


def test_a_question_that_is_refused_at_once_is_repeated_later_and_not_at_once():
    """A node refuses publications at once when too many wait. It must not ask in an endless loop then."""
    host = Host("n", 1, MqttConfig(listen="127.0.0.1:0"))
    host.at(1_000, WALL_MS)
    host.confirmed(QUESTIONS)
    asked = 0
    for _ in range(5):
        found = [one for one in host.take() if isinstance(one, Emit) and isinstance(unwrap(one.payload), Who)]
        asked += len(found)
        for one in found:
            host.not_acknowledged(one.number, "10000 publications wait already")
    assert asked == 1
    host.at(host.state.now_ms + 1_000, host.state.wall_ms + 1_000)
    host.tick()
    again = [one for one in host.take() if isinstance(one, Emit) and isinstance(unwrap(one.payload), Who)]
    assert len(again) == 1


def test_a_newcomer_asks_again_who_is_there_until_it_is_informed():
    """The answer of a node that was too busy to publish it never comes: only a new question brings another one."""
    host = Host("n", 1, MqttConfig(listen="127.0.0.1:0"))
    now_ms = 1_000

    def questions(duration_ms: int) -> int:
        nonlocal now_ms
        count = 0
        for _ in range(duration_ms // 200):
            now_ms += 200
            host.at(now_ms, WALL_MS)
            host.tick()
            for effect in host.take():
                if isinstance(effect, Emit) and isinstance(unwrap(effect.payload), Who):
                    count += 1
                    host.acknowledged(effect.number, 1)
        return count

    host.at(now_ms, WALL_MS)
    host.start()
    host.take()
    host.confirmed(QUESTIONS)
    assert questions(1_000) == 1
    assert questions(6_000) == 2
    host.delivered(QUESTIONS, "m", wrap(Heard(1, (Answer("n", 1, (), True),), True, ("m",))))
    assert questions(60_000) == 0
    assert host.directory.is_informed
