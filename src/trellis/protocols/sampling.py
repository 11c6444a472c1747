"""Peer sampling: each call yields peers as if drawn uniformly from all living nodes.  [docs/papers.md, parts]

Newscast (`newscast.py`) and Cyclon (`cyclon.py`) do it, with the same face; here is what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import Contact, NodeId

Describe = Callable[[], Descriptor]  # one's own descriptor, at age 0


class Contacts:
    """Whom a node knows when it joins.

    Each is greeted first, until it is heard or was tried three times: a node that is found by others before it has
    greeted its own contacts would otherwise forget them, and the network would come up in pieces.

    Two halves of a network that was cut for long have forgotten each other. Where `revisit_rounds` is not 0, a contact
    is spoken to every so many rounds: live nodes do that with their seeds.
    """

    def __init__(self, contacts: Iterable[Contact], owner: NodeId) -> None:
        self.known = [node for node in contacts if node != owner]
        self._tries = dict.fromkeys(self.known, 3)
        self.revisit_rounds = 0

    def heard(self, node: NodeId) -> None:
        self._tries.pop(node, None)

    def to_greet(self) -> Contact | None:
        """The next one that was not heard yet."""
        for node, tries in self._tries.items():
            if tries > 1:
                self._tries[node] = tries - 1
            else:
                del self._tries[node]
            return node
        return None

    def is_due(self, round: int) -> bool:
        return self.revisit_rounds > 0 and round % self.revisit_rounds == 0

    def any(self, random: Random) -> Contact | None:
        return self.known[random.randrange(len(self.known))] if self.known else None
