"""How fast the simulator runs whole nodes: virtual seconds per second, and where the time goes.

    .venv/bin/python benchmarks/bench_whole.py [--seconds 20] [--mqtt] [--profile]

Five nodes with all their listeners, ten clients and 100 messages a second; with `--mqtt`, half of them MQTT. Every 20
virtual milliseconds are timed by themselves, in CPU time of this process. The load repeats itself every second, so the
same 20 ms of each second do the same work. Their minimum over all seconds shows what an idle machine does; their median
shows what this one did while other programs cooled its caches.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import time
from collections import Counter
from statistics import median

from trellis.simulate.whole.whole import Mesh
from trellis.simulate.whole.world import World

NODES = "abcde"
SLICES = 50  # of each virtual second


def busy_mesh(world: World, has_mqtt: bool) -> Mesh:
    mesh = Mesh(world, NODES)
    mesh.start_all()
    world.run_for(5)
    for number in range(8):
        is_mqtt = has_mqtt and number % 2
        subscribe = mesh.mqtt_subscribe if is_mqtt else mesh.subscribe
        subscribe(f"reader{number}", NODES[number % 5], ["mq/0"] if is_mqtt else [f"news/{number % 4 // 2}"])
    world.run_for(5)
    mesh.publish("writer0", "a", "news/0", every_s=0.02)
    if has_mqtt:
        mesh.mqtt_publish("writer1", "b", "mq/0", every_s=0.02)
    else:
        mesh.publish("writer1", "b", "news/1", every_s=0.02)
    world.run_for(2)
    return mesh


def totals(world: World) -> Counter[str]:
    loops = [host.loop for host in world.hosts.values() if host.loop is not None]
    return Counter(turns=sum(one.turns for one in loops), callbacks=sum(one.callbacks for one in loops), **{
        "history lines": world.history.count, "heap events": world._sequence,
    })  # fmt: skip


def speed(seconds: int, has_mqtt: bool) -> None:
    with World(1) as world:
        mesh = busy_mesh(world, has_mqtt)
        before, received = totals(world), mesh.counters["received"]
        took: list[list[float]] = [[] for _ in range(SLICES)]
        for _ in range(seconds):
            for one in took:
                begun = time.process_time()
                world.run_for(1 / SLICES)
                one.append(time.process_time() - begun)
        after = totals(world)
        for name, least in (("minimum", sum(map(min, took))), ("median", sum(map(median, took)))):
            print(
                f"{name}: {1_000 * least:.1f} ms of CPU per virtual second, {1 / least:.1f} times faster than real time"
            )
        print(f"deliveries to clients per virtual second: {(mesh.counters['received'] - received) / seconds:.0f}")
        print(
            "per virtual second: " + ", ".join(f"{name} {(after[name] - before[name]) / seconds:.0f}" for name in after)
        )


def share(seconds: int, has_mqtt: bool) -> None:
    with World(1) as world:
        busy_mesh(world, has_mqtt)
        profile = cProfile.Profile(builtins=False)
        profile.enable()
        world.run_for(seconds)
        profile.disable()
    found: Counter[str] = Counter()
    for (file, _, _), (_, _, own, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        parts = ("simulate/whole", "trellis/live", "trellis/protocols", "asyncio")
        found[next((one for one in parts if one in file), "other")] += own
    whole = sum(found.values())
    for part, own in found.most_common():
        print(f"{part:<20}{own / whole:>7.1%}")
    pstats.Stats(profile).sort_stats("tottime").print_stats(30)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--mqtt", action="store_true", help="let half of the clients speak MQTT")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, by package and function")
    given = parser.parse_args()
    gc.collect()
    gc.freeze()
    (share if given.profile else speed)(given.seconds, given.mqtt)
