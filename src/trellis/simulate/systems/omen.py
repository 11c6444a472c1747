"""Prepare OMen for the simulator, with its promises.  [OM §5; docs/omen.md]

always   at most 2L views; the invariants of nodes
settled  every topic is connected; with `connectivity` 2 the loss of one node would split none; a link stands at both
         ends or at none, and its ends are alive; successors and predecessors are the true ones; no event and no repair
         is left open
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from trellis.errors import InputError
from trellis.protocols.descriptors import Descriptor
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.node import ProtocolNode
from trellis.protocols.omen import CODEC, CONTROL, OMenConfig, OMenNode
from trellis.protocols.omen.repair.repairs import Repairs
from trellis.protocols.ring import clockwise, identifier
from trellis.simulate.schedule import FAULT_KINDS, FaultPlan
from trellis.simulate.system import System, Violation, Watcher, World
from trellis.simulate.systems.omen_clock import RepairClock, RepairTimes
from trellis.simulate.systems.omen_departure import Departures, draw_departure

if TYPE_CHECKING:
    from trellis.simulate.run import Run


# Faults after which repairs alone keep every topic connected. The others need the root rendezvous: joining nodes that
# know no subscriber, and nodes that cannot hear each other. [docs/omen.md, What is promised]
REPAIRED = tuple(kind for kind in FAULT_KINDS if kind not in ("join", "asymmetric-loss", "partition"))


class OMen(System):
    """OMen. Every field of `OMenConfig` can be given by name."""

    name = "omen"
    nodes_linger = True
    overlay_is_tco_promised = True

    def __init__(
        self,
        coverage: Annotated[int, "how often backups cover each topic", "--lambda"] = 5,
        resilience: Annotated[int, "nodes that may fail at once (L)"] = 3,
        knowledge: Annotated[str, "what a coordinator learns: neighbours, hints or global"] = "hints",
        backups: Annotated[str, "primal-dual, primal-dual-carry, primal-dual-uncovered, greedy"] = "primal-dual-carry",
        rho: Annotated[float, "LowODA's rule"] = 3.0,
        connectivity: Annotated[int, "2: repairs keep what survives any one crash; 1: connected, as in the paper"] = 1,
        net: Annotated[
            bool,
            "roots of a topic's parts meet at its home location; --no-fallback: repairs alone, from a planned overlay",
            "--fallback",
        ] = True,
        **fields: Any,
    ) -> None:
        chosen = {
            "coverage": coverage,
            "resilience": resilience,
            "knowledge": knowledge,
            "backups": backups,
            "rho": rho,
            "connectivity": connectivity,
            "net": net,
            **fields,
        }
        try:
            self.config = msgspec.convert(chosen, OMenConfig)
        except msgspec.ValidationError as error:
            known = ", ".join(OMenConfig.__struct_fields__)
            raise InputError("", f"not a parameter of omen: {error}", f"choose from {known}") from None
        self.codec = CODEC
        config = self.config
        self.period_ms = config.period_ms
        # The slowest events that still change links: suspects tried again, reports repeated, leaving nodes that wait.
        quiet = max(config.try_periods_max, config.report_tries, config.leave_periods_max)
        self.settle_ms = (quiet + 10) * config.period_ms
        self.settle_ms_max = 600 * config.period_ms
        self.needs_overlay = not config.net
        self.connectivity_promised = config.connectivity
        self.fault_plan = FaultPlan(
            kinds=FAULT_KINDS if config.net else REPAIRED,
            crash_size_max=config.resilience,
            start_ms=30 * config.period_ms,
            span_ms=60 * config.period_ms,
            crash_gap_ms=15 * config.period_ms,
            stagger_ms=8 * config.period_ms,
        )
        self._times = RepairTimes()
        self.repair_seconds, self.repair_ms = self._times.seconds, self._times.ms
        self._repairs: list[Repairs] = []  # of all nodes that ever ran
        self._departures: Departures | None = None

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        is_global = self.config.knowledge == "global"
        made = OMenNode(
            node,
            topics,
            random,
            self.config,
            contacts=world.contacts(node, random, 5),
            neighbors=world.first_neighbors(node),
            table=world.topics,
            incarnation=world.incarnation(node),
            seed=world.seed,
            oracle=_Oracle(world).labels if is_global else None,
            everybody=_Oracle(world).everybody if is_global else None,
        )
        self._repairs.append(made.repairs)
        made.moments.subscribe(RepairClock(self._times, lambda: world.now_ms))
        return made

    def is_busy(self, world: World) -> bool:
        """Return whether an event is still handled, or a view is not ready yet.  [OM §5]"""
        return any(
            node.repairs.running
            or node.survivor.reports
            or node.parts.is_joining
            or node.cuts.is_waiting
            or next(node.parts.events.open(), None) is not None
            or not all(view.ready for view in node.views.views.values())
            for node in (cast(OMenNode, world.node(name)) for name in world.living)
        )

    def parameters(self) -> dict[str, Any]:
        return msgspec.structs.asdict(self.config)

    def counts(self) -> Mapping[str, int]:
        return {
            "repairs by coordinators": sum(one.finished for one in self._repairs),
            "of them closures over more than one dead node": sum(one.closures for one in self._repairs),
        }

    def watcher(self, world: World) -> Watcher:
        self._departures = Departures(world)
        return self._departures

    def draw(self, run: Run, folder: Path) -> None:
        if self._departures is not None and self._departures.best is not None:
            draw_departure(self._departures.best, folder / "departure.png")

    def control_types(self) -> tuple[str, ...]:
        return tuple(kind.__name__ for kind in CONTROL)

    def ring_key(self, node: NodeId) -> int:
        return identifier(node)

    def metrics(self, world: World) -> Mapping[str, float]:
        nodes = [cast(OMenNode, world.node(name)) for name in world.living]
        sizes = [node.views.size() for node in nodes]
        backs: dict[NodeId, int] = {}
        for node in nodes:
            for view in node.views.views.values():
                for backup in view.backups:
                    backs[backup] = backs.get(backup, 0) + 1
        return {
            "view_size_mean": sum(sizes) / max(len(sizes), 1),
            "view_size_max": max(sizes, default=0),
            "backup_in_degree_max": max(backs.values(), default=0),
            "departures_mended": len(self.repair_ms),
            "mending_ms_mean": sum(self.repair_ms) / max(len(self.repair_ms), 1),
            "open_events": sum(1 for node in nodes for _ in node.parts.events.open()),
        }

    def check_settled(self, world: World) -> None:
        living = world.living
        order = sorted(living, key=identifier)
        for name in living:
            node = cast(OMenNode, world.node(name))
            _topics_are_right(node, world)
            _links_stand_at_both_ends(node, world)
            _ring_is_right(node, order)
            _nothing_is_left_open(node)


class _Oracle:
    """OMen-G: global knowledge that no node could have. It is only for comparison."""

    def __init__(self, world: World) -> None:
        self.world = world

    def labels(self, topic: Topic, nodes: list[NodeId], gone: Collection[NodeId]) -> dict[NodeId, int]:
        """Return for each of these nodes a number of its connected part of the topic, without the nodes in `gone`."""
        claims = self.world.claims
        label: dict[NodeId, int] = {}
        out = set(gone)  # also nodes that were visited and do not take part in the topic
        for number, start in enumerate(nodes):
            stack = [start]
            while stack:
                node = stack.pop()
                if node in label or node in out:
                    continue
                if not self._takes_part(node, topic):
                    out.add(node)
                    continue
                label[node] = number
                stack += claims(node)
        return {node: label[node] for node in nodes if node in label}

    def _takes_part(self, name: NodeId, topic: Topic) -> bool:
        world = self.world
        return world.is_living(name) and not self._node(name).me.is_leaving and topic in world.topics_of(name)

    def everybody(self) -> list[Descriptor]:
        return [self._node(name).me.describe() for name in self.world.living]

    def _node(self, name: NodeId) -> OMenNode:
        return cast(OMenNode, self.world.node(name))


def _topics_are_right(node: OMenNode, world: World) -> None:
    wanted = world.topics_of(node.id)
    if node.me.topics != wanted:
        raise Violation(f"{node.id} takes part in {node.me.topics}, it should in {wanted}")


def _links_stand_at_both_ends(node: OMenNode, world: World) -> None:
    for peer, link in node.links.links.items():
        if not world.is_living(peer):
            raise Violation(f"{node.id} has a link to {peer}, which is gone")
        back = cast(OMenNode, world.node(peer)).links.links.get(node.id)
        if back is None or back.state != link.state or link.state != "up":
            raise Violation(
                f"{node.id} has a link to {peer} that is {link.state}, there {back.state if back else None}"
            )


def _ring_is_right(node: OMenNode, order: list[NodeId]) -> None:
    mine = identifier(node.id)
    after = sorted((name for name in order if name != node.id), key=lambda name: clockwise(mine, identifier(name)))
    length = node.config.resilience
    if node.ring.successors != after[:length] or node.ring.predecessors != after[::-1][:length]:
        found = (node.ring.successors, node.ring.predecessors)
        raise Violation(f"{node.id} has the ring neighbours {found}, not {(after[:length], after[::-1][:length])}")


def _nothing_is_left_open(node: OMenNode) -> None:
    events = [f"{event.kind} of {event.node} ({event.state})" for event in node.parts.events.open()]
    repairs = [f"{repair.kind} {repair.node} ({repair.state})" for repair in node.repairs.running.values()]
    if events or repairs:
        raise Violation(f"{node.id} still has events {events} and repairs {repairs}")
    if node.survivor.reports:
        raise Violation(f"{node.id} still reports {list(node.survivor.reports)}")
