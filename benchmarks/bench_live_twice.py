"""How many kills split a topic: a live mesh from a two-connected plan, beside the same mesh from LowODA's plan.

    .venv/bin/python benchmarks/bench_live_twice.py [--nodes 12] [--kills 24] [--every 5] [--seed 1]

Both meshes are processes on loopback with the same interests and the same victims. Every `--every` seconds a node is
killed with SIGKILL, and started again half that time later. On a slow machine the next kill waits until the node has
joined. A kill splits a topic if its subscribers that are left do
not reach each other over the links that all nodes told of just before the kill, without those of the killed node: so no
repair has had time to help.

restored  kills before which the links that both ends told of would have survived the loss of any one node. A mesh
          repairs topics to be connected, not to be two-connected, so this can be lost after a kill.

It exits 1 if kills of the two-connected mesh split a topic more than half as often as those of LowODA's.
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
from trellis.fleet.interests import draw_interests, subscribers_of
from trellis.fleet.ledger import Ledger
from trellis.fleet.planned import low_links, neighbors_of
from trellis.fleet.watch import Snapshot, links_of, split_topics
from trellis.live.run import run_loop
from trellis.model.interests import Interests
from trellis.plan.construction import construct

Links = list[tuple[str, str]]
START_S_MAX = 300.0
SHARE_MAX = 0.5


def two_connected(interests: dict[str, tuple[str, ...]], seed: int) -> Links:
    built = construct(Interests.from_pairs(interests), connectivity=2, seed=seed).overlay
    return [(row["u"], row["v"]) for row in built.to_table().to_pylist()]


def split_without(found: dict[str, Snapshot], wanted: dict[str, set[str]], lost: str) -> set[str]:
    """The topics that the loss of one node would split."""
    left = {topic: nodes - {lost} for topic, nodes in wanted.items()}
    return split_topics({name: one for name, one in found.items() if name != lost}, left)


async def ready(fleet: Fleet) -> None:
    limit = time.monotonic() + START_S_MAX
    while time.monotonic() < limit:
        found = await fleet.snapshots(fleet.joined)
        if len(found) == len(fleet.members) and not split_topics(found, fleet.subscribers(fleet.joined)):
            return
        await asyncio.sleep(0.2)
    raise SystemExit("the mesh did not become whole")


async def killed(given: argparse.Namespace, links: Links, folder: Path) -> list[tuple[int, bool, int]]:
    """For each kill: how many topics it split, whether any single loss would have split one, and the links before."""
    interests = draw_interests(given.nodes, given.topics, given.subscriptions, given.seed)
    config = FleetConfig(planned=neighbors_of(links))
    fleet = Fleet(interests, config, folder, Ledger(), mark=os.urandom(4).hex())
    random, kills = Random(given.seed), list[tuple[int, bool, int]]()
    try:
        await fleet.start(interests)
        await ready(fleet)
        for _ in range(given.kills):
            turn = time.monotonic()
            found = await fleet.snapshots(fleet.joined)
            wanted = {topic: nodes & set(found) for topic, nodes in subscribers_of(interests).items()}
            victim = random.choice(sorted(fleet.members))
            fleet.kill([victim])
            weak = any(split_without(found, wanted, one) for one in found)
            kills.append((len(split_without(found, wanted, victim)), weak, len(links_of(found))))
            print(f"  {victim}: {kills[-1][0]} topics split; {len(found)} nodes, {kills[-1][2]} links", flush=True)
            await asyncio.sleep(given.every / 2)
            await fleet.start_node(victim)
            await asyncio.sleep(max(0.0, turn + given.every - time.monotonic()))
            await ready(fleet)
    finally:
        await fleet.end()
    return kills


async def measure(given: argparse.Namespace, folder: Path) -> bool:
    interests = draw_interests(given.nodes, given.topics, given.subscriptions, given.seed)
    shares: dict[str, float] = {}
    print(f"load average {os.getloadavg()[0]:.1f} before the run")
    for name, links in (
        ("LowODA", low_links(interests, given.seed)),
        ("two-connected", two_connected(interests, given.seed)),
    ):
        if given.plan not in (name, "both"):
            continue
        place = folder / name
        place.mkdir()
        print(f"{name}: {len(links)} links planned", flush=True)
        kills = await killed(given, links, place)
        split = sum(count > 0 for count, _, _ in kills)
        restored = sum(not weak for _, weak, _ in kills)
        print(f"{name}: {split} of {len(kills)} kills split a topic ({split / len(kills):.0%}); restored {restored}")
        shares[name] = split / len(kills)
    return len(shares) < 2 or shares["two-connected"] <= SHARE_MAX * shares["LowODA"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--subscriptions", type=int, default=4)
    parser.add_argument("--plan", choices=("LowODA", "two-connected", "both"), default="both")
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        holds = run_loop(measure(given, Path(folder)))
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
