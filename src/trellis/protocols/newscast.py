"""Newscast: a view of the c freshest descriptors, exchanged with a random member once per period.

Both sides of an exchange keep the c freshest of what they have and what they get, one per node, never themselves.
Freshness is an age in rounds (no clock); where the cut falls among equals, chance decides, or names would be favoured.
In a small network nothing pushes a dead node out of the view, so descriptors above `age_max` go as well (A-SUB-2).
A node that hears from nobody for a while turns to the contacts it started with.

W1  at most `view_size` entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.descriptors import Descriptor, Descriptors, DescriptorTable
from trellis.protocols.effects import Contact, Effects, NodeId, Send, SetTimer
from trellis.protocols.sampling import Contacts, Describe
from trellis.protocols.wire import PEERS_MAX, Codec


class NewscastConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    view_size: int = 20
    """c. Raising it makes the overlay harder to split and samples more random; it costs bytes. A-SUB-1: 20 (or 30)."""

    period_ms: int = 1_000
    """Raising it saves traffic; news spread and dead nodes fade more slowly."""

    age_max: int = 30
    """Rounds after which a descriptor is dropped. Raising it keeps living nodes under heavy loss; dead ones too."""

    lonely_rounds: int = 5
    """Rounds without a word after which the first contacts are tried again."""

    def __post_init__(self) -> None:
        for field, least in (("view_size", 1), ("period_ms", 1), ("age_max", 1), ("lonely_rounds", 1)):
            if getattr(self, field) < least:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {least} or more")
        if self.view_size >= PEERS_MAX:
            raise InputError("", f"view_size is {self.view_size}", f"give less than {PEERS_MAX}")


class NewscastRequest(msgspec.Struct, frozen=True, gc=False, tag="newscast-request"):
    descriptors: Descriptors


class NewscastReply(msgspec.Struct, frozen=True, gc=False, tag="newscast-reply"):
    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(NewscastRequest | NewscastReply)


class Newscast:
    def __init__(
        self, describe: Describe, contacts: Iterable[Contact], random: Random, config: NewscastConfig | None = None
    ) -> None:
        self.describe, self.random, self.config = describe, random, config or NewscastConfig()
        self.id = describe().node
        self.contacts = Contacts(contacts, self.id)
        self.table = DescriptorTable(self.id, self.config.age_max)
        self.silent_rounds = 0
        self._told: list[Descriptor] | None = None  # as long as the table does not change: other parts tell it, too
        self._exchange = SetTimer("newscast/exchange", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        return self.table.describe()

    def told(self) -> list[Descriptor]:
        """As they are told to others. Not to be changed."""
        if self._told is None:
            self._told = self.table.describe(hops=1)
        return self._told

    def sample(self, count: int) -> list[NodeId]:
        return self.random.sample(self.peers, min(count, len(self.table)))

    def start(self) -> Effects:
        return [SetTimer(self._exchange.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        """The active thread: once per period."""
        self.table.advance()
        self._told = None
        self.silent_rounds += 1
        peer = self._partner()
        if peer is None:
            return [self._exchange]
        return [Send(peer, NewscastRequest(self._news())), self._exchange]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        effects: Effects = []
        if isinstance(message, NewscastRequest):
            effects = [Send(sender, NewscastReply(self._news()))]  # what we knew before
        elif not isinstance(message, NewscastReply):
            return effects
        self.silent_rounds = 0
        self.contacts.heard(sender)
        self.learn(message.descriptors)
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        self.table.bury(peer)
        self._told = None
        return []

    def learn(self, descriptors: Iterable[Descriptor]) -> None:
        """What was heard of others by other means."""
        self.table.merge(descriptors)
        self._keep_the_freshest()
        self._told = None

    def check(self) -> None:
        assert len(self.table) <= self.config.view_size, f"W1: {len(self.table)} entries"
        self.table.check()

    def _partner(self) -> Contact | None:
        lonely = not self.table.entries or self.silent_rounds > self.config.lonely_rounds
        lonely = lonely or self.contacts.is_due(self.table.round)
        first = self.contacts.to_greet() or (self.contacts.any(self.random) if lonely else None)
        if first is not None or not self.table.entries:
            return first
        return self.peers[self.random.randrange(len(self.table))]

    def _news(self) -> tuple[Descriptor, ...]:
        return (self.describe(), *self.told())

    def _keep_the_freshest(self) -> None:
        entries, size = self.table.entries, self.config.view_size
        if len(entries) <= size:
            return
        cut = sorted([born for born, _ in entries.values()])[-size]
        kept = {node: entry for node, entry in entries.items() if entry[0] > cut}
        tied = [node for node, entry in entries.items() if entry[0] == cut]
        for node in self.random.sample(tied, size - len(kept)):
            kept[node] = entries[node]
        self.table.entries = kept
