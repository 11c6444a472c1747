"""Neighbours: those in the routing table, and those that have us in theirs.  [VI §III-D, Alg. 6-7; A-VIT-8]

A link is a connection, usable both ways. It is *firm* while one of its ends has the other in its table; gateway
election and lookups go over firm links. When the table drops a node the link *parts*, and carries events until it is
given up ("Links that linger" in docs/vitis.md).

N1  a neighbour in the table is in the routing table, and the other way round; parting ones are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.vitis.messages import Profile, Proposals

FIRM = -1


class Neighbor:
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
        self.node, self.incarnation, self.heard = node, incarnation, heard  # the round in which it was heard last
        self.in_table = self.links_us = self.spoke = False
        self.parting = heard  # the round in which the link ceased to be firm, or FIRM
        self.profile: Profile | None = None  # the last one, if nothing else was said since
        self.sent: Profile | None = None  # the last one to it
        self.listed: Proposals = ()  # one for each of its topics
        self.relays: frozenset[Topic] = frozenset()  # topics whose lookups it sends on through us
        self.relays_listed: tuple[Topic, ...] | None = ()  # as the last profile had them, if nothing was added since
        self.set_topics(topics)

    @property
    def firm(self) -> bool:
        return self.parting == FIRM

    def set_topics(self, topics: tuple[Topic, ...]) -> None:
        self.topics, self.interest = topics, as_set(topics)
        self.listed = ()
        self.shared: tuple[tuple[int, Topic], ...] | None = None  # places of the topics that we want as well
        self.descriptor: Descriptor | None = None

    def restarted(self, incarnation: int) -> None:
        """A new life: it has forgotten everything."""
        self.incarnation, self.links_us = incarnation, False
        self.listed, self.relays_listed = (), ()
        self.descriptor = None


@lru_cache(maxsize=20_000)
def as_set(topics: tuple[Topic, ...]) -> frozenset[Topic]:
    """One set for all that have the same topics, or hear of the same node: in a simulation these are many."""
    return frozenset(topics)


class Neighbors:
    """All of them, and a number that changes when the firm ones do."""

    def __init__(self) -> None:
        self.all: dict[NodeId, Neighbor] = {}
        self.version = 0

    def __contains__(self, node: NodeId) -> bool:
        return node in self.all

    def get(self, node: NodeId) -> Neighbor | None:
        return self.all.get(node)

    def firm(self) -> Iterator[Neighbor]:
        return (one for one in self.all.values() if one.parting == FIRM)

    def interested(self, topic: Topic) -> list[NodeId]:
        """Parting ones, too: they still carry events."""
        return [node for node, one in self.all.items() if topic in one.interest]
