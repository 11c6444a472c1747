"""State that all parts of delivery share: topics, links, the window, counters, and the effects to return.

`now_ms` advances only at ticks. The driver also says how much time has passed since the last tick, and `time_ms` adds
it. Ages of messages use `time_ms`; everything else uses `now_ms`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.link import Channel
from trellis.protocols.delivery.messages import Gone, Item, Push
from trellis.protocols.delivery.store import Store
from trellis.protocols.delivery.streams import Entry, Stream, TopicLink, TopicState
from trellis.protocols.effects import Deliver, Incarnation, NodeId, Topic

if TYPE_CHECKING:
    from trellis.protocols.delivery.durable import Durable
    from trellis.protocols.delivery.outcome import Outcome
    from trellis.protocols.delivery.seam import Overlay
    from trellis.protocols.effects import Effect

SESSIONS = 1 << 24  # Sessions of one incarnation. A session number is the incarnation times this, plus a counter.
STREAMS_MAX = 65_536  # Most streams that a node remembers. Peers may name any number of publishers.
# Prefixes of topics on which nodes talk to each other. Clients neither read nor write them.
INTERNAL = ("$mqtt/", "$trellis/")


def is_internal(topic: Topic) -> bool:
    """Return whether `topic` belongs to the mesh itself. Its publications are counted apart from those of clients."""
    return topic.startswith(INTERNAL)


class Counters(msgspec.Struct):
    """What has happened since the start. Every number is a metric."""

    published: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    delivered: int = 0
    pushes_in: int = 0  # messages received with their payload
    duplicates: int = 0  # messages of `pushes_in` that were here already
    pulls: int = 0
    resends: int = 0
    turned_lazy: int = 0  # topic links that became lazy because the link's queue was full
    window_full: int = 0  # publications refused, or given up before they had their copies, because the window was full
    lost: int = 0  # sequences skipped in a gap: they will never be delivered
    passed_by: int = 0  # sequences that a new subscription skipped because they were published before it
    late: int = 0  # messages that arrived after their sequence was skipped
    too_old: int = 0  # messages older than two windows
    stale: int = 0  # messages of incarnations that have ended
    strange: int = 0  # Frames of peers without a link, answers that nobody asked for, and streams beyond `STREAMS_MAX`.
    # Messages in our own name that we have not published, numbers that no publisher can reach, and numbers that we
    # believed until their publisher, or a later message of it, refuted them.
    forged: int = 0
    left_undrained: int = 0  # topics left although nobody had taken over the messages held
    left_behind: int = 0  # messages that nobody had taken over when this node left the mesh
    restarts: int = 0  # Sessions started again because the other end did, or accepted nothing.
    # The shares of `published`, `acknowledged`, `not_acknowledged` and `lost` on internal topics (`is_internal`).
    published_internal: int = 0
    acknowledged_internal: int = 0
    not_acknowledged_internal: int = 0
    lost_internal: int = 0


class State:
    """The shared state of one node's delivery. Parts append effects and outcomes to `out`."""

    def __init__(self, overlay: Overlay, config: DeliveryConfig) -> None:
        self.overlay, self.config, self.id = overlay, config, overlay.id
        # Whether only subscribers, and the publisher's node, count as holders.
        self.only_subscribers_count = overlay.has_homes and not overlay.relays
        self.now_ms = 0  # milliseconds since the start, advanced by ticks
        self.since_tick_ms = 0  # time since the last tick, as the driver last said
        self.rounds = 0
        self.topics: dict[Topic, TopicState] = {}
        self.channels: dict[NodeId, Channel] = {}
        self.store = Store(config.window_ms, config.window_bytes, config.tick_ms)
        self.durable: Durable | None = None  # set if there is a store on disk
        # How long messages are kept, and how long those of a publisher that is gone wait for a missing one.
        self.keep_ms = self.gap_ms = config.window_ms
        self.counters = Counters()
        self.out: list[Effect | Outcome] = []
        # Publisher -> its last incarnation known to have ended, and when we noted that.
        self.ended: dict[NodeId, tuple[Incarnation, int]] = {}
        # Announced messages that have not arrived, over all topics: counted each round, and increased in between.
        self.missing = 0
        self.streams = 0  # Streams of all topics: counted from time to time, and increased in between.
        self.dirty: dict[NodeId, None] = {}  # neighbors for which a frame or an acknowledgement is due
        self.is_busy = False  # There is something to announce or to pull.
        # Topics that have been settled or registered since `Upkeep.confirm` last looked at them.
        self.changed: dict[Topic, None] = {}
        self._sessions = 0
        # Returns why this node has met no other since its start although there may be others. Empty: it has met others,
        # or is certainly alone. The driver replaces it. While there is a reason, silence does not prove that nobody
        # else subscribes.
        self.why_unjoined: Callable[[], str] = lambda: ""

    @property
    def time_ms(self) -> int:
        """The time as precisely as the driver tells it. Ages of messages use this clock."""
        return self.now_ms + self.since_tick_ms

    def topic(self, name: Topic) -> TopicState:
        """Return what is known of a topic. The entry is created if it is new."""
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = TopicState(name, self.now_ms)
        return topic

    def stream(
        self, topic: TopicState, origin: NodeId, incarnation: Incarnation, *, is_own: bool = False
    ) -> Stream | None:
        """Return a stream that a peer has named, or None if it is new and there are too many already.

        A neighbor that speaks of its own publications (`is_own`) always gets its stream: it has one for each topic.
        """
        if (origin, incarnation) not in topic.streams:
            if self.streams >= STREAMS_MAX and not is_own:
                self.counters.strange += 1
                return None
            self.streams += 1
        return topic.stream(origin, incarnation, self.now_ms)

    def new_session(self) -> int:
        """Return a session number greater than all earlier ones of this node's name."""
        self._sessions += 1
        return self.overlay.incarnation * SESSIONS + self._sessions

    def put(self, peer: NodeId, item: Item) -> None:
        """Queue an item for a neighbor. Without a link, nothing happens."""
        channel = self.channels.get(peer)
        if channel is not None:
            channel.put(item)
            self.dirty[peer] = None

    def put_message(self, peer: NodeId, entry: Entry, *, is_eager: bool) -> None:
        """Queue a message for a neighbor."""
        self.channels[peer].put_message(entry, is_eager=is_eager)
        self.dirty[peer] = None

    def open_links(self, topic: TopicState) -> list[tuple[NodeId, TopicLink]]:
        """Return the links on which the topic is open: both ends have compared."""
        return [(peer, link) for peer, link in topic.links.items() if link.is_open]

    def push(self, entry: Entry, is_eager: bool) -> Push | Gone:
        """Return the item that sends a message. If the disk cannot give it, say that we do not hold it."""
        stream = entry.stream
        payload = entry.payload if entry.payload is not None else self._read(entry)
        if payload is None:
            return Gone(*stream.id, (entry.sequence, entry.sequence))
        age = max(0, self.time_ms - entry.born_ms)
        needs = entry.needs
        if needs and self.vouches(self.topics[stream.id.topic], stream):
            needs -= 1  # we hold it ourselves
        floor = self.floor(stream)
        return Push(*stream.id, entry.sequence, floor, age, needs, is_eager, payload, entry.pause_ms)

    def _read(self, entry: Entry) -> bytes | None:
        """Return a payload from the disk. None: it cannot be read, or is dropped."""
        return self.durable.payload(entry) if self.durable is not None else None

    def vouches(self, topic: TopicState, stream: Stream | None = None) -> bool:
        """Return whether this node counts as a holder of messages on a topic.  [docs/delivery.md, Copies]

        The overlay keeps subscribers connected, so they count. A node that only publishes counts for its own messages
        (of `stream`) but not for those of others: several such nodes may be cut off from all subscribers.
        """
        if topic.is_leaving:
            return False
        return topic.is_wanted or not self.only_subscribers_count or (stream is not None and self.is_ours(stream))

    def is_ours(self, stream: Stream) -> bool:
        """Return whether the present incarnation of this node publishes the stream."""
        return stream.id.origin == self.id and stream.id.incarnation == self.overlay.incarnation

    def floor(self, stream: Stream) -> int:
        """Return the oldest sequence that the origin keeps, or has left to others within the window.

        It is exact for our own streams. For others it is what we have heard.
        """
        if self.is_ours(stream):
            stream.floor = next(iter(stream.entries), stream.seen.last + 1)  # entries are in the order of sequences
            if stream.left is not None:
                first, until_ms = stream.left
                if self.now_ms <= until_ms:
                    stream.floor = min(stream.floor, first)
                else:
                    stream.left = None
        return stream.floor

    def deliver(self, entry: Entry) -> None:
        """Deliver a message to the application, unless it was published before the application subscribed.

        A client that subscribes again would otherwise get old messages twice. Ages leave out the time on the network,
        so a message seems younger than it is. So no message that is owed is left out.
        """
        topic, origin, _ = entry.stream.id
        if entry.born_ms < self.topics[topic].wanted_ms:
            return
        payload, position = entry.payload, 0
        if self.durable is not None:
            payload = self.durable.payload(entry)
            position = self.durable.turn(entry) if payload is not None else 0
        if payload is None:
            self._lose(entry)
            return
        self.counters.delivered += 1
        self.out.append(Deliver(topic, origin, entry.sequence, payload, position))

    def _lose(self, entry: Entry) -> None:
        """Count a message that cannot be read from the disk, and tell the application."""
        from trellis.protocols.delivery.outcome import Lost

        self.counters.lost += 1
        self.counters.lost_internal += is_internal(entry.stream.id.topic)
        self.out.append(Lost(*entry.stream.id, entry.sequence, entry.sequence, "it cannot be read from the disk"))
