"""Answers to the questions of coordinators."""

from __future__ import annotations

from itertools import islice

import msgspec

from trellis.protocols.effects import Effects, Send
from trellis.protocols.omen.me import life_of
from trellis.protocols.omen.messages import HINTS_MAX, Answer, Ask, FindRecord, FoundRecord, Hint, Neighbour, pack
from trellis.protocols.omen.parts import Parts
from trellis.protocols.ring import identifier
from trellis.protocols.topics import places


def answer(parts: Parts, question: Ask) -> Answer:
    """Whom we are linked to on these topics, now: only links whose both ends' holders know of them are named."""
    me, table = parts.me, parts.me.table
    number_of: dict[int, int] = {}
    bits = 0
    for number, topic in enumerate(question.topics):
        if bit := table.known(topic):  # else neither we nor a neighbour of ours has it
            number_of[bit.bit_length() - 1] = number
            bits |= bit

    def mask(interest: int) -> bytes:
        return pack(sum(1 << number_of[place] for place in places(interest & bits)))

    hints: tuple[Hint, ...] = ()
    if parts.config.knowledge == "hints":
        paths = parts.hints.paths
        asked = places(me.interest & bits)
        told = (Hint(table.names[place], paths[place]) for place in asked if paths.get(place))
        hints = tuple(islice(told, HINTS_MAX))  # with more it would be no message, and we counted as dead
    return Answer(
        question.mend,
        question.attempt,
        me.incarnation,
        me.degree,
        mask(me.interest),
        mask(me.leaving & me.interest),
        tuple(Neighbour(link.peer, link.incarnation, mask(link.interest)) for link in parts.links.up()),
        hints,
        parts.is_joining,
        me.topics_version,
    )


def find_record(parts: Parts, question: FindRecord) -> Effects:
    """Held here; or one step nearer to the first living successor; or on to the next, until L of them have been asked.

    "Unknown" is no answer before that: a newcomer may stand there (docs/omen.md, condition 1).
    """
    ring, config = parts.ring, parts.config
    record = parts.held.of(question.node, life_of(question.incarnation))
    if record is None and question.hops < config.hops_max:
        on = msgspec.structs.replace(question, hops=question.hops + 1)
        if not ring.is_coordinator(question.node) and question.left >= config.resilience - 1:
            return parts.route(identifier(question.node), on, (question.node,))
        following = [node for node in ring.successors if node != question.asker]
        if question.left and following:
            return [Send(following[0], msgspec.structs.replace(on, left=question.left - 1))]
    return [Send(question.asker, FoundRecord(question.node, question.incarnation, question.mend, True, record))]
