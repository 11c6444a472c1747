"""What all sides of delivery share: the clock of ticks, topics, links, the store, counters, and what goes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from trellis.protocols.delivery.config import DeliveryConfig
from trellis.protocols.delivery.link import Channel
from trellis.protocols.delivery.messages import Item, Push
from trellis.protocols.delivery.store import Store
from trellis.protocols.delivery.streams import Entry, Stream, TopicState, Way
from trellis.protocols.effects import Deliver, NodeId, Topic

if TYPE_CHECKING:
    from trellis.protocols.delivery.outcome import Outcome
    from trellis.protocols.delivery.seam import Overlay
    from trellis.protocols.effects import Effect

SESSIONS = 1 << 24  # of one life
STREAMS_MAX = 65_536  # that a node knows: peers may name as many publishers as they like
INTERNAL = ("$mqtt/", "$trellis/")  # topics on which nodes talk to each other; clients neither read nor write them


def is_internal(topic: Topic) -> bool:
    """Return whether `topic` belongs to the mesh itself. Its publications are counted apart from those of clients."""
    return topic.startswith(INTERNAL)


class Counters(msgspec.Struct):
    """Nothing is lost silently: every number here is a metric."""

    published: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    delivered: int = 0
    pushes_in: int = 0  # messages that came in whole
    duplicates: int = 0  # of these, what was here already
    pulls: int = 0
    resends: int = 0
    turned_lazy: int = 0  # links that were full
    # Publications refused, or given up before they had their copies, since the window was full.
    window_full: int = 0
    lost: int = 0  # sequences that were skipped: they will never be handed over
    passed_by: int = 0  # sequences that a new subscription skipped: they were published before it
    late: int = 0  # messages that came after their turn was skipped
    too_old: int = 0  # messages older than two windows
    stale: int = 0  # messages of lives that are over
    strange: int = 0  # frames over links that are not there, and publishers beyond all that a node can know
    # Messages in our own name that we have not published, numbers that no publisher can reach, and numbers that we
    # believed until their publisher, or a later message of it, refuted them.
    forged: int = 0
    left_undrained: int = 0  # topics that were left although nobody had taken over what was held
    left_behind: int = 0  # messages that the node held when it left the mesh, and that nobody had taken over
    restarts: int = 0  # sessions begun anew because the other end did, or took nothing
    # Parts of `published`, `acknowledged`, `not_acknowledged` and `lost`: topics of the mesh itself (`is_internal`).
    published_internal: int = 0
    acknowledged_internal: int = 0
    not_acknowledged_internal: int = 0
    lost_internal: int = 0


class State:
    def __init__(self, overlay: Overlay, config: DeliveryConfig) -> None:
        self.overlay, self.config, self.id = overlay, config, overlay.id
        self.only_subscribers_count = overlay.has_homes and not overlay.relays
        self.now_ms = 0  # by ticks
        self.since_tick_ms = 0  # as the driver last said; only the ages of messages need to be so exact
        self.rounds = 0
        self.topics: dict[Topic, TopicState] = {}
        self.links: dict[NodeId, Channel] = {}
        self.store = Store(config.window_ms, config.window_bytes, config.tick_ms)
        self.counters = Counters()
        self.out: list[Effect | Outcome] = []
        self.ended: dict[NodeId, tuple[int, int]] = {}  # origin -> its last life known to be over, and when we noted it
        self.missing = 0  # messages announced and not here, of all topics, as counted in the last round, and since
        self.streams = 0  # of all topics, as counted lately, and since
        self.dirty: dict[NodeId, None] = {}  # links that have something to send or to acknowledge
        self.is_busy = False  # something is to be announced or pulled
        self.changed: dict[Topic, None] = {}  # topics that have been settled or registered: are they confirmed now?
        self._sessions = 0
        # The driver replaces it: why this node has met nobody since its start and may not be alone. Empty: it has met
        # others, or is certainly alone. While there is a reason, nothing proves that others do not subscribe.
        self.why_unjoined: Callable[[], str] = lambda: ""

    @property
    def time_ms(self) -> int:
        """The time as exactly as the driver tells it. Messages carry their age by this clock."""
        return self.now_ms + self.since_tick_ms

    def topic(self, name: Topic) -> TopicState:
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicState(name, self.now_ms)
        return found

    def stream(self, topic: TopicState, origin: NodeId, life: int, *, is_own: bool = False) -> Stream | None:
        """Return a stream that a peer speaks of. None: it is new, and there are too many already.

        A neighbor that speaks of its own publications (`is_own`) is heard in any case. It has one stream on a topic.
        """
        if (origin, life) not in topic.streams:
            if self.streams >= STREAMS_MAX and not is_own:
                self.counters.strange += 1
                return None
            self.streams += 1
        return topic.stream(origin, life, self.now_ms)

    def new_session(self) -> int:
        self._sessions += 1
        return self.overlay.life * SESSIONS + self._sessions

    def put(self, peer: NodeId, item: Item) -> None:
        channel = self.links.get(peer)
        if channel is not None:
            channel.put(item)
            self.dirty[peer] = None

    def put_message(self, peer: NodeId, entry: Entry, *, is_eager: bool) -> None:
        self.links[peer].put_message(entry, is_eager=is_eager)
        self.dirty[peer] = None

    def ways(self, topic: TopicState) -> list[tuple[NodeId, Way]]:
        """The links on which the topic is open."""
        return [(peer, way) for peer, way in topic.ways.items() if way.is_open]

    def push(self, entry: Entry, is_eager: bool) -> Push:
        stream = entry.stream
        age = max(0, self.time_ms - entry.born_ms)
        needs = entry.needs
        if needs and self.vouches(self.topics[stream.id.topic], stream):
            needs -= 1  # we hold it ourselves
        floor = self.floor(stream)
        return Push(*stream.id, entry.sequence, floor, age, needs, is_eager, entry.payload, entry.pause_ms)

    def vouches(self, topic: TopicState, stream: Stream | None = None) -> bool:
        """Does a message that we hold count as a copy?  [docs/delivery.md, Copies]

        Subscribers are whom the overlay keeps together. Who only publishes on a topic counts for its own messages
        (of `stream`), not for those of others: several such nodes may be an island apart from all subscribers.
        """
        if topic.is_leaving:
            return False
        return topic.is_wanted or not self.only_subscribers_count or (stream is not None and self.is_ours(stream))

    def is_ours(self, stream: Stream) -> bool:
        return stream.id.origin == self.id and stream.id.life == self.overlay.life

    def floor(self, stream: Stream) -> int:
        """The oldest sequence that its origin keeps, or has left to others within the window; surely if that is us."""
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
        """Hand a message over, unless it was published before the application subscribed: then nobody owes it.

        A client that restarts would get again what it had before. Messages seem younger than they are, never older, so
        none that is owed is left out.
        """
        topic, origin, _ = entry.stream.id
        if entry.born_ms < self.topics[topic].wanted_ms:
            return
        self.counters.delivered += 1
        self.out.append(Deliver(topic, origin, entry.sequence, entry.payload))
