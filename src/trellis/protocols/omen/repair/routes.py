"""Routes of questions (`Route`): nodes pass a question on to each other, so that fewer messages are sent.

Asking k nodes directly takes 2k messages. On a route it takes k + 1: each node adds its answer and passes the question
on, and the last one sends all answers to the asker. If a node on the route does not pass the question on, no answer
comes. Then the asker asks each node of the route directly (`questions.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from trellis.protocols.effects import NodeId
from trellis.protocols.omen.messages import ROUTE_MAX


def split_into_routes(nodes: Sequence[NodeId], longest: int) -> list[Sequence[NodeId]]:
    """Split these nodes into as few routes of at most `longest` nodes as possible, all about equally long."""
    count = -(-len(nodes) // max(1, min(longest, ROUTE_MAX)))
    return [nodes[number * len(nodes) // count : (number + 1) * len(nodes) // count] for number in range(count)]
