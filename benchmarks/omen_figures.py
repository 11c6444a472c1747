"""OMen beside LowODA rebuilt at the same step, on any interests and churn trace.  [OM §6.4-6.6]

    python benchmarks/omen_figures.py INTERESTS CHURN --knowledge hints global --seeds 1 2
    python benchmarks/omen_figures.py INTERESTS CHURN --events 200 --lambda 1 3 5 9 --json rows.jsonl

The trace is mapped onto gossip rounds, one event each after 30 rounds of warm-up (`--rounds-per-event`), from LowODA's
overlay; crashes are noticed by broken streams after 50 ms. Every 10 rounds the overlay is compared with LowODA over
those present. For each run: means over the rounds with events of D / D_Re and d - d_Re, views, messages per event,
computing time of Alg. 1, processor time.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Iterator

import numpy as np

from trellis.model import ChurnTrace, Interests, read_churn, read_interests
from trellis.plan import construct
from trellis.simulate.churn import schedule_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.probes import Camera
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.systems.omen import OMen

WARMUP, EVERY, AFTER = 30, 10, 60  # rounds


def rows(
    interests: Interests, trace: ChurnTrace, system: OMen, seed: int, events: int, per_event: int
) -> Iterator[dict]:
    schedule = schedule_of(trace, interests, start_ms=WARMUP * 1000, every_ms=per_event * 1000)
    faults = schedule.faults[:events]
    start = construct(interests, "lowoda", seed=seed).overlay
    engine = Engine(
        system,
        topics_by_node(interests),
        seed=seed,
        overlay=tuple(link_names(start)),
        absent=schedule.absent,
        broken_stream_ms=50,
    )
    Injector(engine, type(schedule)(faults, schedule.absent))
    camera, begun = Camera(engine.world), time.process_time()
    for now in range(EVERY, WARMUP + per_event * len(faults) + AFTER + 1, EVERY):
        engine.run(1000 * now + 500)
        taken = camera.take()
        living = {name: engine.world.topics_of(name) for name in engine.world.living}
        rebuilt = construct(Interests.from_pairs(living), "lowoda", seed=seed)
        sent = engine.sent_by_type()
        yield {
            "round": now,
            "events": max(0, min(len(faults), (now - WARMUP) // per_event)),
            "D": int(taken.degrees.maximum),
            "d": float(taken.degrees.mean),
            "D_re": int(rebuilt.overlay.degrees.max()),
            "d_re": 2 * len(rebuilt.overlay) / len(living),
            "split": len(taken.connectivity.split),
            "links_formed": engine.links_formed,
            "control": sum(sent.get(kind, 0) for kind in system.control_types()),
            "cpu_s": time.process_time() - begun,
            "gib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
            "repairs": len(system.repair_seconds),
            "repair_ms": 1000 * float(np.median(system.repair_seconds)) if system.repair_seconds else None,
            "rebuild_ms": 1000 * rebuilt.seconds,
            **system.metrics(engine.world),
            **system.counts(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("interests")
    parser.add_argument("churn")
    parser.add_argument("--knowledge", nargs="+", default=["hints"])
    parser.add_argument("--lambda", dest="coverage", type=int, nargs="+", default=[5])
    parser.add_argument("--resilience", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--events", type=int, default=10**9)
    parser.add_argument("--rounds-per-event", type=int, default=1)
    parser.add_argument("--json", help="every row, one a line")
    chosen = parser.parse_args()
    interests = read_interests(chosen.interests)
    trace = read_churn(chosen.churn, interests)
    print(
        "knowledge   lambda seed  D/D_re  d-d_re   D end   view  control/event  Alg. 1 ms  of a rebuild   cpu s    GiB"
    )
    for knowledge in chosen.knowledge:
        for coverage in chosen.coverage:
            for seed in chosen.seeds:
                system = OMen(
                    coverage=coverage,
                    resilience=chosen.resilience,
                    knowledge=knowledge,
                )
                found = []
                for row in rows(interests, trace, system, seed, chosen.events, chosen.rounds_per_event):
                    found.append(row)
                    if chosen.json:
                        with open(chosen.json, "a", encoding="utf-8") as file:  # noqa: PTH123
                            file.write(
                                json.dumps({"knowledge": knowledge, "lambda": coverage, "seed": seed, **row}) + "\n"
                            )
                report(knowledge, coverage, seed, found)


def report(knowledge: str, coverage: int, seed: int, found: list[dict]) -> None:
    churned = [row for row in found if row["events"]]
    before, last = found[WARMUP // EVERY - 1], found[-1]
    ratio = np.mean([row["D"] / row["D_re"] for row in churned])
    more = np.mean([row["d"] - row["d_re"] for row in churned])
    control = (last["control"] - before["control"]) / max(last["events"], 1)
    degrees = f"{ratio:7.3f} {more:7.3f} {last['D']:7} {last['view_size_mean']:6.1f}"
    times = f"{last['repair_ms']:10.2f} {last['repair_ms'] / last['rebuild_ms']:13.2%} {last['cpu_s']:7.0f}"
    print(f"{knowledge:<11} {coverage:6} {seed:4} {degrees} {control:14.1f} {times} {last['gib']:6.2f}", flush=True)


if __name__ == "__main__":
    main()
