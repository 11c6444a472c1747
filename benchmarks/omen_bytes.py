"""What OMen's gossip costs: bytes per node and round on the wire, by kind of message.  [OM §6.8]

    python benchmarks/omen_bytes.py INTERESTS
    python benchmarks/omen_bytes.py INTERESTS --rounds 30 100 --churn CHURN

From LowODA's overlay, every message through its wire form. Stretches of rounds end where `--rounds` says: views are
built in the first 20, then they rest. With `--churn` one event a round comes after the first stretch.
"""

from __future__ import annotations

import argparse
from itertools import pairwise

from trellis.model import read_churn, read_interests
from trellis.plan import construct
from trellis.simulate.churn import schedule_of
from trellis.simulate.engine import Engine
from trellis.simulate.faults import Injector
from trellis.simulate.run import link_names, topics_by_node
from trellis.simulate.schedule import Schedule
from trellis.simulate.systems.omen import OMen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("interests")
    parser.add_argument("--churn")
    parser.add_argument("--rounds", type=int, nargs="+", default=[30, 100])
    parser.add_argument("--lambda", dest="coverage", type=int, default=5)
    parser.add_argument("--resilience", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    interests, schedule = read_interests(chosen.interests), Schedule(())
    if chosen.churn:
        trace = read_churn(chosen.churn, interests)
        schedule = schedule_of(trace, interests, start_ms=1000 * chosen.rounds[0], every_ms=1000)
    engine = Engine(
        OMen(coverage=chosen.coverage, resilience=chosen.resilience),
        topics_by_node(interests),
        seed=chosen.seed,
        overlay=tuple(link_names(construct(interests, "lowoda", seed=chosen.seed).overlay)),
        absent=schedule.absent,
        broken_stream_ms=50,
        encode=True,
    )
    Injector(engine, schedule)
    stretches, before, last = [], ({}, {}), 0
    for end in chosen.rounds:
        engine.run(1000 * end)
        now, spent = (engine.encoded_by_type(), engine.sent_by_type()), (end - last) * len(engine.world.living)
        sizes, sent = (
            {kind: (number - old.get(kind, 0)) / spent for kind, number in new.items()}
            for new, old in zip(now, before, strict=True)
        )
        stretches.append((sizes, sent))
        before, last = now, end
    heads = [f"{first + 1}-{end}" for first, end in pairwise([0, *chosen.rounds])]
    print(f"{'bytes per node and round':26}" + "".join(f"  {head:>11} messages" for head in heads))
    for kind in sorted(stretches[-1][0], key=lambda kind: -stretches[0][0].get(kind, 0)):
        told = [(sizes.get(kind, 0), sent.get(kind, 0)) for sizes, sent in stretches]
        print(f"{kind:26}" + "".join(f"  {size:11.1f} {number:8.2f}" for size, number in told))
    told = [(sum(sizes.values()), sum(sent.values())) for sizes, sent in stretches]
    print(f"{'all':26}" + "".join(f"  {size:11.1f} {number:8.2f}" for size, number in told))


if __name__ == "__main__":
    main()
