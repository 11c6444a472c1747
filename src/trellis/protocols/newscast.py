"""Newscast: peer sampling by a view of the c youngest descriptors, exchanged with a random node once per period.

In an exchange both sides send their views and then keep the c youngest descriptors, one for each node, none of
themselves. The age is counted in rounds, since there is no clock. If descriptors of the same age compete for the last
entries, chance decides, so that no name is preferred.

In a small network a crashed node would never be pushed out of the view. So descriptors older than `age_max` are dropped
as well (A-SUB-2). A node that receives nothing for `lonely_rounds` tries its first contacts again.

W1  The view has at most `view_size` entries.
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
    """Settings of `Newscast`."""

    view_size: int = 20
    """Entries in the view, c in the paper. Raising it makes the overlay harder to split and samples more random, and
    costs bytes. A-SUB-1: 20 (or 30)."""

    period_ms: int = 1_000
    """Time between two exchanges. Raising it saves traffic, but news spread more slowly and crashed nodes stay for
    longer."""

    age_max: int = 30
    """Rounds after which a descriptor is dropped. Raising it keeps running nodes if many messages are lost, and keeps
    crashed nodes for longer."""

    lonely_rounds: int = 5
    """Rounds without any message after which the first contacts are tried again."""

    def __post_init__(self) -> None:
        for field, least in (("view_size", 1), ("period_ms", 1), ("age_max", 1), ("lonely_rounds", 1)):
            if getattr(self, field) < least:
                raise InputError("", f"{field} is {getattr(self, field)}", f"give {least} or more")
        if self.view_size >= PEERS_MAX:
            raise InputError("", f"view_size is {self.view_size}", f"give less than {PEERS_MAX}")


class NewscastRequest(msgspec.Struct, frozen=True, gc=False, tag="newscast-request"):
    """Start an exchange: the sender's own descriptor first, then its view."""

    descriptors: Descriptors


class NewscastReply(msgspec.Struct, frozen=True, gc=False, tag="newscast-reply"):
    """Answer an exchange: the sender's own descriptor first, then its view before the exchange."""

    descriptors: Descriptors


CODEC: Codec[msgspec.Struct] = Codec(NewscastRequest | NewscastReply)


class Newscast:
    """The peer sampling part of a node. Its owner passes on messages and the timers that begin with `newscast/`."""

    def __init__(
        self, describe: Describe, contacts: Iterable[Contact], random: Random, config: NewscastConfig | None = None
    ) -> None:
        self.describe, self.random, self.config = describe, random, config or NewscastConfig()
        self.id = describe().node
        self.contacts = Contacts(contacts, self.id)
        self.table = DescriptorTable(self.id, self.config.age_max)
        self.silent_rounds = 0
        # The result of `told`, until the table changes. Other parts send it as well.
        self._told: list[Descriptor] | None = None
        self._exchange = SetTimer("newscast/exchange", self.config.period_ms)

    @property
    def peers(self) -> list[NodeId]:
        """Return the nodes in the view."""
        return list(self.table.entries)

    def descriptors(self) -> list[Descriptor]:
        """Return the entries of the view as descriptors, with their present ages."""
        return self.table.describe()

    def told(self) -> list[Descriptor]:
        """Return the entries as they are sent to others: one hop older. The caller must not change the list."""
        if self._told is None:
            self._told = self.table.describe(hops=1)
        return self._told

    def sample(self, count: int) -> list[NodeId]:
        """Return up to `count` different nodes of the view, drawn at random."""
        return self.random.sample(self.peers, min(count, len(self.table)))

    def start(self) -> Effects:
        """Set the timer of the first exchange, at a random time within one period."""
        return [SetTimer(self._exchange.tag, self.random.randrange(self.config.period_ms))]

    def on_timer(self, tag: str) -> Effects:
        """Begin a round, and start an exchange with one node."""
        self.table.advance()
        self._told = None
        self.silent_rounds += 1
        peer = self._partner()
        if peer is None:
            return [self._exchange]
        return [Send(peer, NewscastRequest(self._news())), self._exchange]

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Answer a request, and take in the descriptors of a request or a reply."""
        effects: Effects = []
        if isinstance(message, NewscastRequest):
            effects = [Send(sender, NewscastReply(self._news()))]  # our view before this exchange
        elif not isinstance(message, NewscastReply):
            return effects
        self.silent_rounds = 0
        self.contacts.heard(sender)
        self.learn(message.descriptors)
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        """Drop `peer`, and ignore descriptors of it that are older than this."""
        self.table.bury(peer)
        self._told = None
        return []

    def learn(self, descriptors: Iterable[Descriptor]) -> None:
        """Take in descriptors. Other parts call this with what they have received."""
        self.table.merge(descriptors)
        self._keep_the_freshest()
        self._told = None

    def check(self) -> None:
        """Assert the invariants W1 and D1."""
        assert len(self.table) <= self.config.view_size, f"W1: {len(self.table)} entries"
        self.table.check()

    def _partner(self) -> Contact | None:
        """Return the node for the next exchange, or None if none is known.

        Contacts that have not answered yet come first. A contact is also tried if the view is empty, if nothing was
        received for too long, or if a contact is due to be visited again.
        """
        lonely = not self.table.entries or self.silent_rounds > self.config.lonely_rounds
        lonely = lonely or self.contacts.is_due(self.table.round)
        first = self.contacts.to_greet() or (self.contacts.any(self.random) if lonely else None)
        if first is not None or not self.table.entries:
            return first
        return self.peers[self.random.randrange(len(self.table))]

    def _news(self) -> tuple[Descriptor, ...]:
        """Return what an exchange sends: our own descriptor and the view."""
        return (self.describe(), *self.told())

    def _keep_the_freshest(self) -> None:
        """Reduce the view to the `view_size` youngest entries. Ties are broken at random."""
        entries, size = self.table.entries, self.config.view_size
        if len(entries) <= size:
            return
        cut = sorted([born for born, _ in entries.values()])[-size]
        kept = {node: entry for node, entry in entries.items() if entry[0] > cut}
        tied = [node for node, entry in entries.items() if entry[0] == cut]
        for node in self.random.sample(tied, size - len(kept)):
            kept[node] = entries[node]
        self.table.entries = kept
