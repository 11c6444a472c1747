"""How long topics stay split after `kill -9` of one node while another one hangs (SIGSTOP).

    .venv/bin/python benchmarks/bench_hang_repair.py [--kills 30] [--nodes 12] [--topics 12] [--seed 1]

A mesh of processes on loopback starts from LowODA's links. For each kill: one node hangs, after 0 to `--before` seconds
another one is killed, and the topics are looked at until all are whole. Then the hung node goes on, the killed one is
started again, and the next kill waits until the mesh is as it was.

kill      from the kill until every topic is whole among the nodes that are awake. For topics that the hang alone had
          split before the kill, the hung node's links count: that is another repair, which begins when it is suspected.
split     kills that split a topic. The others are over in the first look.

Wall time, by the admin ports of all nodes: too long rather than too short. Use a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path
from random import Random

from trellis.fleet.fleet import Fleet, FleetConfig
from trellis.fleet.interests import draw_interests
from trellis.fleet.ledger import Ledger
from trellis.fleet.planned import low_links, neighbors_of
from trellis.fleet.watch import Snapshot, one_sided, percentile, split_topics
from trellis.live.run import run_loop

LOOK_S = 0.02
WHOLE_S_MAX = 120.0


async def look(fleet: Fleet, kept: dict[str, Snapshot]) -> tuple[set[str], set[str]]:
    """Return the topics that are split: with the links of `kept`, who hang; and among those who are awake."""
    awake = fleet.joined
    found = await fleet.snapshots(awake)
    there = [one for one in awake if one.is_joined and one.name in found]
    wanted = fleet.subscribers(there)
    return split_topics({**kept, **found}, wanted), split_topics(found, wanted)


async def whole(fleet: Fleet, count: int) -> dict[str, Snapshot]:
    """Wait until `count` nodes have joined and every topic is whole. Return what they say of themselves."""
    limit = time.monotonic() + WHOLE_S_MAX
    while time.monotonic() < limit:
        if len(fleet.joined) == count:
            found = await fleet.snapshots(fleet.joined)
            wanted = fleet.subscribers(fleet.joined)
            if len(found) == count and not split_topics(found, wanted) and not one_sided(found):
                return found
        await asyncio.sleep(0.2)
    raise SystemExit("the mesh did not become whole")


async def kill_one(fleet: Fleet, random: Random, before_s: float) -> tuple[float, int]:
    """Return the seconds until the topics that the kill has split were whole, and how many these were."""
    snapshots = await whole(fleet, len(fleet.members))
    hung, killed = random.sample(sorted(fleet.members), 2)
    wait_s = random.uniform(0, before_s)
    fleet.hang(hung)
    await asyncio.sleep(wait_s)
    kept = {hung: snapshots[hung]}
    _, before = await look(fleet, kept)
    at = fleet.kill([killed])
    split: set[str] = set()
    while True:
        begun = time.monotonic()
        with_hung, awake = await look(fleet, kept)
        now = time.monotonic()
        left = with_hung | (awake - before)
        split |= left
        if not left or now - at > WHOLE_S_MAX:
            break
        await asyncio.sleep(max(LOOK_S, now - begun))
    took = f"whole after {1_000 * (now - at):.0f} ms"
    print(f"{hung} hung {wait_s:.1f} s, {killed} killed: {len(split)} topics split, {took}", flush=True)
    fleet.resume(hung)
    await fleet.start_node(killed)
    return now - at, len(split)


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    interests = draw_interests(arguments.nodes, arguments.topics, arguments.subscriptions, arguments.seed)
    planned = neighbors_of(low_links(interests, arguments.seed))
    settings = dict(one.split("=", 1) for one in arguments.set)
    random = Random(arguments.seed)
    config = FleetConfig(planned=planned, settings=settings)
    fleet = Fleet(interests, config, folder, Ledger(), mark=os.urandom(4).hex())
    try:
        await fleet.start(interests)
        found = [await kill_one(fleet, random, arguments.before) for _ in range(arguments.kills)]
        await whole(fleet, len(fleet.members))
    finally:
        await fleet.end()
    show("kill", [one for one, _ in found])
    show("split", [one for one, split in found if split])


def show(name: str, seconds: list[float]) -> None:
    told = [(share, percentile(seconds, share)) for share in (0.5, 0.99, 1.0)]
    values = ", ".join(
        f"{'max' if share == 1 else f'p{100 * share:.0f}'} {1_000 * value:.0f} ms" for share, value in told if value
    )
    print(f"{name}: {len(seconds)} kills, {values or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--subscriptions", type=int, default=4)
    parser.add_argument("--before", type=float, default=4.0, help="the longest time between the hang and the kill")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of node.toml")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run_loop(measure(arguments, Path(folder)))


if __name__ == "__main__":
    main()
