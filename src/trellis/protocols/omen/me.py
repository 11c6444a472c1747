"""The node's own identity and interest, shared by all parts: name, incarnation, topics, degree, versions.

An incarnation of OMen has two parts: incarnation = run * `REFUTATIONS` + refutations. The run is the number that the
node was started with; it grows at every restart, and a restarted node has forgotten everything. A refutation is the
node's answer to a suspicion: it is alive, in the same run, and says so with a higher incarnation. Code that asks
whether a node has restarted compares runs (`run_of`). Code that asks whether a suspicion is still true compares whole
incarnations.
"""

from __future__ import annotations

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.topics import TopicTable

PRIMARIES_MAX = 65_536  # Most nodes that we remember as counting on us as their backup.
REFUTATIONS = 1 << 20  # Incarnations of one run: a node can refute this many suspicions, less one.


def run_of(incarnation: int) -> int:
    """Return the run of an incarnation: the part that grows at restarts, and not at refutations."""
    return incarnation // REFUTATIONS


class Me:
    """What this node is and tells others about itself."""

    def __init__(self, node: NodeId, topics: tuple[Topic, ...], table: TopicTable, run: int) -> None:
        """Create the identity of a node that starts. `run` is the number of this run."""
        self.id, self.table = node, table
        self.incarnation = run * REFUTATIONS
        self.interest = table.own_bits(topics)  # The topics that this node takes part in, as a bitset.
        # Topics of `interest` that we are leaving. We relay them until the others are linked.  [make before break]
        self.leaving = 0
        self.topics = topics  # The names of `interest`, sorted.
        self.version = 1  # Grows whenever topics or hints change.
        self.topics_version = 1  # The version at which topics last changed.
        self.degree = 0  # Links that are up.
        self.primaries: dict[NodeId, int] = {}  # node that counts on us as its backup -> the tick at which it said so
        self.is_leaving = False  # The node leaves the mesh.

    @property
    def wanted(self) -> int:
        """The topics of `interest` that we are not leaving."""
        return self.interest & ~self.leaving

    def take_part(self, interest: int) -> None:
        """Change the topics that this node takes part in, to exactly these."""
        if interest != self.interest:
            self.interest = interest
            self.topics = self.table.topics(interest)
            self.version += 1
            self.topics_version = self.version

    def refute(self, suspected: int) -> bool:
        """Raise our incarnation above the one that another node suspects. Return whether it was raised.

        Nothing is raised if the suspicion is about another run, or is refuted already. The result stays in our run: a
        forged suspicion must not make us look restarted.
        """
        is_ours = run_of(suspected) == run_of(suspected + 1) == run_of(self.incarnation)
        if not is_ours or suspected < self.incarnation:
            return False
        self.incarnation = suspected + 1
        return True

    def describe(self) -> Descriptor:
        """Return what gossip tells about us. Its numbers are our weight as a backup (A-OMN-11), and our degree."""
        return Descriptor(self.id, 0, self.incarnation, self.topics, (self.degree + len(self.primaries), self.degree))

    def back(self, primary: NodeId, on: bool, tick: int) -> None:
        """Note whether a node counts on us as its backup."""
        self.primaries.pop(primary, None)
        if on and len(self.primaries) < PRIMARIES_MAX:
            self.primaries[primary] = tick

    def forget_primaries(self, tick: int) -> None:
        """Forget nodes that have not told since this tick that they count on us."""
        self.primaries = {node: told for node, told in self.primaries.items() if told > tick}
