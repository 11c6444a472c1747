"""Limits: a node that has reached one may drop messages, which it counts, and may turn clients away.

"When the window overflows, the loss is counted, logged and visible in the metrics: never silent."  [docs/delivery.md]
"What waits for a client: more QoS 1 is dropped and counted."  [docs/mqtt.md]

A node tells how many messages it has dropped (`Overflowed`). A loss that no node tells of has no excuse.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass

from trellis.judge.copies import may_hold
from trellis.judge.filters import overlay_topic
from trellis.judge.history import Overflowed, Unreachable
from trellis.judge.promise import Promise, Violation
from trellis.judge.story import NEVER, Publication, Session, Story

TOLD_S = 1.0  # Metrics are read so long after a message was dropped, at the latest.
_LINGERS_S = 20.0  # For so long a node may count a connection that has broken silently.
_LET_IN_S = 1.0  # A client is told at most so much later that its node has accepted it.


class Drops:
    """The messages that nodes say they have dropped, and the missing messages that this excuses.

    A node that says that it has dropped ten messages excuses ten that are missing, and no more. A message that was
    dropped once may be missing for many readers.
    """

    def __init__(self, story: Story, promise: Promise) -> None:
        self._story, self._promise = story, promise
        self._taken: list[list[_Loss]] = [[] for _ in story.overflows]  # by overflow: the losses that it excuses
        self._excused: set[tuple[str, str]] = set()  # losses that have an overflow

    def why_lost(self, made: Publication, reader: Session, due: float, spread: float) -> str | None:
        """Return why a message may be missing, or None.

        "Every node hands it to its application, as long as the topic's overlay is whole again within the replay window
        (`window_ms`, `window_bytes`)". In calm it is whole all the time. But messages that come faster than links carry
        them push each other out of a small window.
        """
        nodes = may_hold(self._story, self._promise, made) | {node for _, node in reader.nodes}
        loss = _Loss(("", made.message), "window", frozenset(nodes), made.began, spread + TOLD_S)
        if self._is_excused(loss):
            return "the window of a node has overflowed"
        if reader.speaks == "mqtt":  # A message dropped for a broker is missing for all its clients.
            nodes = {node for _, node in reader.nodes}
            key = reader.broker or reader.name, made.message
            if self._is_excused(_Loss(key, "clients", frozenset(nodes), made.began, due + TOLD_S)):
                return "more waited for the client than its node has room for"
        return None

    def _is_excused(self, loss: _Loss) -> bool:
        """Tell whether a drop is left for this loss. Other losses may have to take another drop."""
        if loss.key not in self._excused and self._assign(loss):
            self._excused.add(loss.key)
        return loss.key in self._excused

    def _assign(self, loss: _Loss) -> bool:
        """Give the loss a drop, if need be one of another loss that can take another drop.

        This is a matching of losses with drops, extended by the shortest augmenting path.
        """
        came: dict[int, tuple[int, _Loss]] = {}  # by overflow: the one before it on the path, and the loss that moves
        reached = deque([(-1, loss)])
        while reached:
            before, moving = reached.popleft()
            for number, overflow in enumerate(self._story.overflows):
                if number in came or not moving.fits(overflow):
                    continue
                came[number] = before, moving
                if len(self._taken[number]) < overflow.messages:
                    self._move(came, number)
                    return True
                reached.extend((number, taken) for taken in self._taken[number])
        return False

    def _move(self, came: dict[int, tuple[int, _Loss]], number: int) -> None:
        """Let every loss on a path take the next drop on it."""
        while number >= 0:
            before, moving = came[number]
            self._taken[number].append(moving)
            if before >= 0:
                self._taken[before].remove(moving)
            number = before


@dataclass(frozen=True)
class _Loss:
    """A message that is missing, and the drops that can be the cause."""

    key: tuple[str, str]  # the client for which it was dropped, or nobody; the message
    where: str
    nodes: frozenset[str]
    begin: float
    end: float

    def fits(self, overflow: Overflowed) -> bool:
        """Tell whether this drop can be the cause of the loss."""
        return overflow.where == self.where and overflow.node in self.nodes and self.begin <= overflow.t <= self.end


def was_pushed_out(story: Story, made: Publication, t: float) -> bool:
    """Tell whether a sidecar may have published a message again before `t`, behind later ones.

    "A message that the window of its sidecar drops before it has its copies is published again as well. Nodes that did
    not have it may then get it after later ones."  [docs/mqtt.md, Sidecar]
    """
    drops = (overflow.t for overflow in story.overflows if overflow.where == "window" and overflow.node == made.node)
    return bool(made.session.broker) and any(made.began <= when <= t + TOLD_S for when in drops)


def follows_a_drop(story: Story, promise: Promise, made: Publication, reader: Session, t: float) -> bool:
    """Tell whether a message that came at `t` may have waited for an earlier one that a window has dropped.

    "What follows a gap is held back" until it is known that the gap stays.  [docs/delivery.md, Order]
    """
    overflows = [
        overflow
        for overflow in story.overflows
        if overflow.where == "window" and made.began - promise.heal_s <= overflow.t <= t
    ]
    nodes = may_hold(story, promise, made) | {node for _, node in reader.nodes} if overflows else set()
    return any(overflow.node in nodes for overflow in overflows)


def may_be_full(story: Story, promise: Promise, unreachable: Unreachable) -> bool:
    """Tell whether a node may have had as many clients or sessions as it takes when it turned a client away."""
    if not promise.clients_max and promise.sessions_max is None:
        return False
    kinds = {session.speaks for session in story.sessions.values() if session.client == unreachable.client}
    kinds = kinds or {"native", "mqtt"}  # a client that was never accepted
    there = [session for session in story.sessions.values() if _is_at(session, unreachable, kinds)]
    tries = [
        attempt for attempt in story.unreachable if attempt.node == unreachable.node and attempt.t <= unreachable.t
    ]
    begin = unreachable.since - _LINGERS_S
    lately = {attempt.client for attempt in tries if attempt.t >= begin} - {unreachable.client}
    # An MQTT client takes over its own connection, and needs no room for that.
    others = [session for session in there if session.client != unreachable.client or session.speaks != "mqtt"]
    clients = sum(session.ended >= begin for session in others) + len(lately)
    if any(clients >= promise.clients_max[kind] for kind in kinds if kind in promise.clients_max):
        return True
    if promise.sessions_max is None or "mqtt" not in kinds:
        return False
    names = {session.client for session in there} | {attempt.client for attempt in tries}
    return len(names - {unreachable.client}) >= promise.sessions_max


def _is_at(session: Session, unreachable: Unreachable, kinds: set[str]) -> bool:
    is_there = any(t <= unreachable.t + _LET_IN_S and node == unreachable.node for t, node in session.nodes)
    return is_there and session.speaks in kinds and not session.broker


def untold(story: Story, promise: Promise) -> Iterator[Violation]:
    """A native client that gets a message was told of earlier ones of the same stream that it will never get.

    "What follows a gap is held back until the gap is filled." A gap that is skipped is "counted as lost", and the
    application is told. MQTT has no words for that.
    """
    streams: dict[_Stream, list[Publication]] = defaultdict(list)
    for made in story.publications.values():
        streams[_stream(story, made)].append(made)
    for session in story.sessions.values():
        if session.speaks != "native" or session.broker:
            continue
        had = session.got()
        for stream, (last, t) in _last_ones(story, session).items():
            for made in streams[stream]:
                if made.number < last.number and made.message not in had and _is_gap(story, promise, session, made, t):
                    text = (
                        f"{session.name} got {last.message} on {made.topic} and never {made.message}, which was "
                        f"published before it, and was not told that messages are missing"
                    )
                    yield Violation("gap", t, text, session.name, made.message)


_Stream = tuple[str, str, str, int]


def _stream(story: Story, made: Publication) -> _Stream:
    """Return what the order of messages holds for: one client, topic, and incarnation of a node."""
    starts = sum(1 for up in story.ups if up.node == made.node and up.t <= made.sent)
    return made.session.name, made.topic, made.node, starts


def _last_ones(story: Story, session: Session) -> dict[_Stream, tuple[Publication, float]]:
    """Return by stream the last message of it that the session has got, and when."""
    last: dict[_Stream, tuple[Publication, float]] = {}
    for got in session.received:
        made = story.publications.get(got.message)
        if made is not None and not got.retained:
            stream = _stream(story, made)
            if stream not in last or last[stream][0].number < made.number:
                last[stream] = made, got.t
    return last


def _is_gap(story: Story, promise: Promise, session: Session, made: Publication, t: float) -> bool:
    """Tell whether the session should have got the message before `t`, and was not told that it will not get it.

    A broker acknowledges before its sidecar has given the message to the mesh, perhaps again, behind later ones.
    """
    if made.removes or made.session.broker or made.acknowledged == NEVER:
        return False
    if made.session.was_away(made.began, made.answered):
        return False
    if story.may_be_false(made.began, t, promise.window_s):
        return False
    stood = (
        subscription.confirmed <= made.began and t < subscription.ended and subscription.is_owed(made.said)
        for subscription in session.subscriptions
    )
    topic = overlay_topic(made.said, story.depth)
    return any(stood) and not any(missed.topic == topic and made.began <= missed.t for missed in session.missed)
