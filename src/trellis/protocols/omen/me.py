"""Who a node is: its name, its lives, its topics, and a version of everything that it tells about itself."""

from __future__ import annotations

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.topics import TopicTable

REFUTATIONS = 1 << 20  # an incarnation is (life, how often a death of that life was refuted)


def life_of(incarnation: int) -> int:
    """A restart is a new life; a refutation is not: the node has forgotten nothing."""
    return incarnation // REFUTATIONS


class Me:
    def __init__(self, node: NodeId, topics: tuple[Topic, ...], table: TopicTable, life: int) -> None:
        self.id, self.table = node, table
        self.incarnation = life * REFUTATIONS
        self.interest = table.own_bits(topics)  # what it takes part in
        self.leaving = 0  # of these, what it wants no more and relays until others are linked  [make before break]
        self.topics = topics  # the names of `interest`, sorted
        self.version = 1  # grows whenever topics or hints change
        self.topics_version = 1
        self.degree = 0
        self.primaries: dict[NodeId, int] = {}  # who counts on us as a backup -> the tick at which it said so
        self.is_leaving = False  # for good

    @property
    def wanted(self) -> int:
        return self.interest & ~self.leaving

    def take_part(self, interest: int) -> None:
        if interest != self.interest:
            self.interest = interest
            self.topics = self.table.topics(interest)
            self.version += 1
            self.topics_version = self.version

    def refute(self, suspected: int) -> bool:
        """Somebody thinks that we are dead: say the contrary, louder. No suspicion may lead into the next life."""
        is_ours = life_of(suspected) == life_of(suspected + 1) == life_of(self.incarnation)
        if not is_ours or suspected < self.incarnation:
            return False
        self.incarnation = suspected + 1
        return True

    def describe(self) -> Descriptor:
        return Descriptor(self.id, 0, self.incarnation, self.topics, (self.degree + len(self.primaries), self.degree))
