"""The conversations of Magnet as text for a reviewer to read; `TRELLIS_REWRITE_GOLDEN=1 pytest ...` writes them."""

from __future__ import annotations

import ast
import os
import re
from fractions import Fraction
from pathlib import Path
from random import Random

import pytest

from conversation import Conversation
from reference.magnet import StillRing
from trellis.ids import stream
from trellis.protocols.magnet import MagnetConfig, MagnetNode
from trellis.protocols.magnet.messages import Entry, View
from trellis.protocols.oscar import OscarConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "magnet"
SIXTHS = {"a": 0, "b": 10, "c": 20, "d": 30, "e": 40, "f": 50}
FINGERS = {"a": ["c", "e"], "b": ["d"], "c": ["e", "f"], "d": ["f"], "e": ["a"], "f": ["b"]}


def still(tree="graft", interests=None, **fields):
    places = {name: Fraction(value, 64) for name, value in SIXTHS.items()}
    wanted = interests or dict.fromkeys(SIXTHS, "x")
    return StillRing(places, FINGERS, wanted, MagnetConfig(tree=tree, **fields), record=True)


def know(ring, name, *others, topic="x"):
    ring.nodes[name].membership.views[topic] = View(
        topic, ring.home(topic), tuple(Entry(other, ring.nodes[other].topics) for other in others), 0
    )


def grafts():
    """Topic x; d is its home. b joins first, at the home; a begins at b, which is in the tree, and climbs to d."""
    ring = still()
    ring.join("b")
    know(ring, "a", "b")
    ring.join("a")
    return ring


def greedy_paths():
    """The same joins from the home location: each descends the greedy route."""
    ring = still("greedy-path")
    ring.join("b")
    know(ring, "a", "b")
    ring.join("a")
    return ring


def publishes():
    """c publishes on x: over the control ring to the home location, then down the tree; f wants y and relays."""
    ring = still(interests={"a": "x", "b": "x", "c": "x", "d": "x", "e": "x", "f": "y"})
    for name in "abce":
        ring.join(name)
    ring.talk.lines.append("          everybody has joined")
    ring.talk.carry_out("c", ring.nodes["c"].publish("x", b"news"))
    ring.talk.run(500)
    return ring


def unsubscribes():
    """The last subscriber behind a relay goes: the relay prunes itself, and so on up to the home location."""
    ring = still(interests={"a": "y", "b": "x", "c": "y", "d": "y", "e": "y", "f": "y"})
    ring.join("b")
    ring.talk.carry_out("b", ring.nodes["b"].trees.unsubscribe("x"))
    ring.talk.run(500)
    return ring


def loses_its_parent():
    """The parent of b no longer knows it: the next heartbeat says so, and b joins again at once."""
    ring = still()
    ring.join("b")
    parent = ring.nodes[ring.parent("b", "x")]
    parent.trees.forest.drop_child(parent.trees.forest.trees["x"], "b")
    ring.talk.carry_out("b", ring.nodes["b"].trees.on_timer())
    ring.talk.run(500)
    return ring


class Quiet(MagnetNode):
    """No walks and no gossip, so that the conversation is that of the joins."""

    def __init__(self, *arguments, **more):
        super().__init__(*arguments, **more)
        for oscar in (self.control, self.skewed):
            oscar.fingers.estimate = list
        self.newscast.start = list


class Joined:
    def __init__(self, talk):
        self.talk = talk


def joins():
    """Three nodes. a founds the rings. b wants z: nobody is like it, so its name is its place. c wants x and y as a
    does; it asks the homes of both for samples, and a, the most similar that it hears of, for a place next to it."""
    config = MagnetConfig(
        skewed=OscarConfig(links=4, ring_ms=60_000, beat_ms=60_000),
        control=OscarConfig(links=4, ring_ms=60_000, beat_ms=60_000),
        tree_ms=60_000,
        sample_ms=60_000,
        tree_wait_ms=50,
    )

    def node(name, topics, contacts):
        return Quiet(name, tuple(topics), Random(stream(1, name)), config, contacts=contacts)

    talk = Conversation([node("a", "xy", ())], record=True)
    talk.start()
    talk.run(500)
    for name, topics in (("b", "z"), ("c", "xy")):
        talk.lines.append(f"          {name} comes, and wants {' and '.join(topics)}")
        talk.add(node(name, topics, ("a",)))
        talk.run(1_000)
    return Joined(talk)


LABEL = re.compile(r"""(?<=[/=])b('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")


def short(found):
    """Labels as the first digits of their fraction; a payload looks like one too."""
    return ast.literal_eval(found.group()).hex()[:6] or "0"


SCENARIOS = [grafts, greedy_paths, publishes, unsubscribes, loses_its_parent, joins]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_conversation_is_as_it_was_read_last(scenario):
    lines = [LABEL.sub(short, line) for line in scenario().talk.lines]
    text = " ".join(scenario.__doc__.split()) + "\n\n" + "\n".join(lines) + "\n"
    path = GOLDEN / f"{scenario.__name__}.txt"
    if os.environ.get("TRELLIS_REWRITE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text
