"""What the records of a store say besides messages: durable subscribers, and up to where they are.  [durable.py]"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.protocols.delivery import records as r
from trellis.protocols.effects import Topic


@dataclass(eq=False)
class Subscriber:
    """A durable client."""

    name: str
    topics: dict[Topic, int] = field(default_factory=dict)  # topic -> the position behind which it begins
    cursor: int = 0  # the client has everything up to this position
    seen_ms: int = 0  # when it was last heard, by the wall clock


class Marks:
    """What restored records say besides messages."""

    def __init__(self) -> None:
        self.position = 0
        self.subscribers: dict[str, Subscriber] = {}
        self.since: dict[Topic, r.Since] = {}
        self.handed: dict[tuple[Topic, str, int], int] = {}
        self._snapshot: list[r.StoreRecord] | None = None

    def take(self, record: r.StoreRecord, *, is_old: bool) -> None:
        """Take in a record. `is_old`: a snapshot does not replace what is known."""
        if type(record) is r.Begin:
            self._snapshot = []
            self.position = max(self.position, record.position)
        elif type(record) is r.End and self._snapshot is not None:
            snapshot, self._snapshot = self._snapshot, None
            if not is_old:
                self.subscribers, self.since, self.handed = {}, {}, {}
            for one in snapshot:
                self._apply(one)
        elif self._snapshot is not None:
            self._snapshot.append(record)
        else:
            self._apply(record)

    def flush(self) -> None:
        """Take in an incomplete snapshot as single records (S1): it replaces nothing."""
        for one in self._snapshot or ():
            self._apply(one)

    def handed_over(self, topic: Topic, origin: str, incarnation: int, upto: int) -> None:
        key = (topic, origin, incarnation)
        self.handed[key] = max(upto, self.handed.get(key, 0))

    def _apply(self, record: r.StoreRecord) -> None:
        match record:
            case r.Handed(topic, origin, incarnation, upto):
                self.handed_over(topic, origin, incarnation, upto)
            case r.Since():
                self.since[record.topic] = record
            case r.Joined(client, topic, position):
                self._subscriber(client, position).topics.setdefault(topic, position)
                self.position = max(self.position, position)
            case r.Cursor(client, position, seen_ms):
                one = self._subscriber(client, position)
                one.cursor, one.seen_ms = max(one.cursor, position), seen_ms
                self.position = max(self.position, position)
            case r.Quit(client, topic):
                subscriber = self.subscribers.get(client)
                if subscriber is not None and topic:
                    subscriber.topics.pop(topic, None)
                elif subscriber is not None:
                    del self.subscribers[client]

    def _subscriber(self, name: str, position: int) -> Subscriber:
        return self.subscribers.setdefault(name, Subscriber(name, cursor=position))
