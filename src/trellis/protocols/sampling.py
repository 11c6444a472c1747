"""Peer sampling: get peers that seem to be drawn uniformly from all running nodes.  [docs/papers.md, parts]

Newscast (`newscast.py`) and Cyclon (`cyclon.py`) implement it with the same methods. This module has what both use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Contact, NodeId

Describe = Callable[[], Descriptor]  # Returns the node's own descriptor, with age 0.


class Contacts:
    """The nodes that a node can contact when it joins.

    Each contact is greeted first, until it has answered or was tried three times. Without this, a node that others find
    before it has greeted its contacts would forget them, and the network could form separate parts.

    After a long partition, the two sides have forgotten each other. If `revisit_rounds` is not 0, a contact is greeted
    every so many rounds. Live nodes do this with their seeds.
    """

    def __init__(self, contacts: Iterable[Contact], owner: NodeId) -> None:
        self.known = [node for node in contacts if node != owner]
        self._tries = dict.fromkeys(self.known, 3)
        self.revisit_rounds = 0

    def heard(self, node: NodeId) -> None:
        """Note a message of `node`: it need not be greeted any more."""
        self._tries.pop(node, None)

    def to_greet(self) -> Contact | None:
        """Return the next contact that has not answered yet, and count the try. None: there is no such contact."""
        for node, tries in self._tries.items():
            if tries > 1:
                self._tries[node] = tries - 1
            else:
                del self._tries[node]
            return node
        return None

    def is_due(self, round: int) -> bool:
        """Return whether a contact should be visited again in this round."""
        return self.revisit_rounds > 0 and round % self.revisit_rounds == 0

    def any(self, random: Random) -> Contact | None:
        """Return a random contact, or None if there is none."""
        return self.known[random.randrange(len(self.known))] if self.known else None
