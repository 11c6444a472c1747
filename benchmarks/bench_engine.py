"""How fast the engine is: messages a second of a ping-pong, what the network models cost, and views of many nodes.

    .venv/bin/python benchmarks/bench_engine.py [--messages 500000]

Trivial nodes return every ball at once, so everything but two small objects a message is the engine's. Times are the
process's own (CPU), best of three, so that a busy machine disturbs them little; wall time is given beside.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from trellis.simulate.engine import Engine
from trellis.simulate.network import Latency, NetworkConfig
from trellis.simulate.systems.toys import PingPong
from trellis.simulate.views import Membership

LATENCY_MS = 10
ROUNDS = 3


def ping_pong(nodes: int, messages: int, **options: object) -> tuple[float, float, int]:
    """CPU seconds, wall seconds and messages of the best round."""
    best = (float("inf"), float("inf"), 0)
    for _ in range(ROUNDS):
        engine = Engine(PingPong(), {f"n{i}": ["t"] for i in range(nodes)}, seed=1, **options)  # type: ignore[arg-type]
        engine.run(0)
        cpu, wall = time.process_time(), time.perf_counter()
        engine.run(max(LATENCY_MS, messages * LATENCY_MS // nodes))
        engine.hexdigest()
        best = min(best, (time.process_time() - cpu, time.perf_counter() - wall, engine.delivered))
    return best


def growth(messages: int) -> None:
    print(f"{'ping-pong, digest on':<34}{'messages':>10}{'msgs/s cpu':>14}{'msgs/s wall':>14}{'ratio':>8}")
    first = None
    for nodes in (10, 100, 1_000, 10_000):
        cpu, wall, count = ping_pong(nodes, messages)
        first = first or count / cpu
        ratio = count / cpu / first
        print(f"{f'{nodes:,} nodes':<34}{count:>10,}{count / cpu:>14,.0f}{count / wall:>14,.0f}{ratio:>8.2f}")


def models(messages: int) -> None:
    uniform = Latency("uniform", 5, 15)
    variants: list[tuple[str, dict[str, object]]] = [
        ("constant latency", {}),
        ("every message encoded", {"encode": True}),
        ("uniform latency, FIFO", {"network": NetworkConfig(uniform)}),
        ("uniform latency, any order", {"network": NetworkConfig(uniform, fifo=False)}),
        ("log-normal latency, FIFO", {"network": NetworkConfig(Latency("lognormal", 10, sigma=0.5))}),
        ("uniform, duplicates, reordering", {"network": NetworkConfig(uniform, duplicate=0.01, reorder=0.05)}),
    ]
    print(f"\n{'1,000 nodes':<34}{'messages':>10}{'msgs/s cpu':>14}{'msgs/s wall':>14}{'ratio':>8}")
    first = None
    for name, options in variants:
        cpu, wall, count = ping_pong(1_000, messages, **options)
        first = first or count / cpu
        ratio = count / cpu / first
        print(f"{name:<34}{count:>10,}{count / cpu:>14,.0f}{count / wall:>14,.0f}{ratio:>8.2f}")


def views() -> None:
    print(f"\n{'best_cover of 10 of 100 topics':<34}{'answers/s cpu':>24}{'us each':>14}{'growth':>8}")
    before = None
    for nodes, share in ((1_000, 1.0), (10_000, 1.0), (100_000, 1.0), (10_000, 0.05)):
        random = Random(1)
        members = Membership(1, [f"n{i}" for i in range(nodes)], share)
        for name in members.names:
            members.put(name, sum(1 << topic for topic in random.sample(range(100), 10)))
        view = members.view("n0", random)
        exclude = members.names[:20]
        asked = [sum(1 << topic for topic in random.sample(range(100), 10)) for _ in range(500)]
        view.best_cover(asked[0], exclude)
        cpu = time.process_time()
        for wanted in asked:
            view.best_cover(wanted, exclude)
        each = (time.process_time() - cpu) / len(asked)
        ratio = f"{each / before:8.2f}" if before else " " * 8
        before = each
        print(f"{f'{nodes:,} nodes, view of {share:.0%}':<34}{1 / each:>24,.0f}{1e6 * each:>14.1f}{ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--messages", type=int, default=500_000)
    messages = parser.parse_args().messages
    growth(messages)
    models(messages)
    views()


if __name__ == "__main__":
    main()
