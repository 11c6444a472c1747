"""What a node knows of a topic: its streams (one per life of a publisher), and its links on the topic."""

from __future__ import annotations

from trellis.protocols.delivery.identities import Ranges, StreamId
from trellis.protocols.effects import NodeId, Topic

ENTRY_BYTES = 256  # what an entry costs beside its payload


class Entry:
    """One message held."""

    __slots__ = (
        "asker",
        "born_ms",
        "is_given_up",
        "is_kept",
        "names",
        "needs",
        "pause_ms",
        "payload",
        "sequence",
        "size",
        "stream",
    )

    def __init__(self, stream: Stream, sequence: int, payload: bytes, born_ms: int, pause_ms: int = 0) -> None:
        self.stream, self.sequence, self.payload, self.born_ms = stream, sequence, payload, born_ms
        self.pause_ms = pause_ms  # between the publication of the sequence before this one and of this one
        self.size = len(payload) + ENTRY_BYTES
        self.needs = 0  # holders that the publisher still wants to hear of
        self.asker: NodeId | None = None  # whom to tell of holders: who brought the message first, or asked last
        self.names: dict[NodeId, None] | None = None  # holders beyond us that we have told of
        self.is_kept = True
        self.is_given_up = False  # of our own: its client was told that it is not acknowledged


class Stream:
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
        self.seen = Ranges()  # what came, still kept or not
        self.entries: dict[int, Entry] = {}  # what is kept for others
        # In this subscription, all up to here was handed over or never will be. None: there is no baseline yet.
        self.handed: int | None = None
        self.past = 0  # handed over in earlier subscriptions of this incarnation, up to here: never handed over again
        # Since when the first message of this subscription waits for earlier ones that may be older than it. None: no.
        self.begun_ms: int | None = None
        self.waiting: dict[int, Entry] = {}  # came, and not handed over yet
        self.floor = 1  # the oldest sequence that its origin keeps, as far as was heard
        self.left: tuple[int, int] | None = None  # of our own: the oldest that others keep for us, and until when
        self.published_ms = now_ms  # of our own: when the last one was published
        self.refused: dict[NodeId, None] = {}  # neighbours that cannot give what is missing next
        self.since_ms = self.touched_ms = now_ms  # known since, and heard of last
        # The greatest sequence that has come and that no later publication refutes, and when it was published.
        self.top, self.top_ms = 0, now_ms
        # When `handed` last changed by anything but a message that was handed over. Whatever lies at or below it was
        # published before then, if nobody has lied.
        self.jumped_ms = now_ms
        self.has_returned = False  # `handed` was taken back once: some sequences above it were handed over before
        self.own_last: int | None = None  # the greatest sequence that its origin has named itself, over its own link
        self.doubt: Doubt | None = None  # its origin has named less than we have handed over


class Doubt:
    """A number that was handed over, and that the publisher has not named itself. See `claims.py`."""

    __slots__ = ("answers", "last", "mark", "since_ms")

    def __init__(self, last: int, now_ms: int) -> None:
        self.last, self.since_ms = last, now_ms
        # The session of our link to the publisher, and what it must have acknowledged there. None: it is not asked.
        self.mark: tuple[int, int] | None = None
        self.answers = 0  # comparisons of the publisher that came after our question and named less


class Way:
    """One topic on one link. It is open from the peer's comparison on: offers go to open ways."""

    __slots__ = ("announce", "has_told", "is_eager", "is_leaving", "is_open", "stays")

    def __init__(self) -> None:
        self.has_told = False  # our comparison is sent
        self.is_open = False  # the peer's has come
        self.is_eager = True  # we push; else we announce
        self.is_leaving = False  # the peer vouches for nothing
        self.stays: bool | None = None  # what it answered when we said that we leave
        self.announce: dict[Stream, Ranges] = {}  # to be said in the next batch


class Missing:
    """A message that was announced and is not here."""

    __slots__ = ("peers", "since", "was_pulled")

    def __init__(self, peer: NodeId, now: int) -> None:
        self.peers: dict[NodeId, None] = {peer: None}
        self.since = now  # the round of the announcement, then of the last pull
        self.was_pulled = False


class TopicState:
    """A topic that this node takes part in, or has taken part in: then only numbers are left of it."""

    __slots__ = (
        "changed_ms",
        "confirmed_ms",
        "first_question",
        "has_news",
        "is_leaving",
        "is_registered",
        "is_settled",
        "is_wanted",
        "missing",
        "must_compare",
        "needs_proof",
        "since_ms",
        "streams",
        "takes_part",
        "topic",
        "wanted_ms",
        "was_confirmed",
        "ways",
    )

    def __init__(self, topic: Topic, now_ms: int) -> None:
        self.topic = topic
        self.takes_part = False
        self.is_wanted = False  # its application subscribes
        self.is_leaving = False  # it says so on its links: it vouches for nothing
        self.is_settled = False  # there is a baseline: messages are handed over, if they are wanted
        self.is_registered = False  # its home knows that we subscribe
        self.first_question = 1  # to its home, that was asked after it knew that
        self.was_confirmed = False
        self.since_ms = now_ms  # of taking part
        self.wanted_ms = 0  # when the application subscribed: what was published before it is not handed over
        self.confirmed_ms: int | None = None  # when the subscription was confirmed: what came before is not owed to it
        self.changed_ms = now_ms  # of the last change of its links
        self.streams: dict[tuple[NodeId, int], Stream] = {}
        self.ways: dict[NodeId, Way] = {}
        self.missing: dict[tuple[Stream, int], Missing] = {}
        # The last publication had too few subscribers, as its home had to say, or left the window before it was
        # acknowledged. Then the next one asks the home at once.
        self.needs_proof = False
        self.has_news = False  # something is to be announced on one of its ways
        self.must_compare = False  # more was announced than could be noted

    @property
    def is_confirmed(self) -> bool:
        return self.is_wanted and self.is_settled and self.is_registered

    def stream(self, origin: NodeId, life: int, now_ms: int) -> Stream:
        found = self.streams.get((origin, life))
        if found is None:
            found = self.streams[origin, life] = Stream(StreamId(self.topic, origin, life), now_ms)
        return found
