"""An interest view that gossip keeps up to date: what a live node chooses its neighbours from.  [SC §2.2, A-SPC-19]

Newscast keeps only c descriptors, and a new set of them in every round. Whatever passes through is remembered here with
its age: a few hundred nodes, the youngest, none above `age_max` rounds. Dead nodes fade, newcomers appear, and an
interest that has changed is replaced by the younger descriptor.

G1  at most `entries_max` entries; the view names exactly those, with the interests last heard.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import msgspec

from trellis.errors import InputError
from trellis.protocols.descriptors import DescriptorTable
from trellis.protocols.effects import Contact, Effects, NodeId
from trellis.protocols.membership import KnownInterests
from trellis.protocols.newscast import Newscast, NewscastConfig, NewscastReply, NewscastRequest
from trellis.protocols.sampling import Describe
from trellis.protocols.topics import TopicTable


class GossipViewConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    entries_max: int = 300
    """Raising it gives more to choose from, and lower degrees [SC Fig. 10]; choosing scans them all."""

    age_max: int = 60
    """Rounds after which a node is forgotten. Raising it remembers more nodes; dead ones too."""

    newscast: NewscastConfig = NewscastConfig()

    def __post_init__(self) -> None:
        for field in ("entries_max", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class GossipView:
    """A part: peer sampling, and the view that grows from it."""

    def __init__(
        self,
        describe: Describe,
        contacts: Iterable[Contact],
        topics: TopicTable,
        random: Random,
        config: GossipViewConfig | None = None,
    ) -> None:
        self.config = config or GossipViewConfig()
        self.topics, self.random = topics, random
        self.sampling = Newscast(describe, contacts, random, self.config.newscast)
        self.known = DescriptorTable(self.sampling.id, self.config.age_max)
        self.view = KnownInterests(self.sampling.id, random)

    def start(self) -> Effects:
        return self.sampling.start()

    def on_timer(self, tag: str) -> Effects:
        for node in self.known.advance():
            self.view.forget(node)
        return self.sampling.on_timer(tag)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        effects = self.sampling.on_message(sender, message)
        if isinstance(message, NewscastRequest | NewscastReply):
            self.known.merge(message.descriptors)
            self._forget_the_oldest()
            for descriptor in message.descriptors:
                entry = self.known.entries.get(descriptor.node)
                if entry is not None:
                    self.view.learn(descriptor.node, self.topics.bits(entry[1].interest))
        return effects

    def on_peer_down(self, peer: NodeId) -> Effects:
        self.known.bury(peer)
        self.view.forget(peer)
        return self.sampling.on_peer_down(peer)

    def check(self) -> None:
        self.sampling.check()
        self.known.check()
        assert len(self.known) <= self.config.entries_max, f"G1: {len(self.known)} entries"
        heard = {node: self.topics.bits(told.interest) for node, (_, told) in self.known.entries.items()}
        seen = {node: self.view.interest_of(node) for node in self.view.names}
        assert heard == seen, "G1: the view is not what was heard"

    def _forget_the_oldest(self) -> None:
        excess = len(self.known) - self.config.entries_max
        if excess <= 0:
            return
        by_age = sorted(self.known.entries, key=lambda node: self.known.entries[node][0])
        for node in by_age[:excess]:
            self.known.forget(node)
            self.view.forget(node)
