"""Failure detection: what it promises, and what loss does to it."""

from __future__ import annotations

from random import Random

import pytest

from conversation import Conversation
from trellis.errors import InputError
from trellis.protocols.detector import Again, DetectorConfig, Down, HeartbeatDetector, Ping, Pong
from trellis.protocols.effects import Send, SetTimer
from trellis.protocols.suspicion import Sign, Suspicion


def test_a_peer_is_suspected_after_silence_max_silent_rounds_and_not_before():
    suspicion = Suspicion(silence_max=3)
    suspicion.watch("a")
    suspicion.heard("a")
    assert [suspicion.tick() for _ in range(5)] == [[], [], [], ["a"], ["a"]]


def test_a_sign_of_life_starts_the_count_again():
    suspicion = Suspicion(silence_max=1)
    suspicion.watch("a")
    for _ in range(5):
        assert suspicion.tick() == []
        assert suspicion.heard("a") is Sign.ALIVE
    suspicion.unwatch("a")
    assert suspicion.heard("a") is Sign.UNWATCHED
    assert [suspicion.tick() for _ in range(3)] == [[], [], []]


def test_watching_a_peer_again_does_not_excuse_its_silence():
    suspicion = Suspicion(silence_max=1)
    suspicion.watch("a")
    suspicion.tick()
    suspicion.watch("a")
    assert suspicion.tick() == ["a"]


def test_signs_of_an_earlier_life_are_no_signs_of_life():
    suspicion = Suspicion(silence_max=1)
    suspicion.watch("a")
    assert suspicion.heard("a", 2) is Sign.ALIVE
    suspicion.tick()
    assert suspicion.heard("a", 1) is Sign.STALE
    assert suspicion.tick() == ["a"]
    assert suspicion.heard("a", 3) is Sign.RESTARTED
    assert suspicion.heard("a", 3) is Sign.ALIVE


class Watcher:
    """A node that is a detector and nothing else."""

    def __init__(self, name: str, incarnation: int = 1, seed: int = 1, **config: int) -> None:
        self.id = name
        self.detector = HeartbeatDetector(incarnation, Random(f"{seed}{name}"), DetectorConfig(**config))
        self.found: list = []

    def start(self):
        return self.detector.start()

    def on_message(self, sender, message):
        return self._after(self.detector.on_message(sender, message))

    def on_timer(self, tag):
        return self._after(self.detector.on_timer(tag))

    def check(self):
        assert len(self.found) < 10_000

    def _after(self, effects):
        self.found += self.detector.news()
        return effects


def test_a_round_asks_everybody_who_is_watched():
    detector = HeartbeatDetector(7, Random(1))
    detector.watch("b")
    detector.watch("a")
    assert detector.on_timer("detector/tick") == [
        Send("b", Ping(7)),
        Send("a", Ping(7)),
        SetTimer("detector/tick", 1_000),
    ]
    assert detector.on_message("stranger", Ping(1)) == [Send("stranger", Pong(7))]


def test_a_crash_is_found_once_within_seven_periods():
    alice, bob = Watcher("alice"), Watcher("bob")
    talk = Conversation([alice, bob])
    alice.detector.watch("bob")
    talk.start()
    talk.run(20_000)
    assert alice.found == []
    talk.crash("bob")
    talk.run(7_000)
    assert alice.found == [Down("bob")]
    talk.run(20_000)
    assert alice.found == [Down("bob")]


def test_a_node_that_came_back_is_not_mistaken_for_its_former_self():
    alice, bob = Watcher("alice"), Watcher("bob")
    talk = Conversation([alice, bob])
    alice.detector.watch("bob")
    talk.start()
    talk.run(5_000)
    talk.crash("bob")
    talk.add(Watcher("bob", incarnation=2))
    talk.run(5_000)
    assert alice.found == [Again("bob")]


def test_a_broken_stream_is_believed_at_once():
    alice = Watcher("alice")
    alice.detector.watch("bob")
    alice.detector.on_peer_down("bob")
    alice.detector.on_peer_down("stranger")
    assert alice.detector.news() == [Down("bob")]
    assert alice.detector.news() == []


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_wrong_suspicions_are_as_rare_as_the_docstring_says(loss):
    """One end asks, the other answers: (1 - (1 - p)^2)^5 per link and round: 8.8e-6 at 5%, 0.034 at 30%."""
    network = Random(4)
    alice, bob = Watcher("alice"), Watcher("bob")
    talk = Conversation([alice, bob], lose=lambda *_: network.random() < loss)
    rounds = 4_000
    talk.start()
    for _ in range(rounds):
        alice.detector.watch("bob")  # again and again: a wrong suspicion is only a lost link
        talk.run(1_000)
    expected = rounds * (1 - (1 - loss) ** 2) ** 5
    # Five silent rounds end in one suspicion, not in one per round: the count stays below the expectation.
    assert 0.2 * expected - 1 <= len(alice.found) <= 1.3 * expected


def test_nonsense_is_refused():
    with pytest.raises(InputError):
        DetectorConfig(silence_max=0)
