"""How many kills split a topic: a live mesh that keeps a two-connected plan, beside the same mesh from LowODA's plan.

    .venv/bin/python benchmarks/bench_live_twice.py [--nodes 12] [--kills 24] [--every 5] [--seed 1] [--mesh kept ...]

Each mesh is processes on loopback, with the same interests and the same victims. A node is killed with SIGKILL. Its
process is started again half of `--every` later. The next kill comes half of `--every` after the process is up, and
after the node has joined. So 24 kills take two minutes, and the time that processes need to start.

LowODA    LowODA's plan, and OMen as in the paper (`connectivity` 1)
planned   a plan of `--connectivity 2`, and OMen as in the paper: repairs lead back to connected topics only
kept      a plan of `--connectivity 2`, and OMen with `connectivity` 2

Every 0.1 s all nodes are asked for their links. A topic is split if its living subscribers do not all reach each other
by links that both ends have, through nodes of the topic. A node that has restarted counts again from the first look in
which it reaches the others on all its topics. A look in which a node does not answer in time judges nothing.

split     kills after which a look has seen a split topic, before the next kill; or whose victim was the only connection
          in the last look before the kill, so that the topic was split for less than 0.1 s
safe      kills before which the loss of any one node would have split no topic
joining   the longest time from when a killed node's process is up again until the node counts again

It exits 1 if a kill of `kept` splits a topic.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from trellis.fleet.fleet import Fleet, FleetConfig
from trellis.fleet.interests import InterestsByNode, draw_interests, subscribers_of
from trellis.fleet.ledger import Ledger
from trellis.fleet.planned import low_links, neighbors_of
from trellis.fleet.watch import Snapshot, links_of, split_topics
from trellis.live.run import run_loop
from trellis.model.interests import Interests
from trellis.plan.construction import construct

Links = list[tuple[str, str]]
LOOK_S = 0.1
WHOLE_S_MAX = 300.0
SPLIT_MAX = 0  # kills of `kept` that may split a topic
MESHES = ("LowODA", "planned", "kept")


def two_connected(interests: InterestsByNode, seed: int) -> Links:
    built = construct(Interests.from_pairs(interests), connectivity=2, seed=seed).overlay
    return [(row["u"], row["v"]) for row in built.to_table().to_pylist()]


@dataclass
class Watch:
    """Looks at a fleet all the time, and notes the topics that are split."""

    fleet: Fleet
    interests: InterestsByNode
    counted: set[str]  # Nodes that have joined, in their present incarnation.
    last: dict[str, Snapshot] = field(default_factory=dict)  # The last look that judged.
    split: set[str] = field(default_factory=set)  # Topics that were seen split since the last kill.
    looks: int = 0
    skipped: int = 0

    async def run(self) -> None:
        while True:
            turn = time.monotonic()
            await self.look()
            await asyncio.sleep(max(0.0, turn + LOOK_S - time.monotonic()))

    async def look(self) -> None:
        up = [member for member in self.fleet.members.values() if member.admin is not None]
        runs = {member.name: member.incarnation for member in up}
        found = await self.fleet.snapshots(up)
        # A node that was killed or started during the look is judged in the next one.
        now = {name: self.fleet.members[name].incarnation for name in runs if self.fleet.members[name].admin}
        if runs != now or not self.counted <= found.keys():
            self.skipped += 1
            return
        self.looks += 1
        self.last = found
        for name in sorted(found.keys() - self.counted):
            if not split_topics(found, self.wanted(self.counted | {name})):
                self.counted.add(name)
        self.split |= split_topics(found, self.wanted(self.counted))

    def wanted(self, nodes: set[str]) -> dict[str, set[str]]:
        return {topic: subscribers & nodes for topic, subscribers in subscribers_of(self.interests).items()}

    def split_without(self, lost: str) -> set[str]:
        """Return the topics that the loss of one node would split, by the last look."""
        left = {name: snapshot for name, snapshot in self.last.items() if name != lost}
        return split_topics(left, self.wanted(self.counted - {lost}))

    async def all_counted(self) -> None:
        """Wait until every node has joined."""
        limit = time.monotonic() + WHOLE_S_MAX
        while len(self.counted) < len(self.fleet.members):
            if time.monotonic() > limit:
                raise SystemExit(f"not all nodes have joined after {WHOLE_S_MAX:.0f} s")
            await asyncio.sleep(LOOK_S / 2)


@dataclass
class Kills:
    """What the kills of one mesh did."""

    split: int = 0
    safe: int = 0
    links: list[int] = field(default_factory=list)  # before each kill
    joining_s: float = 0.0


async def killed(given: argparse.Namespace, config: FleetConfig, folder: Path) -> Kills:
    interests = draw_interests(given.nodes, given.topics, given.subscriptions, given.seed)
    fleet = Fleet(interests, config, folder, Ledger(), mark=os.urandom(4).hex())
    random, kills, watch = Random(given.seed), Kills(), Watch(fleet, interests, set())
    watching = asyncio.create_task(watch.run())
    try:
        await fleet.start(interests)
        await watch.all_counted()
        for number in range(given.kills):
            turn = time.monotonic()
            victim = random.choice(sorted(fleet.members))
            hung_on = watch.split_without(victim)
            is_safe = not any(watch.split_without(one) for one in fleet.members)
            watch.split = set()
            watch.counted.discard(victim)
            fleet.kill([victim])
            kills.links.append(len(links_of(watch.last)))
            await asyncio.sleep(given.every / 2)
            await fleet.start_node(victim)
            started = time.monotonic()
            await watch.all_counted()
            kills.joining_s = max(kills.joining_s, time.monotonic() - started)
            await asyncio.sleep(max(0.0, started + given.every / 2 - time.monotonic()))
            topics = watch.split | hung_on
            kills.split += bool(topics)
            kills.safe += is_safe
            said = f"{kills.links[-1]} links, {'safe' if is_safe else 'not safe'}; split: {len(topics)} topics"
            print(f"  {number + 1:2} {time.monotonic() - turn:5.1f} s {victim}: {said}", flush=True)
    finally:
        watching.cancel()
        await fleet.end()
    print(f"  {watch.looks} looks, {watch.skipped} of a node that did not answer, or that ended or started")
    return kills


async def measure(given: argparse.Namespace, folder: Path) -> bool:
    interests = draw_interests(given.nodes, given.topics, given.subscriptions, given.seed)
    holds = True
    print(f"load average {os.getloadavg()[0]:.1f} before the run")
    for name in given.mesh:
        links = low_links(interests, given.seed) if name == "LowODA" else two_connected(interests, given.seed)
        settings: dict[str, object] = {"omen.connectivity": 2} if name == "kept" else {}
        config = FleetConfig(planned=neighbors_of(links), settings=settings)
        place = folder / name
        place.mkdir()
        print(f"{name}: {len(links)} links planned", flush=True)
        kills = await killed(given, config, place)
        count = len(kills.links)
        mean = sum(kills.links) / count
        print(
            f"{name}: {kills.split} of {count} kills split a topic ({kills.split / count:.0%}); safe before"
            f" {kills.safe}; links {mean:.1f} on average, {kills.links[-1]} at the last kill;"
            f" joining {kills.joining_s:.1f} s at most",
            flush=True,
        )
        if name == "kept" and kills.split > SPLIT_MAX:
            holds = False
    return holds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--topics", type=int, default=12)
    parser.add_argument("--subscriptions", type=int, default=4)
    parser.add_argument("--mesh", choices=MESHES, nargs="+", default=["LowODA", "kept"])
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--every", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        holds = run_loop(measure(given, Path(folder)))
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
