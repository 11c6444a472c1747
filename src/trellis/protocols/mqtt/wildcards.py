"""The patterns of this node's own clients: which nodes have taken them in, and which messages are owed since.

A node that has taken in a pattern says so (`Heard`), with the number of the last message that it has published. Every
later message of it comes here: as a copy, or over its overlay topic. An earlier one may come, or may not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt.envelope import MEMBERS_MAX, NEVER
from trellis.protocols.mqtt.interests import Interests

AGAIN_MS = 2_000  # a pattern that somebody has not answered is told again after so long, then ever later

Since = tuple[Incarnation, int]  # an incarnation of a node, and when it has said something


class Taken(NamedTuple):
    """A node has said that it has taken a pattern in."""

    incarnation: Incarnation  # of that node
    number: int  # of the last message that it had published before
    heard_ms: int


@dataclass
class Wildcard:
    """A pattern of ours."""

    number: int
    told_ms: int | None = None
    pause_ms: int = AGAIN_MS  # until it is told again, if somebody has not answered
    answered: dict[NodeId, Taken] = field(default_factory=dict)
    ready_ms: int = NEVER  # since when every node has taken it in

    @property
    def is_ready(self) -> bool:
        return self.ready_ms < NEVER

    def owes(self, origin: NodeId, incarnation: Incarnation, number: int, joined: Since | None) -> bool:
        """Return whether a message of `origin` was published after that node had taken the pattern in.

        `joined` tells when `origin` has said `Who`. A node that joins after the pattern was ready copies everything
        until it knows of the pattern.
        """
        taken = self.answered.get(origin)
        if taken is not None and taken.incarnation == incarnation:
            return number > taken.number
        return joined is not None and joined[0] == incarnation and joined[1] >= self.ready_ms

    def knows_older(self, origin: NodeId, incarnation: Incarnation, number: int, than_ms: int) -> bool:
        """Return whether a message of `origin` was certainly published before `than_ms`."""
        taken = self.answered.get(origin)
        return (
            taken is not None
            and taken.incarnation == incarnation
            and number <= taken.number
            and taken.heard_ms <= than_ms
        )


class Owed:
    """Tells which messages of other nodes come for certain."""

    def __init__(self, wildcards: dict[str, Wildcard], interests: Interests, confirmed: dict[Topic, int]) -> None:
        """`confirmed` are the topics that the mesh brings here, each with the time since which it does."""
        self.wildcards, self.interests, self.confirmed = wildcards, interests, confirmed
        self.whos: dict[NodeId, Since] = {}  # nodes that have said `Who`

    def on_who(self, origin: NodeId, incarnation: Incarnation, now_ms: int) -> None:
        known = self.whos.get(origin)
        if known is not None and known[0] == incarnation:
            return  # it asks again
        if known is not None or len(self.whos) < MEMBERS_MAX:
            self.whos[origin] = (incarnation, now_ms)

    def is_owed(self, prefix: Topic, origin: NodeId, incarnation: Incarnation, number: int, path: Topic) -> bool:
        """Return whether the predecessor of a message that came over `path` comes for certain, as far as we know.

        It is owed to a pattern, or may be owed to a client that has named the overlay topic, and come over that.
        """
        joined = self.whos.get(origin)
        found = [self.wildcards[one] for one in self.interests.covering(prefix) if one in self.wildcards]
        if any(one.owes(origin, incarnation, number, joined) for one in found):
            return True
        if path == prefix or prefix not in self.confirmed or not self.interests.is_named(prefix):
            return False
        return not any(one.knows_older(origin, incarnation, number, self.confirmed[prefix]) for one in found)
