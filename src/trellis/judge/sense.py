"""Whether a history makes sense in itself. A history that does not is worth no verdict.

Clients notice late that a connection has broken, and drivers write it down with the time at which it may have broken.
So a client may still ask and publish for a while after its end. But it gets no answer then, and no message.
"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Down,
    Event,
    History,
    Received,
    Up,
)
from trellis.judge.promise import Promise, Violation
from trellis.judge.story import Session, Story

_NOTICE_S = 5.0  # until what was under way at an end is read, and until a crash that is written down has happened


def nonsense(story: Story, promise: Promise, history: History) -> Iterator[Violation]:
    """The history itself makes sense."""
    for fault in story.faults:
        yield Violation("history", 0.0, fault)
    ended: dict[str, Down | None] = {}  # by node, its last end; None: it has started since
    away: set[str] = set()
    for one in history.events:
        text: str | None = None
        match one:
            case Up(_, node):
                if node in ended and ended[node] is None:
                    text = f"node {node} starts, and runs already"
                ended[node] = None
            case Down(_, node):
                ended[node] = one
            case Connected() | Back() | Confirmed() | Acknowledged() | Received() | Away():
                session = story.sessions.get(one.session)
                if session is not None:
                    text = _of_session(session, one, away) or _at_no_node(promise, session, one, ended)
        if text is not None:
            yield Violation("history", one.t, text, getattr(one, "session", ""))


def _of_session(session: Session, one: Event, away: set[str]) -> str | None:
    """Return what is wrong with an event of a session that is not connected."""
    match one:
        case Away():
            away.add(session.name)
        case Back(t):
            if session.name not in away:
                return f"session {session.name} is back, and was not away"
            away.discard(session.name)
            if t > session.ended:
                return f"session {session.name} is back, and ended at {session.ended:.3f} s"
        case Confirmed(t) | Acknowledged(t) | Received(t):
            if t > session.ended + _NOTICE_S:
                kind = type(one).__name__.lower()
                return f"session {session.name} has an event `{kind}`, and ended at {session.ended:.3f} s"
    return None


def _at_no_node(promise: Promise, session: Session, one: Event, ended: dict[str, Down | None]) -> str | None:
    """Return what is wrong with an event that takes a node that runs. A broker runs without its sidecar."""
    if session.broker or isinstance(one, Away | Received):
        return None
    if one.t == session.ended:  # its CONNECT was not answered: nobody knows whether its will has come to the node
        return None
    node = one.node if isinstance(one, Connected | Back) else session.node_at(one.t)
    down = ended.get(node)
    if down is None or one.t <= down.t + (promise.window_s if down.leave else _NOTICE_S):
        return None
    return f"node {node} answers session {session.name}, and has ended at {down.t:.3f} s"
