"""Messages that may come twice, over their overlay topic and as a copy: each is handed over once, and in order.

D1  a message is handed over here at most once
D3  at most HELD_MAX messages of HELD_BYTES_MAX bytes wait; then the next one is handed over at once
D2  messages of one node on one overlay topic are handed over in the order of their numbers, except those whose
    predecessor did not come within `hold_ms`
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.mqtt.envelope import Envelope
from trellis.protocols.mqtt.interests import Interests

HELD_MAX = 10_000  # messages that wait for their predecessors
HELD_BYTES_MAX = 64 << 20  # of their payloads
SEEN_MAX = 200_000
SEEN_MS = 150_000  # A copy comes no later after its twin: delivery drops messages older than two windows.
SIDECAR = "$sidecar/"  # Its publications are repeated under their identity until the mesh has acknowledged them.

Identity = tuple[NodeId, int, int]  # node, incarnation, number
Stream = tuple[Topic, NodeId, int]  # overlay topic, node, incarnation


@dataclass
class Held:
    """A message that waits for its predecessor."""

    message: Envelope
    until_ms: int
    is_copy: bool  # it came over the directory
    is_free: bool = False  # it waits no longer


def _number(held: Held) -> int:
    return held.message.number


class Arrivals:
    def __init__(self, hold_ms: int, interests: Interests, confirmed: dict[Topic, None]) -> None:
        self.hold_ms, self.interests, self.confirmed = hold_ms, interests, confirmed
        self.now_ms = 0
        self.counters: Counter[str] = Counter()
        self._seen: dict[Identity, None] = {}
        self._seen_before: dict[Identity, None] = {}
        self._turned_ms = 0
        self._held: dict[Stream, list[Held]] = {}  # by number
        self._held_count = self._held_bytes = 0
        self._last: dict[Stream, int] = {}  # number that came last over the overlay topic itself

    def came(self, prefix: Topic, origin: NodeId, message: Envelope) -> None:
        """Note that a message came over its overlay topic."""
        self._last[prefix, origin, message.life] = message.number

    def take(self, prefix: Topic, origin: NodeId, message: Envelope, is_copy: bool) -> list[Envelope]:
        """Return the messages that can be handed over now, this one among them unless it waits or came before."""
        key = (prefix, origin, message.life)
        queue = self._held.get(key)
        if message.is_copied or message.client.startswith(SIDECAR):  # only these may come twice
            identity = (origin, message.life, message.number)
            if self._has_come(identity):
                for one in queue or ():
                    if one.message.number == message.number:
                        one.is_free = True  # both paths have brought it, so neither brings its predecessor
                return self._hand_over(key, queue) if queue is not None else []
            self._seen[identity] = None
        is_full = self._held_count >= HELD_MAX or self._held_bytes > HELD_BYTES_MAX
        if queue is None:
            if is_full or not self._waits(key, message, (), is_copy):
                self.counters["out of order"] += is_full
                return [message]
            queue = self._held[key] = []
        insort(queue, Held(message, self.now_ms + self.hold_ms, is_copy), key=_number)
        self._held_count += 1
        self._held_bytes += len(message.payload)
        queue[0].is_free = queue[0].is_free or is_full
        return self._hand_over(key, queue)

    def _waits(self, key: Stream, message: Envelope, held: Iterable[Held], is_copy: bool) -> bool:
        """Return whether its predecessor may still come over the other path to a holder of a wildcard."""
        previous, prefix = message.previous, key[0]
        if is_copy and message.before and prefix in self.confirmed:
            return self._last.get(key, 0) < message.before
        if not previous or not self.interests.is_covered(prefix):
            return False
        return not self._has_come((*key[1:], previous)) or any(one.message.number == previous for one in held)

    def _hand_over(self, key: Stream, queue: list[Held]) -> list[Envelope]:
        """Take from the front of `queue` all messages that wait for nothing."""
        out: list[Envelope] = []
        while queue:
            first = queue[0]
            waits = not first.is_free and self._waits(key, first.message, queue, first.is_copy)
            if waits and first.until_ms > self.now_ms:
                break
            self.counters["out of order"] += waits
            out.append(queue.pop(0).message)
            self._held_count -= 1
            self._held_bytes -= len(out[-1].payload)
        if not queue:
            del self._held[key]
        return out

    def _has_come(self, identity: Identity) -> bool:
        return identity in self._seen or identity in self._seen_before

    def tick(self) -> list[tuple[NodeId, Envelope]]:
        """Forget old identities; return the messages that have waited long enough, with their origins."""
        now_ms = self.now_ms
        if now_ms - self._turned_ms > SEEN_MS or len(self._seen) > SEEN_MAX:
            self._seen_before, self._seen, self._turned_ms = self._seen, {}, now_ms
        if len(self._last) > SEEN_MAX:
            self._last.clear()  # some copies wait in vain, for `hold_ms`
        out: list[tuple[NodeId, Envelope]] = []
        for key, queue in list(self._held.items()):
            out += [(key[1], message) for message in self._hand_over(key, queue)]
        return out

    def check(self) -> None:
        assert all(self._held.values())
        assert self._held_count == sum(map(len, self._held.values())) <= HELD_MAX, "D3"
        assert self._held_bytes == sum(len(one.message.payload) for queue in self._held.values() for one in queue)
