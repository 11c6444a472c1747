"""Draw one departure: before, broken, repaired, as Fig. 2 of the paper.  [OM §4.4]

`Departures` watches a run and keeps the departure that shows most: the one with most neighbors, up to `LINKS_SHOWN`. A
link counts as part of the repair under three conditions. It came up within `AROUND_MS` of the departure, one of its
ends was a neighbor of the departed node, and both ends subscribe to one of its topics. (If a node leaves in order, the
repair happens before it is gone.)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import cos, pi, sin
from pathlib import Path

from trellis.measure.picture import BLUE, GREEN, MUTED, ORANGE, RED, picture
from trellis.protocols.effects import NodeId, Topic
from trellis.protocols.ring import clockwise, identifier
from trellis.simulate.system import Watcher, World

LINKS_SHOWN = 14  # More cannot be told apart.
AROUND_MS = 20_000
Link = tuple[NodeId, NodeId]


@dataclass
class Departure:
    """A departed node, and the links around it before and after."""

    node: NodeId
    how: str
    time_ms: int
    topics: tuple[Topic, ...]
    neighbours: list[NodeId]
    coordinator: NodeId | None
    kept: list[Link]  # links among the neighbors that existed before
    new: dict[Link, None] = field(default_factory=dict)


class Departures(Watcher):
    """Watches a run, and keeps the departure that is best to draw."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.best: Departure | None = None
        self._claimed: dict[NodeId, dict[NodeId, int]] = {}  # node -> peer -> when it claimed the link
        self._topics: dict[NodeId, tuple[Topic, ...]] = {}
        # node -> neighbors whose links it gave up last, because a node that leaves in order ends its links first
        self._parted: dict[NodeId, list[NodeId]] = {}

    def on_node_up(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._claimed[node], self._topics[node] = {}, topics

    def on_topics(self, node: NodeId, topics: tuple[Topic, ...]) -> None:
        self._topics[node] = topics

    def on_claim(self, node: NodeId, peer: NodeId, up: bool) -> None:
        mine = self._claimed.setdefault(node, {})
        if not up:
            if self.world.now_ms - mine.pop(peer, 0) > AROUND_MS:
                # Only the latest node is kept, because it is gone soon.
                self._parted = {node: [*self._parted.get(node, ()), peer]}
            return
        mine[peer] = self.world.now_ms
        if node in self._claimed.get(peer, {}):
            self._stands(node, peer)

    def on_node_down(self, node: NodeId, how: str) -> None:
        theirs = self._claimed.pop(node, {})
        now = self.world.now_ms
        neighbours = sorted(peer for peer, since in theirs.items() if now - since > AROUND_MS and peer in self._claimed)
        neighbours += [peer for peer in self._parted.get(node, ()) if peer in self._claimed and peer not in neighbours]
        known = len(self.best.neighbours) if self.best else 1
        if not known < len(neighbours) <= LINKS_SHOWN:
            return
        topics, near = self._topics.get(node, ()), set(neighbours)
        links = {(u, v): since for u in neighbours for v, since in self._claimed[u].items() if u < v and v in near}
        kept = [link for link, since in links.items() if now - since > AROUND_MS]
        self.best = Departure(node, how, now, topics, neighbours, self._successor(node), kept)
        for u in neighbours:
            for v, since in self._claimed[u].items():
                if now - since <= AROUND_MS and u in self._claimed.get(v, {}):
                    self._stands(u, v)

    def _stands(self, u: NodeId, v: NodeId) -> None:
        one = self.best
        if one is None or abs(self.world.now_ms - one.time_ms) > AROUND_MS or one.node in (u, v):
            return
        shared = {*self._topics.get(u, ())} & {*self._topics.get(v, ())} & {*one.topics}
        if shared and {u, v} & {*one.neighbours}:
            one.new[min(u, v), max(u, v)] = None

    def _successor(self, node: NodeId) -> NodeId | None:
        place = identifier(node)
        others = [name for name in self._claimed if name != node]
        return min(others, key=lambda name: clockwise(place, identifier(name)), default=None)


def draw_departure(one: Departure, path: Path) -> None:
    """Draw three circles: the links of the departed node, what is left of them, and the new links."""
    shown = {one.node, *one.neighbours, *(end for link in one.new for end in link)}
    if one.coordinator is not None:
        shown.add(one.coordinator)
    order = sorted(shown, key=identifier)
    spots = {name: _spot(place, len(order)) for place, name in enumerate(order)}
    old = [(one.node, peer) for peer in one.neighbours]
    verb = "crashes" if one.how == "crash" else "leaves"
    title = f"{one.node} {verb} at {one.time_ms / 1000:g} s; {one.coordinator} coordinates"
    with picture(path, title, rows=1, columns=3) as ((before, broken, mended),):
        for axes, name, links, new in (
            (before, f"before: {len(old)} links of {one.node}", [*one.kept, *old], []),
            (broken, "broken", one.kept, []),
            (mended, f"mended: {len(one.new)} new links", one.kept, list(one.new)),
        ):
            axes.plot(*zip(*(_spot(step, 90) for step in range(91)), strict=True), ":", color=MUTED, linewidth=0.6)
            for some, color in ((links, MUTED), (new, GREEN)):
                for u, v in some:
                    axes.plot(*zip(spots[u], spots[v], strict=True), color=color, linewidth=1.6, zorder=1)
            for node, (x, y) in spots.items():
                gone = node == one.node
                if gone and axes is mended:
                    continue
                color = RED if gone else ORANGE if node == one.coordinator else BLUE
                axes.plot(x, y, "x" if gone and axes is broken else "o", color=color, markersize=8, zorder=2)
                axes.annotate(node[:14], (1.16 * x, 1.16 * y), ha="center", va="center", fontsize=7)
            axes.set(title=name, xlim=(-1.4, 1.4), ylim=(-1.4, 1.4), aspect="equal")
            axes.axis("off")


def _spot(place: int, count: int) -> tuple[float, float]:
    turn = pi / 2 - 2 * pi * place / max(1, count)
    return cos(turn), sin(turn)
