"""Prepare OPT for the simulator, with its promises.  [VI §IV; A-VIT-24]

always   bounded tables keep their limit; no application gets an event twice; no node gets an event without subscribing
settled  an event reaches every subscriber that is connected with its publisher by links of subscribers. These need not
         be all subscribers: with bounded tables they are not.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated

from trellis import ids
from trellis.protocols.effects import NodeId
from trellis.protocols.opt import OptConfig, OptNode
from trellis.simulate.dissemination_system import TableSystem, spread, topics_of
from trellis.simulate.system import Violation, World

if TYPE_CHECKING:
    from trellis.simulate.run import Run


class Opt(TableSystem):
    """OPT, with bounded routing tables or without a limit."""

    name = "opt"
    config: OptConfig

    def __init__(
        self,
        table_size: Annotated[int, "entries of a routing table (RT-SIZE)"] = 15,
        bounded: Annotated[bool, "keep to the size of the table; else cover every topic"] = True,
        coverage: Annotated[int, "neighbors per topic (K)"] = 3,
        period_ms: Annotated[int, "the period of gossip and heartbeats, in ms"] = 1_000,
        silence_max: Annotated[int, "periods without a word until a neighbour is dropped"] = 5,
        publications: Annotated[int, "events that each node publishes, 30 to 60 s after it came"] = 1,
        rates: Annotated[str, "table of topic, rate: events by them"] = "",
    ) -> None:
        config = OptConfig(
            table_size=table_size, bounded=bounded, coverage=coverage, period_ms=period_ms, silence_max=silence_max
        )
        self._prepare(config, publications, rates)

    def node_type(self) -> type[OptNode]:
        return OptNode

    def check_settled(self, world: World) -> None:
        super().check_settled(world)
        random = Random(ids.stream(world.seed, "check"))
        links: dict[NodeId, set[NodeId]] = {name: set() for name in world.living}
        for one, other in world.links():
            links[one].add(other)
            links[other].add(one)
        for topic in topics_of(world):
            wanting = {name for name in world.living if topic in world.topics_of(name)}
            publisher = random.choice(sorted(wanting))
            found = spread(world, publisher, topic)
            if strangers := found.reached - wanting:
                raise Violation(f"an event on {topic} reached {min(strangers)}, which does not want it")
            if missed := _connected(publisher, wanting, links) - set(found.delivered):
                raise Violation(f"an event of {publisher} on {topic} misses {min(missed)}, which is connected with it")

    def draw(self, run: Run, folder: Path) -> None:
        from trellis.simulate.dissemination_draw import draw_clusters, draw_dissemination

        draw_clusters(run, folder / "clusters.png")
        draw_dissemination(run, folder / "dissemination.png")


def _connected(start: NodeId, wanting: set[NodeId], links: dict[NodeId, set[NodeId]]) -> set[NodeId]:
    found, waiting = {start}, [start]
    while waiting:
        for peer in links[waiting.pop()] & wanting - found:
            found.add(peer)
            waiting.append(peer)
    return found
