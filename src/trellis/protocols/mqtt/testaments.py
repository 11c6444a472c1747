"""Wills that survive their node: other nodes keep them, and publish them when the node has crashed.  [docs/mqtt.md]

A node with wills chooses `KEEPERS` other nodes, and tells them its wills and each change (`Testament`). It also says
that it is there every `BEAT_MS` (`Beat`), and so do its keepers. A keeper that hears nothing of a node for `SILENT_MS`
publishes the node's wills, and says so (`Executed`). The second keeper waits for `STEP_MS` longer.

T1  A keeper publishes the wills of one incarnation at most once. It drops them when another keeper says that it has.
T2  A will of a client that has connected again, with a will, at another node is dropped.
T3  At most `BYTES_MAX` bytes of wills of other nodes are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from trellis.protocols.access.decide import Who
from trellis.protocols.effects import Incarnation, NodeId, Topic
from trellis.protocols.mqtt import packets as p
from trellis.protocols.mqtt.envelope import PART_BYTES, PREFIXES_MAX, Beat, Executed, Testament, WillTold, wrap
from trellis.protocols.mqtt.interests import QUESTIONS
from trellis.protocols.mqtt.state import BrokerState
from trellis.protocols.mqtt.topics import is_carried
from trellis.reached import reached

KEEPERS = 2
BEAT_MS = 1_500
SILENT_MS = 6_000  # A node that said nothing for so long has crashed.
STEP_MS = 2_000  # The second keeper waits so much longer than the first one.
BYTES_MAX = 64 << 20

Publish = Callable[[str, str, bytes, int, bool, p.Content], object]


@dataclass
class Kept:
    """The wills of another node."""

    incarnation: Incarnation
    rank: int  # our place among the node's keepers, from 0
    wills: dict[str, WillTold] = field(default_factory=dict)  # by client

    @property
    def size(self) -> int:
        """Roughly how much memory they take, in bytes."""
        return sum(map(_size, self.wills.values()))


class Testaments:
    """This node's part in keeping wills: it tells its own, and keeps those of others."""

    def __init__(self, state: BrokerState, wills: Callable[[], Iterator[WillTold]], publish: Publish) -> None:
        """`wills` yields the present wills of this node. `publish` publishes one; it returns None, or a refusal."""
        self.state, self.wills, self.publish = state, wills, publish
        self.emits: list[tuple[Topic, bytes, str]] = []
        self.is_busy: Callable[[], bool] = lambda: False  # whether others must hear that we are there anyway
        self.is_changed = False  # The wills of this node have changed.
        self.kept: dict[NodeId, Kept] = {}
        self._told: dict[str, WillTold] = {}  # what our keepers know
        self._keepers: tuple[NodeId, ...] = ()
        self._heard_ms: dict[NodeId, int] = {}  # when a node last said that it is there; leaves out our standstills
        self._chosen_ms = 0  # when the present keepers were chosen
        self._beat_ms = self._looked_ms = 0
        self._bytes = 0
        self._delayed: dict[str, tuple[int, WillTold]] = {}  # wills with a delay: when they are due, by client

    # This node's wills

    def tick(self) -> None:
        """Tell changes, say that we are there, and publish the wills of nodes that have crashed."""
        awake_ms = self.state.awake_ms
        if self.is_changed or awake_ms - self._looked_ms >= BEAT_MS:
            self._looked_ms = awake_ms
            self._tell()
        if (self._told or self.kept or self.is_busy()) and awake_ms - self._beat_ms >= BEAT_MS:
            self._beat_ms = awake_ms
            self._emit(Beat(self.state.incarnation))
        for node, kept in list(self.kept.items()):
            if awake_ms - self._heard_ms.get(node, awake_ms) >= SILENT_MS + kept.rank * STEP_MS:
                reached("a will is published for a node that has crashed")
                self._execute(node)
        for client in [client for client, (due_ms, _) in self._delayed.items() if due_ms <= self.state.now_ms]:
            self._publish(self._delayed.pop(client)[1])

    def _tell(self) -> None:
        """Choose keepers, and tell them what has changed."""
        self.is_changed = False
        wills = {will.client: will for will in self.wills()}
        keepers = self._choose() if wills else ()
        is_whole = keepers != self._keepers
        if is_whole:
            self._keepers, self._chosen_ms = keepers, self.state.awake_ms
        elif wills == self._told:
            return
        told = {} if is_whole else self._told
        changed = [will for client, will in wills.items() if told.get(client) != will]
        gone = [client for client in told if client not in wills]
        self._told = wills
        first = True
        for some, others in _parts(changed, gone):
            self._emit(Testament(self.state.incarnation, keepers, some, others, is_whole and first))
            first = False
        if first:  # there are no wills any more, or no keepers
            self._emit(Testament(self.state.incarnation, keepers, (), (), True))

    def _choose(self) -> tuple[NodeId, ...]:
        """Return the nodes that keep our wills. They stay the same while they are heard."""
        nodes = self.state.directory.members.nodes
        living = [
            node
            for node, member in nodes.items()
            if member.incarnation and (node not in self._keepers or not self.is_silent(node, self._chosen_ms))
        ]
        stay = [node for node in self._keepers if node in living]
        others = sorted((node for node in living if node not in stay), key=self._weight)
        return (*stay, *others)[:KEEPERS]

    def is_silent(self, node: NodeId, since_ms: int) -> bool:
        """Return whether a node has said nothing for too long, although it should have spoken from `since_ms` on."""
        return self.state.awake_ms - max(since_ms, self._heard_ms.get(node, 0)) >= SILENT_MS + BEAT_MS

    def _weight(self, node: NodeId) -> bytes:
        return blake2b(f"{self.state.node}\n{node}".encode(), digest_size=8).digest()

    def _emit(self, said: Testament | Beat | Executed) -> None:
        self.emits.append((QUESTIONS, wrap(said), "testament"))

    # Wills of other nodes

    def on_said(self, origin: NodeId, said: Testament | Beat | Executed) -> None:
        """Take in what another node says about wills."""
        if origin == self.state.node:
            return
        if isinstance(said, Executed):
            self._on_executed(said)
            return
        self._heard_ms[origin] = self.state.awake_ms
        known = self.kept.get(origin)
        if known is not None and said.incarnation < known.incarnation:
            return
        if isinstance(said, Testament):
            for will in said.wills:
                self._has_moved(origin, will.client)
        if known is not None and said.incarnation > known.incarnation:
            self._execute(origin)  # the node has crashed and restarted
            known = None
        if isinstance(said, Testament):
            self._on_testament(origin, said, known)

    def _on_testament(self, origin: NodeId, said: Testament, known: Kept | None) -> None:
        """Keep the wills of a node that has chosen us."""
        if self.state.node not in said.keepers:
            self._drop(origin)
            return
        if known is None or said.is_whole:
            self._drop(origin)
            known = self.kept[origin] = Kept(said.incarnation, 0)
        known.rank = said.keepers.index(self.state.node)
        for client in said.gone:
            self._forget(known, client)
        for will in said.wills:
            self._forget(known, will.client)
            if self._bytes + _size(will) > BYTES_MAX:
                self.state.counters["wills not kept"] += 1
                continue
            known.wills[will.client] = will
            self._bytes += _size(will)
        if not known.wills:
            self._drop(origin)

    def _on_executed(self, said: Executed) -> None:
        """Another keeper has published the wills of a node."""
        known = self.kept.get(said.node)
        if known is not None and known.incarnation <= said.incarnation:
            self._drop(said.node)
        if said.node == self.state.node and said.incarnation == self.state.incarnation:
            self.state.counters["wills published for us"] += len(self._told)
            self._keepers = ()  # tell all of them again

    def on_bye(self, node: NodeId, incarnation: Incarnation) -> None:
        """A node leaves in order: it publishes its wills itself."""
        known = self.kept.get(node)
        if known is not None and known.incarnation <= incarnation:
            self._drop(node)

    def connected(self, client: str) -> None:
        """A client has connected to this node: its wills elsewhere count no more."""
        self._has_moved(self.state.node, client)

    def _has_moved(self, to: NodeId, client: str) -> None:
        self._delayed.pop(client, None)
        for node, kept in self.kept.items():
            if node != to:
                self._forget(kept, client)

    def _execute(self, node: NodeId) -> None:
        """Publish the wills of a node that has crashed."""
        kept = self.kept[node]
        wills = list(kept.wills.values())
        self._drop(node)
        self._emit(Executed(node, kept.incarnation))
        for will in wills:
            if will.delay_s:
                self._delayed[will.client] = (self.state.now_ms + will.delay_s * 1_000, will)
            else:
                self._publish(will)

    def _publish(self, will: WillTold) -> None:
        access = self.state.access
        if access is not None and not access.may_write(Who(will.user, will.client), will.topic):
            self.state.counters["wills denied"] += 1
            return
        self.state.counters["wills of other nodes"] += 1
        if not is_carried(will.topic, self.state.config.depth):
            self.state.counters["wills refused"] += 1
            return
        refusal = self.publish(will.client, will.topic, will.payload, will.qos, will.retain, will.content)
        self.state.counters["wills refused"] += refusal is not None

    def _forget(self, kept: Kept, client: str) -> None:
        will = kept.wills.pop(client, None)
        if will is not None:
            self._bytes -= _size(will)

    def _drop(self, node: NodeId) -> None:
        kept = self.kept.pop(node, None)
        if kept is not None:
            self._bytes -= kept.size

    def check(self) -> None:
        assert self._bytes == sum(kept.size for kept in self.kept.values()), "T3"
        assert self._bytes <= BYTES_MAX, "T3"


def _size(will: WillTold) -> int:
    return len(will.payload) + len(will.topic) + will.content.size + 256


def _parts(wills: list[WillTold], gone: list[str]) -> Iterator[tuple[tuple[WillTold, ...], tuple[str, ...]]]:
    """Split wills and names into parts that each fit into one message."""
    some: list[WillTold] = []
    size = 0
    for will in wills:
        size += _size(will)
        if some and (size > PART_BYTES or len(some) >= PREFIXES_MAX):
            yield tuple(some), ()
            some, size = [], _size(will)
        some.append(will)
    if some:
        yield tuple(some), ()
    for at in range(0, len(gone), 64):  # a client's name has up to 512 letters
        yield (), tuple(gone[at : at + 64])
