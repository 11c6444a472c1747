"""No hidden oracle: a run in which every node lives in an interpreter of its own and knows only its inputs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec

from trellis.protocols import effects as kinds
from trellis.protocols.omen import CODEC
from trellis.simulate.check import CheckConfig, check_seed
from trellis.simulate.draw import InstanceDraw
from trellis.simulate.schedule import Fault, Schedule
from trellis.simulate.systems.omen import OMen

HOST = Path(__file__).parents[1] / "omen_process.py"


class Remote:
    """What the engine calls; every call is a question to another process."""

    def __init__(self, node, topics, seed, config, contacts, neighbours, incarnation):
        self.id = node
        self.process = subprocess.Popen([sys.executable, HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._ask("make", node, topics, seed, msgspec.to_builtins(config), contacts, neighbours, incarnation)

    def _ask(self, *question):
        frame = msgspec.msgpack.encode(question)
        self.process.stdin.write(len(frame).to_bytes(4, "big") + frame)
        self.process.stdin.flush()
        answer = self.process.stdout.read(int.from_bytes(self.process.stdout.read(4), "big"))
        rows = msgspec.msgpack.decode(answer) if answer else []
        return [
            kinds.Send(rest[0], CODEC.decode(rest[1])) if kind == "Send" else getattr(kinds, kind)(*rest)
            for kind, *rest in rows
        ]

    def start(self):
        return self._ask("start")

    def on_message(self, sender, message):
        return self._ask("on_message", sender, CODEC.encode(message))

    def on_timer(self, tag):
        return self._ask("on_timer", tag)

    def on_peer_down(self, peer):
        return self._ask("on_peer_down", peer)

    def subscribe(self, topic):
        return self._ask("subscribe", topic)

    def unsubscribe(self, topic):
        return self._ask("unsubscribe", topic)

    def leave(self):
        return self._ask("leave")

    def check(self):
        self._ask("check")


class Processes(OMen):
    def __init__(self):
        super().__init__()
        self.nodes = []

    def make_node(self, node, topics, random, world):
        contacts, neighbours = world.contacts(node, random, 5), world.first_neighbors(node)
        made = Remote(node, topics, random.getrandbits(60), self.config, contacts, neighbours, world.incarnation(node))
        self.nodes.append(made)
        return made

    def metrics(self, world):
        return {}

    def check_settled(self, world):
        """The overlay is checked from outside; what a node thinks is in its own process."""


def test_twelve_nodes_in_interpreters_of_their_own_mend_a_crash_of_three_neighbours():
    system = Processes()
    faults = (
        Fault(30_000, "crash-adjacent", value=3),
        Fault(55_000, "leave"),
        Fault(70_000, "unsubscribe", nodes=("n1",), topics=("t0",)),
    )
    config = CheckConfig(instance=InstanceDraw(nodes=12, topics=5, subscriptions=3), planned=True)
    try:
        result = check_seed(lambda: system, 4, config, schedule=Schedule(faults))
    finally:
        for node in system.nodes:
            node.process.stdin.close()
            node.process.stdout.close()
            node.process.wait(10)
    assert result.failure is None, result.details
    assert result.tco
    assert result.faults["crash-adjacent"] == 1
    assert len(system.nodes) == 12
