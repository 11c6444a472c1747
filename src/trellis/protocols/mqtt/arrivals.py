"""Messages that may arrive twice, over their overlay topic and as a copy over a directory.

Each is delivered to clients once, and in order. A *path* is the mesh topic over which a message arrives. Each path
keeps the order of a node's messages, but two paths are independent of each other.

D1  A message is delivered here at most once.
D2  Messages of one node on one overlay topic are delivered in the order of their numbers. A message waits for its
    predecessor: for `OWED_MS` if that one will certainly arrive, or else for `hold_ms`. A message that arrives after
    its turn is dropped. Messages of a sidecar are not dropped: it publishes them again until the mesh has acknowledged
    them.
D3  At most HELD_MAX messages of HELD_BYTES_MAX bytes wait. Beyond that, the next one is delivered at once.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.interests import Interests, buckets_of

OWED_MS = 60_000  # Delivery brings what it owes within its window.
HELD_MAX = 10_000  # most messages that wait for their predecessors
HELD_BYTES_MAX = 64 << 20  # most bytes of their payloads
SEEN_MAX = 200_000  # most identities, paths and streams that are remembered
SEEN_MS = 150_000  # A copy arrives no later than this after its twin: delivery drops messages older than two windows.
# A sidecar repeats its publications, under the same identity, until the mesh has acknowledged them.
SIDECAR = "$sidecar/"

Identity = tuple[NodeId, Incarnation, int]  # node, incarnation, number
Stream = tuple[Topic, NodeId, Incarnation]  # overlay topic, node, incarnation


@dataclass
class Held:
    """A message that waits for its predecessor."""

    message: Envelope
    until_ms: int
    is_free: bool = False  # It waits no longer.


def _number(held: Held) -> int:
    return held.message.number


class Arrivals:
    """Removes duplicates, and holds messages back until their predecessors have arrived."""

    def __init__(
        self,
        hold_ms: int,
        interests: Interests,
        confirmed: dict[Topic, int],
        is_owed: Callable[[Topic, NodeId, Incarnation, int, Topic], bool],
    ) -> None:
        """`is_owed` returns whether the predecessor of a message will certainly arrive.

        It gets the overlay topic, node, incarnation and number of the predecessor, and the path of the message.
        """
        self.hold_ms, self.interests, self.confirmed, self.is_owed = hold_ms, interests, confirmed, is_owed
        self.now_ms = 0
        self.counters: Counter[str] = Counter()
        self._seen: dict[Identity, None] = {}
        self._seen_before: dict[Identity, None] = {}
        self._turned_ms = 0
        self._held: dict[Stream, list[Held]] = {}  # messages that wait, by stream, in the order of their numbers
        self._held_count = self._held_bytes = 0
        self._last: dict[Stream, int] = {}  # the last number that arrived over a path: an overlay topic, or a directory
        self._handed: dict[Stream, int] = {}  # the greatest number that was delivered
        # Messages that were dropped. The owner takes them, and may retain them.
        self.late: list[tuple[NodeId, Envelope]] = []

    def take(self, prefix: Topic, origin: NodeId, message: Envelope, path: Topic) -> list[Envelope]:
        """Return the messages that can be delivered now, with this one among them unless it waits or arrived before.

        `path` is the topic over which it arrived: its overlay topic `prefix`, or a directory.
        """
        key = (prefix, origin, message.incarnation)
        queue = self._held.get(key)
        self._last[path, origin, message.incarnation] = max(
            message.number, self._last.get((path, origin, message.incarnation), 0)
        )
        if message.is_copied or message.client.startswith(SIDECAR):  # only these may arrive twice
            identity = (origin, message.incarnation, message.number)
            if self._has_come(identity):
                return self._hand_over(key, queue) if queue is not None else []
            self._seen[identity] = None
        if message.number < self._handed.get(key, 0) and not message.client.startswith(SIDECAR):
            self.counters["late"] += 1
            self.late.append((origin, message))
            return []
        is_full = self._held_count >= HELD_MAX or self._held_bytes > HELD_BYTES_MAX
        if queue is None:
            if is_full or not self._waits(key, message):
                self.counters["out of order"] += is_full
                self._hands(key, message)
                return [message]
            queue = self._held[key] = []
        insort(queue, Held(message, self.now_ms + self._patience_ms(key, message, path)), key=_number)
        self._held_count += 1
        self._held_bytes += len(message.payload)
        queue[0].is_free = queue[0].is_free or is_full
        return self._hand_over(key, queue)

    def _waits(self, key: Stream, message: Envelope) -> bool:
        """Return whether the predecessor may still arrive over another path.

        A path keeps the order of numbers. So a path that has brought a later message will not bring the predecessor.
        """
        prefix, origin, incarnation = key
        number = message.previous or message.before
        if not number or number <= self._handed.get(key, 0) or self._has_come((origin, incarnation, number)):
            return False
        paths = (prefix, *buckets_of(prefix)) if message.previous else (prefix,)
        may_come = any(
            path in self.confirmed and self._last.get((path, origin, incarnation), 0) < number for path in paths
        )
        return may_come and self.interests.is_covered(prefix)

    def _patience_ms(self, key: Stream, message: Envelope, path: Topic) -> int:
        """Return how long a message waits for its predecessor at most."""
        return OWED_MS if self.is_owed(*key, message.previous or message.before, path) else self.hold_ms

    def _hands(self, key: Stream, message: Envelope) -> None:
        """Note that a message is delivered."""
        if message.number > self._handed.get(key, 0):
            self._handed[key] = message.number

    def _hand_over(self, key: Stream, queue: list[Held]) -> list[Envelope]:
        """Take all messages from the front of `queue` that wait for nothing."""
        out: list[Envelope] = []
        while queue:
            first = queue[0]
            waits = not first.is_free and self._waits(key, first.message)
            if waits and first.until_ms > self.now_ms:
                break
            self.counters["out of order"] += waits
            out.append(queue.pop(0).message)
            self._hands(key, out[-1])
            self._held_count -= 1
            self._held_bytes -= len(out[-1].payload)
        if not queue:
            del self._held[key]
        return out

    def _has_come(self, identity: Identity) -> bool:
        return identity in self._seen or identity in self._seen_before

    def tick(self) -> list[tuple[NodeId, Envelope]]:
        """Forget old identities. Return the messages that have waited long enough, with their origins."""
        now_ms = self.now_ms
        if now_ms - self._turned_ms > SEEN_MS or len(self._seen) > SEEN_MAX:
            self._seen_before, self._seen, self._turned_ms = self._seen, {}, now_ms
        if len(self._last) > SEEN_MAX:
            self._last.clear()  # some copies will wait in vain
        if len(self._handed) > SEEN_MAX:
            self._handed.clear()  # late messages are delivered from now on
        out: list[tuple[NodeId, Envelope]] = []
        for key, queue in list(self._held.items()):
            out += [(key[1], message) for message in self._hand_over(key, queue)]
        return out

    def check(self) -> None:
        assert all(self._held.values())
        assert self._held_count == sum(map(len, self._held.values())) <= HELD_MAX, "D3"
        assert self._held_bytes == sum(len(held.message.payload) for queue in self._held.values() for held in queue)
