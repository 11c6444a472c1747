"""Check that a history does not contradict itself. If it does, no verdict can rest on it.

Clients notice late that a connection has broken, and drivers write it down with the time at which it may have broken.
So a client may still ask and publish for a while after its end. But it gets no answer then. An application may read
late what its connection had brought before the end, but nothing that was published later.
"""

from __future__ import annotations

from collections.abc import Iterator

from trellis.judge.faults import is_cut_between, joined
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

_NOTICE_S = 8.0  # within this time also slow clients read the messages that were on their way at an end


def nonsense(story: Story, promise: Promise, history: History) -> Iterator[Violation]:
    """Yield the contradictions of a history."""
    for fault in story.faults:
        yield Violation("history", 0.0, fault)
    ended: dict[str, Down | None] = {}  # by node, its last end; None: it has started since
    away: set[str] = set()
    for event in history.events:
        text: str | None = None
        match event:
            case Up(_, node):
                if node in ended and ended[node] is None:
                    text = f"node {node} starts, and runs already"
                ended[node] = None
            case Down(_, node):
                before = ended.get(node)
                if before is not None and not before.leave:
                    text = f"node {node} ends, and has ended at {before.t:.3f} s"
                ended[node] = event
            case Connected() | Back() | Confirmed() | Acknowledged() | Received() | Away():
                session = story.sessions.get(event.session)
                if session is not None:
                    text = _of_session(story, session, event, away) or _at_no_node(
                        story, promise, session, event, ended
                    )
        if text is not None:
            yield Violation("history", event.t, text, getattr(event, "session", ""))


def _of_session(story: Story, session: Session, event: Event, away: set[str]) -> str | None:
    """Return what is wrong with an event of a session that is not connected."""
    match event:
        case Away():
            away.add(session.name)
        case Back(t):
            if session.name not in away:
                return f"session {session.name} is back, and was not away"
            away.discard(session.name)
            if t > session.ended:
                return f"session {session.name} is back, and ended at {session.ended:.3f} s"
        case Confirmed() if session.broker:
            pass  # The observer of its sidecar reports that, and has not noticed the end of the client either.
        case Confirmed(t) | Acknowledged(t):
            if t > session.ended + _NOTICE_S:
                kind = type(event).__name__.lower()
                return f"session {session.name} has an event `{kind}`, and ended at {session.ended:.3f} s"
        case Received(_, _, message):
            made = story.publications.get(message)
            if made is not None and made.began > session.ended + _NOTICE_S:
                return f"session {session.name} gets {message}, and ended at {session.ended:.3f} s"
            for lost, back in session.absences:
                if made is not None and lost + _NOTICE_S < made.began and event.t < back:
                    return f"session {session.name} gets {message}, and is away from {lost:.3f} s to {back:.3f} s"
    return None


def _at_no_node(
    story: Story, promise: Promise, session: Session, event: Event, ended: dict[str, Down | None]
) -> str | None:
    """Return what is wrong with an event that needs a running node. A broker runs without its sidecar."""
    if session.broker or isinstance(event, Away):
        return None
    if event.t == session.ended:  # its CONNECT was not answered: nobody knows whether its will has come to the node
        return None
    node = event.node if isinstance(event, Connected | Back) else session.node_at(event.t)
    down = ended.get(node)
    if down is None:
        return None
    gone = story.gone_by(down, promise.window_s)
    made = story.publications.get(event.message) if isinstance(event, Received) else None
    sent = made.began if made is not None else event.t  # an application may read late what has come before
    if sent <= _heard_until(story, session, node, gone) + _NOTICE_S:
        return None
    return f"node {node} answers session {session.name}, and has ended at {down.t:.3f} s"


def _heard_until(story: Story, session: Session, node: str, ended: float) -> float:
    """Return until when a client may get what a node had sent before its end.

    Its machine sends again what a cut between them has held up. The pauses between its attempts grow with the length of
    the cut.
    """
    cuts = (fault for fault in story.disturbances if is_cut_between(fault, session.host, node))
    spans = joined((fault.t, fault.until) for fault in cuts)
    return max((end + (end - begin) for begin, end in spans if begin <= ended <= end), default=ended)
