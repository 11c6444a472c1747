"""The engine against the plainest one that could be: one heap of (time, sequence), looked at event by event."""

from __future__ import annotations

import heapq

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from trellis.protocols.effects import CancelTimer, Send, SetTimer
from trellis.protocols.wire import Codec, Count
from trellis.simulate.engine import Engine
from trellis.simulate.network import Latency, NetworkConfig
from trellis.simulate.system import System
from trellis.simulate.systems.toys import Quiet

NAMES, TAGS, LATENCY_MS, UNTIL_MS = "abc", "xyz", 3, 60


class Step(msgspec.Struct, frozen=True, tag="step"):
    number: Count


effects = st.one_of(
    st.builds(Send, st.sampled_from(NAMES), st.builds(Step, st.integers(0, 3))),
    st.builds(SetTimer, st.sampled_from(TAGS), st.integers(1, 9)),
    st.builds(CancelTimer, st.sampled_from(TAGS)),
)
scripts = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["start", *TAGS, "0", "1", "2", "3"])),
    st.lists(effects, max_size=3),
    max_size=12,
)


class Scripted(Quiet):
    def __init__(self, node, world, script, log):
        super().__init__(node)
        self.world, self.script, self.log = world, script, log

    def _told(self, what):
        self.log.append((self.world.now_ms, self.id, what))
        return list(self.script.get((self.id, what), ())) if len(self.log) < 300 else []

    def start(self):
        return self._told("start")

    def on_message(self, sender, message):
        return self._told(str(message.number))

    def on_timer(self, tag):
        return self._told(tag)


class ScriptedSystem(System):
    name = "scripted"

    def __init__(self, script):
        self.script, self.log, self.codec = script, [], Codec(Step)

    def make_node(self, node, topics, random, world):
        return Scripted(node, world, self.script, self.log)


def plain_log(script):
    """Every event one entry (time, sequence, node, what, token) on a heap; a timer is good while its token is."""
    heap, log, tokens, sequence = [], [], {}, 0
    for name in NAMES:
        heapq.heappush(heap, (0, sequence, name, "start", None))
        sequence += 1
    while heap and heap[0][0] <= UNTIL_MS:
        now, _, name, what, token = heapq.heappop(heap)
        if token is not None:
            if tokens.get((name, what)) != token:
                continue
            del tokens[name, what]
        log.append((now, name, what))
        for effect in script.get((name, what), ()) if len(log) < 300 else ():
            sequence += 1
            match effect:
                case Send(to=to, message=message):
                    heapq.heappush(heap, (now + LATENCY_MS, sequence, to, str(message.number), None))
                case SetTimer(tag=tag, delay_ms=delay_ms):
                    tokens[name, tag] = sequence
                    heapq.heappush(heap, (now + delay_ms, sequence, name, tag, sequence))
                case CancelTimer(tag=tag):
                    tokens.pop((name, tag), None)
    return log


@given(scripts)
def test_everything_happens_in_the_order_of_time_and_sequence(script):
    system = ScriptedSystem(script)
    engine = Engine(
        system, {name: ["t"] for name in NAMES}, seed=1, network=NetworkConfig(Latency("constant", LATENCY_MS))
    )
    engine.run(UNTIL_MS)
    assert system.log == plain_log(script)
