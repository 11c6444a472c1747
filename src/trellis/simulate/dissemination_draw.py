"""Draw runs that spread events: one topic on the ring, and how well events were delivered."""

from __future__ import annotations

from collections.abc import Iterable
from math import cos, pi, sin
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trellis.measure.picture import BLUE, GREEN, INK, MUTED, ORANGE, RED, picture
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.lookup import rendezvous
from trellis.protocols.ring import RING, identifier
from trellis.simulate.dissemination import Measured
from trellis.simulate.dissemination_system import TableSystem, node_of
from trellis.simulate.system import World

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from trellis.simulate.run import Run

CLUSTER_COLORS = (BLUE, GREEN, ORANGE, "#7d5ba6", "#5f9ea0", "#a0522d", "#c27ba0", "#6b8e23")
SUBSCRIBERS_MAX = 150  # A picture of a topic with more subscribers is hard to read.
TOPICS_TO_CHOOSE_FROM = 30


def draw_clusters(run: Run, path: Path) -> None:
    """Draw one topic on the identifier ring: its clusters, gateways, relay paths and rendezvous node."""
    world = run.engine.world
    topic = _topic_to_show(world)
    if topic is None:
        return
    clusters = topic_clusters(world, topic)
    count = f"{len(clusters)} cluster{'s' * (len(clusters) > 1)}"
    subscribers = sum(map(len, clusters))
    title = f"{topic}: {subscribers} subscribers, {count} ({run.engine.system.name}, seed {world.seed})"
    with picture(path, title, rows=1, columns=1) as ((axes,),):
        axes.set_aspect("equal")
        axes.set_axis_off()
        _draw_topic(axes, world, topic, clusters)


def draw_dissemination(run: Run, path: Path) -> None:
    """Draw the hops of deliveries and the traffic overhead of nodes. Draw nothing if nothing was published."""
    system = run.engine.system
    watched = system.dissemination if isinstance(system, TableSystem) else None
    found = watched.measure() if watched is not None else None
    if found is not None and found.publications:
        draw_measured(found, system.name, path)


def draw_measured(found: Measured, name: str, path: Path) -> None:
    """Draw a histogram of hops, and one of the traffic overhead of nodes."""
    title = f"{found.publications:,} events, hit ratio {found.hit_ratio:.2%}, {name}"
    with picture(path, title, rows=1, columns=2) as ((left, right),):
        left.bar(list(found.hops), list(found.hops.values()), color=BLUE)
        left.axvline(found.delay, color=ORANGE, label=f"mean {found.delay:.2f}")
        left.set(xlabel="hops", ylabel="deliveries")
        left.legend(loc="upper right")
        counts = found.overhead_histogram(20)
        right.bar([5 * place + 2.5 for place in range(20)], counts, width=4.5, color=RED)
        right.set(xlabel=f"traffic overhead of a node, % (in all {found.overhead:.1%})", ylabel="nodes", xlim=(0, 100))


def topic_clusters(world: World, topic: Topic) -> list[list[NodeId]]:
    """Return the maximal connected parts of the topic's subscribers, largest first.  [VI §III-B]"""
    wanting = {name for name in world.living if topic in world.topics_of(name)}
    links: dict[NodeId, list[NodeId]] = {name: [] for name in wanting}
    for one, other in world.links():
        if one in wanting and other in wanting:
            links[one].append(other)
            links[other].append(one)
    clusters, left = [], set(wanting)
    for name in sorted(wanting):
        if name not in left:
            continue
        found, waiting = [name], [name]
        left.discard(name)
        while waiting:
            for peer in links[waiting.pop()]:
                if peer in left:
                    left.discard(peer)
                    found.append(peer)
                    waiting.append(peer)
        clusters.append(sorted(found))
    return sorted(clusters, key=lambda cluster: (-len(cluster), cluster))


def relay_links(world: World, topic: Topic) -> list[tuple[NodeId, NodeId]]:
    """Return the links of the topic's relay paths, each toward the rendezvous node."""
    found = []
    for name in world.living:
        relays = getattr(node_of(world, name), "relays", None)
        hop = relays.up.get(topic) if relays is not None else None
        if hop is not None:
            found.append((name, hop))
    return found


def gateways_of(world: World, topic: Topic) -> list[NodeId]:
    """Return the nodes that look up the topic for their clusters. In RVR every subscriber does."""
    found = []
    for name in world.living:
        relays = getattr(node_of(world, name), "relays", None)
        if relays is not None and topic in relays.own:
            found.append(name)
    return found


def _topic_to_show(world: World) -> Topic | None:
    """Return the topic with most clusters among the most popular ones that are small enough to draw."""
    counts: dict[Topic, int] = {}
    for name in world.living:
        for topic in world.topics_of(name):
            counts[topic] = counts.get(topic, 0) + 1
    few = {topic: count for topic, count in counts.items() if count <= SUBSCRIBERS_MAX} or counts
    popular = sorted(few, key=lambda topic: (-few[topic], topic))[:TOPICS_TO_CHOOSE_FROM]
    return max(popular, key=lambda topic: len(topic_clusters(world, topic)), default=None)


def _draw_topic(axes: Axes, world: World, topic: Topic, clusters: list[list[NodeId]]) -> None:
    spot = {name: _spot(name) for name in world.living}
    _dots(axes, spot.values(), 4, MUTED, alpha=0.4)
    cluster_of = {name: place for place, cluster in enumerate(clusters) for name in cluster}
    for one, other in world.links():
        if one in cluster_of and other in cluster_of:
            color = CLUSTER_COLORS[cluster_of[one] % len(CLUSTER_COLORS)]
            axes.plot(*zip(spot[one], spot[other], strict=True), color=color, linewidth=0.4, alpha=0.35)
    paths = [(one, other) for one, other in relay_links(world, topic) if other in spot]
    for one, other in paths:
        axes.annotate("", spot[other], spot[one], arrowprops={"arrowstyle": "->", "color": RED, "linewidth": 1.2})
    for place, cluster in enumerate(clusters):
        color = CLUSTER_COLORS[place % len(CLUSTER_COLORS)]
        _dots(axes, [spot[name] for name in cluster], 22, color)
    root = rendezvous(identifier(topic), world.living)
    relays = sorted({name for link in paths for name in link if name not in cluster_of} - {root})
    if relays:
        _dots(axes, [spot[name] for name in relays], 26, RED, label="relay")
    gateways = gateways_of(world, topic)
    if gateways:
        _dots(axes, [spot[name] for name in gateways], 60, "none", edgecolors=INK, label="gateway")
    if paths:
        axes.plot([], [], color=RED, linewidth=1.2, label="relay path")
    _dots(axes, [spot[root]], 160, "black", marker="*", label="rendezvous")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02), ncols=4)


def _dots(axes: Axes, spots: Iterable[tuple[float, float]], size: float, color: str, **more: Any) -> None:
    x, y = zip(*spots, strict=True)
    axes.scatter(x, y, size, c=color, zorder=3, **more)


def _spot(name: NodeId) -> tuple[float, float]:
    angle = 2 * pi * (identifier(name) / RING)
    return sin(angle), cos(angle)
