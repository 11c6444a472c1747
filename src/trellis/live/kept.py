"""Durable subscribers at the client port: clients whose subscriptions outlive their connections.  [docs/durable.md]

A durable subscriber has a name. The node keeps the messages of its topics for it while it is away, at most for
`durable.keep_s`. Each message has a position that grows and stays the same for ever. The client says which position it
has got (`Got`). When it comes back, it gets what is behind that position.

All messages for a durable subscriber come from the turns of `protocols/delivery/durable.py`, also while it is
connected. So the order is the same, whether or not it was away.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trellis.live.clock import wall_ms
from trellis.live.rights import judged_topic, readers
from trellis.live.stream import Stream
from trellis.live.talk import Missed, Subscribed, Turn, pack_to_client
from trellis.protocols.delivery.durable import Durable
from trellis.protocols.delivery.marks import Subscriber
from trellis.protocols.effects import Deliver, Topic

if TYPE_CHECKING:
    from trellis.live.shell import LiveNode

_UNCONFIRMED_MAX = 2_048  # messages that a client may be sent before it says that it has them
_SEEN_MS = 60_000  # how exactly it is stored when a client was last here


@dataclass(eq=False)
class Seat:
    """A durable subscriber that is connected."""

    stream: Stream
    one: Subscriber
    sent: int  # the last position that it was sent
    unconfirmed: deque[int] = field(default_factory=deque)  # positions that were sent, behind the client's last `Got`


class KeptClients:
    """The durable subscribers of one node."""

    def __init__(self, node: LiveNode, durable: Durable) -> None:
        self.node, self.durable = node, durable
        self.seats: dict[str, Seat] = {}
        self.released = durable.position  # turns up to this position are synced

    def subscribe(self, stream: Stream, topic: Topic, after: int) -> None:
        """Begin or go on with a durable subscription. An earlier connection of the same client is cut."""
        name = stream.tag.name
        is_new = topic not in self.durable.wanted
        subscriber = self.durable.join(name, topic, after, wall_ms())
        seat = self.seats.get(name)
        if seat is None or seat.stream is not stream:
            if seat is not None:
                seat.stream.cut("closed")
            seat = self.seats[name] = Seat(stream, subscriber, max(subscriber.cursor, after))
        if after:
            self.durable.got(name, after, wall_ms())
        if is_new:
            self.node.subscribe(topic)

    def confirm(self, stream: Stream, answer: Subscribed) -> None:
        """Tell a client that its subscription is confirmed, when that is stored. Then send what waits for it."""
        assert self.node.keeper is not None
        self.node.keeper.after_sync(lambda: self._confirm(stream, answer))
        self.node.keeper.look()

    def _confirm(self, stream: Stream, answer: Subscribed) -> None:
        stream.send(pack_to_client(answer))
        seat = self.seats.get(stream.tag.name)
        if seat is not None and seat.stream is stream:
            self._pump(seat)

    def unsubscribe(self, name: str, topic: Topic = "") -> bool:
        """End a durable subscription, or all of a client. Return whether there was one."""
        if name not in self.durable.subscribers:
            return False
        for ended in self.durable.quit(name, topic):
            self.node.unsubscribe(ended)
        if name not in self.durable.subscribers:
            self.seats.pop(name, None)
        return True

    def got(self, stream: Stream, position: int) -> None:
        """Note what a client has got, and send more."""
        seat = self.seats.get(stream.tag.name)
        if seat is None or seat.stream is not stream or position > seat.sent:
            return
        self.durable.got(seat.one.name, position, wall_ms())
        while seat.unconfirmed and seat.unconfirmed[0] <= position:
            seat.unconfirmed.popleft()
        self._pump(seat)

    def ended(self, stream: Stream) -> None:
        """Note that a connection has ended. Subscriptions stay."""
        seat = self.seats.get(stream.tag.name)
        if seat is not None and seat.stream is stream:
            del self.seats[stream.tag.name]

    def turned(self, position: int) -> None:
        """Send messages to all durable subscribers: turns up to this position are synced."""
        self.released = position
        for seat in list(self.seats.values()):
            self._pump(seat)

    def _pump(self, seat: Seat) -> None:
        for given in self.durable.behind(seat.one, seat.sent):
            if given.position > self.released or len(seat.unconfirmed) >= _UNCONFIRMED_MAX or seat.stream.is_ended:
                return
            seat.sent = given.position
            topic, origin, _ = given.entry.stream.id
            payload = self.durable.payload(given.entry)
            if payload is None:
                why = "the store dropped it before this client came back"
                missed = Missed(topic, origin, given.entry.sequence, given.entry.sequence, why)
                seat.stream.send(pack_to_client(missed))
            elif self._may_read(seat.stream, Deliver(topic, origin, given.entry.sequence, payload)):
                seat.unconfirmed.append(given.position)
                turn = Turn(given.position, topic, origin, given.entry.sequence, payload)
                seat.stream.send(pack_to_client(turn))

    def _may_read(self, stream: Stream, effect: Deliver) -> bool:
        access = self.node.gate.access
        if access is None:
            return True
        topic = judged_topic(effect)
        return topic is not None and bool(readers(access, [stream], topic))

    def away(self) -> list[dict[str, object]]:
        """Return what is kept for whom, for operators."""
        return [
            {
                "client": subscriber.name,
                "topics": len(subscriber.topics),
                "waiting": self.durable.owed(subscriber),
                "is_here": subscriber.name in self.seats,
                "seen_ms": subscriber.seen_ms,
            }
            for subscriber in self.durable.subscribers.values()
        ]
