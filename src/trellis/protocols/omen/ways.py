"""Ways of questions: which nodes pass a question on to each other, so that fewer messages are sent.

k nodes that are asked by themselves take 2k messages. On a way they take k + 1: each node adds its answer and passes
the question on, and the last one sends all answers to the asker. A way on which a node says nothing brings no answer;
then the asker asks each of its nodes by itself (`mend.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.messages import WAY_MAX


def ways_over(nodes: Sequence[NodeId], longest: int) -> list[Sequence[NodeId]]:
    """Return as few ways over these nodes as lengths of at most `longest` allow, all about equally long."""
    count = -(-len(nodes) // max(1, min(longest, WAY_MAX)))
    return [nodes[place * len(nodes) // count : (place + 1) * len(nodes) // count] for place in range(count)]
