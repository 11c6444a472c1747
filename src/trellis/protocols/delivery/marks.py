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
            for earlier in snapshot:
                self._apply(earlier)
        elif self._snapshot is not None:
            self._snapshot.append(record)
        else:
            self._apply(record)

    def flush(self) -> None:
        """Take in an incomplete snapshot as single records (S1): it replaces nothing."""
        for record in self._snapshot or ():
            self._apply(record)

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
                subscriber = self._subscriber(client, position)
                subscriber.cursor, subscriber.seen_ms = max(subscriber.cursor, position), seen_ms
                self.position = max(self.position, position)
            case r.Quit(client, topic):
                former = self.subscribers.get(client)
                if former is not None and topic:
                    former.topics.pop(topic, None)
                elif former is not None:
                    del self.subscribers[client]

    def _subscriber(self, name: str, position: int) -> Subscriber:
        return self.subscribers.setdefault(name, Subscriber(name, cursor=position))
