"""Prepare Magnet for the simulator, with its promises.  [MG §3]

Nodes that are there at the start join one by one, in random order, `join_gap_ms` apart (A-MAG-9). Each knows some that
joined before it. The overlay of a run is the skewed ring with its fingers. Links of the control ring are not claimed.

always   the invariants of nodes: one parent per topic, bounded samples and memories, exact labels in order
settled  both rings are the living nodes in the order of their labels, which are all different              (I-17, I-21)
         each topic has one tree over skewed links, rooted at the topic's home location; it reaches every subscriber,
         parents and children agree, and no node has a parent without a path to the root                     (I-20)
         view(p) names another subscriber of each topic of p that has one                                    (I-23)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec

from trellis import ids
from trellis.errors import InputError
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.magnet import CODEC, MagnetConfig, MagnetNode
from trellis.protocols.magnet.messages import CONTROL, Publication
from trellis.protocols.newscast import NewscastConfig
from trellis.protocols.node import ProtocolNode
from trellis.protocols.oscar import OscarConfig
from trellis.protocols.oscar.labels import hashed
from trellis.simulate.schedule import FaultPlan
from trellis.simulate.system import Carried, System, Violation, World
from trellis.simulate.systems.magnet_trees import Reach, reach, reach_all

if TYPE_CHECKING:
    from trellis.simulate.run import Run

_CONTACTS = 5


class Magnet(System):
    """Magnet with the options that a user may want to change. `config` holds all others."""

    name = "magnet"
    placement: Literal["similar", "name"] = "similar"
    must_settle = True
    publication_types = (Publication,)
    settle_ms_max = 600_000
    fault_plan = FaultPlan(start_ms=8_000, span_ms=40_000)

    def __init__(
        self,
        links: Annotated[int, "links a node has on the skewed ring on average, both ends counted"] = 19,
        tree: Annotated[str, "how trees are joined: graft (as printed) or greedy-path (as claimed)"] = "graft",
        samples: Annotated[int, "subscribers in the sample of a topic (k)"] = 10,
        sampling: Annotated[str, "how samples are truncated: as-written or uniform"] = "as-written",
        rejoin_changes: Annotated[int, "interest changes until a node looks for a better place"] = 1,
        improve_rounds: Annotated[int, "sampling rounds until it looks for one anyway; 0: never"] = 0,
        two_choices: Annotated[bool, "draw two candidates for a finger and take the more similar one"] = True,
        join_gap_ms: Annotated[int, "time between two joins of nodes that are there at the start"] = 30,
        first_gap_ms: Annotated[int, "the same for the first ten; it falls to join_gap_ms as nodes become more"] = 0,
        trees_ms: Annotated[int, "trees are joined from this moment on, in turn; 0: as soon as a node is placed"] = 0,
        period_ms: Annotated[int, "period of heartbeats; the ring is asked twice as often"] = 2_000,
        sample_ms: Annotated[int, "period of sampling rounds"] = 5_000,
        estimate_ms: Annotated[int, "first re-estimation of medians; later ones at three times the distance"] = 5_000,
    ) -> None:
        if tree not in ("graft", "greedy-path"):
            raise InputError("", f'there is no tree form "{tree}"', "choose graft or greedy-path")
        if sampling not in ("as-written", "uniform"):
            raise InputError("", f'there is no sampling "{sampling}"', "choose as-written or uniform")
        for option, value in (
            ("join_gap_ms", join_gap_ms),
            ("first_gap_ms", first_gap_ms),
            ("period_ms", period_ms - 1),
            ("trees_ms", trees_ms),
        ):
            if value < 0:
                raise InputError("", f"{option} is too small", "give more")
        periods: dict[str, Any] = {
            "beat_ms": period_ms,
            "ring_ms": max(1, period_ms // 2),
            "bury_ms": 6 * period_ms,
            "estimate_ms": estimate_ms,
        }
        self.config = MagnetConfig(
            skewed=OscarConfig(links=links, two_choices=two_choices, **periods),
            control=OscarConfig(links=min(links, 16), walks=3, two_choices=False, **periods),
            newscast=NewscastConfig(period_ms=period_ms),
            placement=self.placement,
            tree=cast(Any, tree),
            sample_size=samples,
            sampling=cast(Any, sampling),
            sample_ms=sample_ms,
            rejoin_changes=rejoin_changes,
            improve_rounds=improve_rounds,
            tree_ms=period_ms,
        )
        self.codec = CODEC
        self.join_gap_ms, self.first_gap_ms, self.trees_ms = join_gap_ms, first_gap_ms, trees_ms
        self.topic_rates: Mapping[Topic, float] | None = None
        """Publication rates by which similarity is weighted, if they are known (A-MAG-1)."""
        silence_ms = (self.config.skewed.silence_max + 2) * period_ms
        self.settle_ms = max(silence_ms, (self.config.root_silence_max + 2) * period_ms, 4 * sample_ms) + 2_000
        self._order: dict[NodeId, int] = {}
        self._names: list[NodeId] = []  # in the order in which they join
        self._begin_ms: list[int] = []  # when they begin to join, in the same order

    def node_type(self) -> type[MagnetNode]:
        return MagnetNode

    def make_node(self, node: NodeId, topics: tuple[Topic, ...], random: Random, world: World) -> ProtocolNode:
        begin_ms, contacts = 0, []
        if world.now_ms == 0 and world.incarnation(node) == 1:
            place = self._place_in_order(node, world)
            begin_ms = self._begin_ms[place]
            contacts = [self._names[random.randrange(place)] for _ in range(_CONTACTS if place else 0)]
            contacts = list(dict.fromkeys(contacts))
        else:
            contacts = world.contacts(node, random, _CONTACTS)
        return self.node_type()(
            node,
            topics,
            random,
            self.config,
            contacts=contacts,
            table=world.topics,
            rates=self.topic_rates,
            incarnation=world.incarnation(node),
            begin_ms=begin_ms,
            trees_ms=self.trees_ms and self.trees_ms - world.now_ms + begin_ms // 4,
        )

    def _place_in_order(self, node: NodeId, world: World) -> int:
        """Return the position of a node in the random order of joins (A-MAG-9)."""
        if node not in self._order:
            others = world.contacts(node, Random(0), 1 << 62)  # all nodes that are there at the start
            self._names = sorted([node, *others])
            Random(ids.stream(world.seed, "join order")).shuffle(self._names)
            self._order = {name: place for place, name in enumerate(self._names)}
            self._begin_ms = self.begins_ms(len(self._names))
        return self._order[node]

    def begins_ms(self, nodes: int) -> list[int]:
        """Return when each node begins to join.

        A join takes a while. If many of the first nodes join at once, they know no others, and take places by their
        names. They are few, but later nodes gather around them (A-MAG-9).
        """
        begins, now = [], 0
        for place in range(nodes):
            begins.append(now)
            now += max(self.join_gap_ms, 10 * self.first_gap_ms // max(10, place))
        return begins

    def ring_key(self, node: NodeId) -> int:
        """Return the position on the control ring, whose positions are known beforehand."""
        return int.from_bytes(hashed(node).ljust(20, b"\0"), "big")

    def parameters(self) -> dict[str, Any]:
        fields = msgspec.to_builtins(msgspec.structs.asdict(self.config))
        gaps = {"join_gap_ms": self.join_gap_ms, "first_gap_ms": self.first_gap_ms}
        return {**fields, **gaps, "trees_ms": self.trees_ms}

    def control_types(self) -> tuple[str, ...]:
        return tuple(kind.__name__ for kind in CONTROL)

    def carried(self, message: msgspec.Struct) -> Carried | None:
        """Return a publication on its path down a tree. The path to the home location is in no figure (A-MAG-16)."""
        if isinstance(message, Publication):
            return Carried(message.topic, message.origin, message.sequence, message.hops)
        return None

    def metrics(self, world: World) -> Mapping[str, float]:
        """Return what one publication on every topic would cost now."""
        found = reach_all(world)
        reached = sum(one.reached for one in found)
        wanted = sum(len(one.subscribers) for one in found)
        return {
            "relays": sum(len(one.relays) for one in found) / max(1, len(found)),
            "reached": reached / max(1, wanted),
        }

    def draw(self, run: Run, folder: Path) -> None:
        from trellis.simulate.systems.magnet_figures import draw_world

        draw_world(run.engine.world, folder)

    def check_settled(self, world: World) -> None:
        check_ring(world, "control")
        check_ring(world, "skewed")
        for topic, subscribers in sorted(_subscribers(world).items()):
            check_tree(world, topic, subscribers)
        check_views(world)


def node_of(world: World, name: NodeId) -> MagnetNode:
    return cast(MagnetNode, world.node(name))


def home_of(world: World, topic: Topic) -> NodeId:
    """Return the first living node at or after the topic's position on the control ring (A-MAG-5)."""
    place = hashed(topic)
    ring = sorted(world.living, key=hashed)
    return next((name for name in ring if hashed(name) >= place), ring[0])


def check_ring(world: World, layer: str) -> None:
    """Check I-17 and I-21: labels differ, and each node knows its true successor and predecessor."""
    places = {}
    for name in world.living:
        me = getattr(node_of(world, name), layer).me
        if me is None:
            raise Violation(f"{name} has no place on the {layer} ring")
        places[name] = me.label
    if len(set(places.values())) != len(places):
        raise Violation(f"two nodes have the same label on the {layer} ring")
    ring = sorted(places, key=lambda name: places[name])
    for place, name in enumerate(ring):
        table = getattr(node_of(world, name), layer).table
        after, before = ring[(place + 1) % len(ring)], ring[place - 1]
        known = (table.predecessor and table.predecessor.node, table.successor and table.successor.node)
        if known != ((before, after) if len(ring) > 1 else (None, None)):
            raise Violation(f"{name} is between {before} and {after} on the {layer} ring; it believes {known}")


def check_tree(world: World, topic: Topic, subscribers: list[NodeId]) -> None:
    """Check I-20: one tree reaches all subscribers, and its nodes agree about it."""
    found = reach(world, topic, home_of(world, topic))
    missing = sorted(set(subscribers) - set(found.parents))
    if missing:
        raise Violation(f"{topic}: a publication at {found.home} does not reach {', '.join(missing[:5])}")
    if found.repeated:
        raise Violation(f"{topic}: {found.repeated[0]} is the child of two nodes")
    for name in world.living:
        tree = node_of(world, name).trees.forest.get(topic)
        if tree is None:
            continue
        if tree.is_root != (name == found.home):
            raise Violation(f"{topic}: {name} is{'' if tree.is_root else ' not'} its root; its home is {found.home}")
        if tree.parent != found.parents.get(name):
            raise Violation(f"{topic}: {name} hangs on {tree.parent}, which has no way to it from {found.home}")
        if not tree.subscribed and not tree.children and not tree.is_root:
            raise Violation(f"{topic}: {name} forwards to nobody")
        for child in tree.children:
            if not node_of(world, name).skewed.table.carries(child) or name not in world.claims(child):
                raise Violation(f"{topic}: {name} has no link to its child {child}")


def check_views(world: World) -> None:
    """Check I-23: each node knows another subscriber of each of its topics, if there is one."""
    subscribers = _subscribers(world)
    for name in world.living:
        for topic in world.topics_of(name):
            if len(subscribers[topic]) > 1 and not node_of(world, name).membership.others(topic):
                raise Violation(f"{name} knows no other subscriber of {topic}")


def _subscribers(world: World) -> dict[Topic, list[NodeId]]:
    found: dict[Topic, list[NodeId]] = {}
    for name in world.living:
        for topic in world.topics_of(name):
            found.setdefault(topic, []).append(name)
    return found


__all__ = ["Magnet", "Reach", "check_ring", "check_tree", "check_views", "home_of", "node_of", "reach", "reach_all"]
