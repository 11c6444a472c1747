"""Draws how a mesh repairs itself: before a crash, at the crash, and after the repair. Called by `make_figures.py`.

The run is one of `trellis simulate omen --record`: the links are those that the recording names, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

import networkx as nx

from trellis.measure.picture import BLUE, GREEN, INK, MUTED, RED, picture
from trellis.simulate.record import Replay

CRASH_MS = 30_000
PALE = "#c3ced6"  # links that carry other topics
SITES = """
amsterdam orders stock
berlin orders alarms
dublin stock prices
lisbon alarms prices
london orders prices
madrid stock alarms
milan orders stock alarms
oslo alarms prices
paris orders stock prices
prague orders alarms
rome stock alarms
vienna orders prices
"""
Link = tuple[str, str]


class Moment(NamedTuple):
    """The mesh at one time of the recording."""

    nodes: dict[str, tuple[str, ...]]  # with their topics
    links: frozenset[Link]


def write_interests(path: Path) -> None:
    rows = [(site, topic) for line in SITES.split("\n") if line for site, *topics in [line.split()] for topic in topics]
    path.write_text("node\ttopic\n" + "".join(f"{site}\t{topic}\n" for site, topic in rows), "utf-8")


def write_crash(path: Path, victim: str) -> None:
    """A schedule of faults with one crash. [simulate/schedule.py]"""
    columns = "time_ms\tkind\tnodes\tpeers\ttopics\tduration_ms\tvalue"
    path.write_text(f"{columns}\n{CRASH_MS}\tcrash\t{victim}\t\t\t0\t0\n", "utf-8")


def worst_loss(interests: Path, overlay: Path) -> tuple[str, str]:
    """Return the node and the topic for which the loss of the node splits the topic into the most parts."""
    topics: dict[str, set[str]] = {}
    for row in interests.read_text("utf-8").splitlines()[1:]:
        site, topic = row.split("\t")
        topics.setdefault(topic, set()).add(site)
    links = [(u, v) for u, v in (row.split("\t") for row in overlay.read_text("utf-8").splitlines()[1:])]
    losses = [
        (len(parts(links, subscribers - {victim})), victim, topic)
        for topic, subscribers in sorted(topics.items())
        for victim in sorted(subscribers)
    ]
    most, victim, topic = max(losses, key=lambda loss: loss[0])
    assert most > 1, "no loss splits a topic: choose other interests"
    return victim, topic


def parts(links: Iterable[Link], subscribers: Collection[str]) -> list[set[str]]:
    """Return the connected parts of `subscribers`, linked through each other alone."""
    graph = nx.Graph()
    graph.add_nodes_from(subscribers)
    graph.add_edges_from((u, v) for u, v in links if u in subscribers and v in subscribers)
    return list(nx.connected_components(graph))


def read_moments(recording: Path, topic: str) -> list[Moment]:
    """Return the mesh before the crash, right after it, and when the topic is connected again."""
    replay = Replay(recording)

    def moment() -> Moment:
        return Moment(dict(replay.nodes), frozenset(replay.links))

    replay.until(CRASH_MS - 1)
    moments = [moment()]
    for line in replay:
        crashed = len(moments) > 1
        if not crashed and line["e"] == "down":
            moments.append(moment())
        elif crashed:
            subscribers = [node for node, topics in replay.nodes.items() if topic in topics]
            if len(parts(replay.links, subscribers)) == 1:
                return [*moments, moment()]
    raise AssertionError(f"{topic} is split at the end of {recording}")


def draw(path: Path, moments: list[Moment], victim: str, topic: str) -> None:
    before, crashed, repaired = moments
    places = layout(before)
    new = repaired.links - crashed.links
    split = len(parts(crashed.links, [node for node in crashed.nodes if topic in crashed.nodes[node]]))
    titles = (
        f'Subscribers of "{topic}" are connected',
        f'{victim} crashes: "{topic}" is in {split} parts',
        "The others repair: " + ", ".join(f"{u} links to {v}" for u, v in sorted(new)),
    )
    with picture(path, "A mesh that repairs itself", rows=1, columns=3) as (row,):
        for axes, at, title in zip(row, moments, titles, strict=True):
            axes.set_title(title)
            axes.axis("off")
            axes.margins(0.16, 0.1)
            for u, v in sorted(at.links):
                on_topic = topic in at.nodes[u] and topic in at.nodes[v]
                color = GREEN if at is repaired and (u, v) in new else BLUE if on_topic else PALE
                width = 2.4 if color == GREEN else 2.0 if on_topic else 1.2
                axes.plot(*zip(places[u], places[v], strict=True), color=color, linewidth=width, zorder=1)
            for name, (x, y) in places.items():
                if name not in at.nodes:
                    axes.plot(x, y, "x", color=RED, markersize=9, markeredgewidth=2.4, zorder=3)
                else:
                    color = BLUE if topic in at.nodes[name] else MUTED
                    axes.plot(x, y, "o", color=color, markersize=8, zorder=2)
                color = INK if topic in before.nodes[name] else MUTED
                label = {
                    "ha": "center",
                    "fontsize": 7.5,
                    "color": color,
                    "bbox": {"fc": "white", "ec": "none", "pad": 0.6},
                }
                axes.annotate(name, (x, y), (0, 8), textcoords="offset points", zorder=1.5, **label)


def layout(at: Moment) -> dict[str, tuple[float, float]]:
    """Return a place for each node. Rounded, so that the same links give the same picture on every machine."""
    graph = nx.Graph()
    graph.add_nodes_from(sorted(at.nodes))
    graph.add_edges_from(sorted(at.links))
    return {name: (round(float(x), 2), round(float(y), 2)) for name, (x, y) in nx.kamada_kawai_layout(graph).items()}
