"""The conversations of SpiderCast as text for a reviewer to read; `TRELLIS_REWRITE_GOLDEN=1 pytest ...` writes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conversation import Conversation
from spiders import spider, spiders
from trellis.protocols.spidercast.messages import Connect, ConnectOk, DisconnectOk, Heartbeat

GOLDEN = Path(__file__).parents[1] / "golden" / "spidercast"


def first(kind, sender=None):
    """A rule that holds for the first message of a kind, and for no other."""
    seen = []

    def rule(who, to, message):
        if isinstance(message, kind) and sender in (None, who) and not seen:
            seen.append(message)
            return True
        return False

    return rule


def connects():
    """Three nodes, K = 1: a wants x and y, b wants x, c wants y. One link each covers b and c, two cover a."""
    talk = Conversation(spiders({"a": "xy", "b": "x", "c": "y"}, coverage_greedy=1), record=True)
    talk.start()
    talk.run(1_000)
    return talk


def redirects():
    """b knows nobody but h, which is full (K = 1, Margin 0): h sends it to a, which has room."""
    interests = {"h": "x", "a": "xy", "b": "x"}
    talk = Conversation(spiders(interests, {"h": "a", "a": "", "b": "h"}, coverage_greedy=1, margin=0), record=True)
    for name in ("h", "b"):
        talk.carry_out(name, talk.nodes[name].on_timer("greedy/iterate"))
        talk.run(500)
    talk.run(500)
    return talk


def over_covered(**rules):
    """A path c - a - b - d in which each end needs its link and the one in the middle is one too many; K = 1."""
    knows = {"a": "b", "b": "", "c": "a", "d": "b"}
    talk = Conversation(spiders(dict.fromkeys("abcd", "x"), knows, coverage_greedy=1), record=True, **rules)
    talk.start()
    for name in "acd":
        talk.carry_out(name, talk.nodes[name].on_timer("greedy/iterate"))
        talk.run(30)
    talk.run(2_000)
    return talk


def disconnects():
    """The link between a and b is one too many; their other neighbours need them, and are silent when asked. K = 1."""
    return over_covered()


def disconnects_in_step():
    """Each of three knows the next one, so that a triangle comes about; K = 1, one link too many. All ask at once, and
    all refuse: each may lose the one that it has asked itself. Then they ask those that were willing, out of step."""
    knows = {"a": "b", "b": "c", "c": "a"}
    talk = Conversation(spiders(dict.fromkeys("abc", "x"), knows, coverage_greedy=1), record=True)
    for name in "abc":
        talk.carry_out(name, talk.nodes[name].on_timer("greedy/iterate"))
    talk.run(3_000)
    return talk


def refuses():
    """b and c have linked up with a, which is over-covered; both need their links and keep silent. a asks each once."""
    knows = {"a": "", "b": "a", "c": "a"}
    talk = Conversation(spiders({"a": "x", "b": "x", "c": "x"}, knows, coverage_greedy=1), record=True)
    talk.start()
    talk.run(3_000)
    return talk


def leaves():
    """b leaves in order; a, which it covered, finds c at once."""
    talk = Conversation(spiders({"a": "x", "b": "x", "c": "x"}, {"a": "bc"}, coverage_greedy=1), record=True)
    talk.carry_out("a", talk.nodes["a"].on_timer("greedy/iterate"))
    talk.run(500)
    partner = min(talk.claims["a"])
    for node in talk.nodes.values():
        node.view.forget(partner)
    talk.leave(partner)
    talk.run(1_000)
    return talk


def crosses():
    """a and b ask each other at the same instant: one link comes of it, and four messages."""
    talk = Conversation(spiders({"a": "x", "b": "x"}, coverage_greedy=1), record=True)
    for name in "ab":
        talk.carry_out(name, talk.nodes[name].on_timer("greedy/iterate"))
    talk.run(150)
    return talk


def heals_a_lost_connect_ok():
    """The answer to a CONNECT is lost: b holds half a link. a asks again when its quarantine ends, b answers again."""
    nodes = spiders({"a": "x", "b": "x"}, {"a": "b", "b": ""}, coverage_greedy=1)
    talk = Conversation(nodes, lose=first(ConnectOk), record=True)
    talk.start()
    talk.run(3_000)
    return talk


def heals_half_a_link():
    """As before, but a has found c meanwhile: when a no longer waits, b's heartbeat is answered with LEAVE."""
    nodes = spiders({"a": "x", "b": "x", "c": "x"}, {"a": "b", "b": "", "c": "a"}, coverage_greedy=1)
    talk = Conversation(nodes, lose=first(ConnectOk), record=True)
    for name in "ac":
        talk.carry_out(name, talk.nodes[name].on_timer("greedy/iterate"))
    talk.carry_out("b", talk.nodes["b"].start())
    talk.run(3_000)
    return talk


def heals_a_lost_disconnect_ok():
    """b has agreed to part, a has not heard of it: a's next heartbeat is answered with LEAVE."""
    return over_covered(lose=first(DisconnectOk))


def suspects():
    """b crashes. Heartbeats go unanswered, a suspects it, parts from it and finds c."""
    talk = Conversation(spiders({"a": "x", "b": "x", "c": "x"}, {"a": "b"}, coverage_greedy=1), record=True)
    talk.start()
    talk.run(1_500)
    talk.crash("b")
    talk.nodes["a"].view.learn("c", talk.nodes["a"].me.table.bits(("x",)))
    talk.run(8_000)
    return talk


def changes_interest():
    """b leaves topic x for y. The heartbeat that says so is lost; a sees by the next one that it missed something."""
    nodes = spiders({"a": "xy", "b": "x"}, coverage_greedy=1)
    talk = Conversation(nodes, record=True)
    talk.start()
    talk.run(1_100)
    talk.lose = lambda sender, to, message: isinstance(message, Heartbeat) and message.interest is not None and lost()
    remaining = [True]

    def lost():
        return bool(remaining) and remaining.pop()

    b = talk.nodes["b"]
    talk.carry_out("b", b.subscribe("y"))
    talk.carry_out("b", b.unsubscribe("x"))
    talk.run(2_500)
    return talk


def restarts():
    """b crashes and is back before anybody has noticed: it has forgotten its link, and says so when it is greeted."""
    talk = Conversation(spiders({"a": "x", "b": "x"}, {"a": "b", "b": ""}, coverage_greedy=1), record=True)
    talk.start()
    talk.run(1_100)
    talk.crash("b")
    table = talk.nodes["a"].me.table
    talk.add(spider("b", {"a": "x", "b": "x"}, "", table=table, incarnation=2, coverage_greedy=1))
    talk.run(3_000)
    return talk


def comes_twice_and_late():
    """Each CONNECT and CONNECT-OK comes twice, the copies a second late: too late to mean anything."""
    nodes = spiders({"a": "x", "b": "x"}, {"a": "b", "b": ""}, coverage_greedy=1)
    copies: list[object] = []

    def late_ms(sender, to, message):
        if isinstance(message, Connect | ConnectOk) and any(message is copy for copy in copies):
            return 1_000
        copies.append(message)
        return 0

    talk = Conversation(
        nodes, twice=lambda _, __, message: isinstance(message, Connect | ConnectOk), late_ms=late_ms, record=True
    )
    talk.carry_out("a", talk.nodes["a"].on_timer("greedy/iterate"))
    talk.run(100)
    for name in "ab":  # both have parted before the copies come
        peer = "b" if name == "a" else "a"
        talk.nodes[name].view.forget(peer)
        talk.carry_out(name, talk.nodes[name].on_peer_down(peer))
    talk.run(3_000)
    return talk


SCENARIOS = [
    connects,
    redirects,
    disconnects,
    disconnects_in_step,
    refuses,
    leaves,
    crosses,
    heals_a_lost_connect_ok,
    heals_half_a_link,
    heals_a_lost_disconnect_ok,
    suspects,
    changes_interest,
    restarts,
    comes_twice_and_late,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_conversation_is_the_one_on_file(scenario):
    talk = scenario()
    assert not talk.half_links()
    text = "\n".join([*(line.strip() for line in scenario.__doc__.strip().splitlines()), "", *talk.lines, ""])
    path = GOLDEN / f"{scenario.__name__}.txt"
    if os.environ.get("TRELLIS_REWRITE_GOLDEN") == "1":
        path.write_text(text)
    assert text == path.read_text()


def test_no_file_is_without_its_scenario():
    assert sorted(path.stem for path in GOLDEN.glob("*.txt")) == sorted(scenario.__name__ for scenario in SCENARIOS)
