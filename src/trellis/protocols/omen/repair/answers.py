"""Answers to the questions of coordinators: what we know about topics (`Ask`), and records (`FindRecord`).

A coordinator may send a question on a route (`Route`). Each node on the route adds its answer and passes the question
on, and the last one sends all answers to the coordinator. `OMenNode` calls `answers` and `find_record`.
"""

from __future__ import annotations

from itertools import islice
from typing import Protocol

import msgspec

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.omen.links.hints import Hints
from trellis.protocols.omen.links.records import HeldRecords
from trellis.protocols.omen.me import run_of
from trellis.protocols.omen.messages import (
    HINTS_MAX,
    Answer,
    Ask,
    FindRecord,
    FoundRecord,
    Hint,
    Neighbor,
    Relayed,
    Route,
    pack,
)
from trellis.protocols.omen.needs import Basics, Beliefs, Routing
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.ring import identifier
from trellis.protocols.topics import places

# Most bytes of answers that are passed on to the next node of a route. If there are more, all are sent to the asker.
ROUTE_BYTES_MAX = 1 << 18


class AnswerParts(Basics, Beliefs, Routing, Protocol):
    """What answers use of the node."""

    hints: Hints
    held: HeldRecords
    is_joining: bool


def answers(parts: AnswerParts, sender: NodeId, question: Ask) -> Outcomes:
    """Answer the asker, or add our answer to the question and pass it on to the next node of its route."""
    route = question.way
    if route is not None and _is_odd(parts, route):
        return []  # An honest asker asks again, each node directly.
    own = answer(parts, question)
    if route is None:
        return [Send(sender, own)]
    ahead = [node for node in route.left if not parts.believes_dead(node)]  # The asker asks the others directly.
    told, effects = (*route.answers, _relayed(parts.me.id, own)), list[Send]()
    if not ahead or sum(map(_bytes, told)) > ROUTE_BYTES_MAX:
        effects.append(Send(route.asker, msgspec.structs.replace(own, mend=route.mend, more=route.answers)))
        told = ()
    if ahead:
        onward = Route(route.asker, route.mend, tuple(ahead[1:]), told)
        effects.append(Send(ahead[0], msgspec.structs.replace(question, mend=0, gone=(), way=onward)))
    return [*effects]


def _is_odd(parts: AnswerParts, route: Route) -> bool:
    """Return whether a route is longer than our own routes are, or visits a node twice.

    If we followed it, one small question could make nodes send each other many large answers.
    """
    nodes = [parts.me.id, *route.left, *(one.node for one in route.answers)]
    return len(nodes) > parts.config.way_max or len(set(nodes)) < len(nodes)


def _relayed(node: NodeId, own: Answer) -> Relayed:
    return Relayed(
        node,
        own.incarnation,
        own.degree,
        own.wants,
        own.leaving,
        own.neighbours,
        own.hints,
        own.joining,
        own.topics_version,
    )


def _bytes(told: Relayed) -> int:
    """Return the approximate size of an answer in bytes, for names in ASCII."""
    neighbors = sum(len(one.node) + len(one.wants) + 12 for one in told.neighbours)
    return neighbors + sum(len(hint.topic) + sum(map(len, hint.path)) + 2 * len(hint.path) + 4 for hint in told.hints)


def answer(parts: AnswerParts, question: Ask) -> Answer:
    """Return our answer to a question: our topics, neighbors and hints, limited to the topics of the question.

    It names only links that are up, which the records of both ends name, and none that is being dropped.
    """
    me, table = parts.me, parts.me.table
    number_of: dict[int, int] = {}
    bits = 0
    for number, topic in enumerate(question.topics):
        if bit := table.known(topic):  # Otherwise neither we nor a neighbor of ours has the topic.
            number_of[bit.bit_length() - 1] = number
            bits |= bit

    def mask(interest: int) -> bytes:
        return pack(sum(1 << number_of[index] for index in places(interest & bits)))

    named = [link for link in parts.links.up() if not link.is_closing]
    hints: tuple[Hint, ...] = ()
    if parts.config.knowledge == "hints":
        paths = parts.hints.paths
        asked = places(me.interest & bits)
        told = (Hint(table.names[index], paths[index]) for index in asked if paths.get(index))
        # With more hints the message would be refused, and we would count as departed because we did not answer.
        hints = tuple(islice(told, HINTS_MAX))
    return Answer(
        question.mend,
        question.attempt,
        me.incarnation,
        me.degree,
        mask(me.interest),
        mask(me.leaving & me.interest),
        tuple(Neighbor(link.peer, link.incarnation, mask(link.interest)) for link in named),
        hints,
        parts.is_joining,
        me.topics_version,
    )


def find_record(parts: AnswerParts, question: FindRecord) -> Outcomes:
    """Answer with the record of a node, or pass the question on.

    The question goes along the ring to the first living successor of the node. Then it goes from one successor to the
    next, until L of them were asked. Only then may we answer that the record is unknown: a successor that has joined
    lately does not have it, while the next one may (docs/omen.md, condition 1). A question that has taken `hops_max`
    hops is dropped, because the L successors were not asked. The asker asks again.
    """
    ring, config = parts.ring, parts.config
    record = parts.held.of(question.node, run_of(question.incarnation))
    if record is None:
        if question.hops >= config.hops_max:
            return []
        on = msgspec.structs.replace(question, hops=question.hops + 1)
        if not ring.is_coordinator(question.node) and question.left >= config.resilience - 1:
            return parts.route(identifier(question.node), on, (question.node,))
        following = [node for node in ring.successors if node != question.asker]
        if question.left and following:
            return [Send(following[0], msgspec.structs.replace(on, left=question.left - 1))]
    return [Send(question.asker, FoundRecord(question.node, question.incarnation, question.mend, True, record))]
