"""A rolling restart of a live mesh, under traffic: nothing acknowledged may be missing, nothing may come twice.

    python examples/operator/rolling_restart.py --nodes 8

Real `trellis node` processes. One after the other gets SIGTERM and leaves in order, is started again under its name,
and the next one waits until it has joined and every topic it wants is confirmed: what an upgrade of a mesh does. The
mesh, the traffic and the score are those of `trellis up`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

from trellis.fleet.fleet import FleetConfig
from trellis.fleet.interests import draw_interests
from trellis.fleet.up import Up, UpConfig
from trellis.live.run import run_loop

LOOK_S = 0.1


class Told:
    """How it goes, on standard error."""

    def status(self, text: str) -> None:
        pass

    def event(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


async def restart_all(nodes: int, rate: float, folder: Path) -> dict[str, Any]:
    wanted = draw_interests(nodes, topics=min(5, nodes), subscriptions=min(3, nodes), seed=1)
    told = Told()
    up = Up(wanted, FleetConfig(copies=2), UpConfig(rate=rate, kill_every=0), folder, told)
    running = asyncio.create_task(up.run())
    while not up.seconds and not running.done():  # the mesh forms; then there is traffic
        await asyncio.sleep(LOOK_S)
    for name in wanted:
        if running.done():
            break
        member = up.fleet.members[name]
        await up.fleet.leave(name)
        up.driver.counts["leaves"] += 1
        await up.fleet.start_node(name)
        up.driver.counts["starts"] += 1
        while not member.is_joined and not running.done():
            await asyncio.sleep(LOOK_S)
        told.event(f"{name} has left, and is back")
    if not running.done():
        os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C: no more traffic; all that is owed must come; then the score
    return (await running).to_json()


def main() -> int:
    parser = argparse.ArgumentParser(description="A rolling restart of a live mesh, under traffic.")
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--rate", type=float, default=80.0, help="messages a second, all together")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        score = run_loop(restart_all(given.nodes, given.rate, Path(folder)))
    print(json.dumps(score))
    return 0 if score["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
