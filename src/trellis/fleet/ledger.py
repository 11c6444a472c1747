"""What was published, acknowledged and delivered on a live mesh, and what is missing.  [docs/delivery.md]

A *subscriber* is a topic's client at one life of a node. It is owed a publication if
    it was confirmed before the publication was handed to a node, and
    the publication was acknowledged, and
    it lives and subscribes until it has it, or until the end.
Its node's death, departure or unsubscription releases what it had not got by then. A later life is another subscriber.

A message whose named holders have all died within `SPREAD_S` of its acknowledgement is beyond the promise: copies are
there to survive one crash less than there are of them. It is counted as *forgone*, not as missing. Holders that die
later than that are no excuse: the message had the time to spread. An MQTT client is not told who holds a message: then
it is forgone if its publisher's node and enough others died in that time.

A broker gives its sidecar again what a dead one had not acknowledged: messages that came twice for that are *excused*
(`may_repeat`), and for whoever joined meanwhile they come after later ones.

The ledger sees only what clients see. It knows no socket and no clock: times are given.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from random import Random

SPREAD_S = 15.0  # an acknowledged message has reached every subscriber by then: a group of crashes may take as long
_KEPT_S = 180.0  # complete publications are forgotten then: nobody may deliver them any more
_DELAYS_MAX = 100_000
_REASONS_MAX = 20  # different ones that are counted; further ones count as one

NODE_ENDED = "the publisher's node was killed or told to leave"
OTHER = "other reasons"

Life = tuple[str, int]  # a node, and which of its lives


@dataclass(slots=True)
class Publication:
    topic: str
    origin: Life
    at: float
    owed: dict[Life, None]  # who was confirmed when it was published
    lacking: dict[Life, None]  # those of them that have not got it
    acknowledged: float | None = None
    holders: tuple[Life, ...] = ()
    got: dict[Life, None] = field(default_factory=dict)


@dataclass(frozen=True)
class Missing:
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
    def __init__(self, copies: int = 2, *, may_repeat: bool = False) -> None:
        self.copies, self.may_repeat = copies, may_repeat
        self.published = self.acknowledged = self.refused = self.delivered = 0
        self.expected = 0  # deliveries that are owed, happened or not: counted as they come, since it is asked often
        self.duplicates = self.strays = self.disordered = 0
        self.delays: list[float] = []  # seconds from publication to a delivery that is owed: a sample of the whole run
        self.refusals: Counter[str] = Counter()  # why publications were not acknowledged
        self._delays_seen = 0
        self._random = Random(0)
        self.publications: dict[int, Publication] = {}  # by number; complete ones are forgotten after a while
        self._incomplete: dict[int, Publication] = {}  # few, so that they can be looked at often
        self._lives: Counter[str] = Counter()
        self._born: dict[Life, None] = {}
        self._deaths: dict[Life, float] = {}
        self._confirmed: dict[str, dict[Life, None]] = {}  # topic -> subscribers
        self._last: dict[tuple[Life, Life, str], int] = {}  # (subscriber, publisher, topic) -> sequence
        self._twice: dict[int, int] = {}  # number -> deliveries too many

    # What happens

    def life(self, node: str) -> Life:
        return node, self._lives[node]

    def born(self, node: str) -> Life:
        """A process of that name is up."""
        life = self.life(node)
        self._born[life] = None
        return life

    def asked(self, subscriber: Life, topic: str) -> None:
        """A client has asked for `topic`. Nothing is owed yet."""

    def disturbed(self, kind: str, nodes: tuple[str, ...], seconds: float) -> None:
        """A fault that ends no node begins, and lasts for `seconds`. Nothing is excused by it here."""

    def confirmed(self, subscriber: Life, topic: str) -> None:
        if subscriber == self.life(subscriber[0]):
            self._confirmed.setdefault(topic, {})[subscriber] = None

    def unsubscribed(self, node: str, topic: str) -> None:
        """To be told before the node is."""
        self._release(self.life(node), topic)

    def died(self, node: str, now: float) -> None:
        """Its life ends: by kill -9, or because it has been told to leave."""
        life = self.life(node)
        self._deaths[life] = now
        for topic in list(self._confirmed):
            self._release(life, topic)
        self._lives[node] += 1

    def publish(self, node: str, topic: str, now: float) -> int:
        """The number of a new publication: its payload carries it."""
        self.published += 1
        owed = self._confirmed.get(topic, {})
        publication = Publication(topic, self.life(node), now, dict(owed), dict(owed))
        self.publications[self.published] = self._incomplete[self.published] = publication
        return self.published

    def acknowledge(self, number: int, holders: tuple[str, ...], now: float) -> None:
        """`holders` as the receipt names them. One that is down has died after it answered."""
        publication = self.publications[number]
        self.acknowledged += 1
        self.expected += len(publication.owed)
        publication.acknowledged = now
        lives = [self.life(node) for node in holders]
        publication.holders = tuple(one if one in self._born else (one[0], one[1] - 1) for one in lives)

    def refuse(self, number: int, why: str) -> None:
        """Count a publication that was not acknowledged. It may reach all, some or none."""
        self.refused += 1
        publication = self.publications.get(number)
        if publication is not None and publication.origin in self._deaths:
            why = NODE_ENDED
        elif why not in self.refusals and len(self.refusals) >= _REASONS_MAX:
            why = OTHER
        self.refusals[why] += 1

    def deliver(self, subscriber: Life, topic: str, number: int, sequence: int, now: float) -> None:
        publication = self.publications.get(number)
        if publication is None:  # never published; or complete and forgotten, so it was there before
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
        if subscriber in publication.owed:  # one that joins is given what is there, however old
            self._sample(now - publication.at)
        stream = (subscriber, publication.origin, topic)
        if self.may_repeat and publication.origin in self._deaths:
            return
        self.disordered += sequence <= self._last.get(stream, 0)
        self._last[stream] = sequence

    def _sample(self, delay_s: float) -> None:
        """Each delivery of the run is as likely to be in it as any other."""
        self._delays_seen += 1
        if len(self.delays) < _DELAYS_MAX:
            self.delays.append(delay_s)
        elif (place := self._random.randrange(self._delays_seen)) < _DELAYS_MAX:
            self.delays[place] = delay_s

    def forget(self, now: float) -> None:
        """Keeps memory small in long runs."""
        for number in list(takewhile(lambda one: self.publications[one].at <= now - _KEPT_S, self.publications)):
            publication = self.publications[number]
            if not publication.lacking or publication.acknowledged is None:
                del self.publications[number]
                self._incomplete.pop(number, None)

    # The judgement

    @property
    def waiting(self) -> int:
        """Publications that are neither acknowledged nor refused."""
        return self.published - self.acknowledged - self.refused

    def missing(self) -> list[Missing]:
        return [self._describe(*one) for one in self._lacking() if not self._is_forgone(one[1])]

    def forgone(self) -> list[Missing]:
        return [self._describe(*one) for one in self._lacking() if self._is_forgone(one[1])]

    def excused(self, most: int) -> int:
        """Deliveries too many of messages whose first node has died: of at most `most` messages of each life."""
        found: dict[Life, list[int]] = {}
        for number, count in self._twice.items():
            publication = self.publications.get(number)
            if publication is not None and publication.origin in self._deaths:
                found.setdefault(publication.origin, []).append(count)
        return sum(sum(sorted(counts)[-most:]) for counts in found.values())

    def _lacking(self) -> list[tuple[int, Publication, Life]]:
        return [
            (number, publication, subscriber)
            for number, publication in self._incomplete.items()
            if publication.acknowledged is not None
            for subscriber in publication.lacking
        ]

    def _is_forgone(self, publication: Publication) -> bool:
        assert publication.acknowledged is not None
        until = publication.acknowledged + SPREAD_S
        if not publication.holders:
            died = [one for one, at in self._deaths.items() if publication.at <= at <= until]
            return publication.origin in died and len(died) >= self.copies
        return all(self._deaths.get(one, until + 1) <= until for one in publication.holders)

    def _release(self, subscriber: Life, topic: str) -> None:
        if self._confirmed.get(topic, {}).pop(subscriber, self) is self:
            return
        for publication in self.publications.values():
            if publication.topic == topic and subscriber not in publication.got:
                was_owed = publication.owed.pop(subscriber, self) is not self
                self.expected -= was_owed and publication.acknowledged is not None
                publication.lacking.pop(subscriber, None)

    def _describe(self, number: int, publication: Publication, subscriber: Life) -> Missing:
        holders = tuple(node for node, _ in publication.holders)
        return Missing(number, publication.topic, publication.origin[0], subscriber[0], holders, publication.at)
