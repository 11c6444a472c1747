"""A tiny deterministic driver: nodes, messages that take 10 ms, timers, and a readable record of what was said.

`lose`, `twice` and `late_ms` say per message what the network does to it. The record is what golden traces hold.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from trellis.protocols.effects import CancelTimer, Deliver, Effects, LinkDown, LinkUp, Send, SetTimer

LATENCY_MS = 10
Rule = Callable[[str, str, msgspec.Struct], bool]


def never(sender: str, to: str, message: msgspec.Struct) -> bool:
    return False


class Conversation:
    def __init__(
        self,
        nodes: Iterable[Any],
        lose: Rule = never,
        twice: Rule = never,
        late_ms: Callable[[str, str, msgspec.Struct], int] | None = None,
        record: bool = False,
    ) -> None:
        self.nodes = {node.id: node for node in nodes}
        self.lose, self.twice, self.late_ms = lose, twice, late_ms or (lambda *_: 0)
        self.record = record  # keep `lines`
        self.now_ms = 0
        self.claims: dict[str, set[str]] = {name: set() for name in self.nodes}
        self.delivered: list[tuple[str, Deliver]] = []
        self.said: list[tuple[int, str, str, msgspec.Struct]] = []  # when, who, to whom, what
        self.lines: list[str] = []
        self._heap: list[tuple[int, int, str, str, Any]] = []  # due, sequence, node, kind, what
        self._sequence = 0
        self._timers: dict[tuple[str, str], int] = {}

    def start(self) -> None:
        for node in list(self.nodes.values()):
            self.carry_out(node.id, node.start())

    def add(self, node: Any) -> None:
        self.nodes[node.id] = node
        self.claims[node.id] = set()
        self.carry_out(node.id, node.start())

    def crash(self, name: str) -> None:
        """Gone without a word. Messages to it are lost, its timers never fire."""
        self._note(f"{name} crashes")
        self._gone(name)

    def leave(self, name: str) -> None:
        self._note(f"{name} leaves")
        self.carry_out(name, self.nodes[name].leave())
        self._gone(name)

    def _gone(self, name: str) -> None:
        del self.nodes[name]
        self.claims[name] = set()
        for owner, tag in [key for key in self._timers if key[0] == name]:
            del self._timers[owner, tag]

    def carry_out(self, name: str, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Send():
                    self._send(name, effect)
                case SetTimer():
                    self._timers[name, effect.tag] = self._push(effect.delay_ms, name, "timer", effect.tag)
                case CancelTimer():
                    self._timers.pop((name, effect.tag), None)
                case LinkUp():
                    assert effect.peer not in self.claims[name], f"{name} links up with {effect.peer} twice"
                    self.claims[name].add(effect.peer)
                    self._note(f"{name} links up with {effect.peer}")
                case LinkDown():
                    self.claims[name].remove(effect.peer)
                    self._note(f"{name} parts from {effect.peer}")
                case Deliver():
                    self.delivered.append((name, effect))

    def run(self, duration_ms: int, check: bool = True) -> None:
        """Let virtual time pass."""
        end = self.now_ms + duration_ms
        while self._heap and self._heap[0][0] <= end:
            self.now_ms, sequence, name, kind, what = heapq.heappop(self._heap)
            node = self.nodes.get(name)
            if kind == "timer":
                if self._timers.get((name, what)) != sequence:
                    continue  # replaced or cancelled
                del self._timers[name, what]
                effects = node.on_timer(what)
            elif node is None:
                continue
            else:
                sender, message = what
                effects = node.on_message(sender, message)
            self.carry_out(name, effects)
            if check and node is not None:
                node.check()
        self.now_ms = end

    def links(self) -> set[tuple[str, str]]:
        """The links that both ends claim."""
        return {(u, v) for u, peers in self.claims.items() for v in peers if u < v and u in self.claims.get(v, ())}

    def half_links(self) -> set[tuple[str, str]]:
        return {(u, v) for u, peers in self.claims.items() for v in peers if u not in self.claims.get(v, ())}

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, _, _, message in self.said)

    def _send(self, sender: str, send: Send) -> None:
        self.said.append((self.now_ms, sender, send.to, send.message))
        lost = self.lose(sender, send.to, send.message)
        if self.record:
            self._note(f"{sender} -> {send.to}  {phrase(send.message)}{'   (lost)' if lost else ''}")
        for _ in range(0 if lost else 1 + self.twice(sender, send.to, send.message)):
            delay = LATENCY_MS + self.late_ms(sender, send.to, send.message)
            self._push(delay, send.to, "message", (sender, send.message))

    def _push(self, delay_ms: int, name: str, kind: str, what: Any) -> int:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, name, kind, what))
        return self._sequence

    def _note(self, line: str) -> None:
        if self.record:
            self.lines.append(f"{self.now_ms:6} ms  {line}")


def phrase(message: msgspec.Struct) -> str:
    """`CONNECT task=greedy degree=0 target=3 interest=a,b`."""
    name = "".join(("-" + letter if letter.isupper() else letter) for letter in type(message).__name__).strip("-")
    fields = [
        f"{field}={_plain(value)}"
        for field, value in msgspec.structs.asdict(message).items()
        if value is not None and field != "stamp"
    ]
    return " ".join([name.upper(), *fields])


def _plain(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return "/".join(str(part) for part in msgspec.structs.astuple(value))
    if isinstance(value, tuple):
        return ",".join(_plain(part) for part in value) or "-"
    return str(value)


class Parts:
    """A node that is nothing but its parts: each is offered every message, and the timers that begin with its name."""

    def __init__(self, name: str, **parts: Any) -> None:
        self.id, self.parts = name, parts

    def start(self) -> Effects:
        return [effect for part in self.parts.values() for effect in part.start()]

    def on_message(self, sender: str, message: msgspec.Struct) -> Effects:
        return [effect for part in self.parts.values() for effect in part.on_message(sender, message)]

    def on_timer(self, tag: str) -> Effects:
        return self.parts[tag.partition("/")[0]].on_timer(tag)

    def check(self) -> None:
        for part in self.parts.values():
            part.check()
