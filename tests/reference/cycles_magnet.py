"""Magnet's membership service in cycles word for word, for tests: dicts and lists, and the kernels' stream of draws."""

from __future__ import annotations

from collections.abc import Callable

from reference.cycles_gossip import Chance

Part = tuple[int, int]  # node, topic


class Members:
    """`parent(node, topic)`: the next hop towards the topic's home, or None at the home."""

    def __init__(self, size: int, parent: Callable[[int, int], int | None], chance: Chance) -> None:
        self.size, self.parent, self.chance = size, parent, chance
        self.children: dict[Part, list[Part]] = {}  # of the parts that are in a tree, the newest child first
        self.above: dict[Part, Part] = {}
        self.sample: dict[Part, list[int]] = {}  # what a part has sent to its parent
        self.own: set[Part] = set()
        self.parts: dict[int, list[int]] = {}  # node -> topics, the newest first
        self.views: dict[int, list[int]] = {}

    def announce(self, node: int, topics: list[int]) -> None:
        for topic in topics:
            self._take_part(node, topic)
            self.own.add((node, topic))
            self.send_up((node, topic))

    def round(self, node: int) -> None:
        for topic in list(self.parts.get(node, [])):
            part = node, topic
            if part not in self.children:
                continue
            if not self.children[part] and part not in self.own:
                self._leave(part)
                del self.children[part]
            elif self.parent(node, topic) is None:
                self._leave(part)
                self.views[topic] = self.merged(part)
            else:
                self.send_up(part)

    def send_up(self, part: Part) -> None:
        node, topic = part
        hop = self.parent(node, topic)
        if hop is None or not (sample := self.merged(part)):
            return
        self.sample[part] = sample
        is_new = False
        if self.above.get(part) != (hop, topic) or (hop, topic) not in self.children:
            self._leave(part)
            is_new = self._take_part(hop, topic)
            self.above[part] = hop, topic
            self.children[hop, topic].insert(0, part)
        if is_new:
            self.send_up((hop, topic))

    def merged(self, part: Part) -> list[int]:
        found = [part[0]] if part in self.own else []
        for child in self.children[part]:
            found += [node for node in self.sample[child] if node not in found]
        return found if len(found) <= self.size else self.chance.first(found, self.size)

    def _take_part(self, node: int, topic: int) -> bool:
        known = self.parts.setdefault(node, [])
        if topic not in known:
            known.insert(0, topic)
        is_new = (node, topic) not in self.children
        self.children.setdefault((node, topic), [])
        return is_new

    def _leave(self, part: Part) -> None:
        if part in self.above:
            self.children[self.above.pop(part)].remove(part)
