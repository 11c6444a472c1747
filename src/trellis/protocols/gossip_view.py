"""An interest view that gossip keeps up to date. A live node chooses its neighbors from it.  [SC §2.2, A-SPC-19]

Newscast keeps only c descriptors, and other ones in every round. This part remembers all descriptors that pass through,
with their ages: those of the few hundred youngest nodes, none older than `age_max` rounds. So crashed nodes disappear,
newcomers appear, and a younger descriptor replaces an interest that has changed.

G1  There are at most `entries_max` entries. The view names exactly their nodes, with the interests last received.
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
    """Settings of `GossipView`."""

    entries_max: int = 300
    """Nodes to remember. Raising it gives more candidates and lower degrees [SC Fig. 10], but every choice scans them
    all."""

    age_max: int = 60
    """Rounds after which a node is forgotten. Raising it remembers more nodes, crashed ones as well."""

    newscast: NewscastConfig = NewscastConfig()

    def __post_init__(self) -> None:
        for field in ("entries_max", "age_max"):
            if getattr(self, field) < 1:
                raise InputError("", f"{field} is {getattr(self, field)}", "give 1 or more")


class GossipView:
    """The peer sampling part of a node, together with the interest view that it fills."""

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
        """Start peer sampling."""
        return self.sampling.start()

    def on_timer(self, tag: str) -> Effects:
        """Begin a round: drop the nodes that are too old, and let peer sampling make its exchange."""
        for node in self.known.advance():
            self.view.forget(node)
        return self.sampling.on_timer(tag)

    def on_message(self, sender: NodeId, message: msgspec.Struct) -> Effects:
        """Let peer sampling handle the message, and remember the descriptors in it."""
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
        """Forget a node that has crashed or left."""
        self.known.bury(peer)
        self.view.forget(peer)
        return self.sampling.on_peer_down(peer)

    def check(self) -> None:
        """Assert the invariants G1 and D1, and those of peer sampling."""
        self.sampling.check()
        self.known.check()
        assert len(self.known) <= self.config.entries_max, f"G1: {len(self.known)} entries"
        heard = {node: self.topics.bits(descriptor.interest) for node, (_, descriptor) in self.known.entries.items()}
        seen = {node: self.view.interest_of(node) for node in self.view.names}
        assert heard == seen, "G1: the view is not what was heard"

    def _forget_the_oldest(self) -> None:
        """Drop the oldest entries if there are more than `entries_max`."""
        excess = len(self.known) - self.config.entries_max
        if excess <= 0:
            return
        by_age = sorted(self.known.entries, key=lambda node: self.known.entries[node][0])
        for node in by_age[:excess]:
            self.known.forget(node)
            self.view.forget(node)
