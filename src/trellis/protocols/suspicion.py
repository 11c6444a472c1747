"""Decide when a silent peer is suspected of a crash, by counting rounds without a message.  [docs/papers.md, parts]

There is no clock: the owner calls `tick` once per period, and that is a round. A watched peer is suspected if nothing
was received from it for `silence_max` rounds in sequence. `tick` returns it in every round until it is heard again or
no longer watched. Every message of a peer counts.

The promises below assume that a peer sends one message per round, and that each is lost independently with probability
p:

- A crashed peer is suspected `silence_max` rounds after its last message, or one round later, since rounds are not
  aligned.
- A running peer is suspected wrongly with probability p^silence_max per round and link. Here p is the loss in one
  direction if both ends send on their own, and 1 - (1 - p)^2 if one end asks and the other answers. With silence_max =
  5 that is 3.1e-7 at 5% loss in one direction, 8.8e-6 for questions and answers, and 2.4e-3 at 30% in one direction.
  `tests/examples/test_protocols_suspicion.py` measures this.
- A wrong suspicion costs the owner a link, and no more: it may watch the peer again at once.
- If the watching node itself pauses, it suspects nobody for that, because it does not tick.

A peer that restarts under the same name has a higher incarnation. Messages of an older incarnation do not count. The
first message of a newer one shows that the peer has forgotten everything. `heard` returns which of these cases it is.
"""

from __future__ import annotations

from enum import Enum

from trellis.protocols.effects import NodeId


class Sign(Enum):
    """What a message says about its sender."""

    ALIVE = "alive"  # It is of the known incarnation, or has none.
    RESTARTED = "restarted"  # It is of a newer incarnation than the known one.
    STALE = "stale"  # It is of an earlier incarnation: it came late and should be ignored.
    UNWATCHED = "unwatched"


# Looking up a member of an `Enum` class takes longer than the rest of `heard`.
ALIVE, RESTARTED, STALE, UNWATCHED = Sign.ALIVE, Sign.RESTARTED, Sign.STALE, Sign.UNWATCHED


class Suspicion:
    """Counts for each watched peer the rounds since its last message."""

    def __init__(self, silence_max: int) -> None:
        self.silence_max = silence_max
        self._silence: dict[NodeId, int] = {}  # Rounds since the last message of each watched peer.
        self._incarnation: dict[NodeId, int] = {}

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self._silence

    @property
    def watched(self) -> list[NodeId]:
        """Return the watched peers, in the order in which watching began."""
        return list(self._silence)

    def watches_just(self, peers: set[NodeId]) -> bool:
        """Return whether exactly these peers are watched."""
        return self._silence.keys() == peers

    def watch(self, peer: NodeId) -> None:
        """Watch a peer, and count its silence from now. If it is watched already, change nothing."""
        self._silence.setdefault(peer, 0)

    def unwatch(self, peer: NodeId) -> None:
        """Stop watching a peer, and forget its incarnation."""
        self._silence.pop(peer, None)
        self._incarnation.pop(peer, None)

    def heard(self, peer: NodeId, incarnation: int | None = None) -> Sign:
        """Note a message of a peer, and return what it says about the peer."""
        if peer not in self._silence:
            return UNWATCHED
        sign = ALIVE
        if incarnation is not None:
            known = self._incarnation.get(peer)
            if known != incarnation:
                if known is not None:
                    if incarnation < known:
                        return STALE
                    sign = RESTARTED
                self._incarnation[peer] = incarnation
        self._silence[peer] = 0
        return sign

    def incarnation_of(self, peer: NodeId) -> int:
        """Return the latest known incarnation of a watched peer, or 0 if none was named."""
        return self._incarnation.get(peer, 0)

    def silence_of(self, peer: NodeId) -> int:
        """Return the rounds since the last message of a peer, with the present one. 0: the peer is not watched."""
        return self._silence.get(peer, 0)

    def tick(self) -> list[NodeId]:
        """End a round, and return the peers suspected now, in the order in which watching began."""
        for peer in self._silence:
            self._silence[peer] += 1
        # A peer that was heard in the round that ends has the count 1 now, hence `>`.
        return [peer for peer, rounds in self._silence.items() if rounds > self.silence_max]
