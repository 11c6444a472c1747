"""Draw a Magnet run: the skewed ring colored by interest, and one topic's tree with its uninterested relays."""

from __future__ import annotations

from math import cos, pi, sin
from pathlib import Path
from typing import Any, cast

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.magnet import MagnetNode
from trellis.simulate.system import World
from trellis.simulate.systems.magnet_trees import Reach, reach

_WANTED, _RELAY, _HOME = "#2a7f3f", "#c8401f", "#1f4fc8"


def ring_order(world: World) -> list[NodeId]:
    """Return the nodes that have a place on the skewed ring, clockwise."""
    places = {name: cast(MagnetNode, world.node(name)).skewed.me for name in world.living}
    placed = {name: me.label for name, me in places.items() if me is not None}
    return sorted(placed, key=lambda name: placed[name])


def middle_topic(world: World) -> Topic | None:
    """Return a topic of median popularity, whose tree is neither too small nor too dense to draw."""
    popularity = _popularity(world)
    ordered = sorted(popularity, key=lambda topic: (popularity[topic], topic))
    return ordered[len(ordered) // 2] if ordered else None


def draw_ring(world: World, path: Path) -> None:
    """Draw nodes by rank, each in the color of its most popular topic. Few changes of color mean good clustering."""
    plt = _pyplot()
    order, popularity = ring_order(world), _popularity(world)
    topics = sorted({topic for name in order if (topic := _main_topic(world, name, popularity)) is not None})
    shade = {topic: place / max(1, len(topics) - 1) for place, topic in enumerate(topics)}
    figure, axes = plt.subplots(figsize=(7, 7))
    spots = {name: _spot(place, len(order)) for place, name in enumerate(order)}
    for u, v in world.links()[:20_000]:
        if u in spots and v in spots:
            axes.plot(*zip(spots[u], spots[v], strict=True), color="#bbbbbb", linewidth=0.2, alpha=0.4, zorder=1)
    colours = [
        plt.get_cmap("turbo")(shade[topic]) if (topic := _main_topic(world, name, popularity)) else "#000000"
        for name in order
    ]
    axes.scatter(*zip(*spots.values(), strict=True), c=colours, s=max(4, 4000 / max(1, len(order))), zorder=2)
    axes.set_title(f"skewed ring, {len(order):,} nodes by rank, coloured by their most popular topic")
    _finish(plt, figure, axes, path)


def draw_tree(world: World, path: Path, topic: Topic | None = None) -> None:
    """Draw the nodes that get a publication on the topic: subscribers, relays that do not subscribe, and the home."""
    plt = _pyplot()
    chosen = topic if topic is not None else middle_topic(world)
    figure, axes = plt.subplots(figsize=(7, 7))
    if chosen is not None:
        found: Reach = reach(world, chosen)
        order = ring_order(world)
        spots = {name: _spot(place, len(order)) for place, name in enumerate(order)}
        for child, parent in found.parents.items():
            if parent is not None:
                axes.plot(*zip(spots[parent], spots[child], strict=True), color="#888888", linewidth=0.8, zorder=1)
        relays = set(found.relays)
        nodes = list(found.parents)
        colours = [_HOME if name == found.home else _RELAY if name in relays else _WANTED for name in nodes]
        axes.scatter(*zip(*spots.values(), strict=True), c="#dddddd", s=3, zorder=0)
        if nodes:
            axes.scatter(*zip(*(spots[name] for name in nodes), strict=True), c=colours, s=24, zorder=2)
        axes.set_title(
            f"{chosen}: {len(found.subscribers)} subscribers (green), {len(relays)} relays (red), home (blue)"
        )
    _finish(plt, figure, axes, path)


def _main_topic(world: World, node: NodeId, popularity: dict[Topic, int]) -> Topic | None:
    return max(world.topics_of(node), key=lambda topic: (popularity[topic], topic), default=None)


def _popularity(world: World) -> dict[Topic, int]:
    found: dict[Topic, int] = {}
    for name in world.living:
        for topic in world.topics_of(name):
            found[topic] = found.get(topic, 0) + 1
    return found


def _spot(place: int, count: int) -> tuple[float, float]:
    turn = pi / 2 - 2 * pi * place / max(1, count)
    return cos(turn), sin(turn)


def _pyplot() -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def _finish(plt: Any, figure: Any, axes: Any, path: Path) -> None:
    axes.set_aspect("equal")
    axes.axis("off")
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)
