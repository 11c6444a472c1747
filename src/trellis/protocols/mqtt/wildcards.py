"""The patterns of this node's own clients: which nodes have taken them in, and which messages are owed since.

A node that has taken in a pattern says so (`Heard`), with the number of the last message that it has published. Every
later message of that node that fits arrives here, as a copy or over its overlay topic. An earlier one may or may not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import MEMBERS_MAX, NEVER
from trellis.protocols.mqtt.interests import Interests

AGAIN_MS = 2_000  # pause before a pattern that some node has not answered is told again; it doubles each time

Since = tuple[Incarnation, int]  # an incarnation of a node, and when it said something


class Taken(NamedTuple):
    """A node has said that it has taken in a pattern."""

    incarnation: Incarnation  # of that node
    number: int  # number of the last message that it had published before
    heard_ms: int


@dataclass
class Wildcard:
    """A pattern of this node's clients."""

    number: int
    told_ms: int | None = None
    pause_ms: int = AGAIN_MS  # time until it is told again, if some node has not answered
    answered: dict[NodeId, Taken] = field(default_factory=dict)
    ready_ms: int = NEVER  # since when every node has taken it in

    @property
    def is_ready(self) -> bool:
        """Whether every node has taken it in."""
        return self.ready_ms < NEVER

    def owes(self, origin: NodeId, incarnation: Incarnation, number: int, joined: Since | None) -> bool:
        """Return whether `origin` published a message after it had taken in the pattern.

        `joined` tells when `origin` said `Who`. A node that joins after the pattern was ready copies everything until
        it knows the pattern.
        """
        taken = self.answered.get(origin)
        if taken is not None and taken.incarnation == incarnation:
            return number > taken.number
        return joined is not None and joined[0] == incarnation and joined[1] >= self.ready_ms

    def knows_older(self, origin: NodeId, incarnation: Incarnation, number: int, than_ms: int) -> bool:
        """Return whether `origin` certainly published a message before `than_ms`."""
        taken = self.answered.get(origin)
        return (
            taken is not None
            and taken.incarnation == incarnation
            and number <= taken.number
            and taken.heard_ms <= than_ms
        )


class Owed:
    """Decides which messages of other nodes will certainly arrive."""

    def __init__(self, wildcards: dict[str, Wildcard], interests: Interests, confirmed: dict[Topic, int]) -> None:
        """`confirmed` has the topics that the mesh brings here, each with the time since when."""
        self.wildcards, self.interests, self.confirmed = wildcards, interests, confirmed
        self.whos: dict[NodeId, Since] = {}  # nodes that have said `Who`

    def on_who(self, origin: NodeId, incarnation: Incarnation, now_ms: int) -> None:
        """A node has said `Who`."""
        known = self.whos.get(origin)
        if known is not None and known[0] == incarnation:
            return  # it asks again
        if known is not None or len(self.whos) < MEMBERS_MAX:
            self.whos[origin] = (incarnation, now_ms)

    def is_owed(self, prefix: Topic, origin: NodeId, incarnation: Incarnation, number: int, path: Topic) -> bool:
        """Return whether the predecessor of a message that came over `path` will certainly arrive, as far as we know.

        It is owed to a pattern; or it may be owed to a client that has named the overlay topic, and then arrives over
        that.
        """
        joined = self.whos.get(origin)
        covering = [self.wildcards[name] for name in self.interests.covering(prefix) if name in self.wildcards]
        if any(wildcard.owes(origin, incarnation, number, joined) for wildcard in covering):
            return True
        if path == prefix or prefix not in self.confirmed or not self.interests.is_named(prefix):
            return False
        return not any(known.knows_older(origin, incarnation, number, self.confirmed[prefix]) for known in covering)
