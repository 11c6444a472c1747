"""How fast delivery forwards, what it costs to hold a window, and how often a message is sent in a quiet mesh.

    .venv/bin/python benchmarks/bench_delivery.py [--messages 40000]

forward   one part gets messages of 128 bytes over one link, stores them, hands them over and pushes them over others,
          with acknowledgements both ways; every frame is decoded when it comes and encoded when it goes. No sockets.
window    bytes per message held, and the time of a comparison after which nothing, or everything, is to be sent
mesh      a planned overlay in the simulator, calm: sends per delivery, and computing time per delivery.

Times are the process's own (CPU).
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Mapping
from random import Random

from trellis.protocols.delivery import Delivery, DeliveryConfig, DeliveryMessage
from trellis.protocols.delivery import messages as m
from trellis.protocols.delivery.part import DeliveryEffects
from trellis.protocols.effects import Incarnation, NodeId, Send
from trellis.protocols.topics import TopicTable
from trellis.protocols.wire import Codec

CODEC = Codec(DeliveryMessage)
PAYLOAD = Random(1).randbytes(128)


class Star:
    """An overlay for the bench: links that stand, all on one topic."""

    has_homes = relays = False
    incarnation = Incarnation(1)

    def __init__(self, name: NodeId, peers: tuple[NodeId, ...]) -> None:
        self.id, self.table = name, TopicTable()
        self.interest = self.table.bit("t")
        self._peers = dict.fromkeys(peers, self.interest)

    def neighbors(self) -> Mapping[NodeId, int]:
        return self._peers

    def is_gone(self, node: NodeId) -> bool:
        return False

    def subscribers(self, topic: str) -> int:
        return 3


class Middle:
    """A part between a sender and receivers that only acknowledge."""

    def __init__(self, receivers: int, config: DeliveryConfig) -> None:
        self.peers = ("in", *(f"out{number}" for number in range(receivers)))
        self.part = Delivery(Star("me", self.peers), config)  # type: ignore[arg-type]
        self.part.want("t")
        self.bytes_out = self.pushes_out = 0
        self.last: dict[NodeId, int] = dict.fromkeys(self.peers, 0)  # the newest frame each of them got
        self.session: dict[NodeId, int] = {}
        self.carry(self.part.start())
        compare = m.Compare("t", (), True, False, False, False)
        for peer in self.peers:
            self.give(peer, m.Frame(1, 1, self.session[peer], self.last[peer], (compare,)))
        self.number = 1

    def give(self, peer: NodeId, frame: m.Frame) -> None:
        self.carry(self.part.on_message(peer, CODEC.decode(CODEC.encode(frame))))

    def carry(self, effects: DeliveryEffects) -> None:
        for effect in effects:
            if type(effect) is Send and type(effect.message) is m.Frame:
                frame = effect.message
                self.bytes_out += len(CODEC.encode(frame))
                self.session[effect.to] = frame.session
                self.last[effect.to] = max(self.last[effect.to], frame.number)
                self.pushes_out += sum(type(item) is m.Push for item in frame.items)

    def run(self, messages: int, batch: int) -> float:
        """CPU seconds for so many messages, `batch` in a frame, acknowledged every 16 frames."""
        frames = []
        for first in range(1, messages + 1, batch):
            self.number += 1
            pushes = tuple(m.Push("t", "o", 1, n, 1, 5, 1, True, PAYLOAD) for n in range(first, first + batch))
            frames.append((self.number, pushes))
        encoded = [CODEC.encode(m.Frame(1, number, self.session["in"], 1, items)) for number, items in frames]
        start = time.process_time()
        for place, data in enumerate(encoded):
            self.carry(self.part.on_message("in", CODEC.decode(data)))
            if place % 16 == 15:
                for peer in self.peers:
                    ack = CODEC.encode(m.Frame(1, 0, self.session[peer], self.last[peer]))
                    self.carry(self.part.on_message(peer, CODEC.decode(ack)))
                self.carry(self.part.on_timer("delivery/soon"))
        return time.process_time() - start


def forward(messages: int) -> None:
    print(f"{'forward, 128 bytes':<34}{'messages':>10}{'msgs/s cpu':>12}{'us/message':>12}{'bytes out':>11}")
    for receivers in (1, 2, 8):
        for batch in (1, 8, 64):
            messages -= messages % batch
            middle = Middle(receivers, DeliveryConfig(flight_frames=1_000_000, flight_bytes=1 << 30))
            cpu = middle.run(messages, batch)
            assert middle.pushes_out == messages * receivers, (middle.pushes_out, messages)
            name = f"to {receivers}, {batch} in a frame"
            per = middle.bytes_out / middle.pushes_out
            print(f"{name:<34}{messages:>10,}{messages / cpu:>12,.0f}{1e6 * cpu / messages:>12.1f}{per:>11.0f}")


def window() -> None:
    print(f"\n{'window':<34}{'messages':>10}{'bytes each':>12}{'nothing lacks':>15}{'all lacks':>12}")
    for count in (1_000, 10_000, 100_000):
        tracemalloc.start()
        middle = Middle(1, DeliveryConfig(flight_frames=1_000_000, flight_bytes=1 << 40, queue_max=1_000_000))
        before = tracemalloc.get_traced_memory()[0]
        middle.run(count - count % 64, 64)
        held = middle.part.state.store.count
        each = (tracemalloc.get_traced_memory()[0] - before) / held
        tracemalloc.stop()
        times = []
        for ranges in ((1, held), ()):
            seen = (m.Seen("o", 1, 0, 1, ranges),)
            start = time.process_time()
            middle.part.comparison.on_compare("out0", m.Compare("t", seen, True, False, False, False))
            times.append(1000 * (time.process_time() - start))
        print(f"{f'{held:,} held':<34}{held:>10,}{each:>12,.0f}{times[0]:>12.1f} ms{times[1]:>9.1f} ms")


def mesh(nodes: int, messages: int) -> None:
    from trellis.simulate.check import _planned
    from trellis.simulate.draw import InstanceDraw, draw_interests
    from trellis.simulate.engine import Engine
    from trellis.simulate.systems.delivery import Delivery as System
    from trellis.simulate.systems.delivery import mesh_of

    interests = draw_interests(InstanceDraw(nodes=nodes, topics=20, subscriptions=4), 1)
    engine = Engine(System(every_ms=0), interests, seed=1, overlay=_planned(interests, 1))
    engine.run(30_000)
    names, random = sorted(interests), Random(1)

    def publish(count: int) -> None:
        for number in range(count):
            name = random.choice(names)
            engine.publish(name, random.choice(interests[name]), f"{engine.world.now_ms}/{number}".encode())
            engine.run(engine.world.now_ms + 20)
        engine.run(engine.world.now_ms + 2_000)

    def totals() -> tuple[int, int]:
        counters = [mesh_of(engine.world, name).delivery.state.counters for name in names]
        return sum(one.pushes_in for one in counters), sum(one.delivered - one.published for one in counters)

    publish(20 * 20)  # trees form
    before, start = totals(), time.process_time()
    publish(messages)
    cpu, after = time.process_time() - start, totals()
    start = time.process_time()
    engine.run(engine.world.now_ms + 20 * messages + 2_000)
    idle = time.process_time() - start
    pushes, deliveries = after[0] - before[0], after[1] - before[1]
    print(
        f"{f'{nodes} nodes, 20 topics':<34}{messages:>10,}{deliveries:>12,}{pushes / deliveries:>12.2f}"
        f"{1e6 * max(0.0, cpu - idle) / deliveries:>14.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=40_000)
    chosen = parser.parse_args()
    forward(chosen.messages)
    window()
    print(f"\n{'mesh, calm':<34}{'published':>10}{'deliveries':>12}{'sends each':>12}{'us each':>14}")
    for nodes in (12, 50):
        mesh(nodes, 500)


if __name__ == "__main__":
    main()
