"""What the clients of a run saw: lost, twice, out of order, and the time until everything flowed again.

`trellis judge` holds a history against what Trellis promises, and excuses what it does not promise. Here several
systems are compared, so nothing is excused by what a system keeps or forgets. The rules are those that a user of MQTT
would expect of QoS 1 with persistent sessions:

lost        an acknowledged message did not come to a client that had subscribed before it was published, although the
            client is still there. It makes no difference whether a broker forgot the client's session.
twice       a client got a message again although neither it nor the publisher lost a connection: no client asked for a
            repetition, so a broker or a link has repeated it.
repeated    a client got a message again, and it or the publisher had lost a connection after the publication began:
            MQTT allows that with QoS 1.
disorder    a message came to a client for the first time after a later one of the same publisher on the same topic.
unsettled   a publication had no acknowledgement at the end.

The function reads a history and nothing else, so kept histories can be judged again.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trellis.judge.history import (
    Acknowledged,
    Away,
    Back,
    Confirmed,
    Connected,
    Disturbed,
    Down,
    Ended,
    Event,
    Publishing,
    Received,
    Up,
)

LATE_S = 0.5  # a message that takes longer does not flow
SOON_S = 5.0  # a fault so shortly after the publication may have hit the message
REST_S = 20.0  # a broker that no fault has hit for so long counts as one of the others
NEVER = float("inf")


@dataclass
class _Message:
    topic: str
    client: str
    node: str
    began: float
    number: int  # in the order of publication
    acknowledged: float = NEVER
    got: dict[str, list[float]] = field(default_factory=dict)  # by client


@dataclass(frozen=True)
class Span:
    """A fault from its beginning until its sites can be reached again."""

    begin: float
    end: float
    nodes: frozenset[str]
    is_cut: bool = False  # then `nodes` are one side

    def separates(self, node: str, other: str) -> bool:
        return self.is_cut and (node in self.nodes) != (other in self.nodes)


@dataclass
class Verdict:
    published: int = 0
    acknowledged: int = 0
    owed: int = 0  # deliveries of acknowledged messages
    delivered: int = 0  # first deliveries
    crossed: int = 0  # of them to clients of other brokers than the publisher's
    lost: int = 0
    lost_by: Counter[str] = field(default_factory=Counter)  # what had happened to the two brokers: see `_why`
    twice: int = 0
    repeated: int = 0
    disorder: int = 0
    unsettled: int = 0
    forgotten_sessions: int = 0
    down_s: list[float] = field(default_factory=list)  # from each fault of a broker until it takes connections again
    delays_s: list[float] = field(default_factory=list)  # to clients of other brokers, while nothing was disturbed
    others_s: list[float] = field(default_factory=list)  # by fault: from it until all flowed between other brokers
    again_s: list[float] = field(default_factory=list)  # by broker: from its return until all flowed from and to it

    def per_100k(self, count: int) -> float:
        return 100_000 * count / self.acknowledged if self.acknowledged else 0.0


def judge(events: Iterable[Event], since: float = 0.0) -> Verdict:
    """Judge the publications that began at `since` or later."""
    story = _Story(events)
    verdict = Verdict(forgotten_sessions=story.forgotten)
    messages = [one for one in story.messages.values() if one.began >= since]
    verdict.published = len(messages)
    for message in messages:
        _count(verdict, story, message)
    verdict.down_s = [one.end - one.begin for one in story.spans if not one.is_cut and one.end < NEVER]
    verdict.disorder = sum(_disorder(story, client, since) for client in story.wants)
    _flow(verdict, story, messages)
    return verdict


class _Story:
    """The history by client and by message."""

    def __init__(self, events: Iterable[Event]) -> None:
        self.messages: dict[str, _Message] = {}
        self.wants: dict[str, dict[str, float]] = defaultdict(dict)  # client -> topic -> first confirmed
        self.node: dict[str, str] = {}  # of each client
        self.breaks: dict[str, list[float]] = defaultdict(list)  # when each client lost its connection
        self.receipts: dict[str, list[tuple[float, str]]] = defaultdict(list)  # client -> (time, message)
        self.gaps: dict[str, list[tuple[float, float]]] = defaultdict(list)  # a lost session until the next SUBACK
        self.spans: list[Span] = []
        self.forgotten = 0
        self.end = 0.0
        client: dict[str, str] = {}
        down: dict[str, float] = {}
        for event in events:
            self.end = event.t
            match event:
                case Connected():
                    client[event.session] = event.client
                    self.node[event.client] = event.node
                case Confirmed() if event.promised:
                    name = client[event.session]
                    self.wants[name].setdefault(event.filter, event.t)
                    if self.gaps[name] and self.gaps[name][-1][1] == NEVER:
                        self.gaps[name][-1] = (self.gaps[name][-1][0], event.t)
                case Away():
                    self.breaks[client[event.session]].append(event.t)
                case Back():
                    pass
                case Ended():
                    self.forgotten += 1
                    name = client[event.session]
                    self.gaps[name].append((self.breaks[name][-1] if self.breaks[name] else event.t, NEVER))
                case Publishing():
                    name = client[event.session]
                    made = _Message(event.topic, name, self.node[name], event.t, len(self.messages))
                    self.messages[event.message] = made
                case Acknowledged():
                    self.messages[event.message].acknowledged = event.t
                case Received():
                    self._received(client[event.session], event)
                case Down():
                    down[event.node] = event.t
                case Up():
                    if event.node in down:
                        self.spans.append(Span(down.pop(event.node), event.t, frozenset([event.node])))
                case Disturbed():
                    is_cut = event.kind == "cut"
                    self.spans.append(Span(event.t, event.until, frozenset(event.nodes), is_cut))
                case _:
                    pass
        self.spans += [Span(t, NEVER, frozenset([node])) for node, t in down.items()]
        self.spans.sort(key=lambda one: one.begin)

    def _received(self, client: str, event: Received) -> None:
        message = self.messages.get(event.message)
        if message is not None and message.topic == event.topic:
            message.got.setdefault(client, []).append(event.t)
            self.receipts[client].append((event.t, event.message))

    def readers(self, message: _Message) -> Iterator[str]:
        """Return the clients to which the message is owed."""
        for client, wants in self.wants.items():
            if wants.get(message.topic, NEVER) <= message.began:
                yield client

    def lost_connection(self, client: str, begin: float, end: float) -> bool:
        times = self.breaks.get(client, [])
        place = bisect_right(times, begin)
        return place < len(times) and times[place] <= end

    def is_hit(self, node: str, begin: float, end: float) -> bool:
        return any(node in one.nodes and not one.is_cut and one.begin <= end and one.end >= begin for one in self.spans)

    def is_cut(self, node: str, other: str, begin: float, end: float) -> bool:
        cuts = (one for one in self.spans if one.is_cut and one.begin <= end and one.end >= begin)
        return any(one.separates(node, other) for one in cuts)


def _count(verdict: Verdict, story: _Story, message: _Message) -> None:
    is_acknowledged = message.acknowledged < NEVER
    verdict.acknowledged += is_acknowledged
    verdict.unsettled += not is_acknowledged
    for client in story.readers(message):
        times = message.got.get(client, [])
        verdict.owed += is_acknowledged
        if times:
            verdict.delivered += 1
            if story.node[client] != message.node:
                verdict.crossed += 1
                if not any(one.begin <= times[0] and one.end + 10.0 >= message.began for one in story.spans):
                    verdict.delays_s.append(times[0] - message.began)
        elif is_acknowledged:
            verdict.lost += 1
            verdict.lost_by[_why(story, message, client)] += 1
        for again in times[1:]:
            is_allowed = any(
                story.lost_connection(one, message.began, again) for one in (client, message.client)
            )  # fmt: skip
            verdict.repeated += is_allowed
            verdict.twice += not is_allowed


def _why(story: _Story, message: _Message, client: str) -> str:
    """Return what happened to the two brokers from the publication until soon after its acknowledgement."""
    began, until, node = message.began, message.acknowledged + SOON_S, story.node[client]
    if any(begin <= until and end >= began for begin, end in story.gaps[client]):
        return "the reader's broker forgot its session"
    if story.is_hit(node, began, until):
        return "the reader's broker was down"
    if story.is_hit(message.node, began, until):
        return "the publisher's broker was down"
    if story.is_cut(message.node, node, began, until):
        return "the brokers were cut off from each other"
    return "neither broker was disturbed"


def _disorder(story: _Story, client: str, since: float) -> int:
    last: dict[tuple[str, str], int] = {}
    seen: set[str] = set()
    count = 0
    for _, name in story.receipts[client]:
        message = story.messages[name]
        if name in seen or message.began < since:
            continue
        seen.add(name)
        key = (message.client, message.topic)
        if message.number < last.get(key, -1):
            count += 1
        else:
            last[key] = message.number
    return count


def _flow(verdict: Verdict, story: _Story, messages: list[_Message]) -> None:
    """Find the last message that was late or lost after each fault, and after each return of a broker.

    A late message counts until its arrival; a lost one until its publication, since nothing flowed then. A fault counts
    until the next one begins. A return counts until the next fault of the same broker.
    """
    faults = _together(story.spans)
    starts = [one.begin for one in faults]
    others: dict[int, float] = {}
    returns = {one: 0.0 for one in story.spans if one.end < NEVER}
    for message in messages:
        window = bisect_right(starts, message.began) - 1
        for client in story.readers(message):
            came = message.got.get(client, [NEVER])[0]
            if came == NEVER and message.acknowledged == NEVER:
                continue
            is_late = came - message.began > LATE_S
            shown = message.began if came == NEVER else came
            ends = (message.node, story.node[client])
            if window >= 0 and not _is_hit(story, ends, message.began - REST_S, min(came, message.began + SOON_S)):
                since_s = shown - faults[window].begin if is_late else 0.0
                others[window] = max(others.get(window, 0.0), since_s)
            if is_late:
                for span in _returned(story, ends, message.began):
                    returns[span] = max(returns[span], shown - span.end)
    verdict.others_s = [others[window] for window in sorted(others)]
    verdict.again_s = list(returns.values())


def _is_hit(story: _Story, ends: tuple[str, str], begin: float, end: float) -> bool:
    return any(story.is_hit(one, begin, end) for one in ends) or story.is_cut(*ends, begin, end)


def _returned(story: _Story, ends: tuple[str, str], t: float) -> Iterator[Span]:
    """Return the last fault of either broker, or the last cut between them, if both can be reached at `t`."""
    if _is_hit(story, ends, t, t):
        return
    for node in set(ends):
        before = [one for one in story.spans if node in one.nodes and not one.is_cut and one.end <= t]
        if before:
            yield before[-1]
    cuts = [one for one in story.spans if one.is_cut and one.end <= t and one.separates(*ends)]
    if cuts:
        yield cuts[-1]


def _together(spans: list[Span]) -> list[Span]:
    """Join faults that begin at the same moment."""
    found: list[Span] = []
    for one in spans:
        if found and one.begin - found[-1].begin < LATE_S and one.is_cut == found[-1].is_cut:
            last = found.pop()
            one = Span(last.begin, max(last.end, one.end), last.nodes | one.nodes, one.is_cut)
        found.append(one)
    return found
