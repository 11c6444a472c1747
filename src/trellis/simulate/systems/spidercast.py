"""Prepare SpiderCast, similarity(x, y) and random(y) for the simulator, with their promises.  [SC §2, §3.9.1]

always   at most L^max + Margin neighbors per task, as long as the interest does not shrink; the node checks this itself
         (`check`, I-12 of the list of invariants)
settled  a link of a task stands at both of its ends or at none, and its ends are alive                       (I-13)
         each topic of a node is covered by min(K, known other subscribers) of its neighbors. Two exceptions: a node
         with L^max neighbors asks no others, and a node whose candidates are all full finds none             (I-13)
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, cast

import msgspec

from trellis import ids
from trellis.errors import InputError
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.gossip_view import GossipViewConfig
from trellis.protocols.membership import InterestView
from trellis.protocols.node import ProtocolNode
from trellis.protocols.spidercast import CODEC, NeighborConfig, SimilarityConfig, SpiderCastConfig, SpiderCastNode
from trellis.protocols.spidercast.goals import CoverTopics
from trellis.protocols.spidercast.messages import CONTROL
from trellis.protocols.spidercast.task import NeighborTask
from trellis.protocols.topics import places
from trellis.simulate.system import System, Violation, World


class NeighborSystem(System):
    """A system whose nodes select neighbors: SpiderCast and its baselines."""

    config: NeighborConfig
    gossip: GossipViewConfig | None  # None: nodes use the view of the run

    def _prepare(self, config: NeighborConfig, gossip: bool | GossipViewConfig) -> None:
        self.config = config
        self.gossip = gossip if isinstance(gossip, GossipViewConfig) else GossipViewConfig() if gossip else None
        self.codec = CODEC
        silence_ms = (config.silence_max + 2) * config.heartbeat_ms
        slowest = max(silence_ms, config.suspect_quarantine_ms, config.quarantine_ms, config.disconnect_timeout_ms)
        if self.gossip is not None:
            slowest = max(slowest, self.gossip.age_max * self.gossip.newscast.period_ms)
        self.settle_ms = slowest + 3 * config.heartbeat_ms

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        return self.node_type()(
            node,
            topics,
            random,
            self.config,
            view=self._view(node, world) if self.gossip is None else None,
            contacts=world.contacts(node, random, 5) if self.gossip is not None else (),
            gossip=self.gossip,
            table=world.topics,
            incarnation=world.incarnation(node),
            neighbours=world.first_neighbors(node),
        )

    def node_type(self) -> type[SpiderCastNode]:
        return SpiderCastNode

    def parameters(self) -> dict[str, Any]:
        gossip = None if self.gossip is None else msgspec.structs.asdict(self.gossip)
        return {**msgspec.structs.asdict(self.config), "gossip": msgspec.to_builtins(gossip)}

    def control_types(self) -> tuple[str, ...]:
        return tuple(kind.__name__ for kind in CONTROL)

    def check_settled(self, world: World) -> None:
        for name in world.living:
            node = cast(SpiderCastNode, world.node(name))
            if node.me.topics != world.topics_of(name):
                raise Violation(f"{name} wants {node.me.topics}, it should want {world.topics_of(name)}")
            for task in node.tasks.values():
                _links_stand_at_both_ends(name, task, world)
                if isinstance(task.goal, CoverTopics) and task.goal.active and not self.config.repair_only:
                    _topics_are_covered(name, task, task.goal, node.view, world)

    def _view(self, node: NodeId, world: World) -> InterestView:
        # The view has a Random of its own, so its draws do not shift those of the node.
        return world.view(node, Random(ids.stream(world.seed, "view", node, world.incarnation(node))))


class SpiderCast(NeighborSystem):
    """SpiderCast, with `kg`, `kr` and `adaptive` as in the paper.

    Other fields of `SpiderCastConfig` can be given by name.
    """

    name = "spidercast"

    def __init__(
        self,
        kg: Annotated[int, "greedy coverage K_g"] = 3,
        kr: Annotated[int, "random coverage K_r"] = 0,
        adaptive: Annotated[bool, "raise K_r where needed"] = False,
        repair_only: Annotated[bool, "keep the given overlay, select only after a loss"] = False,
        gossip: Annotated[bool | GossipViewConfig, "nodes build their views by gossip"] = False,
        **fields: Any,
    ) -> None:
        chosen = {
            "coverage_greedy": kg,
            "coverage_random": kr,
            "adaptive": adaptive,
            "repair_only": repair_only,
            **fields,
        }
        self._prepare(_config(SpiderCastConfig, chosen), gossip)


class Similarity(NeighborSystem):
    """The baseline similarity(x, y): x links to similar nodes, y random links."""

    name = "similarity"

    def __init__(
        self,
        x: Annotated[int, "links by similarity", "--similar"] = 10,
        y: Annotated[int, "random links", "--random"] = 0,
        gossip: Annotated[bool | GossipViewConfig, "nodes build their views by gossip"] = False,
        **fields: Any,
    ) -> None:
        self._prepare(_config(SimilarityConfig, {"links_similar": x, "links_random": y, **fields}), gossip)


class RandomLinks(NeighborSystem):
    """The baseline random(y), which is similarity(0, y)."""

    name = "random"

    def __init__(
        self,
        y: Annotated[int, "random links", "--random"] = 10,
        gossip: Annotated[bool | GossipViewConfig, "nodes build their views by gossip"] = False,
        **fields: Any,
    ) -> None:
        self._prepare(_config(SimilarityConfig, {"links_similar": 0, "links_random": y, **fields}), gossip)


def _config(kind: type[NeighborConfig], fields: dict[str, Any]) -> NeighborConfig:
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise InputError("", f"not a parameter of this protocol: {error}", f"choose from {known}") from None


def _links_stand_at_both_ends(name: NodeId, task: NeighborTask, world: World) -> None:
    for peer in task.neighbors:
        if not world.is_living(peer):
            raise Violation(f"{name} holds a {task.task} link to {peer}, which is gone")
        other = cast(SpiderCastNode, world.node(peer)).tasks[task.task]
        if name not in other.neighbors:
            raise Violation(f"{name} holds a {task.task} link to {peer}, which holds none to {name}")


def _topics_are_covered(name: NodeId, task: NeighborTask, goal: CoverTopics, view: InterestView, world: World) -> None:
    """Check the coverage of a node from the true topics of its neighbors, not from the node's own counts."""
    if len(task.neighbors) >= goal.limit:
        return
    bits = world.topics.bits
    interest = bits(world.topics_of(name))
    wanted_by = {peer: bits(world.topics_of(peer)) for peer in task.neighbors}
    for place in places(interest):
        topic = 1 << place
        cover = sum(1 for wanted in wanted_by.values() if wanted & topic)
        if cover >= goal.k:
            continue
        known = [peer for peer in world.living if peer != name and view.interest_of(peer) & topic]
        others = [peer for peer in known if peer not in task.neighbors and not _is_full(peer, task, world)]
        if others:
            missing = f"{name} covers {world.topics.names[place]} {cover} times by {task.task} neighbours"
            raise Violation(f"{missing}; it knows {', '.join(others[:3])} and should cover it {goal.k} times")


def _is_full(peer: NodeId, task: NeighborTask, world: World) -> bool:
    other = cast(SpiderCastNode, world.node(peer)).tasks[task.task]
    return len(other.neighbors) >= other.goal.limit + other.config.margin
