"""A protocol of one's own, in 100 lines, on the simulator's seam: chains.

The subscribers of each topic stand in the order of their names, and everybody links itself to the two beside it. So
every topic is a chain: connected, with at most two links a topic. Nodes learn of each other by gossip, and forget
whoever has not been heard of for a while. Run it:

    python examples/researcher/chains.py
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Any

import msgspec
from msgspec import Meta

import trellis
from trellis.protocols.effects import Effects, LinkDown, LinkUp, NodeId, Send, SetTimer, Topic
from trellis.protocols.node import ProtocolNode
from trellis.protocols.wire import PEERS_MAX, Codec, Count, Name, Topics
from trellis.simulate.seeds import check_seeds
from trellis.simulate.system import System, World

ROUND_MS = 1_000
AGE_MAX = 12  # rounds; who was not heard of for so long is gone


class Known(msgspec.Struct, frozen=True, array_like=True):
    """What one node tells about another: its wishes, and how many rounds ago it said so itself."""

    node: Name
    topics: Topics
    age: Count


class Gossip(msgspec.Struct, frozen=True, tag="gossip"):
    known: Annotated[tuple[Known, ...], Meta(max_length=PEERS_MAX)]


class ChainNode:
    def __init__(self, node: NodeId, topics: tuple[Topic, ...], contacts: list[NodeId], random: Random) -> None:
        self.id, self.topics, self.contacts, self.random = node, set(topics), contacts, random
        self.known: dict[NodeId, Known] = {}
        self.links: set[NodeId] = set()

    def start(self) -> Effects:
        return [SetTimer("round", self.random.randrange(ROUND_MS))]

    def on_timer(self, tag: str) -> Effects:
        older = (Known(one.node, one.topics, one.age + 1) for one in self.known.values())
        self.known = {one.node: one for one in older if one.age < AGE_MAX}
        told = (Known(self.id, tuple(sorted(self.topics)), 0), *self.known.values())
        whom = {self.random.choice(sorted(self.known)) if self.known else self.id, *self.links, *self.contacts}
        sends = [Send(peer, Gossip(told[:PEERS_MAX])) for peer in sorted(whom - {self.id})]
        return [*sends, *self._relink(), SetTimer("round", ROUND_MS)]

    def on_message(self, sender: NodeId, message: Gossip) -> Effects:
        for one in message.known:
            before = self.known.get(one.node)
            if one.node != self.id and one.age < AGE_MAX and (before is None or one.age < before.age):
                self.known[one.node] = one
        return self._relink()

    def on_peer_down(self, peer: NodeId) -> Effects:
        self.known.pop(peer, None)
        return self._relink()

    def subscribe(self, topic: Topic) -> Effects:
        self.topics.add(topic)
        return self._relink()

    def unsubscribe(self, topic: Topic) -> Effects:
        self.topics.discard(topic)
        return self._relink()

    def leave(self) -> Effects:
        return []  # it is forgotten, like one that has crashed

    def check(self) -> None:
        assert self.id not in self.known, f"{self.id} has heard of itself"

    def _relink(self) -> Effects:
        """To the next smaller and the next larger name on every topic."""
        wanted: set[NodeId] = set()
        for topic in self.topics:
            others = [one.node for one in self.known.values() if topic in one.topics]
            wanted |= {max((one for one in others if one < self.id), default=self.id)}
            wanted |= {min((one for one in others if one > self.id), default=self.id)}
        gone, new = self.links - wanted, wanted - self.links - {self.id}
        self.links = wanted - {self.id}
        return [*(LinkDown(one) for one in sorted(gone)), *(LinkUp(one) for one in sorted(new))]


class Chains(System):
    name = "chains"
    settle_ms = 2 * AGE_MAX * ROUND_MS  # nothing changes for so long: it is quiet
    overlay_is_tco_promised = True  # then every topic must be connected: checked after all faults

    def __init__(self) -> None:
        self.codec = Codec(Gossip)

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        return ChainNode(node, topics, world.contacts(node, random, 3), random)


def main(nodes: int = 30, seeds: int = 2) -> dict[str, Any]:
    interests = trellis.Interests.from_pairs(
        {f"n{number}": sorted({f"t{number % 7}", f"t{number % 5}", "all"}) for number in range(nodes)}
    )
    churn = trellis.ChurnTrace.from_rows([(1.0, "n3", "crash", None), (2.0, "n8", "leave", None)])
    run = trellis.simulate(Chains(), interests, churn=churn, rounds_per_event=30, warmup_rounds=30, encode=True, seed=7)
    summary = run.summary()
    print(f"every topic connected: {summary['tco']}, with {summary['links']} links")
    print(f"a plan with central knowledge has {len(trellis.plan(interests).overlay)}")
    checked = check_seeds(Chains, seeds=seeds)
    print(*checked.lines(), sep="\n")
    return {"summary": summary, "holds": checked.holds}


if __name__ == "__main__":
    main()
