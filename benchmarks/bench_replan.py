"""`trellis replan --apply` on a mesh of processes that joined at once, under traffic.

    .venv/bin/python benchmarks/bench_replan.py [--nodes 24] [--topics 24] [--subscriptions 5] [--rate 50] [--seed 1]

All nodes are started at once, without a plan. When every topic is connected and messages flow, the command is run as an
operator runs it, in a process of its own. Meanwhile the admin ports of all nodes are read again and again: a topic
counts as split if its subscribers do not reach each other over links that both ends tell of. At the end `trellis judge`
decides from the history of the clients whether anything is missing, or came twice.

Exits 1 if a topic was split in any round of reading, if links are more than 1.1 times LowODA's afterwards, or if the
judge finds anything.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
import time
from pathlib import Path

from trellis.fleet.fleet import FleetConfig
from trellis.fleet.interests import draw_interests
from trellis.fleet.planned import low_links
from trellis.fleet.up import Up, UpConfig
from trellis.fleet.watch import links_of, split_topics
from trellis.live.run import run_loop

LOOK_S = 0.1
BEFORE_S, AFTER_S = 5.0, 20.0  # under traffic, before the command and behind it
LONG_S = 3_600.0


class Quiet:
    def status(self, text: str) -> None:
        pass

    def event(self, text: str) -> None:
        print(text, flush=True)


class Looks:
    """Reads all nodes again and again."""

    def __init__(self, up: Up) -> None:
        self.up, self.rounds, self.split, self.links = up, 0, dict[str, int](), set[tuple[str, str]]()

    async def run(self) -> None:
        fleet = self.up.fleet
        while True:
            found = await fleet.snapshots(fleet.joined)
            if len(found) == len(fleet.members):
                self.rounds += 1
                self.links = links_of(found)
                for topic in split_topics(found, fleet.subscribers(fleet.joined)):
                    self.split[topic] = self.split.get(topic, 0) + 1
            await asyncio.sleep(LOOK_S)


async def command(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "trellis", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return process.returncode or 0, out.decode()


async def measure(given: argparse.Namespace, folder: Path) -> bool:
    wanted = draw_interests(given.nodes, given.topics, given.subscriptions, given.seed)
    plan = len(low_links(wanted, given.seed))
    secret, history = folder / "admin.token", folder / "history.jsonl"
    secret.write_text(secrets.token_hex(32))
    fleet = FleetConfig(settings={"admin_token": str(secret)})
    config = UpConfig(
        seed=given.seed, rate=given.rate, foreign=0.0, kill_every=0.0, duration=LONG_S, history=str(history)
    )
    up = Up(wanted, fleet, config, folder, Quiet())
    running = asyncio.create_task(up.run())
    while up.seconds < BEFORE_S and not running.done():
        await asyncio.sleep(LOOK_S)
    looks = Looks(up)
    looking = asyncio.create_task(looks.run())
    while not looks.rounds and not running.done():
        await asyncio.sleep(LOOK_S)
    before = len(looks.links)
    print(f"links before: {before} ({before / plan:.2f} times LowODA's {plan})", flush=True)
    ports = [one.admin.address for one in up.fleet.members.values() if one.admin is not None]
    begun = time.monotonic()
    code, text = await command("replan", "--live", *ports, "--apply", "--token", str(secret), "--json")
    seconds = time.monotonic() - begun
    if code not in (0, 1):
        raise SystemExit(text)
    told = json.loads(text.splitlines()[-1])
    applied = told["applied"]
    added = sum(one["do"] == "add" for one in told["changes"])
    print(f"changes: {added} added, {len(told['changes']) - added} removed, in {seconds:.1f} s with its start")
    print(
        f"refused: {len(applied['refused'])} {applied['refused'][:3]}; stopped: {applied['stopped'] or 'no'}",
        flush=True,
    )
    await asyncio.sleep(AFTER_S)
    after, rounds, split = len(looks.links), looks.rounds, looks.split
    looking.cancel()
    up._stop.set()
    score = await running
    print(f"links after: {after} ({after / plan:.2f} times LowODA's), {AFTER_S:.0f} s later")
    print(f"rounds of reading all nodes: {rounds}; topics that were split in any: {len(split)}")
    print(f"messages: {score.published} published, {score.delivered} delivered, {score.missing} missing,", end=" ")
    print(f"{score.duplicates} twice")
    judged, text = await command("judge", str(history))
    print(text.strip())
    return not split and after <= 1.1 * plan and judged == 0 and not score.missing and not score.duplicates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--topics", type=int, default=24)
    parser.add_argument("--subscriptions", type=int, default=5)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="trellis-replan-") as folder:
        holds = run_loop(measure(given, Path(folder)))
    raise SystemExit(0 if holds else 1)


if __name__ == "__main__":
    main()
