"""A history sorted by session and by publication, so that each rule reads only what it needs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from msgspec.structs import replace

from trellis.judge.filters import Asked, Said, first_levels, may_miss, reaches, unshared
from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Ended,
    History,
    Left,
    Missed,
    Overflowed,
    Publishing,
    Received,
    Refused,
    Settled,
    Subscribing,
    Unreachable,
    Unsubscribed,
    Unsubscribing,
    Up,
)

NEVER = math.inf
LIES = ("stranger", "replay")  # kinds of `Disturbed` in which a peer sends false messages


@dataclass
class Subscription:
    """One filter of one session, from the request to the end. Times are seconds; `NEVER` if it did not happen."""

    session: Session
    filter: str
    asked: float
    confirmed: float = NEVER
    is_promised: bool = True
    first: int = 0  # number of the first publication after the confirmation
    asks: list[float] = field(default_factory=list)  # times of all requests of the client
    ended: float = NEVER  # unsubscribed, or the session ended, or it was away and nothing is kept for it
    over: float = NEVER  # the node has confirmed the end

    @property
    def wish(self) -> Asked:
        return Asked(self.session.speaks, self.filter)

    def wants(self, said: Said) -> bool:
        return reaches(said, self.wish, self.session.depth)

    def is_owed(self, said: Said) -> bool:
        """Tell whether the publication is for this subscription, and must not be missed in a calm mesh."""
        return self.is_promised and self.wants(said) and not may_miss(said, self.wish, self.session.depth)

    @property
    def last(self) -> float:
        """Return the latest time at which the node learned of its end, as far as the history tells."""
        return self.ended if self.over == NEVER else self.over

    @property
    def is_shared(self) -> bool:
        """Return whether each message goes to one session of a group (`$share/GROUP/FILTER`) and not to all."""
        return unshared(self.filter) != self.filter


@dataclass
class Session:
    """One client from its connection to its end."""

    name: str
    client: str
    node: str
    since: float
    broker: str = ""  # the broker that it is connected to, if its node is a sidecar
    speaks: str = ""  # "native" or "mqtt"; empty: the history does not tell
    host: str = ""  # the client's machine; empty: the history does not tell
    depth: int = 2  # levels of an overlay topic
    ended: float = NEVER
    is_kept: bool = False  # its node may keep it after its end
    nodes: list[tuple[float, str]] = field(default_factory=list)  # (since when, node), the latest last
    aways: list[float] = field(default_factory=list)
    backs: list[float] = field(default_factory=list)
    absences: list[tuple[float, float]] = field(default_factory=list)  # from the loss to the return, or NEVER
    subscriptions: list[Subscription] = field(default_factory=list)
    received: list[Received] = field(default_factory=list)
    missed: list[Missed] = field(default_factory=list)
    published: list[Publication] = field(default_factory=list)

    def got(self) -> set[str]:
        """Return the messages that the application has got."""
        return {got.message for got in self.received}

    def node_at(self, t: float) -> str:
        """Return the node that the session was connected to at `t`, or the last one before."""
        latest = self.nodes[0][1]
        for since, node in self.nodes:
            if since <= t:
                latest = node
        return latest

    def was_away(self, begin: float, end: float) -> bool:
        """Tell whether the session had no connection at any time between `begin` and `end`."""
        return any(lost <= end and back >= begin for lost, back in self.absences)

    def connected_from(self, t: float) -> float:
        """Return `t`, or when the session came back if it was away at `t`. NEVER: it did not come back."""
        return next((back for lost, back in self.absences if lost <= t < back), t)


@dataclass
class Publication:
    """One message of one session."""

    session: Session
    message: str
    topic: str
    began: float
    number: int  # counts all publications of the history from 0, in the order in which they began
    qos: int = 1
    retain: bool = False
    removes: bool = False  # It removes the retained message of its topic. No client receives it under its name.
    acknowledged: float = NEVER
    refused: float = NEVER
    holders: tuple[str, ...] = ()
    reason: str = ""
    outcomes: int = 0

    @property
    def sent(self) -> float:
        """Return when the publisher last sent it before its acknowledgement. A client that was away sends it again."""
        return max((t for t in self.session.backs if self.began <= t <= self.acknowledged), default=self.began)

    @property
    def answered(self) -> float:
        """Return when the client was told the outcome."""
        return min(self.acknowledged, self.refused)

    @property
    def said(self) -> Said:
        return Said(self.session.speaks, self.topic)

    @property
    def node(self) -> str:
        """Return the node to which the client gave it first."""
        return self.session.node_at(self.began)


@dataclass
class Story:
    """A history in the form in which the rules read it."""

    sessions: dict[str, Session] = field(default_factory=dict)
    publications: dict[str, Publication] = field(default_factory=dict)
    by_topic: dict[Said, list[Publication]] = field(default_factory=lambda: defaultdict(list))
    downs: list[Down] = field(default_factory=list)
    lefts: list[Left] = field(default_factory=list)
    ups: list[Up] = field(default_factory=list)
    disturbances: list[Disturbed] = field(default_factory=list)
    overflows: list[Overflowed] = field(default_factory=list)
    unreachable: list[Unreachable] = field(default_factory=list)
    settled: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # contradictions in the history itself
    end: float = 0.0
    depth: int = 2
    lies: list[Disturbed] = field(default_factory=list)
    by_filter: dict[Asked, list[Subscription]] = field(default_factory=lambda: defaultdict(list))
    _wanted: dict[Asked, list[Said]] = field(default_factory=dict)
    _on_topic: dict[tuple[Said, str], list[Subscription]] = field(default_factory=dict)
    _retained: dict[str, list[Publication]] = field(default_factory=dict)
    _topics: dict[tuple[str, ...], list[Said]] = field(default_factory=lambda: defaultdict(list))  # by first levels
    _filters: dict[tuple[str, ...], list[Asked]] = field(default_factory=lambda: defaultdict(list))

    def sort(self) -> None:
        """Sort publications and subscriptions by topic, when all of them are known."""
        self.lies = [fault for fault in self.disturbances if fault.kind in LIES]
        for subscription in self.subscriptions():
            self.by_filter[subscription.wish].append(subscription)
        for asked in self.by_filter:
            self._filters[first_levels(asked.filter, self.depth)].append(asked)
        for said in self.by_topic:
            for start in _starts(said, self.depth):
                self._topics[start].append(said)

    def topics_of(self, asked: Asked) -> list[Said]:
        """Return the topics of the history that are for `asked`."""
        if asked not in self._wanted:
            possible = self._topics.get(first_levels(asked.filter, self.depth), ())
            self._wanted[asked] = [said for said in possible if reaches(said, asked, self.depth)]
        return self._wanted[asked]

    def on_topic(self, said: Said, is_on: Callable[[Said, Asked, int], bool]) -> list[Subscription]:
        """Return the subscriptions of the filters of which `is_on` tells that they are on the topic `said`."""
        key = said, is_on.__name__
        if key not in self._on_topic:
            possible = (asked for start in _starts(said, self.depth) for asked in self._filters.get(start, ()))
            filters = (asked for asked in possible if is_on(said, asked, self.depth))
            self._on_topic[key] = [subscription for asked in filters for subscription in self.by_filter[asked]]
        return self._on_topic[key]

    def retained_under(self, topic: str) -> list[Publication]:
        """Return the retained messages on `topic` and on the topics below it."""
        if topic not in self._retained:
            below = (made for said, made in self.by_topic.items() if f"{said.topic}/".startswith(f"{topic}/"))
            self._retained[topic] = [publication for made in below for publication in made if publication.retain]
        return self._retained[topic]

    def subscriptions(self) -> Iterator[Subscription]:
        for session in self.sessions.values():
            yield from session.subscriptions

    def may_be_false(self, begin: float, end: float, window_s: float) -> bool:
        """Tell whether a peer that sends false messages could change others between `begin` and `end`.

        Its messages may have effects for one window after it has gone.  [docs/tls.md, What a malicious member can still
        do]
        """
        return any(fault.t <= end and fault.until + window_s >= begin for fault in self.lies)

    def was_down(self, node: str, begin: float, end: float) -> bool:
        """Tell whether `node` ended or started between `begin` and `end`.

        A driver may write an end down a moment before it happens. The start that follows shows it as well.
        """
        times = [down.t for down in self.downs if down.node == node] + [up.t for up in self.ups if up.node == node]
        return any(begin <= t <= end for t in times)

    def down_since(self, node: str, t: float) -> Down | None:
        """Return the latest end of `node` before `t`, or None if it has started again since."""
        last = None
        for down in self.downs:
            if down.node == node and down.t <= t:
                last = down
        if last is None or any(up.node == node and last.t <= up.t <= t for up in self.ups):
            return None
        return last

    def nodes(self) -> set[str]:
        """Return the nodes that the history names."""
        nodes = {up.node for up in self.ups} | {down.node for down in self.downs}
        return nodes | {node for session in self.sessions.values() for _, node in session.nodes}

    def gone_by(self, down: Down, window_s: float) -> float:
        """Return when the process of a node has ended. One that leaves is gone after a window, or as `Left` tells."""
        if not down.leave:
            return down.t
        left = (left.t for left in self.lefts if left.node == down.node and left.t >= down.t)
        return min(left, default=down.t + window_s)


def tell(history: History, depth: int = 2) -> Story:
    """Sort `history`. Records that contradict each other are listed in `Story.faults`."""
    story = Story(depth=depth)
    for event in history.events:
        story.end = max(story.end, event.t)
        match event:
            case Connected(t, name, client, node, broker, speaks, host):
                if name in story.sessions:
                    story.faults.append(f"{t:.3f} s: session {name} connects twice")
                    continue
                story.sessions[name] = Session(name, client, node, t, broker, speaks, host, depth, nodes=[(t, node)])
            case Down():
                story.downs.append(event)
            case Left():
                story.lefts.append(event)
            case Up():
                story.ups.append(event)
            case Settled(t):
                story.settled.append(t)
            case Disturbed():
                story.disturbances.append(event)
            case Overflowed():
                story.overflows.append(event)
            case Unreachable():
                story.unreachable.append(event)
            case _:
                session = story.sessions.get(event.session)
                if session is None:
                    story.faults.append(f"{event.t:.3f} s: session {event.session} is unknown")
                    continue
                _of_session(story, session, event)
    story.disturbances = [_ended(story, fault) for fault in story.disturbances]
    story.sort()
    return story


def _ended(story: Story, fault: Disturbed) -> Disturbed:
    """Return the fault with the time at which it ended as far as the history tells.

    At `Settled` every fault has ended, and nothing was observed after the last event.
    """
    if fault.until < fault.t:
        story.faults.append(f"{fault.t:.3f} s: {fault.kind} ends before it begins, at {fault.until:.3f} s")
    healed = next((t for t in story.settled if t >= fault.t), story.end)
    return replace(fault, until=min(max(fault.t, fault.until), healed))


def _starts(said: Said, depth: int) -> Iterator[tuple[str, ...]]:
    """Return the first levels of a topic: none, one, and so on until `depth`."""
    levels = tuple(said.topic.split("/"))
    return (levels[:count] for count in range(min(depth, len(levels)) + 1))


def _of_session(story: Story, session: Session, event: object) -> None:
    match event:
        case Subscribing(t, _, wanted):
            open_ones = [
                subscription
                for subscription in session.subscriptions
                if subscription.filter == wanted and subscription.ended == NEVER
            ]
            if not open_ones:  # A client may also ask when it has not yet noticed that its session is lost.
                session.subscriptions.append(Subscription(session, wanted, t, ended=session.ended, asks=[t]))
            for subscription in open_ones:
                subscription.asks.append(t)
        case Confirmed(t, _, wanted, promised):
            if all(subscription.filter != wanted for subscription in session.subscriptions):
                story.faults.append(f"{t:.3f} s: {session.name} is confirmed {wanted}, which it did not ask for")
            for subscription in session.subscriptions:
                is_better = subscription.confirmed == NEVER or (promised and not subscription.is_promised)
                if subscription.filter == wanted and subscription.ended == NEVER and is_better:
                    subscription.confirmed, subscription.is_promised = t, promised
                    subscription.first = len(story.publications)
        case Unsubscribing(t, _, wanted):
            for subscription in session.subscriptions:
                if subscription.filter == wanted:
                    subscription.ended = min(subscription.ended, t)
        case Unsubscribed(t, _, wanted):
            for subscription in session.subscriptions:
                if subscription.filter == wanted and subscription.ended < NEVER:
                    subscription.over = min(subscription.over, t)
        case Away(t, _, keeps):
            session.aways.append(t)
            if not session.absences or session.absences[-1][1] < NEVER:
                session.absences.append((t, NEVER))
            if not keeps:
                _end_subscriptions(session, t)
        case Back(t, _, node):
            session.backs.append(t)
            if session.absences and session.absences[-1][1] == NEVER:
                session.absences[-1] = session.absences[-1][0], t
            session.nodes.append((t, node))
        case Ended(t, _, keeps):
            session.ended, session.is_kept = min(session.ended, t), keeps
            _end_subscriptions(session, t)
        case Publishing(t, _, message, topic, qos, retain, removes):
            if message in story.publications:
                story.faults.append(f"{t:.3f} s: message {message} is published twice")
                return
            if removes and not retain:
                story.faults.append(f"{t:.3f} s: message {message} removes a retained message without RETAIN")
            made = Publication(session, message, topic, t, len(story.publications), qos, retain, removes)
            story.publications[message] = made
            story.by_topic[made.said].append(made)
            session.published.append(made)
        case Acknowledged(t, _, message, holders):
            if (publication := _find(story, session, t, message)) is not None:
                publication.outcomes += 1
                publication.acknowledged, publication.holders = min(publication.acknowledged, t), holders
        case Refused(t, _, message, reason):
            if (publication := _find(story, session, t, message)) is not None:
                publication.outcomes += 1
                publication.refused, publication.reason = min(publication.refused, t), reason
        case Received():
            session.received.append(event)
        case Missed():
            session.missed.append(event)


def _find(story: Story, session: Session, t: float, message: str) -> Publication | None:
    """Return the publication whose outcome `session` was told, or None if another session published it."""
    made = story.publications.get(message)
    if made is None:
        story.faults.append(f"{t:.3f} s: an outcome of {message}, which nobody published")
    elif made.session is not session:
        story.faults.append(f"{t:.3f} s: {session.name} hears the outcome of {message} of {made.session.name}")
        return None
    return made


def _end_subscriptions(session: Session, t: float) -> None:
    for subscription in session.subscriptions:
        subscription.ended = min(subscription.ended, t)
