"""A scenario in the simulator: the same nodes, interests and steps in virtual time, checked by `simulate/check.py`.

If a step does not name its nodes, the seed chooses them, so a live run may hit others. The same must hold at the end:
every topic is connected, both ends of every link have it, nothing acknowledged is missing, and nothing came twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from trellis.fleet.scenario import Scenario, Step
from trellis.simulate.check import CheckConfig, SeedResult, check_seed
from trellis.simulate.schedule import Fault, FaultPlan, Schedule
from trellis.simulate.systems import maker_of
from trellis.simulate.systems.delivery import Delivery

FORMING_MS = 30_000  # time for the mesh to form, before the first step
_BROKEN_STREAM_MS = 50  # until the neighbors of a killed process notice that its streams have ended


class Simulated(msgspec.Struct, frozen=True):
    """The result of a scenario in the simulator."""

    result: SeedResult
    published: int
    acknowledged: int
    delivered: int

    @property
    def holds(self) -> bool:
        return self.result.failure is None and not self.result.skipped and self.acknowledged > 0

    def to_json(self) -> dict[str, Any]:
        result = self.result
        return {
            "ok": self.holds,
            "failure": result.failure,
            "skipped": result.skipped,
            "seed": result.seed,
            "published": self.published,
            "acknowledged": self.acknowledged,
            "delivered": self.delivered,
            "links": len(result.links),
            "split_topics": result.split_topics,
            "happened": [msgspec.to_builtins(fault) for fault in result.happened.faults],
            "seconds": result.time_ms / 1_000,
        }

    def lines(self) -> Iterator[str]:
        """Yield lines for the terminal: the faults, the counts and the verdict."""
        for fault in [fault for fault in self.result.happened.faults if fault.kind != "publish"]:
            yield f"{(fault.time_ms - FORMING_MS) / 1_000:8.3f} s  {fault.kind} {' '.join(fault.nodes)}"
        yield f"published {self.published:,}, acknowledged {self.acknowledged:,}, delivered {self.delivered:,}"
        faults = [self.result.failure] if self.result.failure else []
        faults += [f"{self.result.skipped} steps could not be done"] if self.result.skipped else []
        faults += ["nothing was acknowledged"] if not self.acknowledged else []
        yield f"not good: {'; '.join(faults)}" if faults else "good: nothing missing, nothing twice, every topic whole"


def simulate_scenario(scenario: Scenario, seed: int) -> Simulated:
    made: list[Delivery] = []

    def make() -> Delivery:
        interests = scenario.wanted()
        every_ms = round(1_000 * len(interests) / scenario.rate) if scenario.rate else 0
        system = cast(
            Delivery, maker_of("delivery")(overlay=scenario.overlay, copies=scenario.copies, every_ms=every_ms)
        )
        system.fault_plan = plan
        made.append(system)
        return system

    plan = FaultPlan(start_ms=FORMING_MS, span_ms=round(1_000 * scenario.duration), down_share_max=1.0)
    result = check_seed(
        make,
        seed,
        CheckConfig(broken_stream_ms=_BROKEN_STREAM_MS, encode=True, plan=plan),
        interests={name: tuple(topics) for name, topics in scenario.wanted().items()},
        schedule=schedule_of(scenario),
    )
    ledger = made[-1].ledger
    assert ledger is not None
    known = ledger.publications.values()
    return Simulated(
        result,
        published=len(known),
        acknowledged=sum(bool(publication.copies) for publication in known),
        delivered=sum(len(publication.delivered) for publication in known),
    )


def schedule_of(scenario: Scenario) -> Schedule:
    """Return the steps of a scenario as faults of the simulator."""
    names = sorted(scenario.wanted())
    faults = [fault for step in scenario.steps for fault in _faults(step, names)]
    return Schedule(tuple(sorted(faults, key=lambda fault: fault.time_ms)))


def _faults(step: Step, names: list[str]) -> Iterator[Fault]:
    at = FORMING_MS + round(1_000 * step.at)
    lasts = round(1_000 * step.lasts) if step.lasts is not None else 0
    each: list[tuple[str, ...]] = [(name,) for name in step.names]
    each = each or [()] * step.count  # () stands for a node that is chosen when the fault happens
    topics = (step.topic,) if step.topic else ()
    match step.do:
        case "crash":
            kind = {"any": "crash-uniform", "neighbours": "crash-adjacent", "hub": "crash-hub"}
            if step.names:
                yield Fault(at, "crash", step.names)
            else:
                assert isinstance(step.who, str)
                yield Fault(at, kind[step.who], value=step.count)
            if lasts:
                yield from (Fault(at + lasts, "join", hit) for hit in each)
        case "restart":
            yield from (Fault(at, "join", hit) for hit in each)
        case "hang":
            yield from (Fault(at, "pause", hit, duration_ms=lasts) for hit in each)
        case "leave":
            yield from (Fault(at, "leave", hit) for hit in each)
        case "partition":
            yield Fault(at, "partition", step.names or tuple(names[: step.count]), duration_ms=lasts)
        case "subscribe" | "unsubscribe":
            yield from (Fault(at, step.do, hit, topics=topics) for hit in each)
        case "publish":
            # A millisecond apart, since the simulator makes payloads of the node and the time.
            hit = step.names[:1]
            yield from (Fault(at + number, "publish", hit, topics=topics) for number in range(step.count))
