"""Draw a Magnet run: the skewed ring colored by interest, and one topic's tree with its uninterested relays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import islice
from math import cos, pi, sin
from pathlib import Path
from typing import Any, cast

from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.magnet import MagnetNode
from trellis.simulate.system import World
from trellis.simulate.systems.magnet_trees import Reach, reach

Wanted = Mapping[NodeId, tuple[Topic, ...]]
_WANTED, _RELAY, _HOME = "#2a7f3f", "#c8401f", "#1f4fc8"


def ring_order(world: World) -> list[NodeId]:
    """Return the nodes that have a place on the skewed ring, clockwise."""
    places = {name: cast(MagnetNode, world.node(name)).skewed.me for name in world.living}
    placed = {name: me.label for name, me in places.items() if me is not None}
    return sorted(placed, key=lambda name: placed[name])


def middle_topic(wanted: Wanted) -> Topic | None:
    """Return a topic of median popularity, whose tree is neither too small nor too dense to draw."""
    popularity = _popularity(wanted)
    ordered = sorted(popularity, key=lambda topic: (popularity[topic], topic))
    return ordered[len(ordered) // 2] if ordered else None


def draw_world(world: World, folder: Path) -> None:
    """Draw the ring and a tree of a run of the event engine."""
    order, wanted = ring_order(world), {name: world.topics_of(name) for name in world.living}
    topic = middle_topic(wanted)
    draw_ring(order, wanted, world.links(), folder / "ring.png")
    draw_tree(order, None if topic is None else reach(world, topic), folder / "tree.png")


def draw_ring(order: list[NodeId], wanted: Wanted, links: Iterable[tuple[NodeId, NodeId]], path: Path) -> None:
    """Draw nodes by rank, each in the color of its most popular topic. Few changes of color mean good clustering."""
    plt = _pyplot()
    popularity = _popularity(wanted)
    main = {name: max(wanted[name], key=lambda topic: (popularity[topic], topic), default=None) for name in order}
    topics = sorted({topic for topic in main.values() if topic is not None})
    shade = {topic: place / max(1, len(topics) - 1) for place, topic in enumerate(topics)}
    figure, axes = plt.subplots(figsize=(7, 7))
    spots = {name: _spot(place, len(order)) for place, name in enumerate(order)}
    for u, v in islice(links, 20_000):
        if u in spots and v in spots:
            axes.plot(*zip(spots[u], spots[v], strict=True), color="#bbbbbb", linewidth=0.2, alpha=0.4, zorder=1)
    colours = [plt.get_cmap("turbo")(shade[topic]) if (topic := main[name]) else "#000000" for name in order]
    if order:
        axes.scatter(*zip(*spots.values(), strict=True), c=colours, s=max(4, 4000 / len(order)), zorder=2)
    axes.set_title(f"skewed ring, {len(order):,} nodes by rank, coloured by their most popular topic")
    _finish(plt, figure, axes, path)


def draw_tree(order: list[NodeId], found: Reach | None, path: Path) -> None:
    """Draw the nodes that get a publication on the topic: subscribers, relays that do not subscribe, and the home."""
    plt = _pyplot()
    figure, axes = plt.subplots(figsize=(7, 7))
    if found is not None and order:
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
            f"{found.topic}: {len(found.subscribers)} subscribers (green), {len(relays)} relays (red), home (blue)"
        )
    _finish(plt, figure, axes, path)


def _popularity(wanted: Wanted) -> Counter[Topic]:
    return Counter(topic for topics in wanted.values() for topic in topics)


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
