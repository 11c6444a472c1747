"""A link as delivery uses it: numbered frames that are acknowledged, put into order and sent again, in sessions.

Each end of a link has a session, from the moment when its end comes up until it goes down. A session number is greater
than all earlier ones of the same node, in this incarnation and before. Within a session, every item that is put in
comes out at the other end once and in order. If one end starts a new session, the other one does so too, and both
compare (rule 3 of docs/delivery.md). So nothing needs to survive a session.

TCP never loses a frame while its connection stands. Frames are numbered all the same: an acknowledgement means that the
peer's delivery part has processed the frame, not only that a socket has received it. The simulator loses frames.

Q1  Unacknowledged bytes and frames are bounded. The queue is bounded by the number of items; queued messages are
    references to the window and take no extra memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.messages import RANGES_MAX, STREAMS_MAX, Compare, Frame, Gone, Item, Push
from trellis.protocols.delivery.streams import ENTRY_BYTES, Entry

_ITEM_BYTES = 64  # estimated size of an item without payload
_EARLY_MAX = 128  # Most frames that are kept while an earlier one is missing.
_EARLY_BYTES_MAX = 4 << 20  # Most payload bytes in these frames, or twice `flight_bytes` if that is more.
_ITEMS_MAX = 256  # Most items that we put into one frame.
# A frame is closed at this size. Together with any last item it is far below the wire's limit.
_FRAME_BYTES = 128 << 10


class Queued:
    """A message in the queue. It becomes a `Push` when a frame takes it."""

    __slots__ = ("entry", "is_eager")

    def __init__(self, entry: Entry, is_eager: bool) -> None:
        self.entry, self.is_eager = entry, is_eager


class Flight:
    """A frame that was sent and not acknowledged yet."""

    __slots__ = ("items", "number", "size")

    def __init__(self, number: int, items: tuple[Item, ...], size: int) -> None:
        self.number, self.items, self.size = number, items, size


class Channel:
    """Our end of a link: the queue, the unacknowledged frames, and the frames expected from the peer."""

    def __init__(self, config: DeliveryConfig, session: int, push: Callable[[Entry, bool], Push | Gone]) -> None:
        self.config, self._push = config, push
        self.resends = 0
        self.is_ack_due = False
        # frames that arrived since our last acknowledgement, and their payload bytes
        self.unacked = self.unacked_bytes = 0
        self.peer_session = 0  # the peer's session that we accept; 0: none yet
        self._early_bytes = 0  # payload bytes in early frames; reset when none is left
        self._early_bytes_max = max(_EARLY_BYTES_MAX, 2 * config.flight_bytes)
        self.topics = 0  # Topics that both ends share. A session begins with a comparison of each.
        self.begin(session)
        self._expect()

    def begin(self, session: int) -> None:
        """Start a new session, and forget everything of the earlier one."""
        self.session, self.sent = session, 0
        self.must_greet = True  # The first frame is sent even if it is empty, because only it makes the session known.
        self.waiting: deque[Item | Queued] = deque()
        self._queued: set[Entry] = set()  # the messages in `waiting`
        self.pushes = self.controls = 0  # messages and other items in `waiting`
        self.flight: deque[Flight] = deque()
        self.flight_bytes = 0
        self.acked = 0  # the last frame of this session that the peer has acknowledged
        self.puts = self.taken = 0  # items put into this session, and how many of them the peer has acknowledged
        self._rounds_left, self._patience = 0, self.config.resend_rounds

    # Sending

    @property
    def is_full(self) -> bool:
        """Whether the queue takes no more messages. They are announced instead."""
        return self.pushes >= self.config.queue_max

    @property
    def is_crammed(self) -> bool:
        """Whether the queue has no space even for pulled messages. They will be pulled again."""
        return self.pushes >= self.config.queue_max + self.config.pull_max

    @property
    def is_clogged(self) -> bool:
        """Whether the peer has accepted nothing for so long that a new session is better.

        The comparisons that begin a session do not count, nor one answer to each: a new session would only repeat them.
        """
        return self.controls >= self.config.control_max + 2 * self.topics

    def put(self, item: Item) -> None:
        """Queue an item other than a message."""
        self.waiting.append(item)
        self.controls += 1
        self.puts += 1

    def put_message(self, entry: Entry, *, is_eager: bool) -> None:
        """Queue a message, unless it is queued already.

        A peer pulls again what has waited here for long, and that must not make it wait longer.
        """
        if entry in self._queued:
            return
        self._queued.add(entry)
        self.waiting.append(Queued(entry, is_eager))
        self.pushes += 1
        self.puts += 1

    def flush(self) -> list[Frame]:
        """Return the frames that may be sent now."""
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
        """Whether the peer is close to its limit of unacknowledged frames or bytes.

        If no frame of ours carries the acknowledgement, the peer would stop sending for a round.
        """
        config = self.config
        return 4 * self.unacked >= config.flight_frames or 4 * self.unacked_bytes >= config.flight_bytes

    def acknowledgement(self) -> Frame | None:
        """Return a frame that only acknowledges, if one is due. None: no acknowledgement is due."""
        if not self.is_ack_due:
            return None
        self._acknowledges()
        return Frame(self.session, 0, self.peer_session, self.upto)

    def round(self) -> list[Frame]:
        """Advance one round. Return the unacknowledged frames if it is time to send them again."""
        if not self.flight:
            return []
        self._rounds_left -= 1
        if self._rounds_left > 0:
            return []
        self._patience = min(2 * self._patience, self.config.resend_rounds_max)
        return self.again()

    def again(self) -> list[Frame]:
        """Return all unacknowledged frames, to send them again."""
        self._rounds_left = self._patience
        self.resends += len(self.flight)
        return [self._frame(flight) for flight in self.flight]

    # Receiving

    def receive(self, frame: Frame, new_session: Callable[[], int]) -> tuple[list[Item], bool]:
        """Return the items that can be processed now, in order, and whether our own session had to start again.

        After a new session of ours, the caller compares all topics again.
        """
        has_begun = False
        if frame.session > self.peer_session and frame.number == 1:
            if self.makes_us_begin(frame):
                self.begin(new_session())
                has_begun = True
            elif frame.heard != self.session and self.flight:
                # The peer's session did not exist when our frames came: send them again in the next round.
                self._rounds_left = 1
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
        """Return whether a frame begins a session of the peer that makes us start a new one as well.

        If the peer does not know our session, or not all of it, our frames went to a session of the peer that has
        ended.
        """
        knows_us = frame.heard == self.session and frame.upto >= self.acked
        return bool(frame.session > self.peer_session > 0 and frame.number == 1 and not knows_us)

    def check(self) -> None:
        config = self.config
        # The last frame may exceed the bound, and its last item may exceed the frame's size.
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
        """Take items from the queue into the next frame."""
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
