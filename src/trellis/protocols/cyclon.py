"""Cyclon: peer sampling by shuffles, the alternative to Newscast that Vitis allows.  [VI §III-A; A-SUB-1]

Once per period a node takes the oldest member out of its view and offers it a few of its own entries and a fresh
descriptor of itself; the other answers with as many of its own. Each fills its view with what it got, first into empty
places, then in place of what it gave away. A dead node is found when it is the oldest: it is already taken out.
Shuffles alone keep the number of entries as it is, so an answer also brings the partner's own descriptor, which is kept
while the view is not full: a node that joins with one contact comes to a whole view.

C1  at most `view_size` entries.
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
    view_size: int = 20
    """Raising it makes the overlay harder to split; it costs memory."""

    shuffle_size: int = 8
    """Entries in a shuffle. Raising it mixes faster; it costs bytes."""

    period_ms: int = 1_000
    """Raising it saves traffic; dead nodes stay longer."""

    age_max: int = 60
    """Rounds after which an entry is dropped even if nobody has tried it. Raising it keeps more under loss."""

    def __post_init__(self) -> None:
        for field in ("view_size", "shuffle_size", "period_ms", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")
        if not self.shuffle_size <= self.view_size < PEERS_MAX:
            what = f"shuffle_size is {self.shuffle_size} and view_size {self.view_size}"
            raise InputError("", what, f"shuffle no more than the view, and keep that below {PEERS_MAX}")


class CyclonRequest(msgspec.Struct, frozen=True, gc=False, tag="cyclon-request"):
    descriptors: Descriptors


class CyclonReply(msgspec.Struct, frozen=True, gc=False, tag="cyclon-reply"):
    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(CyclonRequest | CyclonReply)


class Cyclon:
    def __init__(
        self, describe: Describe, contacts: Iterable[Contact], random: Random, config: CyclonConfig | None = None
    ) -> None:
        self.describe, self.random, self.config = describe, random, config or CyclonConfig()
        self.id = describe().node
        self.contacts = Contacts(contacts, self.id)
        self.table = DescriptorTable(self.id, self.config.age_max)
        self._given: dict[Contact, list[NodeId]] = {}  # partner -> what it was offered last
        self._shuffle = SetTimer("cyclon/shuffle", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        return self.table.describe()

    def told(self) -> list[Descriptor]:
        return self.table.describe(hops=1)

    def sample(self, count: int) -> list[NodeId]:
        return self.random.sample(self.peers, min(count, len(self.table)))

    def start(self) -> Effects:
        return [SetTimer(self._shuffle.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        self.table.advance()
        partner = self.contacts.to_greet() or self._oldest() or self.contacts.any(self.random)
        if partner is None:
            return [self._shuffle]
        if not isinstance(partner, Seed):
            self.table.forget(partner)
        given = self.sample(self.config.shuffle_size - 1)
        self._given = {partner: given}  # an older offer was not answered: its partner is gone
        offer = (self.describe(), *self.table.describe(given, hops=1))
        return [Send(partner, CyclonRequest(offer)), self._shuffle]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
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
        self.table.bury(peer)
        return []

    def check(self) -> None:
        assert len(self.table) <= self.config.view_size, f"C1: {len(self.table)} entries"
        self.table.check()

    def _oldest(self) -> NodeId | None:
        if not self.table.entries:
            return None
        first = min(born for born, _ in self.table.entries.values())
        oldest = [node for node, (born, _) in self.table.entries.items() if born == first]
        return oldest[self.random.randrange(len(oldest))]

    def _take(self, descriptors: tuple[Descriptor, ...], given: list[NodeId]) -> None:
        given = [node for node in given if node in self.table]
        for descriptor in descriptors:
            if descriptor.node not in self.table and len(self.table) >= self.config.view_size:
                if not given:
                    continue
                self.table.forget(given.pop())
            self.table.merge([descriptor])
