"""The questions that this node has answered lately. Their coordinators may count on it for the topics in question.

A node that has answered may be about to be linked. So it neither leaves such a topic nor drops a link on it for
`ASKED_PERIODS` (docs/omen.md, "A node that has answered stays for a moment").

A1  At most `QUESTIONS_MAX` questions are remembered. If there are more, the oldest question of the peer that sent most
    of them is forgotten. So a peer that sends many questions forgets its own, not those of others.
"""

from __future__ import annotations

from collections import Counter

from trellis.protocols.effects import NodeId

ASKED_PERIODS = 3  # Periods after our answer during which a coordinator may count on us.
QUESTIONS_MAX = 1_024


class Asked:
    def __init__(self) -> None:
        # (coordinator, number of its repair) -> the tick, our topics in the question, and the peer that sent it.
        self._questions: dict[tuple[NodeId, int], tuple[int, int, NodeId]] = {}
        self._sent: Counter[NodeId] = Counter()  # How many of these questions each peer has sent.

    def note(self, coordinator: NodeId, repair: int, tick: int, topics: int, sender: NodeId) -> None:
        """Remember a question. It replaces an earlier one of the same repair: one about no topic releases us."""
        self._forget((coordinator, repair))
        if len(self._questions) >= QUESTIONS_MAX:
            most = max(self._sent.values())
            self._forget(next(key for key, (_, _, peer) in self._questions.items() if self._sent[peer] == most))
        self._questions[coordinator, repair] = (tick, topics, sender)
        self._sent[sender] += 1

    def about(self, topics: int) -> bool:
        """Return whether a coordinator counts on us for any of these topics: it may be about to link us."""
        return any(asked & topics for _, asked, _ in self._questions.values())

    def since(self, coordinator: NodeId, tick: int) -> bool:
        """Return whether a coordinator has asked us in this tick or later."""
        return any(one == coordinator and at >= tick for (one, _), (at, _, _) in self._questions.items())

    def forget_old(self, tick: int) -> None:
        """Forget the questions that are older than `ASKED_PERIODS`."""
        for key in [key for key, (at, _, _) in self._questions.items() if tick - at > ASKED_PERIODS]:
            self._forget(key)

    def _forget(self, key: tuple[NodeId, int]) -> None:
        question = self._questions.pop(key, None)
        if question is not None:
            sender = question[2]
            self._sent[sender] -= 1
            if not self._sent[sender]:
                del self._sent[sender]

    def check(self) -> None:
        """Raise AssertionError if A1 does not hold."""
        assert len(self._questions) <= QUESTIONS_MAX, f"A1: {len(self._questions)} questions are remembered"
        senders = Counter(sender for _, _, sender in self._questions.values())
        assert senders == self._sent, "A1: the questions of some peer are counted wrongly"
