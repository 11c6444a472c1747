"""One pattern of this node's own clients: which nodes have taken it in, and which messages it is owed since.

A node that has taken in a pattern says so (`Heard`), with the number of the last message that it has published. Every
later message of it comes here: as a copy, or over its overlay topic. An earlier one may come, or may not.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trellis.protocols.effects import NodeId
from trellis.protocols.mqtt.envelope import NEVER

AGAIN_MS = 2_000  # a pattern that somebody has not answered is told again after so long, then ever later

Since = tuple[int, int]  # an incarnation of a node; the number or the time that belongs to it


@dataclass
class Wildcard:
    """A pattern of ours."""

    number: int
    told_ms: int | None = None
    pause_ms: int = AGAIN_MS  # until it is told again, if somebody has not answered
    answered: dict[NodeId, Since] = field(default_factory=dict)  # -> the last message from before the answer
    ready_ms: int = NEVER  # since when every node has taken it in

    @property
    def is_ready(self) -> bool:
        return self.ready_ms < NEVER

    def owes(self, origin: NodeId, life: int, number: int, joined: Since | None) -> bool:
        """Return whether a message of `origin` was published after that node had taken the pattern in.

        `joined` tells when `origin` has said `Who`. A node that joins after the pattern was ready copies everything
        until it knows of the pattern.
        """
        if origin in self.answered and self.answered[origin][0] == life:
            return number > self.answered[origin][1]
        return joined is not None and joined[0] == life and joined[1] >= self.ready_ms
