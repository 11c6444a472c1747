"""Neighbors: the nodes in the routing table, and the nodes that have us in theirs.  [VI §III-D, Alg. 6-7; A-VIT-8]

A link is a connection that both ends use. It is *firm* while one of its ends has the other in its table. Gateway
election and lookups use firm links only. When neither end has the other in its table any more, the link is *parting*:
it still carries events for some rounds, and then ends ("Links that linger" in docs/vitis.md).

N1  The neighbors with `in_table` are exactly the entries of the routing table. A link is firm exactly if `in_table` or
    `links_us` is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.vitis.messages import Profile, Proposals

FIRM = -1  # value of `Neighbor.parting` for a firm link


class Neighbor:
    """A neighbor, with what it has told and what was sent to it."""

    __slots__ = (
        "descriptor",
        "heard",
        "in_table",
        "incarnation",
        "interest",
        "links_us",
        "listed",
        "node",
        "parting",
        "profile",
        "relays",
        "relays_listed",
        "sent",
        "shared",
        "spoke",
        "topics",
    )

    def __init__(self, node: NodeId, incarnation: int, topics: tuple[Topic, ...], heard: int) -> None:
        # `heard` is the round in which it was last heard.
        self.node, self.incarnation, self.heard = node, incarnation, heard
        # We have it in our table; it has us in its table; it has sent a profile.
        self.in_table = self.links_us = self.spoke = False
        self.parting = heard  # The round in which the link ceased to be firm, or FIRM.
        # Its last profile. None: later messages have changed what the profile says.
        self.profile: Profile | None = None
        self.sent: Profile | None = None  # the last profile that was sent to it
        self.listed: Proposals = ()  # its proposals, one for each of its topics
        self.relays: frozenset[Topic] = frozenset()  # topics whose lookups it forwards through us
        # As the last profile has them. None: a `Relay` has added some since.
        self.relays_listed: tuple[Topic, ...] | None = ()
        self.set_topics(topics)

    @property
    def firm(self) -> bool:
        """Return whether the link is firm."""
        return self.parting == FIRM

    def set_topics(self, topics: tuple[Topic, ...]) -> None:
        """Set the topics of the neighbor, and forget what depended on the earlier ones."""
        self.topics, self.interest = topics, as_set(topics)
        self.listed = ()
        # Topics that we are subscribed to as well, each with its index in `topics`.
        self.shared: tuple[tuple[int, Topic], ...] | None = None
        self.descriptor: Descriptor | None = None

    def restarted(self, incarnation: int) -> None:
        """Note a restart of the neighbor: it has forgotten everything about us."""
        self.incarnation, self.links_us = incarnation, False
        self.listed, self.relays_listed = (), ()
        self.descriptor = None


@lru_cache(maxsize=20_000)
def as_set(topics: tuple[Topic, ...]) -> frozenset[Topic]:
    """Return the topics as a set. All nodes with the same topics share one set, which saves memory in simulations."""
    return frozenset(topics)


class Neighbors:
    """All neighbors of a node. `version` changes when the set of firm ones does."""

    def __init__(self) -> None:
        self.all: dict[NodeId, Neighbor] = {}
        self.version = 0

    def __contains__(self, node: NodeId) -> bool:
        return node in self.all

    def get(self, node: NodeId) -> Neighbor | None:
        return self.all.get(node)

    def firm(self) -> Iterator[Neighbor]:
        """Yield the neighbors with a firm link."""
        return (neighbor for neighbor in self.all.values() if neighbor.parting == FIRM)

    def interested(self, topic: Topic) -> list[NodeId]:
        """Return the neighbors that are subscribed to a topic. Parting ones count, since they still carry events."""
        return [node for node, neighbor in self.all.items() if topic in neighbor.interest]
