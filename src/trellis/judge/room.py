"""What nodes may do where they have no room: drop messages that they count, and turn clients away.

"When the window overflows, the loss is counted, logged and visible in the metrics: never silent."  [docs/delivery.md]
"What waits for a client: more QoS 1 is dropped and counted."  [docs/mqtt.md]

A node tells how many messages it has dropped (`Overflowed`). A loss that no node tells of has no excuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from trellis.judge.calm import Calm
from trellis.judge.filters import overlay_topic
from trellis.judge.history import Unreachable
from trellis.judge.promise import Promise, Violation
from trellis.judge.story import NEVER, Publication, Session, Story

_TOLD_S = 1.0  # Metrics are read so long after a message was dropped, at the latest.
_LINGERS_S = 20.0  # A node may take a connection that has broken silently for a good one for so long.


class Room:
    """The messages that nodes say they have dropped for want of room, and those that are missing because of that."""

    def __init__(self, story: Story) -> None:
        self._window = [one for one in story.overflows if one.where == "window"]
        self._clients = [one for one in story.overflows if one.where == "clients"]
        self._left = [one.messages for one in self._clients]  # of each of them: not found missing yet
        self._at_brokers: set[tuple[str, str]] = set()  # broker and message: dropped once, and missing for all readers

    def why_lost(self, calm: Calm, made: Publication, reader: Session, due: float, spread: float) -> str | None:
        """Return why a message may be missing, or None. A message that was dropped for one client is counted once.

        "Every node hands it to its application, as long as the topic's overlay is whole again within the replay window
        (`window_ms`, `window_bytes`)". In calm it is whole all the time, so a window that overflows is no excuse.
        """
        if not calm.is_calm(made.began, spread) and any(
            made.began <= one.t <= spread + _TOLD_S for one in self._window
        ):
            return "the window of a node has overflowed"
        if reader.speaks == "mqtt" and self._was_dropped(made, reader, due):
            return "more waited for the client than its node has room for"
        return None

    def _was_dropped(self, made: Publication, reader: Session, due: float) -> bool:
        if reader.broker and (reader.broker, made.message) in self._at_brokers:
            return True
        for place, told in enumerate(self._clients):
            is_near = told.node == reader.node_at(told.t) and made.began <= told.t <= due + _TOLD_S
            if self._left[place] and is_near:
                self._left[place] -= 1
                if reader.broker:
                    self._at_brokers.add((reader.broker, made.message))
                return True
        return False


def may_be_full(story: Story, promise: Promise, one: Unreachable) -> bool:
    """Tell whether a node may have had as many clients or sessions as it takes when it turned a client away."""
    if not promise.clients_max and promise.sessions_max is None:
        return False
    kinds = {session.speaks for session in story.sessions.values() if session.client == one.client}
    kinds = kinds or {"native", "mqtt"}  # a client that was never let in
    there = [session for session in story.sessions.values() if _is_at(session, one, kinds)]
    tries = [other for other in story.unreachable if other.node == one.node and other.t <= one.t]
    begin = one.since - _LINGERS_S
    lately = {other.client for other in tries if other.t >= begin} - {one.client}
    # An MQTT client takes over its own connection, and needs no room for that.
    others = [session for session in there if session.client != one.client or session.speaks != "mqtt"]
    clients = sum(session.ended >= begin for session in others) + len(lately)
    if any(clients >= promise.clients_max[kind] for kind in kinds if kind in promise.clients_max):
        return True
    if promise.sessions_max is None or "mqtt" not in kinds:
        return False
    names = {session.client for session in there} | {other.client for other in tries}
    return len(names - {one.client}) >= promise.sessions_max


def _is_at(session: Session, one: Unreachable, kinds: set[str]) -> bool:
    is_there = any(t <= one.t and node == one.node for t, node in session.nodes)
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
                if made.place < last.place and made.message not in had and _is_gap(story, promise, session, made, t):
                    text = (
                        f"{session.name} got {last.message} on {made.topic} and never {made.message}, which was "
                        f"published before it, and was not told that messages are missing"
                    )
                    yield Violation("gap", t, text, session.name, made.message)


_Stream = tuple[str, str, str, int]


def _stream(story: Story, made: Publication) -> _Stream:
    """Return what the order of messages holds for: one client, topic, and incarnation of a node."""
    starts = sum(1 for one in story.ups if one.node == made.node and one.t <= made.sent)
    return made.session.name, made.topic, made.node, starts


def _last_ones(story: Story, session: Session) -> dict[_Stream, tuple[Publication, float]]:
    """Return by stream the last message of it that the session has got, and when."""
    last: dict[_Stream, tuple[Publication, float]] = {}
    for got in session.received:
        made = story.publications.get(got.message)
        if made is not None and not got.retained:
            stream = _stream(story, made)
            if stream not in last or last[stream][0].place < made.place:
                last[stream] = made, got.t
    return last


def _is_gap(story: Story, promise: Promise, session: Session, made: Publication, t: float) -> bool:
    """Tell whether the session should have got the message before `t`, and was not told that it will not get it.

    A broker acknowledges before its sidecar has given the message to the mesh, perhaps again, behind later ones.
    """
    if made.session.broker or made.acknowledged == NEVER or made.session.was_away(made.began, made.answered):
        return False
    if story.may_be_false(made.began, t, promise.window_s):
        return False
    stood = (one.confirmed <= made.began and t < one.ended and one.is_owed(made.said) for one in session.subscriptions)
    topic = overlay_topic(made.said, story.depth)
    return any(stood) and not any(one.topic == topic and made.began <= one.t for one in session.missed)
