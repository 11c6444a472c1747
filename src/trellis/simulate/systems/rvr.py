"""Prepare RVR for the simulator, with its promises.  [VI §IV; I-16, I-17, I-20]

always   tables keep their limit; no application gets an event twice
settled  the ring is the true ring, every lookup ends at the true rendezvous node, next hops know of each other, and an
         event on every topic reaches every subscriber, once
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

from trellis import ids
from trellis.protocols.rvr import RvrNode
from trellis.protocols.vitis import TableConfig
from trellis.simulate.dissemination_system import (
    TableSystem,
    check_events,
    check_lookups,
    check_paths,
    check_ring,
    topics_of,
)
from trellis.simulate.system import World

if TYPE_CHECKING:
    from trellis.simulate.run import Run


class Rvr(TableSystem):
    """RVR: rendezvous routing without clusters."""

    name = "rvr"

    def __init__(
        self,
        table_size: Annotated[int, "entries of a routing table (RT-SIZE): successor, predecessor, long links"] = 15,
        period_ms: Annotated[int, "the period of gossip and heartbeats, in ms"] = 1_000,
        silence_max: Annotated[int, "periods without a word until a neighbour is dropped"] = 5,
        linger_rounds: Annotated[int, "rounds for which links and paths that end still carry events; 0: none"] = 6,
        publications: Annotated[int, "events that each node publishes, 30 to 60 s after it came"] = 1,
        rates: Annotated[str, "table of topic, rate: events by them"] = "",
    ) -> None:
        config = TableConfig(
            table_size=table_size, period_ms=period_ms, silence_max=silence_max, linger_rounds=linger_rounds
        )
        self._prepare(config, publications, rates)

    def node_type(self) -> type[RvrNode]:
        return RvrNode

    def check_settled(self, world: World) -> None:
        super().check_settled(world)
        check_ring(world)
        topics = topics_of(world)
        check_lookups(world, topics)
        check_paths(world)
        check_events(world, topics, Random(ids.stream(world.seed, "check")))

    def draw(self, run: Run, folder: Path) -> None:
        from trellis.simulate.dissemination_draw import draw_clusters, draw_dissemination

        draw_clusters(run, folder / "clusters.png")
        draw_dissemination(run, folder / "dissemination.png")
