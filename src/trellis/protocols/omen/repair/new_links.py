"""The new links of a repair or join, from the request until they are up.

At first one end of each link is asked to open it: the end that has more of the new links, so that one message tells it
all its links. If the link does not come up in time, both ends are asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from trellis.protocols.effects import NodeId, Send
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.messages import NodeRun, OpenLink
from trellis.protocols.omen.shadow import Pair
from trellis.protocols.omen.signals import Outcomes
from trellis.protocols.wire import PEERS_MAX


class NewLinks:
    """The links that Alg. 1 has chosen."""

    def __init__(self, number: int) -> None:
        """Create it without links. `number` is that of the repair, which ends of links tell when a link is up."""
        self.number = number
        self.opening: dict[Pair, int] = {}  # Links that are not up yet -> requests so far.
        self.opened: list[Pair] = []  # Links that are up, also those of earlier starts.

    def choose(self, pairs: Iterable[Pair]) -> None:
        """Replace the links that are not up yet by these."""
        self.opening = dict.fromkeys(pairs, 0)

    def request(self, answers: Answers) -> Outcomes:
        """Return the requests to open all links that are not up. `answers` has the incarnations of their ends."""
        for pair in self.opening:
            self.opening[pair] += 1
        effects: Outcomes = []
        first: dict[NodeId, list[NodeRun]] = {}
        ends = Counter(node for pair in self.opening for node in pair)
        for (one, other), count in self.opening.items():
            runs = {node: NodeRun(node, answers.told[node].incarnation) for node in (one, other)}
            if count == 1:
                opener, peer = (one, other) if ends[one] >= ends[other] else (other, one)
                first.setdefault(opener, []).append(runs[peer])
                continue
            for opener, peer in (one, other), (other, one):
                effects.append(Send(opener, OpenLink(self.number, peer, runs[peer].incarnation)))
        for opener, peers in first.items():
            for start in range(0, len(peers), PEERS_MAX):
                next_peer, *more = peers[start : start + PEERS_MAX]
                effects.append(Send(opener, OpenLink(self.number, next_peer.node, next_peer.incarnation, tuple(more))))
        return effects

    def is_overdue(self, tries: int) -> bool:
        """Return whether a link was requested so many times and is still not up."""
        return any(requests >= tries for requests in self.opening.values())

    def on_opened(self, node: NodeId, peers: Iterable[NodeId]) -> None:
        """Note that links between `node` and these peers are up."""
        for peer in peers:
            for pair in (node, peer), (peer, node):
                if pair in self.opening:
                    del self.opening[pair]
                    self.opened.append(pair)

    def give_up(self, node: NodeId) -> bool:
        """Forget the links of a node that are not up yet. Return whether there were any."""
        lost = [pair for pair in self.opening if node in pair]
        for pair in lost:
            del self.opening[pair]
        return bool(lost)
