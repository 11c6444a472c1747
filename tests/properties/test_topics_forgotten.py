"""Names of topics are forgotten, and no bitset that is still held ever changes its meaning.

Small meshes of whole nodes, each with a table of its own, under subscriptions that come and go on topics that are
mostly new. Names are looked for at every tick, far more often than in a live node, and places are used again at once.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from live.lives import DELIVERY
from trellis.live.config import NodeConfig, OMenConfig
from trellis.live.meshes import make_mesh
from trellis.protocols.delivery.outcome import Acknowledged
from trellis.protocols.effects import CancelTimer, Deliver, Seed, Send, SetTimer
from trellis.protocols.forgetting import held_bits
from trellis.protocols.mesh import CODECS, MeshNode
from trellis.protocols.topics import NAMES_MAX, TopicTable, places

NAMES = ("a", "b", "c", "d")


class Net:
    """Nodes, and a network that loses nothing and takes a millisecond."""

    def __init__(self, overlay: str, seed: int) -> None:
        self.random, self.now, self.order = Random(seed), 0, itertools.count()
        self.heap: list[tuple[int, int, str, Any, Any]] = []
        self.timers: dict[tuple[str, str], int] = {}
        self.delivered: dict[str, set[tuple[str, bytes]]] = {name: set() for name in NAMES}
        self.acknowledged = 0
        self.nodes: dict[str, MeshNode] = {}
        for number, name in enumerate(NAMES):
            seeds = tuple(f"127.0.0.1:{1 + place}" for place in range(number))
            fields: Any = {"delivery": DELIVERY, "omen": OMenConfig(period_ms=500), "topics": ("all",)}
            config = NodeConfig(name=name, overlay=overlay, seeds=seeds, **fields)
            node = self.nodes[name] = make_mesh(config, 1 + number)
            assert not node.overlay.table.is_shared
        for name, node in self.nodes.items():
            self.carry_out(name, node.start())

    def carry_out(self, name: str, effects: Iterable[Any]) -> None:
        for effect in effects:
            match effect:
                case Send(to, message):
                    known = NAMES[to.port - 1] if isinstance(to, Seed) else to
                    if known in self.nodes:
                        self._push(1, known, name, message)
                case SetTimer(tag, delay_ms):
                    self.timers[name, tag] = self._push(delay_ms, name, None, tag)
                case CancelTimer(tag):
                    self.timers.pop((name, tag), None)
                case Deliver(topic, _, _, payload):
                    assert (topic, payload) not in self.delivered[name]
                    self.delivered[name].add((topic, payload))
                case Acknowledged():
                    self.acknowledged += 1

    def run(self, duration_ms: int) -> None:
        end = self.now + duration_ms
        while self.heap and self.heap[0][0] <= end:
            self.now, number, name, sender, what = heapq.heappop(self.heap)
            node = self.nodes[name]
            if sender is not None:
                self.carry_out(name, node.on_message(sender, what))
            elif self.timers.get((name, what)) == number:
                del self.timers[name, what]
                node.overlay.table.due = 0  # look for names at every tick
                self.carry_out(name, node.on_timer(what))
                node.overlay.table.check()
        self.now = end

    def _push(self, delay_ms: int, name: str, sender: str | None, what: Any) -> int:
        number = next(self.order)
        heapq.heappush(self.heap, (self.now + delay_ms, number, name, sender, what))
        return number


def meant(node: MeshNode) -> dict[str, set[str]]:
    """What a node thinks that its neighbors take part in, of what it takes part in itself."""
    overlay = node.overlay
    return {peer: set(overlay.table.topics(bits & overlay.interest)) for peer, bits in overlay.neighbors().items()}


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("overlay", CODECS)
def test_names_are_forgotten_and_nobody_is_taken_to_want_another_topic(overlay, seed, monkeypatch):
    chance = itertools.count(1_000 * seed)
    monkeypatch.setattr("trellis.live.machine.MACHINE.random", lambda: Random(next(chance)))
    net, random, numbers = Net(overlay, seed), Random(seed), itertools.count()
    net.run(5_000)
    for _ in range(10):
        shared = [f"t{next(numbers)}" for _ in range(40)]
        for name in NAMES:
            for topic in random.sample(shared, 25):
                net.carry_out(name, net.nodes[name].subscribe(topic))
        net.run(random.randrange(200, 3_000))
        net.carry_out("a", net.nodes["a"].publish("all", b"%d" % next(numbers)))
        for node in net.nodes.values():
            names = node.overlay.table.names
            held = [node.overlay.interest, *node.overlay.neighbors().values()]
            assert all(names[place] for bits in held for place in places(bits)), "a name was forgotten that is used"
            assert set(node.overlay.table.topics(node.overlay.interest)) >= {"all"}
        for name, node in net.nodes.items():
            for topic in [one for one in node.wanted if one != "all"]:
                net.carry_out(name, node.unsubscribe(topic))
        net.run(random.randrange(200, 6_000))
    last = [f"last{number}" for number in range(3)]
    for name in NAMES:
        for topic in last:
            net.carry_out(name, net.nodes[name].subscribe(topic))
    net.run(30_000)
    for node in net.nodes.values():
        assert set(node.wanted) == {"all", *last}
        for peer, topics in meant(node).items():
            other = net.nodes[peer].overlay
            wrong = topics - set(other.table.topics(other.interest))
            assert not wrong, f"{node.id} takes {peer} to want {wrong}"
        assert len(node.overlay.table) < 300, f"{len(node.overlay.table)} names are kept"
        node.check()
    for topic in last:
        net.carry_out("b", net.nodes["b"].publish(topic, b"at last"))
    net.run(10_000)
    for name in NAMES:
        assert {(topic, b"at last") for topic in last} <= net.delivered[name], name


words = st.text("abc", min_size=1, max_size=3)


@given(st.lists(st.lists(words, max_size=6)), st.lists(st.integers(0, 40), max_size=6))
def test_a_table_forgets_just_what_it_is_told_to(interests, kept):
    table = TopicTable()
    bits = [table.bits(tuple(one)) for one in interests]
    held = [(bits[place], set(interests[place])) for place in kept if place < len(bits)]
    every = 0
    for one, _ in held:
        every |= one
    table.keep_only(every)
    table.check()
    for number in range(20):
        table.bit(f"new {number}")
    table.check()
    for one, names in held:
        assert set(table.topics(one)) == names
    assert len(table) == 20 + every.bit_count()
    for topics in interests:
        assert set(table.topics(table.bits(tuple(topics)))) == set(topics)


class Slotted:
    __slots__ = ("bits",)

    def __init__(self, bits: int) -> None:
        self.bits = bits


def holders(bits: int) -> list[Any]:
    """Each holds the bits in another way."""

    def closure() -> int:
        return bits

    class Plain:
        def __init__(self) -> None:
            self.deep = [{"x": (1, {"y": Slotted(bits)})}]

    return [bits, [bits], {bits: 0}, {0: bits}, (0, bits), frozenset([bits]), Slotted(bits), closure, Plain(), ~bits]


@given(st.integers(1, 2**400), st.integers(0, 9), st.integers(0, 500))
def test_no_bitset_that_is_held_is_missed_however_it_is_held(bits, way, place):
    assert held_bits([holders(bits)[way]], 0) & bits == bits
    assert held_bits([{place: "a path"}], 500) >> place & 1 or place >= 500


def test_a_table_that_is_full_takes_no_more_names_of_others_and_all_of_its_owners():
    table = TopicTable()
    some = tuple(f"t{number}" for number in range(NAMES_MAX))
    table.bits(some)
    assert table.bits(("t0", "unknown")) == table.bit("t0")
    assert len(table) == NAMES_MAX
    own = table.own_bits(("mine",))
    assert table.topics(own) == ("mine",)
    assert table.bits(("mine", "unknown")) == own
