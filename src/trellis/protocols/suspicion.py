"""When to believe that a peer is gone: silences counted in the rounds of the one who listens.  [docs/papers.md, parts]

No clock: a round is whatever period its owner calls `tick` with. A peer that was not heard for `silence_max` rounds on
end is suspected, in every round until it is heard again or no longer watched. Any message of a peer is a sign of life.

What it promises, where each sign of life is lost independently with probability p and one is sent per round:

- a crashed peer is suspected `silence_max` rounds after its last sign of life, or one later (rounds are not aligned);
- a living peer is wrongly suspected with probability p^silence_max per round and link, p the loss one way where both
  ends send by themselves, and 1 - (1 - p)^2 where one end asks and the other answers. With silence_max = 5: 3.1e-7 at
  5% loss one way, 8.8e-6 for questions and answers, 2.4e-3 at 30% one way; measured by
  `tests/examples/test_protocols_suspicion.py`;
- a wrong suspicion is no more than a lost link to its owner: the peer may be watched again at once;
- its own pauses cost nothing: a node that stood still has not ticked.

A peer that restarts under the same name has a higher incarnation. Signs of an older life are no signs of life, and the
first sign of a newer one says that the peer has forgotten everything: `heard` tells the three apart.
"""

from __future__ import annotations

from enum import Enum

from trellis.protocols.effects import NodeId


class Sign(Enum):
    ALIVE = "alive"  # as it was known, or without an incarnation
    RESTARTED = "restarted"  # a newer life than the one that was known
    STALE = "stale"  # from an earlier life: late, to be ignored
    UNWATCHED = "unwatched"


# Looking a member up in its class takes longer than all the rest of `heard`.
ALIVE, RESTARTED, STALE, UNWATCHED = Sign.ALIVE, Sign.RESTARTED, Sign.STALE, Sign.UNWATCHED


class Suspicion:
    def __init__(self, silence_max: int) -> None:
        self.silence_max = silence_max
        self._silence: dict[NodeId, int] = {}  # rounds since the last sign of life
        self._incarnation: dict[NodeId, int] = {}

    def __contains__(self, peer: NodeId) -> bool:
        return peer in self._silence

    @property
    def watched(self) -> list[NodeId]:
        return list(self._silence)

    def watches_just(self, peers: set[NodeId]) -> bool:
        return self._silence.keys() == peers

    def watch(self, peer: NodeId) -> None:
        """Silence counts from now; nothing changes for a peer that is watched already."""
        self._silence.setdefault(peer, 0)

    def unwatch(self, peer: NodeId) -> None:
        self._silence.pop(peer, None)
        self._incarnation.pop(peer, None)

    def heard(self, peer: NodeId, incarnation: int | None = None) -> Sign:
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
        """The latest life that was heard of; 0 where none was named."""
        return self._incarnation.get(peer, 0)

    def silence_of(self, peer: NodeId) -> int:
        """Return the rounds since the last sign of life, the present one included; 0 for a peer that is not watched."""
        return self._silence.get(peer, 0)

    def tick(self) -> list[NodeId]:
        """A round is over: those who are suspected now, in the order in which they came to be watched."""
        for peer in self._silence:
            self._silence[peer] += 1
        # The round that ends now counts for a peer that was heard in it, hence `>`.
        return [peer for peer, rounds in self._silence.items() if rounds > self.silence_max]
