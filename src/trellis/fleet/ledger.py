"""What was published, acknowledged and delivered on a live mesh, and what is missing.  [docs/delivery.md]

A *subscriber* is the client of one incarnation of a node, as seen by one topic. A publication is owed to it if
    its subscription was confirmed before the publication was handed to a node, and
    the publication was acknowledged, and
    it stays up and subscribed until it has the message, or until the end of the run.
If its node crashes or leaves, or if it unsubscribes, it is no longer owed what it has not got by then. A later
incarnation of the node is another subscriber.

k copies survive k - 1 crashes. So a message is beyond the promise if all its named holders have died within `SPREAD_S`
of its acknowledgement. It is counted as *forgone*, not as missing. Holders that die later are no excuse, because the
message had enough time to spread. MQTT clients are not told the holders of a message. Such a message is forgone if its
publisher's node and enough other nodes died in that time.

A broker sends the messages again that a sidecar had not acknowledged when it died. Messages that come twice because of
that are *excused* (`may_repeat`). A node that has joined since may get them after later messages.

The ledger sees only what clients see. It knows no socket and no clock: its caller gives it the time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random

SPREAD_S = 15.0  # an acknowledged message has reached every subscriber by then: a group of crashes may take as long
_KEPT_S = 180.0  # Age at which complete publications are forgotten. No node may deliver them any more.
_DELAYS_MAX = 100_000  # size of the sample of delays
_REASONS_MAX = 20  # different reasons for refusals that are counted; all further ones count as `OTHER`

NODE_ENDED = "the publisher's node was killed or told to leave"
OTHER = "other reasons"

Incarnation = tuple[str, int]  # a node, and how many of its earlier incarnations have ended


@dataclass(slots=True)
class Publication:
    topic: str
    origin: Incarnation
    at: float
    owed: dict[Incarnation, None]  # subscribers that were confirmed when it was published, and still subscribe
    lacking: dict[Incarnation, None]  # those of them that have not got it
    acknowledged: float | None = None
    holders: tuple[Incarnation, ...] = ()
    got: dict[Incarnation, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
    """An acknowledged publication that a subscriber has not got."""

    number: int
    topic: str
    origin: str
    subscriber: str
    holders: tuple[str, ...]
    at: float

    def __str__(self) -> str:
        held = ", ".join(self.holders)
        return (
            f"message {self.number} on {self.topic} by {self.origin}, held by {held}, is missing at {self.subscriber}"
        )


class Ledger:
    """The account of a run: publications, their outcomes, and their deliveries."""

    def __init__(self, copies: int = 2, *, may_repeat: bool = False) -> None:
        self.copies, self.may_repeat = copies, may_repeat
        self.published = self.acknowledged = self.refused = self.delivered = 0
        self.expected = 0  # deliveries that are or were owed, whether they have happened or not
        self.duplicates = self.strays = self.disordered = 0
        # Seconds from a publication to a delivery that was owed: an even sample of the whole run.
        self.delays: list[float] = []
        self.refusals: Counter[str] = Counter()  # why publications were not acknowledged
        self._delays_seen = 0
        self._random = Random(0)
        self.publications: dict[int, Publication] = {}  # by number; complete ones are forgotten after a while
        self._incomplete: dict[int, Publication] = {}  # those that some subscriber lacks
        self._restarts: Counter[str] = Counter()
        self._born: dict[Incarnation, None] = {}
        self._deaths: dict[Incarnation, float] = {}
        self._confirmed: dict[str, dict[Incarnation, None]] = {}  # topic -> subscribers
        self._last: dict[tuple[Incarnation, Incarnation, str], int] = {}  # (subscriber, publisher, topic) -> sequence
        self._twice: dict[int, int] = {}  # number -> repeated deliveries

    # Events of the run

    def incarnation(self, node: str) -> Incarnation:
        """Return the present incarnation of a node, or the next one if it is down."""
        return node, self._restarts[node]

    def born(self, node: str) -> Incarnation:
        """Note that a process of this node is up. Return its incarnation."""
        incarnation = self.incarnation(node)
        self._born[incarnation] = None
        return incarnation

    def asked(self, subscriber: Incarnation, topic: str) -> None:
        """A client has requested a subscription. Nothing is owed to it yet."""

    def disturbed(self, kind: str, nodes: tuple[str, ...], seconds: float) -> None:
        """A fault that ends no node has begun, and lasts for `seconds`. It excuses nothing here."""

    def confirmed(self, subscriber: Incarnation, topic: str) -> None:
        """A subscription is confirmed. From now on publications are owed to it."""
        if subscriber == self.incarnation(subscriber[0]):
            self._confirmed.setdefault(topic, {})[subscriber] = None

    def unsubscribed(self, node: str, topic: str) -> None:
        """A subscription ends. Called before the node is told."""
        self._release(self.incarnation(node), topic)

    def died(self, node: str, now: float) -> None:
        """The incarnation of a node ends: it was killed, or it was told to leave."""
        incarnation = self.incarnation(node)
        self._deaths[incarnation] = now
        for topic in list(self._confirmed):
            self._release(incarnation, topic)
        self._restarts[node] += 1

    def publish(self, node: str, topic: str, now: float) -> int:
        """Note a publication. Return its number, which its payload must carry."""
        self.published += 1
        owed = self._confirmed.get(topic, {})
        publication = Publication(topic, self.incarnation(node), now, dict(owed), dict(owed))
        self.publications[self.published] = self._incomplete[self.published] = publication
        return self.published

    def acknowledge(self, number: int, holders: tuple[str, ...], now: float) -> None:
        """Note an acknowledgement. `holders` are named in the receipt. A holder that is down has died since."""
        publication = self.publications[number]
        self.acknowledged += 1
        self.expected += len(publication.owed)
        publication.acknowledged = now
        incarnations = [self.incarnation(node) for node in holders]
        publication.holders = tuple(
            (node, number) if (node, number) in self._born else (node, number - 1) for node, number in incarnations
        )

    def refuse(self, number: int, why: str) -> None:
        """Count a publication that was not acknowledged. It may reach all subscribers, some or none."""
        self.refused += 1
        publication = self.publications.get(number)
        if publication is not None and publication.origin in self._deaths:
            why = NODE_ENDED
        elif why not in self.refusals and len(self.refusals) >= _REASONS_MAX:
            why = OTHER
        self.refusals[why] += 1

    def deliver(self, subscriber: Incarnation, topic: str, number: int, sequence: int, now: float) -> None:
        """Note that a subscriber got a message, and count what is wrong with that."""
        publication = self.publications.get(number)
        if publication is None:  # It was never published, or it is complete and forgotten.
            self.duplicates += number <= self.published
            self.strays += number > self.published
            return
        if publication.topic != topic:
            self.strays += 1
            return
        if subscriber in publication.got:
            self.duplicates += 1
            self._twice[number] = self._twice.get(number, 0) + 1
            return
        publication.got[subscriber] = None
        publication.lacking.pop(subscriber, None)
        if not publication.lacking:
            self._incomplete.pop(number, None)
        self.delivered += 1
        if subscriber in publication.owed:  # Not owed: a subscriber that has just joined may get older messages.
            self._sample(now - publication.at)
        stream = (subscriber, publication.origin, topic)
        if self.may_repeat and publication.origin in self._deaths:
            return
        self.disordered += sequence <= self._last.get(stream, 0)
        self._last[stream] = sequence

    def _sample(self, delay_s: float) -> None:
        """Take a delay into the sample, so that each delivery of the run is equally likely to be in it."""
        self._delays_seen += 1
        if len(self.delays) < _DELAYS_MAX:
            self.delays.append(delay_s)
        elif (index := self._random.randrange(self._delays_seen)) < _DELAYS_MAX:
            self.delays[index] = delay_s

    def forget(self, now: float) -> None:
        """Forget old publications, so that long runs need little memory."""
        for number in list(takewhile(lambda number: self.publications[number].at <= now - _KEPT_S, self.publications)):
            publication = self.publications[number]
            if not publication.lacking or publication.acknowledged is None:
                del self.publications[number]
                self._incomplete.pop(number, None)

    # The verdict

    @property
    def waiting(self) -> int:
        """Publications that are neither acknowledged nor refused."""
        return self.published - self.acknowledged - self.refused

    def missing(self) -> list[Missing]:
        """Return the deliveries that are owed and have not happened."""
        return [self._describe(*lacking) for lacking in self._lacking() if not self._is_forgone(lacking[1])]

    def forgone(self) -> list[Missing]:
        """Return the deliveries that have not happened, and that were lost with all copies of their message."""
        return [self._describe(*lacking) for lacking in self._lacking() if self._is_forgone(lacking[1])]

    def excused(self, most: int) -> int:
        """Return how many repeated deliveries are excused, because their publisher's sidecar has died.

        At most `most` messages of each incarnation are excused: so many its broker may send again.
        """
        repeats: dict[Incarnation, list[int]] = {}
        for number, count in self._twice.items():
            publication = self.publications.get(number)
            if publication is not None and publication.origin in self._deaths:
                repeats.setdefault(publication.origin, []).append(count)
        return sum(sum(sorted(counts)[-most:]) for counts in repeats.values())

    def _lacking(self) -> list[tuple[int, Publication, Incarnation]]:
        return [
            (number, publication, subscriber)
            for number, publication in self._incomplete.items()
            if publication.acknowledged is not None
            for subscriber in publication.lacking
        ]

    def _is_forgone(self, publication: Publication) -> bool:
        """Tell whether all copies of a publication were lost before it had time to spread."""
        assert publication.acknowledged is not None
        until = publication.acknowledged + SPREAD_S
        if not publication.holders:
            died = [incarnation for incarnation, at in self._deaths.items() if publication.at <= at <= until]
            return publication.origin in died and len(died) >= self.copies
        return all(self._deaths.get(holder, until + 1) <= until for holder in publication.holders)

    def _release(self, subscriber: Incarnation, topic: str) -> None:
        """End a subscription: the subscriber is no longer owed what it has not got."""
        if self._confirmed.get(topic, {}).pop(subscriber, self) is self:
            return
        for publication in self.publications.values():
            if publication.topic == topic and subscriber not in publication.got:
                was_owed = publication.owed.pop(subscriber, self) is not self
                self.expected -= was_owed and publication.acknowledged is not None
                publication.lacking.pop(subscriber, None)

    def _describe(self, number: int, publication: Publication, subscriber: Incarnation) -> Missing:
        holders = tuple(node for node, _ in publication.holders)
        return Missing(number, publication.topic, publication.origin[0], subscriber[0], holders, publication.at)
