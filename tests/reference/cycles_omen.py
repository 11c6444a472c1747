"""Parts of OMen in cycles word for word, for tests."""

from __future__ import annotations

from collections.abc import Iterable

from reference.cycles_gossip import Chance
from trellis.protocols.effects import NodeId
from trellis.protocols.omen.links.hints import Hints
from trellis.protocols.omen.me import Me
from trellis.protocols.omen.messages import Hint
from trellis.protocols.topics import TopicTable

_MASK = 2**64 - 1


class Draws:
    """Stands in for `Random` where the protocol draws from a range: the same draws as a kernel's stream."""

    def __init__(self, state: int) -> None:
        self.chance = Chance(state)

    def randrange(self, count: int) -> int:
        return self.chance.below(count)


def stream_of_a_view(seed: int, node: int, whose: int) -> int:
    """The first state of the stream from which the backups of a view are drawn."""
    return ((seed + node * 0x9E3779B97F4A7C15) & _MASK) ^ (whose * 0xC2B2AE3D27D4EB4F & _MASK)


def labels(neighbors: dict[int, set[int]], members: set[int], starts: list[int]) -> list[int]:
    """For each start the first one that a chain of members connects with it; -1: it is no member."""
    found = []
    for start in starts:
        met, todo = {start} & members, [start] if start in members else []
        while todo:
            for peer in neighbors[todo.pop()] & members - met:
                met.add(peer)
                todo.append(peer)
        found.append(next((place for place, other in enumerate(starts) if other in met), -1))
    return found


def paths_at_rest(
    wanted: dict[str, tuple[str, ...]], links: Iterable[tuple[str, str]]
) -> dict[NodeId, dict[str, tuple]]:
    """The protocol's own hints, told from neighbor to neighbor until none changes any more."""
    table, neighbors = TopicTable(), {name: set[str]() for name in wanted}
    for one, other in links:
        neighbors[one].add(other)
        neighbors[other].add(one)
    hints = {name: Hints(Me(name, topics, table, 1)) for name, topics in wanted.items()}
    for one in hints.values():
        one.refresh()
    changed = True
    while changed:
        before = {name: dict(one.paths) for name, one in hints.items()}
        for name, one in hints.items():
            for peer in sorted(neighbors[name]):
                shared = set(wanted[name]) & set(wanted[peer])
                hints[peer].told(
                    name,
                    [
                        Hint(table.names[place], path)
                        for place, path in one.paths.items()
                        if table.names[place] in shared
                    ],
                )
        changed = before != {name: dict(one.paths) for name, one in hints.items()}
    return {name: {table.names[place]: path for place, path in one.paths.items()} for name, one in hints.items()}
