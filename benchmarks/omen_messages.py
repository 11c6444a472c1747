"""Control messages of OMen by kind: per crash, per join, and per round at rest.  [OM §6.8]

    python benchmarks/omen_messages.py --nodes 250 --events 30 --seeds 1 2 3
    python benchmarks/omen_messages.py --resilience 3 --json rows.jsonl

A mesh starts from LowODA's overlay of a generated friendship graph and warms up. Then nodes crash one by one, and come
back one by one. Two events are `--rounds-per-event` gossip rounds apart, so that one is over before the next begins and
every message belongs to one event. Neighbors notice a crash by broken streams after 50 ms. The overlay at the end of
each half is compared with LowODA over the nodes that are present.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from random import Random

from trellis import ids
from trellis.lab.substitutes import friend_interests
from trellis.model import Interests
from trellis.plan import construct
from trellis.simulate.engine import Engine
from trellis.simulate.probes import Camera
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.systems.omen import OMen

WARMUP, REST = 60, 40  # rounds
GROUPS = {
    "questions": ("Ask", "Answer"),
    "reports": ("Report", "ReportOk"),
    "records": ("Record", "RecordOk", "FindRecord", "FoundRecord"),
    "set-up": ("OpenLink", "LinkOpened", "Connect", "ConnectOk", "LinkReady", "Disconnect"),
    "events": ("Churn", "Finished", "Join", "JoinDone", "Leaving"),
    "roots": ("RootReport", "RootHeard", "RootMeet"),
    "registrations": ("Back",),
    "suspicion": ("Probe", "ProbeOk", "Stranger"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=250)
    parser.add_argument("--events", type=int, default=30)
    parser.add_argument("--rounds-per-event", type=int, default=25)
    parser.add_argument("--resilience", type=int, default=1)
    parser.add_argument("--backups", default="primal-dual-carry")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--json", help="append one row for each seed and kind of event to this file")
    given = parser.parse_args()
    for seed in given.seeds:
        for row in measured(given, seed):
            show(row)
            if given.json:
                with Path(given.json).open("a") as file:
                    file.write(json.dumps(row) + "\n")


def measured(given: argparse.Namespace, seed: int) -> list[dict]:
    interests = friend_interests(given.nodes, seed)
    wanted = topics_by_node(interests)
    start = construct(interests, "lowoda", seed=seed).overlay
    system = OMen(resilience=given.resilience, backups=given.backups)
    engine = Engine(system, wanted, seed=seed, overlay=tuple(link_names(start)), broken_stream_ms=50)
    chosen = Random(ids.stream(seed, "crashes")).sample(sorted(wanted), given.events)
    engine.run(1000 * WARMUP)
    rest = window(engine, REST)
    found = [row("rest", seed, given, rest, REST, engine, 0, 0)]
    for kind in ("crash", "join"):
        sent: Counter[str] = Counter()
        repairs, links = system.counts()["repairs by coordinators"], engine.links_formed
        for name in chosen:
            getattr(engine, kind)(name)
            sent += window(engine, given.rounds_per_event)
        repairs = system.counts()["repairs by coordinators"] - repairs
        links = engine.links_formed - links
        found.append(row(kind, seed, given, sent, given.events, engine, repairs, links))
    return found


def window(engine: Engine, rounds: int) -> Counter[str]:
    before = Counter(engine.sent_by_type())
    engine.run(engine.world.now_ms + 1000 * rounds)
    return Counter(engine.sent_by_type()) - before


def row(
    kind: str, seed: int, given: argparse.Namespace, sent: Counter[str], count: int, engine: Engine, repairs: int,
    links: int,
) -> dict:  # fmt: skip
    taken = Camera(engine.world).take()
    there = {name: engine.world.topics_of(name) for name in engine.world.living}
    rebuilt = construct(Interests.from_pairs(there), "lowoda", seed=seed).overlay.degrees
    control = set(engine.system.control_types())
    return {
        "event": kind, "seed": seed, "nodes": given.nodes, "L": given.resilience, "count": count,
        "control": sum(sent[name] for name in control) / count,
        "kinds": {name: number / count for name, number in sorted(sent.items())},
        "repairs": repairs / count, "links": links / count,
        "D": int(taken.degrees.maximum), "d": float(taken.degrees.mean),
        "D_re": int(rebuilt.max()), "d_re": float(rebuilt.mean()),
        "split": len(taken.connectivity.split),
    }  # fmt: skip


def show(row: dict) -> None:
    kinds = row["kinds"]
    per = "round" if row["event"] == "rest" else row["event"]
    print(
        f"seed {row['seed']}, L = {row['L']}, {per}: {row['control']:.1f} control messages, {row['repairs']:.2f} "
        f"repairs, {row['links']:.2f} links; D {row['D']} ({row['D_re']}), d {row['d']:.3f} ({row['d_re']:.3f}), "
        f"split {row['split']}"
    )
    for group, names in GROUPS.items():
        parts = [f"{name} {kinds[name]:.2f}" for name in names if kinds.get(name)]
        if parts:
            print(f"    {group:13} {sum(kinds.get(name, 0) for name in names):7.2f}   {', '.join(parts)}")
    rest = {name: number for name, number in kinds.items() if not any(name in names for names in GROUPS.values())}
    print(f"    gossip        {sum(rest.values()):7.0f}   {', '.join(f'{n} {v:.0f}' for n, v in rest.items())}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
