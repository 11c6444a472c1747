"""How a coordinator has links opened."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trellis.protocols.effects import Effects, NodeId, Send
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.messages import Life, OpenLink
from trellis.protocols.omen.shadow import Pair
from trellis.protocols.wire import PEERS_MAX


def open_requests(number: int, tries: Mapping[Pair, int], answers: Answers) -> Effects:
    """Have each link opened from one end, with one message for all links of that end. Later from both ends.

    `number` is that of the repair, `tries` says for each pair how often it is asked for, this time included. The end
    that has most of the links opens them.
    """
    effects: Effects = []
    first: dict[NodeId, list[Life]] = {}
    ends = Counter(node for pair in tries for node in pair)
    for (one, other), count in tries.items():
        lives = {node: Life(node, answers.told[node].incarnation) for node in (one, other)}
        if count == 1:
            opener, peer = (one, other) if ends[one] >= ends[other] else (other, one)
            first.setdefault(opener, []).append(lives[peer])
            continue
        for opener, peer in (one, other), (other, one):
            effects.append(Send(opener, OpenLink(number, peer, lives[peer].incarnation)))
    for opener, peers in first.items():
        for start in range(0, len(peers), PEERS_MAX):
            next_peer, *more = peers[start : start + PEERS_MAX]
            effects.append(Send(opener, OpenLink(number, next_peer.node, next_peer.incarnation, tuple(more))))
    return effects
