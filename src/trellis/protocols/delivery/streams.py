"""What a node knows about a topic: its streams, its links on the topic, and the messages that it lacks.

A stream is all messages of one incarnation of a publisher on one topic. These classes hold data only. `tree.py`,
`order.py`, `compare.py` and `claims.py` change them.
"""

from __future__ import annotations

from trellis.protocols.delivery.identities import Ranges, StreamId
from trellis.protocols.effects import Incarnation, NodeId, Topic

ENTRY_BYTES = 256  # Memory that an entry takes besides its payload, roughly.


class Entry:
    """A message that this node holds, or has held."""

    __slots__ = (
        "asker",
        "born_ms",
        "client_id",
        "is_given_up",
        "is_kept",
        "is_synced",
        "names",
        "needs",
        "number",
        "pause_ms",
        "payload",
        "sequence",
        "size",
        "stream",
    )

    def __init__(self, stream: Stream, sequence: int, payload: bytes, born_ms: int, pause_ms: int = 0) -> None:
        self.stream, self.sequence, self.born_ms = stream, sequence, born_ms
        self.payload: bytes | None = payload  # None: it is on the disk only (`durable.py`).
        self.pause_ms = pause_ms  # time between the publication of the previous sequence and of this one
        self.size = len(payload) + ENTRY_BYTES
        self.needs = 0  # How many more holders the publisher's node wants to learn of. 0: none.
        # The neighbor to which holders are reported: the one that sent the message first, or that asked last.
        self.asker: NodeId | None = None
        self.names: dict[NodeId, None] | None = None  # other holders that we have reported to `asker`
        self.is_kept = True  # False once the window has dropped the message.
        self.number = -1  # Number of its record in the store. -1: it has none.
        self.is_synced = True  # False while its record is not on the disk. Then we name nobody as its holder.
        self.client_id: tuple[str, int, int] | None = None  # Set on our own messages if there is a store.
        self.is_given_up = False  # Set on our own message if its client was told that it is not acknowledged.

    @property
    def is_private(self) -> bool:
        """Whether nobody else may get it yet: a client's publication that is not on our own disk.

        If we crash now, we forget it. Its client repeats it, and it would be published twice if somebody had it.
        """
        return not self.is_synced and self.client_id is not None


class Stream:
    """What this node knows of one stream."""

    __slots__ = (
        "begun_ms",
        "doubt",
        "entries",
        "floor",
        "handed",
        "has_returned",
        "id",
        "jumped_ms",
        "left",
        "own_last",
        "past",
        "published_ms",
        "refused",
        "seen",
        "since_ms",
        "top",
        "top_ms",
        "touched_ms",
        "waiting",
    )

    def __init__(self, stream_id: StreamId, now_ms: int) -> None:
        self.id = stream_id
        self.seen = Ranges()  # Sequences that have arrived, still kept or not.
        self.entries: dict[int, Entry] = {}  # Messages inside the window, kept to send them to others.
        # In the present subscription, all sequences up to this one were delivered or never will be. It falls only if a
        # forged number is taken back (`claims.py`). None: there is no baseline yet.
        self.handed: int | None = None
        self.past = 0  # Sequences up to this one were delivered in earlier subscriptions and are never delivered again.
        # Set while the first message of a subscription waits for earlier ones that may be older than the subscription:
        # the time since when. None: it does not wait.
        self.begun_ms: int | None = None
        self.waiting: dict[int, Entry] = {}  # Messages that have arrived and are not delivered yet.
        self.floor = 1  # The oldest sequence that the origin keeps, as far as we know.
        # Own streams only: after we left the topic, the oldest sequence that others keep for us, and until when.
        self.left: tuple[int, int] | None = None
        self.published_ms = now_ms  # Own streams only: when the last message was published.
        self.refused: dict[NodeId, None] = {}  # Neighbors that said they cannot send the next missing sequence.
        self.since_ms = self.touched_ms = now_ms  # when the stream became known, and when it was last heard of
        # The greatest sequence that has arrived and that no later publication refutes, and when it was published.
        self.top, self.top_ms = 0, now_ms
        # When `handed` last changed without a delivery. If nobody has lied, all sequences up to `handed` were published
        # before this time.
        self.jumped_ms = now_ms
        # `handed` was taken back once, so some sequences above it have been delivered already.
        self.has_returned = False
        self.own_last: int | None = None  # The greatest sequence that the origin itself has named over its own link.
        self.doubt: Doubt | None = None  # Set while the origin has named fewer sequences than we have delivered.


class Doubt:
    """A delivered sequence that the publisher itself has not named. See `claims.py`."""

    __slots__ = ("answers", "last", "mark", "since_ms")

    def __init__(self, last: int, now_ms: int) -> None:
        self.last, self.since_ms = last, now_ms
        # Our session on the link to the publisher, and how many items it must have acknowledged before its answer
        # counts. None: it has not been asked.
        self.mark: tuple[int, int] | None = None
        self.answers = 0  # comparisons of the publisher that came after our question and named fewer sequences


class TopicLink:
    """A link as one topic uses it. It is open once the peer's comparison has come; new messages go to open links."""

    __slots__ = ("announce", "has_told", "is_eager", "is_leaving", "is_open", "stays")

    def __init__(self) -> None:
        self.has_told = False  # We have sent our comparison.
        self.is_open = False  # The peer's comparison has come.
        self.is_eager = True  # True: push messages. False: announce them.
        self.is_leaving = False  # The peer is about to leave the topic and does not count as a holder.
        self.stays: bool | None = None  # The peer's answer to our `Leaving`.
        self.announce: dict[Stream, Ranges] = {}  # Sequences to announce in the next batch.


class Missing:
    """A message that was announced and has not arrived."""

    __slots__ = ("peers", "since", "was_pulled")

    def __init__(self, peer: NodeId, now: int) -> None:
        self.peers: dict[NodeId, None] = {peer: None}  # Neighbors that have it. It was pulled from the first one.
        self.since = now  # the round of the announcement, or of the last pull
        self.was_pulled = False


class TopicState:
    """A topic that this node takes part in, or took part in: then only the numbers of its streams are left.

    A node takes part in a topic because its application subscribes (`is_wanted`), because it publishes there, or
    because the overlay makes it a relay.
    """

    __slots__ = (
        "changed_ms",
        "confirmed_ms",
        "first_question",
        "has_news",
        "is_leaving",
        "is_registered",
        "is_settled",
        "is_wanted",
        "links",
        "missing",
        "must_compare",
        "needs_proof",
        "pulled",
        "resumes",
        "since_ms",
        "streams",
        "takes_part",
        "topic",
        "wanted_ms",
        "was_confirmed",
    )

    def __init__(self, topic: Topic, now_ms: int) -> None:
        self.topic = topic
        self.takes_part = False
        self.is_wanted = False  # The application subscribes.
        self.is_leaving = False  # We have said `Leaving`, so we count as a holder of nothing on this topic.
        self.is_settled = False  # There is a baseline. Messages are delivered if `is_wanted`.
        self.is_registered = False  # The home knows that we subscribe.
        # Answers of the home from this question on were given after it knew of our registration.
        self.first_question = 1
        self.resumes = False  # The subscription goes on where the last process of this node left it (`durable.py`).
        self.was_confirmed = False  # `Confirmed` was reported for the present subscription.
        self.since_ms = now_ms  # when we began to take part
        self.wanted_ms = 0  # When the application subscribed. Earlier publications are not delivered.
        # When the subscription was confirmed. Earlier publications are not owed to it.
        self.confirmed_ms: int | None = None
        self.changed_ms = now_ms  # When the topic's links last changed.
        self.streams: dict[tuple[NodeId, Incarnation], Stream] = {}
        self.links: dict[NodeId, TopicLink] = {}
        self.missing: dict[tuple[Stream, int], Missing] = {}
        self.pulled = 0  # the round in which we last pulled messages of this topic
        # The last publication had fewer subscribers than copies, as its home had to say, or left the window before it
        # was acknowledged. Then the next publication asks the home at once.
        self.needs_proof = False
        self.has_news = False  # Some link of the topic has announcements to send.
        self.must_compare = False  # More messages were announced than could be noted: compare again later.

    @property
    def is_confirmed(self) -> bool:
        """Whether everything published from now on will be delivered here."""
        return self.is_wanted and self.is_settled and self.is_registered

    def stream(self, origin: NodeId, incarnation: Incarnation, now_ms: int) -> Stream:
        """Return a stream of this topic. It is created if it is new."""
        stream = self.streams.get((origin, incarnation))
        if stream is None:
            stream = self.streams[origin, incarnation] = Stream(StreamId(self.topic, origin, incarnation), now_ms)
        return stream
