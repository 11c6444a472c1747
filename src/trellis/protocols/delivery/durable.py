"""Delivery with a store: what survives a restart, and durable subscribers.  [docs/durable.md]

A node with a store appends every message that it holds. It names itself as a holder, and acknowledges its clients'
publications, only when the message is synced (`on_synced`). After a restart it holds what it held.

A durable subscriber is a client with a name whose subscription outlives its connection. Messages for it get a *turn*:
a position that grows by one, in the order in which they are delivered. Turns are stored. So after a restart of the node
the client gets what is behind its position, and recognizes what it has. The application gets each message once.

U1  A turn is told to a client only after it was synced. So a position never means another message.
U2  Messages that are away from memory (`payload` is None) were synced.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trellis.protocols.delivery import records as r
from trellis.protocols.delivery.config import DurableConfig
from trellis.protocols.delivery.marks import Marks, Subscriber
from trellis.protocols.delivery.streams import Entry, Stream, TopicState
from trellis.protocols.effects import Incarnation, Topic
from trellis.protocols.wire import WireError

if TYPE_CHECKING:
    from trellis.protocols.delivery.state import State


@dataclass(eq=False)
class Given:
    """A turn that some durable subscriber does not have yet."""

    position: int
    topic: Topic
    entry: Entry
    number: int  # of its record


class Durable:
    """The part of delivery that exists only with a store."""

    def __init__(self, state: State, journal: r.Journal, config: DurableConfig, epoch_ms: int) -> None:
        """`epoch_ms`: the wall clock at the node's time 0."""
        self.state, self.journal, self.config, self.epoch_ms = state, journal, config, epoch_ms
        self.keep_ms = int(config.keep_s * 1_000)
        self.gap_ms = int(config.gap_s * 1_000)
        self.why_full = ""  # why nothing more can be stored; empty: it can
        self.subscribers: dict[str, Subscriber] = {}
        self.wanted: dict[Topic, int] = {}  # topics with durable subscribers -> how many
        self.turns: list[Given] = []  # in the order of positions
        self._first = 0  # Turns before this index of `turns` are released.
        self.position = 0  # the last position that was given
        self.unsynced: deque[Entry] = deque()  # in the order of their records
        self.restored = self.unreadable = self.refused = 0
        self._restored_upto = 0  # Records below this number are of an earlier process.
        # Publications of clients that were stored before a restart, and that they have not repeated yet.
        self.published: dict[tuple[str, int, int], Entry] = {}
        self._cached: deque[Entry] = deque()  # synced entries whose payloads are in memory, oldest first
        self._cached_bytes = 0
        self._unstored: deque[Entry] = deque()  # messages that came while the store was full
        self._unstored_bytes = 0
        self._released: list[int] = []
        self._since: dict[Topic, r.Since] = {}
        self._handed: dict[tuple[Topic, str, int], int] = {}  # of topics that were not resumed yet
        state.keep_ms, state.gap_ms = self.keep_ms, self.gap_ms
        state.store.window_ms, state.store.window_bytes = self.keep_ms, config.bytes_max
        state.store.on_drop = self._on_drop

    # Messages

    def keep(self, entry: Entry) -> None:
        """Store a new message. If the store is full, hold it in memory only, and count as a holder of it never."""
        entry.is_synced = False
        if self.why_full:
            self._hold_unstored(entry)
            return
        stream = entry.stream.id
        born_ms = self.epoch_ms + entry.born_ms
        kept = r.Kept(*stream, entry.sequence, born_ms, entry.pause_ms, entry.client_id)
        assert entry.payload is not None
        entry.number = self.journal.append(r.encode(kept), entry.payload)
        self.unsynced.append(entry)

    def _hold_unstored(self, entry: Entry) -> None:
        """Hold a message of another node in memory, so that it is passed on. At most `window_bytes` are held so."""
        self._unstored.append(entry)
        self._unstored_bytes += entry.size
        while self._unstored_bytes > self.state.config.window_bytes:
            oldest = self._unstored.popleft()
            self._unstored_bytes -= oldest.size
            self.state.store.drop(oldest)

    def synced(self, upto: int) -> list[Entry]:
        """Note that all records below `upto` survive. Return the messages among them."""
        done = []
        while self.unsynced and self.unsynced[0].number < upto:
            entry = self.unsynced.popleft()
            entry.is_synced = True
            if entry.is_kept:
                done.append(entry)
                self._cached.append(entry)
                self._cached_bytes += entry.size
        self._evict()
        return done

    def payload(self, entry: Entry) -> bytes | None:
        """Return the payload of a message; None if it cannot be read. Then the message is dropped."""
        if entry.payload is not None:
            return entry.payload
        payload = self.journal.read(entry.number) if entry.is_kept else None
        if payload is None and entry.is_kept:
            self.unreadable += 1
            self.state.store.drop(entry)
            entry.stream.seen.remove(entry.sequence)  # others may have it: it is fetched again
        return payload

    def published_before(self, client_id: tuple[str, int, int], topic: Topic, payload: bytes) -> Entry | None:
        """Return the stored message that a client repeats after a restart of this node; None if there is none."""
        entry = self.published.pop(client_id, None)
        if entry is None or not entry.is_kept or entry.stream.id.topic != topic or self.payload(entry) != payload:
            return None
        return entry

    def refusal(self) -> str | None:
        """Return why nothing more can be stored, or None."""
        if self.why_full:
            self.refused += 1
            return f"the store of this node is full: {self.why_full}"
        return None

    def tick(self) -> None:
        """Tell the store which records count no more."""
        self.journal.release(self._released)
        self._released = []

    def drop_records(self, numbers: range) -> int:
        """Drop the messages and turns with these numbers, because the store needs room. Return how many messages."""
        count = 0
        for topic in self.state.topics.values():
            for stream in topic.streams.values():
                for entry in [entry for entry in stream.entries.values() if entry.number in numbers]:
                    self.state.store.drop(entry)
                    count += 1
        self.state.store.overflows += count
        while self._first < len(self.turns) and self.turns[self._first].number in numbers:
            self._release_first()
        self.tick()
        return count

    def _on_drop(self, entry: Entry) -> None:
        if entry.number >= 0:
            self._released.append(entry.number)

    def _evict(self) -> None:
        """Take the oldest payloads out of memory beyond `window_bytes`. They are read from the disk when needed."""
        while self._cached and self._cached_bytes > self.state.config.window_bytes:
            entry = self._cached.popleft()
            self._cached_bytes -= entry.size
            if entry.sequence not in entry.stream.waiting:
                entry.payload = None

    # Durable subscribers

    def join(self, name: str, topic: Topic, after: int, now_ms: int) -> Subscriber:
        """Add a durable subscription of a client, unless there is one. It is owed what has its turn from now on.

        `after`: the client has seen this position. If it is greater than all here, the store was lost: go on behind it.
        """
        self.position = max(self.position, after)
        subscriber = self.subscribers.get(name)
        if subscriber is None:
            subscriber = self.subscribers[name] = Subscriber(name, cursor=self.position)
        subscriber.seen_ms = now_ms
        if topic not in subscriber.topics:
            subscriber.topics[topic] = self.position
            self.wanted[topic] = self.wanted.get(topic, 0) + 1
            self._note(r.Joined(name, topic, self.position))
            if self.wanted[topic] == 1:
                self._note_marks(topic)
        return subscriber

    def quit(self, name: str, topic: Topic = "") -> list[Topic]:
        """End a durable subscription, or all of a client. Return the topics that have no durable subscriber left."""
        subscriber = self.subscribers.get(name)
        if subscriber is None:
            return []
        gone = [topic] if topic else list(subscriber.topics)
        ended = []
        for each in gone:
            if subscriber.topics.pop(each, None) is None:
                continue
            self.wanted[each] -= 1
            if not self.wanted[each]:
                del self.wanted[each]
                self._since.pop(each, None)
                ended.append(each)
        if not subscriber.topics:
            del self.subscribers[name]
        self._note(r.Quit(name, topic))
        self._trim()
        return ended

    def got(self, name: str, position: int, now_ms: int) -> None:
        """Note that a client has everything up to `position`."""
        subscriber = self.subscribers.get(name)
        if subscriber is not None and subscriber.cursor < position <= self.position:
            subscriber.cursor, subscriber.seen_ms = position, now_ms
            self._note(r.Cursor(name, position, now_ms))
            self._trim()

    def turn(self, entry: Entry) -> int:
        """Give the next position to a message that is delivered. 0: its topic has no durable subscriber."""
        topic, origin, incarnation = entry.stream.id
        if topic not in self.wanted:
            return 0
        self.position += 1
        record = r.Turn(self.position, topic, origin, incarnation, entry.sequence)
        number = self.journal.append(r.encode(record))
        self.turns.append(Given(self.position, topic, entry, number))
        return self.position

    def jumped(self, stream: Stream) -> None:
        """Note that a stream goes on behind messages that were not delivered."""
        if stream.id.topic in self.wanted:
            self._note(r.Handed(*stream.id, stream.handed or 0))

    def confirmed(self, topic: TopicState) -> None:
        """Note that a subscription is confirmed: the node is owed what is published from now on."""
        if topic.topic in self.wanted and topic.confirmed_ms is not None:
            self._note_marks(topic.topic)

    def behind(self, subscriber: Subscriber, position: int) -> Iterator[Given]:
        """Yield the turns behind `position` that a client is owed, in order."""
        first = bisect_right(self.turns, position, lo=self._first, key=lambda given: given.position)
        for index in range(first, len(self.turns)):
            given = self.turns[index]
            if subscriber.topics.get(given.topic, given.position) < given.position:
                yield given

    def owed(self, subscriber: Subscriber) -> int:
        """Return how many turns wait for a client, on any topic: its own are among them."""
        first = bisect_right(self.turns, subscriber.cursor, lo=self._first, key=lambda given: given.position)
        return len(self.turns) - first

    def _trim(self) -> None:
        """Release turns that all durable subscribers have."""
        least = min((subscriber.cursor for subscriber in self.subscribers.values()), default=self.position)
        while self._first < len(self.turns) and self.turns[self._first].position <= least:
            self._release_first()

    def _release_first(self) -> None:
        """Release the oldest turn. The list is cut when half of it is released."""
        self._released.append(self.turns[self._first].number)
        self._first += 1
        if 2 * self._first > len(self.turns):
            del self.turns[: self._first]
            self._first = 0

    def _note(self, record: r.StoreRecord) -> None:
        self.journal.append(r.encode(record), keeps=False)

    def _note_marks(self, name: Topic) -> None:
        """Store where the subscription to a topic stands."""
        for record in self._marks(name):
            self._note(record)

    def _marks(self, name: Topic) -> Iterator[r.StoreRecord]:
        topic = self.state.topics.get(name)
        if topic is None or not topic.is_wanted:
            if name in self._since:
                yield self._since[name]
            return
        if topic.confirmed_ms is not None:
            yield r.Since(name, self.epoch_ms + topic.wanted_ms, self.epoch_ms + topic.confirmed_ms)
        for stream in topic.streams.values():
            if stream.handed is not None:
                yield r.Handed(*stream.id, stream.handed)

    def snapshot(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the records that replace all earlier ones but messages and turns."""
        yield r.encode(r.Begin(self.position)), b""
        for subscriber in self.subscribers.values():
            yield r.encode(r.Cursor(subscriber.name, subscriber.cursor, subscriber.seen_ms)), b""
            for topic, position in subscriber.topics.items():
                yield r.encode(r.Joined(subscriber.name, topic, position)), b""
        for topic in self.wanted:
            for record in self._marks(topic):
                yield r.encode(record), b""
        for (topic, origin, incarnation), upto in self._handed.items():
            yield r.encode(r.Handed(topic, origin, incarnation, upto)), b""
        yield r.encode(r.End()), b""

    # After a restart

    def restore(self, stored: Iterable[tuple[int, bytes]]) -> None:
        """Take in what the last process of this node has stored. Called before the node starts."""
        turns: list[tuple[int, r.Turn]] = []
        marks = Marks()
        for number, head in stored:
            try:
                record = r.decode(head)
            except WireError:
                self.unreadable += 1
                continue
            if type(record) is r.Kept:
                self._put_back(number, record)
            elif type(record) is r.Turn:
                turns.append((number, record))
            else:
                marks.take(record, is_old=number >= self.journal.rescued_from)
        marks.flush()
        for _, turn in turns:  # A snapshot may have been written between two turns of one input.
            marks.handed_over(turn.topic, turn.origin, turn.incarnation, turn.sequence)
        self.position = max([marks.position, *(turn.position for _, turn in turns)])
        self.subscribers = {
            subscriber.name: subscriber for subscriber in marks.subscribers.values() if subscriber.topics
        }
        for subscriber in self.subscribers.values():
            for topic in subscriber.topics:
                self.wanted[topic] = self.wanted.get(topic, 0) + 1
        self._since = {topic: since for topic, since in marks.since.items() if topic in self.wanted}
        self._handed = {key: upto for key, upto in marks.handed.items() if key[0] in self.wanted}
        self._put_back_turns(turns)
        self._restored_upto = self.journal.next

    def _put_back(self, number: int, kept: r.Kept) -> None:
        """Hold a message again."""
        state = self.state
        stream = state.topic(kept.topic).stream(kept.origin, Incarnation(kept.incarnation), state.now_ms)
        born_ms = kept.born_ms - self.epoch_ms
        if kept.sequence in stream.entries or state.now_ms - born_ms > 2 * self.keep_ms:
            return
        entry = Entry(stream, kept.sequence, b"", min(born_ms, state.now_ms), kept.pause_ms)
        entry.payload, entry.number, entry.client_id = None, number, kept.client_id
        stream.seen.add(kept.sequence)
        if kept.sequence > stream.top:
            stream.top, stream.top_ms = kept.sequence, entry.born_ms
        self.journal.keep(number)
        state.store.put(entry)
        if kept.client_id is not None and kept.origin == state.id and len(self.published) < state.config.clients_max:
            self.published[kept.client_id] = entry
        self.restored += 1

    def _put_back_turns(self, turns: list[tuple[int, r.Turn]]) -> None:
        least = min((subscriber.cursor for subscriber in self.subscribers.values()), default=self.position)
        last = least
        for number, turn in sorted(turns, key=lambda pair: pair[1].position):
            if turn.position <= last or turn.topic not in self.wanted:
                continue
            topic = self.state.topics.get(turn.topic)
            stream = topic.streams.get((turn.origin, Incarnation(turn.incarnation))) if topic is not None else None
            entry = stream.entries.get(turn.sequence) if stream is not None else None
            if entry is None:
                continue  # it was dropped, and counted
            last = turn.position
            self.journal.keep(number)
            self.turns.append(Given(turn.position, turn.topic, entry, number))

    def resume(self, topic: TopicState) -> bool:
        """Let a restored subscription go on where it stood. Return whether the topic has one that was confirmed."""
        since = self._since.pop(topic.topic, None)
        if since is None or topic.topic not in self.wanted:
            return False
        topic.wanted_ms = since.wanted_ms - self.epoch_ms
        topic.confirmed_ms = since.confirmed_ms - self.epoch_ms
        for key in [key for key in self._handed if key[0] == topic.topic]:
            stream = topic.stream(key[1], Incarnation(key[2]), self.state.now_ms)
            stream.handed = self._handed.pop(key)
            stream.past = max(stream.past, stream.handed)
        return True

    def must_offer(self, topic: TopicState) -> bool:
        """Return whether this node must take part in a topic, to offer its own messages or those of before a restart.

        Messages of others that it got since then are held by those that it has them from.
        """
        for stream in topic.streams.values():
            oldest = next(iter(stream.entries.values()), None)
            if oldest is not None and (stream.id.origin == self.state.id or oldest.number < self._restored_upto):
                return True
        return False

    def held_topics(self) -> list[Topic]:
        """Return the topics of which this node holds messages."""
        return [
            name
            for name, topic in self.state.topics.items()
            if any(stream.entries for stream in topic.streams.values())
        ]

    def metrics(self) -> dict[str, int]:
        """Return what an operator should see."""
        return {
            "durable_restored": self.restored,
            "durable_unsynced": len(self.unsynced),
            "durable_unreadable": self.unreadable,
            "durable_refused": self.refused,
            "durable_subscribers": len(self.subscribers),
            "durable_turns": len(self.turns) - self._first,
        }
