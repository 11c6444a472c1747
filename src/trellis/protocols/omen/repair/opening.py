"""The messages by which a repair has its links opened. `Mend` calls `open_requests`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from trellis.protocols.effects import Effects, NodeId, Send
from trellis.protocols.omen.knowledge import Answers
from trellis.protocols.omen.messages import Life, OpenLink
from trellis.protocols.omen.shadow import Pair
from trellis.protocols.wire import PEERS_MAX


def open_requests(number: int, tries: Mapping[Pair, int], answers: Answers) -> Effects:
    """Return the requests to open these links: at first to one end of each, later to both ends.

    `number`   the number of the repair
    `tries`    how often each link was requested, this time included

    At first, the end that has more of the new links opens the link. One message tells it all its links.
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
