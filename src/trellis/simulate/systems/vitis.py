"""Prepare Vitis for the simulator, with its promises.  [VI §III; I-16 to I-19 of the list of invariants]

always   tables keep their limit, without self and repeats; proposals reach at most d hops    (I-16, I-18: node.check)
         no application gets an event twice                                                                  (I-19)
settled  successor and predecessor are the true ones; every lookup ends at the true rendezvous node           (I-17)
         a proposal names a living gateway, and its parent names the same one with a hop less                 (I-18)
         an event on every topic reaches every subscriber, once                                               (I-19)
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, cast

from trellis import ids
from trellis.protocols.vitis import VitisConfig, VitisNode
from trellis.simulate.dissemination_system import (
    TableSystem,
    check_events,
    check_lookups,
    check_paths,
    check_ring,
    node_of,
    require,
    topics_of,
)
from trellis.simulate.system import Violation, World

if TYPE_CHECKING:
    from trellis.simulate.run import Run


class Vitis(TableSystem):
    """Vitis: gateways, relay paths and clusters of friends."""

    name = "vitis"
    config: VitisConfig

    def __init__(
        self,
        table_size: Annotated[int, "entries of a routing table (RT-SIZE)"] = 15,
        sw_neighbors: Annotated[int, "of them successor, predecessor and long links (k); the rest are friends"] = 3,
        gateway_hops: Annotated[int, "how far a gateway may be from a node that it serves (d)"] = 5,
        period_ms: Annotated[int, "the period of gossip and heartbeats, in ms"] = 1_000,
        silence_max: Annotated[int, "periods without a word until a neighbour is dropped (THRESHOLD)"] = 5,
        hop_limit: Annotated[str, "at-most: d hops or less; below: less than d, as printed"] = "at-most",
        relays_flood: Annotated[bool, "relays also notify interested neighbours"] = False,
        linger_rounds: Annotated[int, "rounds for which links and paths that end still carry events; 0: none"] = 6,
        publications: Annotated[int, "events that each node publishes, 30 to 60 s after it came"] = 1,
        rates: Annotated[str, "table of topic, rate: friends and events by them"] = "",
    ) -> None:
        config = VitisConfig(
            table_size=table_size,
            sw_neighbors=sw_neighbors,
            gateway_hops=gateway_hops,
            period_ms=period_ms,
            silence_max=silence_max,
            hop_limit=cast(Any, require(hop_limit, ("at-most", "below"), "--hop-limit")),
            relays_flood=relays_flood,
            linger_rounds=linger_rounds,
        )
        self._prepare(config, publications, rates)

    def node_type(self) -> type[VitisNode]:
        return VitisNode

    def node_options(self) -> dict[str, Any]:
        return {"rates": self.rates}

    def check_settled(self, world: World) -> None:
        super().check_settled(world)
        check_ring(world)
        topics = topics_of(world)
        check_lookups(world, topics)
        check_proposals(world)
        check_paths(world)
        check_events(world, topics, Random(ids.stream(world.seed, "check")))

    def draw(self, run: Run, folder: Path) -> None:
        from trellis.simulate.dissemination_draw import draw_clusters, draw_dissemination

        draw_clusters(run, folder / "clusters.png")
        draw_dissemination(run, folder / "dissemination.png")


def check_proposals(world: World) -> None:
    """Check I-18: gateways are alive, and the parent of a proposal proposes the same gateway with one hop less."""
    for name in world.living:
        for topic, proposal in node_of(world, name).gateways.proposals.items():
            if not world.is_living(proposal.gateway):
                raise Violation(f"I-18: {name} proposes {proposal.gateway} for {topic}, which is gone")
            if proposal.hops == 0:
                continue
            said = f"{name} proposes {proposal.gateway} for {topic} over {proposal.parent}"
            parents = node_of(world, proposal.parent) if world.is_living(proposal.parent) else None
            theirs = parents.gateways.proposals.get(topic) if parents is not None else None
            if theirs is None or (theirs.gateway, theirs.hops) != (proposal.gateway, proposal.hops - 1):
                raise Violation(f"I-18: {said}, which proposes {theirs}")
