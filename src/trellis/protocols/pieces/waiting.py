"""Messages that wait for pieces, and the peers to ask for these.

Each missing piece is asked for once, from a peer whose message refers to it. If that peer does not answer in time, or
crashes, the others whose messages refer to the piece are asked. A silent peer is asked only if there is no other.

P1  The messages that wait and the pieces that a peer is asked for are bounded.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.pieces.messages import WANTS_MAX, Packed, Want

WAITING_MAX = 1_024  # most messages of one peer
WAITING_BYTES_MAX = 2 << 20  # most bytes of these
WAITING_MAX_ALL = 8_192  # most messages of all peers
WAITING_BYTES_MAX_ALL = 16 << 20  # most bytes of these
ASK_MS = 1_000  # A piece that has not come after this time is asked for again.
WAIT_MS = 15_000  # A message that has waited for this time counts as lost.

# counters of messages that were not delivered
DROPPED = ("lost with their sender", "given up", "refused", "pushed out")


@dataclass(eq=False)
class Waiting:
    """A message that cannot be delivered before its pieces are there."""

    sender: NodeId
    packed: Packed
    size: int
    since_ms: int
    missing: dict[bytes, None] = field(default_factory=dict)
    found: int = 0  # This many of its first references were complete when we last looked.
    total: int = 0  # bytes that these stand for


class WaitingMessages:
    """All messages that wait, and the pieces that were asked for."""

    def __init__(self, counters: Counter[str]) -> None:
        self.counters = counters
        self.messages: dict[int, Waiting] = {}  # by number, oldest first
        self._number = self._bytes = 0
        # the number of waiting messages of each peer, and their bytes
        self._of_peer: dict[NodeId, tuple[int, int]] = {}
        self._needs: dict[bytes, dict[int, None]] = {}  # missing pieces -> numbers of the messages that need them
        # Pieces that a peer will be asked for, unless they come before. Each is here once, however many messages need
        # it.
        self._todo: dict[NodeId, OrderedDict[bytes, None]] = {}
        self._asked: dict[bytes, tuple[NodeId, int]] = {}  # pieces that were asked for -> the peer, and the time
        self._busy: Counter[NodeId] = Counter()  # number of pieces asked for, by peer
        self._silent: set[NodeId] = set()  # Peers that did not answer in time, and whose messages wait.

    def add(self, one: Waiting) -> None:
        """Add a message.

        If there are too many of its peer, the oldest ones are dropped: the peer repeats what matters.
        """
        self._number += 1
        self.messages[self._number] = one
        count, size = self._of_peer.get(one.sender, (0, 0))
        self._of_peer[one.sender] = (count + 1, size + one.size)
        self._bytes += one.size
        self.need(self._number)
        if count + 1 > WAITING_MAX or size + one.size > WAITING_BYTES_MAX:
            for number in [number for number, other in self.messages.items() if other.sender == one.sender]:
                self.drop(number, "pushed out")
                count, size = self._of_peer.get(one.sender, (0, 0))
                if count <= WAITING_MAX * 3 // 4 and size <= WAITING_BYTES_MAX * 3 // 4:
                    break
        while self._bytes > WAITING_BYTES_MAX_ALL or len(self.messages) > WAITING_MAX_ALL:
            self.drop(next(iter(self.messages)), "pushed out")

    def need(self, number: int) -> None:
        """Note which pieces the message lacks."""
        one = self.messages[number]
        todo = self._todo.setdefault(one.sender, OrderedDict())
        for digest in one.missing:
            self._needs.setdefault(digest, {})[number] = None
            todo[digest] = None

    def end(self, number: int) -> None:
        """Remove a message, because it waits no longer."""
        one = self.messages.pop(number)
        count, size = self._of_peer.pop(one.sender)
        todo = self._todo[one.sender]
        if count > 1:
            self._of_peer[one.sender] = (count - 1, size - one.size)
        else:
            self._todo.pop(one.sender, None)
            self._silent.discard(one.sender)
        self._bytes -= one.size
        for digest in one.missing:
            del self._needs[digest][number]
            if not self._needs[digest]:
                del self._needs[digest]
                todo.pop(digest, None)

    def drop(self, number: int, why: str) -> None:
        """Remove a message that was not delivered, and count it under `why`."""
        self.counters[why] += 1
        self.end(number)

    def is_asked_for(self, digest: bytes) -> bool:
        """Return whether a peer was asked for this piece."""
        return digest in self._asked

    def came(self, sender: NodeId, digest: bytes) -> list[int]:
        """Note that a piece that was asked for has come.

        Return the numbers of the messages that lack nothing now, as far as is known.
        """
        self._silent.discard(sender)
        self._is_over(digest)
        complete = []
        for number in self._needs.pop(digest, ()):
            missing = self.messages[number].missing
            del missing[digest]
            if not missing:
                complete.append(number)
        return complete

    def peer_down(self, peer: NodeId) -> None:
        """Drop the messages of a peer that is down, and ask others for its pieces."""
        for number in [number for number, one in self.messages.items() if one.sender == peer]:
            self.drop(number, "lost with their sender")
        self._ask_others([digest for digest, asked in self._asked.items() if asked[0] == peer])

    def tick(self, now_ms: int) -> None:
        """Drop messages that have waited for too long, and ask others for pieces that did not come in time."""
        for number in [number for number, one in self.messages.items() if now_ms - one.since_ms > WAIT_MS]:
            self.drop(number, "given up")
        self._ask_others([digest for digest, asked in self._asked.items() if now_ms - asked[1] > ASK_MS])

    def ask(self, now_ms: int) -> list[Send]:
        """Return the questions for missing pieces. Each peer is asked for a few at a time."""
        wants: list[Send] = []
        for peer, todo in self._todo.items():
            # A peer is asked again only when half of its answers have come.
            if not todo or self._busy[peer] > WANTS_MAX // 2:
                continue
            wanted: list[bytes] = []
            while todo and self._busy[peer] < WANTS_MAX:
                digest, _ = todo.popitem(last=False)
                if digest in self._needs and digest not in self._asked and not self._has_better(digest, peer):
                    self._asked[digest] = (peer, now_ms)
                    self._busy[peer] += 1
                    wanted.append(digest)
            if wanted:
                self.counters["asked"] += len(wanted)
                wants.append(Send(peer, Want(tuple(wanted))))
        return wants

    def check(self) -> None:
        """Assert the invariant P1, and that all counts are right."""
        counts = Counter(one.sender for one in self.messages.values())
        sizes: Counter[NodeId] = Counter()
        for one in self.messages.values():
            sizes[one.sender] += one.size
        assert self._of_peer == {peer: (counts[peer], sizes[peer]) for peer in counts}, "P1: what waits is miscounted"
        assert len(self.messages) <= WAITING_MAX_ALL, f"P1: {len(self.messages)} messages wait"
        assert self._bytes == sizes.total() <= WAITING_BYTES_MAX_ALL, f"P1: {sizes.total()} bytes wait"
        assert all(count <= WAITING_MAX for count in counts.values()), f"P1: {counts} messages wait"
        assert all(size <= WAITING_BYTES_MAX for size in sizes.values()), f"P1: {sizes} bytes wait"
        assert +self._busy == Counter(peer for peer, _ in self._asked.values()), "P1: what is asked for is miscounted"
        assert all(count <= WANTS_MAX for count in self._busy.values()), f"P1: {self._busy} pieces are asked for"
        needs = {(digest, number) for number, one in self.messages.items() for digest in one.missing}
        noted = {(digest, number) for digest, numbers in self._needs.items() for number in numbers}
        assert needs == noted, "P1: what is missing is miscounted"

    def _ask_others(self, digests: list[bytes]) -> None:
        """Have other peers asked for pieces that did not come. If there are none, the same peer is asked again."""
        for digest in digests:
            failed = self._is_over(digest)
            if failed in self._of_peer:
                self._silent.add(failed)
            for peer in dict.fromkeys(self.messages[number].sender for number in self._needs.get(digest, ())):
                self._todo.setdefault(peer, OrderedDict())[digest] = None

    def _has_better(self, digest: bytes, peer: NodeId) -> bool:
        """Return whether `peer` was silent and another peer that was not can be asked for this piece."""
        if peer not in self._silent:
            return False
        return any(self.messages[number].sender not in self._silent for number in self._needs[digest])

    def _is_over(self, digest: bytes) -> NodeId:
        """Note that nobody is asked for a piece any more. Return the peer that was asked."""
        peer, _ = self._asked.pop(digest)
        self._busy[peer] -= 1
        if not self._busy[peer]:
            del self._busy[peer]
        return peer
