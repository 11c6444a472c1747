"""Why a message may be missing or come again although a promise covers it at first sight.

The comments quote `docs/delivery.md` and `docs/mqtt.md`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trellis.judge.calm import Calm
from trellis.judge.copies import APART_S, LONG, may_hold
from trellis.judge.faults import is_among, is_between, is_cut_between, joined
from trellis.judge.history import Disturbed
from trellis.judge.promise import Promise
from trellis.judge.story import Publication, Session, Story

WHOLE_S = 5.0  # from the end of a cut until links are tried again and topics are compared
_SHORTLY_S = 1.0  # A message of the last connection may be read when the session has already come back.


def why_lost(story: Story, promise: Promise, made: Publication, reader: Session) -> str | None:
    """Return why an acknowledged message may be missing, or None if it may not.

    "If fewer of the nodes that hold it crash before it has spread than it was acknowledged with, every node ...
    hands it to its application", "as long as the topic's overlay is whole again within the replay window".
    """
    if promise.durable:
        return None
    faults = list(_faults_between(story, made, reader))
    spread = _spread(promise, made, faults)
    if why := _holders_have_gone(story, promise, made, spread):
        return why
    spans = joined((fault.t, fault.until) for fault in faults)
    if any(
        begin <= spread and end >= made.began and end + WHOLE_S - max(begin, made.began) > promise.window_s
        for begin, end in spans
    ):
        return "a fault lasted longer than the replay window"
    return None


def spread_by(story: Story, promise: Promise, made: Publication, reader: Session) -> float:
    """Return by when the message has reached the reader, whatever faults held it up."""
    return _spread(promise, made, list(_faults_between(story, made, reader)))


def _faults_between(story: Story, made: Publication, reader: Session) -> Iterator[Disturbed]:
    """Return the faults that can hold up a message: those of its publisher's node, its holders and its reader's nodes.

    A cut counts if it separates two of them. Elsewhere it may break a path that a message takes, but the overlay is
    repaired on each side of a cut.
    """
    names = {made.node, made.session.broker, *made.holders, reader.broker, *(node for _, node in reader.nodes)} - {""}
    return (fault for fault in story.disturbances if is_among(fault, names))


def _spread(promise: Promise, made: Publication, faults: list[Disturbed]) -> float:
    """Return by when the message has reached every subscriber: `spread_s` after all faults that held it up."""
    until = made.acknowledged
    for fault in faults:
        if fault.t <= until + promise.spread_s and fault.until >= made.began:
            until = max(until, fault.until)
    return until + promise.spread_s


def _holders_have_gone(story: Story, promise: Promise, made: Publication, spread: float) -> str | None:
    """Return an excuse if every node that held the message has ended before `spread`, the last one by a crash.

    "An orderly departure loses nothing [...]. It may take a copy away, though: if the neighbor that took over is the
    only one left that holds a message, its crash loses it."
    """
    gone = [
        down
        for down in story.downs
        if made.sent <= down.t <= spread and not _is_back(story, down.node, down.t, made.acknowledged - promise.grace_s)
    ]
    if made.holders:
        gone = [down for down in gone if down.node in made.holders]
        if {down.node for down in gone} == set(made.holders) and not max(gone, key=lambda down: down.t).leave:
            return "every node that held it has gone"
        return None
    possible = {made.node, *may_hold(story, promise, made)}
    gone = [down for down in gone if down.node in possible]
    names = {down.node for down in gone}
    if made.node not in names or max(gone, key=lambda down: down.t).leave:
        return None
    if len(names) >= promise.copies:
        return "its publisher's node and as many others have gone as there are copies"
    if _was_cut_off(story, promise, made):
        return "its publisher's node was cut off for long, and has gone"
    return None


def _was_cut_off(story: Story, promise: Promise, made: Publication) -> bool:
    """Tell whether a cut may have left the publisher's node alone for so long that its own copy is enough.

    "A subscriber counts unless it was cut off from the home for `registered_ms`." Any node may be the home.
    """
    others = story.nodes()
    cuts = (fault for fault in story.disturbances if any(is_cut_between(fault, made.node, node) for node in others))
    spans = joined(((fault.t, fault.until) for fault in cuts), APART_S)
    return any(begin + LONG * promise.registered_s <= made.acknowledged and end >= made.began for begin, end in spans)


def _is_back(story: Story, node: str, ended: float, t: float) -> bool:
    """Tell whether a node that ended has started again before `t`, and holds the message since."""
    return any(up.node == node and ended < up.t <= t for up in story.ups)


def repetitions(story: Story, promise: Promise, made: Publication) -> list[float]:
    """Return when the publisher may have repeated the message to a node that did not know it any more.

    A native client that connects again repeats the publications that have no outcome. Its node remembers publications
    for one window, until it restarts. MQTT promises "at least once" with QoS 1: if an acknowledgement is lost, the
    client repeats a publication that its node has answered. A client of MQTT 3.1.1 cannot be told of a refusal. If its
    node's window has overflowed meanwhile, a message with QoS 2 may have been refused, and is tried again. The time is
    `NEVER` if the history does not tell that the publisher was back. No MQTT client repeats a message with QoS 0.
    """
    session, times, since = made.session, list[float](), made.began
    if session.speaks == "mqtt" and not made.qos:
        return times
    for lost, back in session.absences:
        if lost > made.answered or back < made.began:
            continue
        is_unknown = (session.speaks == "mqtt" and made.qos < 2) or session.node_at(back) != made.node
        is_unknown = is_unknown or not promise.remembers or back - made.began > promise.window_s
        if session.speaks == "mqtt":
            overflows = (
                overflow.t for overflow in story.overflows if overflow.where == "window" and overflow.node == made.node
            )
            is_unknown = is_unknown or any(made.began <= t <= made.answered for t in overflows)
        is_restarted = not promise.durable and story.was_down(made.node, since, min(back, made.answered))
        if is_unknown or is_restarted:
            times.append(back)
            since = back
    return times


def lost_its_connection(made: Publication) -> bool:
    """Tell whether the publisher lost its connection while the message had no outcome yet."""
    return made.session.was_away(made.began, made.answered)


def unexcused(story: Story, promise: Promise, session: Session, calm: Calm, when: list[float]) -> int:
    """Return how many of the receipts of one message are neither the first nor follow a lost connection.

    A session that comes back gets the messages again that it had not acknowledged when the connection was lost.
    """
    if promise.durable and session.speaks == "native":
        return len(when) - 1  # a durable subscriber recognizes what it has
    count, free = 0, list(session.absences)
    for first, again in pairwise(when):
        for lost, back in free:
            is_unsure = lost <= _told_by(story, session, calm, first)
            if is_unsure and first - _SHORTLY_S <= back <= again <= calm.due(back, back):
                free.remove((lost, back))
                break
        else:
            count += 1
    return count


def _told_by(story: Story, session: Session, calm: Calm, received: float) -> float:
    """Return by when the node, or the broker, knows that the client has got a message at `received`."""
    at = session.broker or session.node_at(received)
    soon = received + calm.grace_s
    return calm.due(received, received) if _is_disturbed(story, calm, session.host, at, received, soon) else soon


def is_between_brokers(story: Story, session: Session, made: Publication | None, calm: Calm, t: float) -> bool:
    """Tell whether a message passed between a broker and its sidecar, and a fault disturbed the two before `t`."""
    if made is None:
        return False
    sites = {(session.broker, session.node) for session in (session, made.session) if session.broker}
    return any(_is_disturbed(story, calm, broker, node, made.began, t) for broker, node in sites)


def _is_disturbed(story: Story, calm: Calm, first: str, second: str, begin: float, end: float) -> bool:
    """Tell whether a fault of two hosts, or of the path between them, lasted until `begin` or later, or comes by `end`.

    A host that has lost a connection may need `settle_s` to notice it and to come back.
    """
    begin -= calm.settle_s
    if any(story.was_down(host, begin, end) for host in (first, second)):
        return True
    near = (fault for fault in story.disturbances if fault.t <= end and fault.until >= begin)
    return any(is_between(fault, first, second) for fault in near)
