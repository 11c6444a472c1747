"""One overlay link as delivery uses it: frames that are numbered, acknowledged and sent again, in sessions.

A session is one direction of a link from one end's "up" to its "down". Its number tells it from all earlier ones of the
same node, in this life and before. What is put in comes out at the other end once and in order, as long as both ends
keep their sessions. An end that begins anew makes the other begin anew as well, and both compare (rule 3 of
docs/delivery.md): so nothing needs to outlive a session.

On TCP frames never need to be sent again. They are numbered all the same: an acknowledgement means that the peer's
part has taken the frame in, not that a socket has.

Q1  bytes and frames under way are bounded; what waits is bounded by number: messages wait as references to the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.messages import RANGES_MAX, STREAMS_MAX, Compare, Frame, Gone, Item, Push
from trellis.protocols.delivery.streams import ENTRY_BYTES, Entry

_ITEM_BYTES = 64  # a guess at an item without payload
_EARLY_MAX = 128  # frames that came before their predecessors
_EARLY_BYTES_MAX = 4 << 20  # that they carry; or twice what an end may have under way
_ITEMS_MAX = 256  # of one frame
_FRAME_BYTES = 128 << 10  # a frame is closed when it is this large: with any last item it is far below the wire's limit


class Queued:
    """A message that waits for its turn: it becomes a `Push` when it goes."""

    __slots__ = ("entry", "is_eager")

    def __init__(self, entry: Entry, is_eager: bool) -> None:
        self.entry, self.is_eager = entry, is_eager


class Flight:
    __slots__ = ("items", "number", "size")

    def __init__(self, number: int, items: tuple[Item, ...], size: int) -> None:
        self.number, self.items, self.size = number, items, size


class Channel:
    def __init__(self, config: DeliveryConfig, session: int, push: Callable[[Entry, bool], Push]) -> None:
        self.config, self._push = config, push
        self.resends = 0
        self.is_ack_due = False
        self.unacked = self.unacked_bytes = 0  # frames that came since the last acknowledgement, and what they carried
        self.peer_session = 0  # the session of the peer that we take part in
        self._early_bytes = 0  # that came with early frames; counted anew when none is left
        self._early_bytes_max = max(_EARLY_BYTES_MAX, 2 * config.flight_bytes)
        self.topics = 0  # that both ends share: a session begins with a comparison of each
        self.begin(session)
        self._expect()

    def begin(self, session: int) -> None:
        """Nothing of an earlier session counts any more."""
        self.session, self.sent = session, 0
        self.must_greet = True  # the first frame goes even if it is empty: only it makes the session known
        self.waiting: deque[Item | Queued] = deque()
        self._queued: set[Entry] = set()  # the messages in `waiting`
        self.pushes = self.controls = 0  # what waits, by kind
        self.flight: deque[Flight] = deque()
        self.flight_bytes = 0
        self.acked = 0  # frames of this session that the peer has acknowledged
        self.puts = self.taken = 0  # things put in, and how many of them the peer has acknowledged
        self._rounds_left, self._patience = 0, self.config.resend_rounds

    # Out

    @property
    def is_full(self) -> bool:
        """No more messages: announce them."""
        return self.pushes >= self.config.queue_max

    @property
    def is_crammed(self) -> bool:
        """Not even what was pulled: it will be pulled again."""
        return self.pushes >= self.config.queue_max + self.config.pull_max

    @property
    def is_clogged(self) -> bool:
        """The peer has taken nothing for long: it is better to begin anew.

        The comparisons with which a session begins do not count, nor one answer to each: they would only come again.
        """
        return self.controls >= self.config.control_max + 2 * self.topics

    def put(self, item: Item) -> None:
        self.waiting.append(item)
        self.controls += 1
        self.puts += 1

    def put_message(self, entry: Entry, *, is_eager: bool) -> None:
        """Send a message, once. A peer pulls again what has waited here for long; that must not make it wait longer."""
        if entry in self._queued:
            return
        self._queued.add(entry)
        self.waiting.append(Queued(entry, is_eager))
        self.pushes += 1
        self.puts += 1

    def flush(self) -> list[Frame]:
        """The frames that may go now."""
        frames: list[Frame] = []
        config = self.config
        while (self.waiting or self.must_greet) and self._has_room(config):
            self.must_greet = False
            flight = self._next_flight()
            if not self.flight:
                self._rounds_left = self._patience
            self.flight.append(flight)
            self.flight_bytes += flight.size
            frames.append(self._frame(flight))
        return frames

    @property
    def is_ack_urgent(self) -> bool:
        """The peer may have little room left: where nothing goes the other way, it would stand still for a round."""
        config = self.config
        return 4 * self.unacked >= config.flight_frames or 4 * self.unacked_bytes >= config.flight_bytes

    def acknowledgement(self) -> Frame | None:
        """If one is due and no frame has carried it."""
        if not self.is_ack_due:
            return None
        self._acknowledges()
        return Frame(self.session, 0, self.peer_session, self.upto)

    def round(self) -> list[Frame]:
        """Once per round: frames that nobody acknowledged go again."""
        if not self.flight:
            return []
        self._rounds_left -= 1
        if self._rounds_left > 0:
            return []
        self._patience = min(2 * self._patience, self.config.resend_rounds_max)
        return self.again()

    def again(self) -> list[Frame]:
        self._rounds_left = self._patience
        self.resends += len(self.flight)
        return [self._frame(flight) for flight in self.flight]

    # In

    def receive(self, frame: Frame, new_session: Callable[[], int]) -> tuple[list[Item], bool]:
        """Items in order, and whether our own session had to begin anew (then we compare again)."""
        has_begun = False
        if frame.session > self.peer_session and frame.number == 1:
            if self.makes_us_begin(frame):
                self.begin(new_session())
                has_begun = True
            elif frame.heard != self.session and self.flight:
                self._rounds_left = 1  # it was not there yet when our frames came: they go again in the next round
            self.peer_session = frame.session
            self._expect()
        if frame.session != self.peer_session:
            return [], has_begun
        if frame.heard == self.session:
            self._acknowledged(frame.upto)
        if frame.number == 0:
            return [], has_begun
        self.is_ack_due = True
        self.unacked += 1
        size = sum([len(item.payload) + ENTRY_BYTES for item in frame.items if type(item) is Push])
        self.unacked_bytes += size
        if frame.number <= self.upto or len(self._early) >= _EARLY_MAX:
            return [], has_begun
        if frame.number > self.upto + 1:
            if frame.number not in self._early and self._early_bytes + size <= self._early_bytes_max:
                self._early[frame.number] = frame.items
                self._early_bytes += size
            return [], has_begun
        items = list(frame.items)
        self.upto += 1
        while self.upto + 1 in self._early:
            self.upto += 1
            items += self._early.pop(self.upto)
        if not self._early:
            self._early_bytes = 0
        return items, has_begun

    def makes_us_begin(self, frame: Frame) -> bool:
        """Return whether a frame begins a session of the peer that makes us begin anew as well.

        If it does not know our session, or not all of it, what we sent went to a session that is over.
        """
        knows_us = frame.heard == self.session and frame.upto >= self.acked
        return bool(frame.session > self.peer_session > 0 and frame.number == 1 and not knows_us)

    def check(self) -> None:
        config = self.config
        # One frame may reach beyond the bound, by one item beyond its own.
        most = config.flight_bytes + _FRAME_BYTES + config.payload_bytes_max + STREAMS_MAX * RANGES_MAX * 4
        assert len(self.flight) <= config.flight_frames, "Q1: too many frames are under way"
        assert self.flight_bytes <= most, "Q1: too many bytes are under way"
        assert self.pushes <= config.queue_max + config.pull_max, f"Q1: {self.pushes} messages wait"

    def _has_room(self, config: DeliveryConfig) -> bool:
        return self.flight_bytes < config.flight_bytes and len(self.flight) < config.flight_frames

    def _expect(self) -> None:
        self.upto = 0  # frames of the peer's session that have come without a gap
        self._early: dict[int, tuple[Item, ...]] = {}
        self._early_bytes = 0

    def _acknowledged(self, upto: int) -> None:
        while self.flight and self.flight[0].number <= upto:
            landed = self.flight.popleft()
            self.acked = landed.number
            self.flight_bytes -= landed.size
            self.taken += len(landed.items)
            self._patience = self.config.resend_rounds
            self._rounds_left = self._patience

    def _next_flight(self) -> Flight:
        items: list[Item] = []
        size = 0
        while self.waiting and len(items) < _ITEMS_MAX and size < min(_FRAME_BYTES, self.config.flight_bytes):
            item = self.waiting.popleft()
            if isinstance(item, Queued):
                self.pushes -= 1
                entry = item.entry
                self._queued.discard(entry)
                if entry.is_kept:
                    items.append(self._push(entry, item.is_eager))
                    size += entry.size
                else:
                    items.append(Gone(*entry.stream.id, (entry.sequence, entry.sequence)))
                    size += _ITEM_BYTES
            else:
                self.controls -= 1
                items.append(item)
                size += _size_of(item)
        self.sent += 1
        return Flight(self.sent, tuple(items), size)

    def _acknowledges(self) -> None:
        self.is_ack_due = False
        self.unacked = self.unacked_bytes = 0

    def _frame(self, flight: Flight) -> Frame:
        self._acknowledges()
        return Frame(self.session, flight.number, self.peer_session, self.upto, flight.items)


def _size_of(item: Item) -> int:
    if isinstance(item, Compare):
        return _ITEM_BYTES + sum(_ITEM_BYTES + 4 * len(seen.ranges) for seen in item.streams)
    return _ITEM_BYTES + 4 * len(getattr(item, "ranges", ()))
