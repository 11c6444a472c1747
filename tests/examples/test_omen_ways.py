"""A question of OMen that goes from node to node: one answer for all, and what happens when it is lost or forged."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest

from trellis.protocols.effects import Send, SetTimer
from trellis.protocols.omen import OMenConfig, OMenNode
from trellis.protocols.omen import messages as m
from trellis.protocols.omen.repair import answers as answering
from trellis.protocols.omen.repair.procedure import Context
from trellis.protocols.omen.repair.repair import Repair
from trellis.protocols.omen.repair.routes import split_into_routes
from trellis.protocols.omen.shadow import low_edges
from trellis.simulate.engine import Engine
from trellis.simulate.systems.omen import OMen

LIFE = 3


def lonely(name):
    node = OMenNode(name, ("t",), Random(1), OMenConfig(), incarnation=LIFE)
    node.start()
    return node


def sends(effects):
    return [effect for effect in effects if isinstance(effect, Send)]


def answer(*peers, more=()):
    near = tuple(m.Neighbor(one, LIFE, m.pack(1)) for one in peers)
    return m.Answer(1, 1, LIFE, len(peers), m.pack(1), b"", near, more=more)


def relayed(name, *peers):
    return m.Relayed(name, LIFE, len(peers), m.pack(1), b"", answer(*peers).neighbours)


def ring_of_six(**options):
    """Required are a, b and c, which are apart on t. The ways between them lead over x, y and z, which are asked."""
    mend = Repair(1, "relink", "v", 1, Context("me", OMenConfig(**options), low_edges, len), ("t",))
    mend.link_ends = ("a", "b", "c")
    mend.start()
    effects = []
    for name, peers in {"a": ("x", "z"), "b": ("x", "y"), "c": ("y", "z")}.items():
        effects = mend.on_answer(name, answer(*peers))
    return mend, effects


LINKS = {"x": ("a", "b"), "y": ("b", "c"), "z": ("c", "a")}


def test_a_question_goes_from_node_to_node_and_the_last_one_answers_for_all():
    nodes = {name: lonely(name) for name in "xyz"}
    sender, sent = "me", [Send("x", m.Ask(7, 2, ("t",), (), m.Route("me", 7, ("y", "z"))))]
    visited = []
    while sent[0].to != "me":
        (one,) = sent
        visited.append(one.to)
        sender, sent = one.to, sends(nodes[one.to].on_message(sender, one.message))
    (last,) = sent
    assert visited == ["x", "y", "z"]
    assert (last.message.mend, last.message.attempt, [one.node for one in last.message.more]) == (7, 2, ["x", "y"])
    alone = [sends(nodes[name].on_message("me", m.Ask(7, 2, ("t",))))[0].message for name in "xyz"]
    assert [one.wants for one in (*last.message.more, last.message)] == [one.wants for one in alone]
    assert all(node.asked.since("me", 0) for node in nodes.values()), "a coordinator counts on each of them"


def test_who_does_not_know_ways_answers_a_question_that_is_passed_on_to_no_repair():
    """Otherwise the node that passed it on might take that answer for one to a question of its own."""
    (on,) = sends(lonely("x").on_message("me", m.Ask(7, 2, ("t",), (), m.Route("me", 7, ("y",)))))
    assert (on.to, on.message.mend, on.message.way.mend) == ("y", 0, 7)
    older = msgspec.msgpack.encode({**msgspec.to_builtins(on.message), "way": None})
    (said,) = sends(lonely("y").on_message("x", m.CODEC.decode(older)))
    assert (said.to, said.message.mend) == ("x", 0)


def test_a_node_that_is_believed_dead_is_left_out_of_a_way():
    x = lonely("x")
    x.parts.suspects.add("y", LIFE, 1)
    (on,) = sends(x.on_message("me", m.Ask(7, 2, ("t",), (), m.Route("me", 7, ("y", "z")))))
    assert (on.to, on.message.way.left) == ("z", ())


@pytest.mark.parametrize("left", [("y",) * 2, ("x",), tuple(f"n{number}" for number in range(8))])
def test_a_way_that_is_too_long_or_leads_to_a_node_twice_is_not_followed(left):
    """One question of 120 bytes made two nodes send each other 3 MB."""
    assert not sends(lonely("x").on_message("me", m.Ask(7, 2, ("t",), (), m.Route("me", 7, left))))


def test_answers_that_are_too_large_are_not_passed_on(monkeypatch):
    before = tuple(relayed(f"n{number}", "a") for number in range(2))
    monkeypatch.setattr(answering, "ROUTE_BYTES_MAX", 20)
    question = m.Ask(7, 2, ("t",), (), m.Route("me", 7, ("y",), before))
    told, on = sends(lonely("x").on_message("w", question))
    assert (told.to, told.message.mend, told.message.more) == ("me", 7, before)
    assert (on.to, on.message.way.answers) == ("y", ())
    for one in (told, on):
        assert m.CODEC.decode(m.CODEC.encode(one.message)) == one.message


def test_the_answers_of_a_way_prove_what_single_answers_prove():
    mend, effects = ring_of_six()
    (asked,) = sends(effects)
    (*before, last) = (asked.to, *asked.message.way.left)
    mend.on_answer(last, answer(*LINKS[last], more=tuple(relayed(name, *LINKS[name]) for name in before)))
    assert (mend.state, mend.links.opening) == ("done", {})


@pytest.mark.parametrize("optional_tries", [1, 2])
def test_when_a_way_brings_no_answer_each_of_its_nodes_is_asked_by_itself(optional_tries):
    mend, effects = ring_of_six(optional_tries=optional_tries)
    (asked,) = sends(effects)
    assert [one.delay_ms for one in effects if isinstance(one, SetTimer)] == [2 * mend.config.ask_ms]
    nodes = [asked.to, *asked.message.way.left]
    again = sends(mend.on_timer())
    assert [one.to for one in again] == nodes
    assert all(one.message.way is None for one in again)
    answered, silent = nodes
    mend.on_answer(answered, answer(*LINKS[answered]))
    assert mend.state == "proof"
    mend.on_timer()
    assert silent in mend.questions.silent, "its answer could only save a link"


def test_answers_of_others_count_only_from_a_node_of_the_same_way_and_only_once():
    mend, effects = ring_of_six()
    (asked,) = sends(effects)
    first, second = asked.to, *asked.message.way.left
    forged = tuple(relayed(name, "liar") for name in (first, second, "a", "nobody"))
    mend.on_answer("b", answer("x", "y", more=forged))  # was asked by itself
    mend.on_answer("liar", answer("x", more=forged))  # was not asked
    assert mend.questions.answers.told.keys() == set("abc")
    mend.on_answer(first, answer(*LINKS[first]))
    mend.on_answer(second, answer(*LINKS[second], more=forged))
    told = mend.questions.answers.told
    assert (set(told[first].neighbours), "nobody" in told, "liar" in told["a"].neighbours) == (
        set(LINKS[first]),
        False,
        False,
    )


def test_ways_are_few_and_about_equally_long():
    nodes = [f"n{number}" for number in range(17)]
    assert [len(way) for way in split_into_routes(nodes, 8)] == [5, 6, 6]
    assert [node for way in split_into_routes(nodes, 8) for node in way] == nodes
    assert [len(way) for way in split_into_routes(nodes, 1)] == [1] * 17
    assert max(len(way) for way in split_into_routes([f"n{number}" for number in range(99)], 99)) <= m.ROUTE_MAX
    assert split_into_routes([], 8) == []


def questions_of_a_repair(way_max):
    """A hub goes whose five neighbors are on a cycle of twenty nodes. Count what it takes: Ask, Answer, OpenLink."""
    cycle = [f"c{number:02}" for number in range(20)]
    overlay = [(one, other) for one, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)]
    overlay += [("hub", cycle[number]) for number in range(0, 20, 4)]
    interests = dict.fromkeys(("hub", *cycle), ("t",))
    engine = Engine(OMen(way_max=way_max), interests, seed=1, overlay=tuple(overlay), broken_stream_ms=50)
    engine.run(40_000)
    before = Counter(engine.sent_by_type())
    engine.crash("hub")
    engine.run(80_000)
    sent = Counter(engine.sent_by_type()) - before
    return sent["Ask"], sent["Answer"], sent["OpenLink"]


def test_a_way_takes_fewer_messages_for_the_same_proof():
    asked, answered, opened = questions_of_a_repair(1)
    on_ways = questions_of_a_repair(8)
    assert (asked, on_ways[0], on_ways[2]) == (answered, asked, opened)
    assert on_ways[1] < answered
