"""Cyclon: peer sampling by shuffles, the alternative to Newscast that Vitis allows.  [VI §III-A; A-SUB-1]

Once per period a node removes the oldest entry from its view and starts a shuffle with that node. It sends a new
descriptor of itself and a few of its other entries. The partner answers with entries of its own. Each side adds what it
received. If the view is full, received entries replace the ones that were sent.

A crashed node becomes the oldest entry sooner or later. It is then removed, and its reply never comes.

Shuffles alone do not add entries to a view. So a reply also has the partner's own descriptor, which is kept while the
view is not full. In this way a node that joins with one contact gets a full view.

C1  The view has at most `view_size` entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.descriptors import Descriptor, Descriptors, DescriptorTable
from trellis.protocols.effects import Contact, Effects, NodeId, Seed, Send, SetTimer
from trellis.protocols.sampling import Contacts, Describe
from trellis.protocols.wire import PEERS_MAX, Codec


class CyclonConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of `Cyclon`."""

    view_size: int = 20
    """Entries in the view. Raising it makes the overlay harder to split, and costs memory."""

    shuffle_size: int = 8
    """Entries in a shuffle. Raising it mixes the views faster, and costs bytes."""

    period_ms: int = 1_000
    """Time between two shuffles. Raising it saves traffic, but crashed nodes stay in views for longer."""

    age_max: int = 60
    """Rounds after which an entry is dropped even if nobody has contacted its node. Raising it keeps more entries if
    messages are lost."""

    def __post_init__(self) -> None:
        for field in ("view_size", "shuffle_size", "period_ms", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")
        if not self.shuffle_size <= self.view_size < PEERS_MAX:
            what = f"shuffle_size is {self.shuffle_size} and view_size {self.view_size}"
            raise InputError("", what, f"shuffle no more than the view, and keep that below {PEERS_MAX}")


class CyclonRequest(msgspec.Struct, frozen=True, gc=False, tag="cyclon-request"):
    """Start a shuffle: the sender's own descriptor first, then some entries of its view."""

    descriptors: Descriptors


class CyclonReply(msgspec.Struct, frozen=True, gc=False, tag="cyclon-reply"):
    """Answer a shuffle: the sender's own descriptor first, then some entries of its view."""

    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(CyclonRequest | CyclonReply)


class Cyclon:
    """The peer sampling part of a node. Its owner passes on messages and the timers that begin with `cyclon/`."""

    def __init__(
        self, describe: Describe, contacts: Iterable[Contact], random: Random, config: CyclonConfig | None = None
    ) -> None:
        self.describe, self.random, self.config = describe, random, config or CyclonConfig()
        self.id = describe().node
        self.contacts = Contacts(contacts, self.id)
        self.table = DescriptorTable(self.id, self.config.age_max)
        # The partner of our last request, and the entries that we sent to it.
        self._given: dict[Contact, list[NodeId]] = {}
        self._shuffle = SetTimer("cyclon/shuffle", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        """Return the nodes in the view."""
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        """Return the entries of the view as descriptors, with their present ages."""
        return self.table.describe()

    def told(self) -> list[Descriptor]:
        """Return the entries of the view as they are sent to others: one hop older."""
        return self.table.describe(hops=1)

    def sample(self, count: int) -> list[NodeId]:
        """Return up to `count` different nodes of the view, drawn at random."""
        return self.random.sample(self.peers, min(count, len(self.table)))

    def start(self) -> Effects:
        """Set the timer of the first shuffle, at a random time within one period."""
        return [SetTimer(self._shuffle.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        """Start a shuffle: with a contact that has not answered yet, else with the node of the oldest entry."""
        self.table.advance()
        partner = self.contacts.to_greet() or self._oldest() or self.contacts.any(self.random)
        if partner is None:
            return [self._shuffle]
        if not isinstance(partner, Seed):
            self.table.forget(partner)
        given = self.sample(self.config.shuffle_size - 1)
        # An earlier request that is still here was not answered, so its partner has probably crashed.
        self._given = {partner: given}
        offer = (self.describe(), *self.table.describe(given, hops=1))
        return [Send(partner, CyclonRequest(offer)), self._shuffle]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Answer a request with entries of our own, and take in what a request or a reply brings."""
        if isinstance(message, CyclonRequest):
            self.contacts.heard(sender)
            given = [node for node in self.sample(self.config.shuffle_size) if node != sender]
            answer = CyclonReply((self.describe(), *self.table.describe(given, hops=1)))
            self._take(message.descriptors, given)
            return [Send(sender, answer)]
        if isinstance(message, CyclonReply):
            self.contacts.heard(sender)
            self._take(message.descriptors[1:], self._given.pop(sender, []))
            self._take(message.descriptors[:1], [])
        return []

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Drop `peer`, and ignore descriptors of it that are older than this."""
        self.table.bury(peer)
        return []

    def check(self) -> None:
        """Assert the invariants C1 and D1."""
        assert len(self.table) <= self.config.view_size, f"C1: {len(self.table)} entries"
        self.table.check()

    def _oldest(self) -> NodeId | None:
        """Return the node of the oldest entry, or None if the view is empty. Ties are broken at random."""
        if not self.table.entries:
            return None
        first = min(born for born, _ in self.table.entries.values())
        oldest = [node for node, (born, _) in self.table.entries.items() if born == first]
        return oldest[self.random.randrange(len(oldest))]

    def _take(self, descriptors: tuple[Descriptor, ...], given: list[NodeId]) -> None:
        """Add `descriptors` to the view. If it is full, each new node replaces one of `given`, or is ignored."""
        given = [node for node in given if node in self.table]
        for descriptor in descriptors:
            if descriptor.node not in self.table and len(self.table) >= self.config.view_size:
                if not given:
                    continue
                self.table.forget(given.pop())
            self.table.merge([descriptor])
