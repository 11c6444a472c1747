"""One seed of a check: draw faults, run, demand safety all along, heal, wait until it is quiet, demand all.

1. faults happen while the run goes on; every `check_ms` the system's safety and every node's own invariants are asked;
2. when the plan's time is over everything is healed: weather, pauses, restarts;
3. the run goes on until nothing has changed for the system's `settle_ms`; longer than `settle_ms_max` is a failure;
4. what the system promises for quiet times is asked, and the overlay is checked topic by topic.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trellis.simulate.draw import InstanceDraw, draw_interests, draw_schedule
from trellis.simulate.engine import Engine, seldom_collecting
from trellis.simulate.faults import Injector
from trellis.simulate.network import Latency, NetworkConfig
from trellis.simulate.probes import Probe
from trellis.simulate.schedule import FaultPlan, Schedule
from trellis.simulate.system import System, Violation

MakeSystem = Callable[[], System]
InterestsByNode = Mapping[str, tuple[str, ...]]


class CheckConfig(msgspec.Struct, frozen=True):
    check_ms: int = 1000  # virtual time between two looks at safety
    network: NetworkConfig = NetworkConfig(latency=Latency("uniform", 5, 15))
    view_share: float = 1.0
    encode: bool = False
    broken_stream_ms: int | None = None
    plan: FaultPlan | None = None  # None: the system's own
    planned: bool = False  # where no overlay is given: start from LowODA's over those who are there at the start
    instance: InstanceDraw = InstanceDraw()  # what is drawn where no interests are given


class SeedResult(msgspec.Struct, frozen=True):
    """Plain values: it travels between processes, and equal runs give equal results."""

    seed: int
    failure: str | None  # one line: what broke, where and when
    details: str  # the traceback of a failure
    planned: Schedule
    happened: Schedule  # with names
    skipped: int  # faults that could not happen
    injected: dict[str, int]  # how often each kind took effect
    faults: dict[str, int]  # how many faults of each kind happened
    safety_checks: int
    connectivity_checks: int
    repairs: int  # links formed since the first fault
    counts: dict[str, int]  # what the system counts itself
    settled: bool
    time_ms: int
    messages: int
    events: int
    tco: bool
    split_topics: int
    digest: str
    overlay_digest: str
    interests: tuple[tuple[str, tuple[str, ...]], ...]  # of the living, at the end
    links: tuple[tuple[str, str], ...]


def check_seed(
    make_system: MakeSystem,
    seed: int,
    config: CheckConfig,
    *,
    interests: InterestsByNode | None = None,
    overlay: Sequence[tuple[str, str]] = (),
    schedule: Schedule | None = None,
) -> SeedResult:
    """Runs one seed. `schedule` takes the place of the one that would be drawn: for replays and for shrinking."""
    system = make_system()
    plan = config.plan or system.fault_plan
    wanted = interests if interests is not None else draw_interests(config.instance, seed)
    planned = schedule if schedule is not None else draw_schedule(plan, list(wanted), seed)
    if (config.planned or system.needs_overlay) and not overlay:
        overlay = _planned({node: topics for node, topics in wanted.items() if node not in planned.absent}, seed)
    engine = Engine(
        system,
        wanted,
        seed=seed,
        network=config.network,
        view_share=config.view_share,
        overlay=overlay,
        absent=planned.absent,
        encode=config.encode,
        broken_stream_ms=config.broken_stream_ms,
    )
    trial = _Trial(engine, Injector(engine, planned, down_share_max=plan.down_share_max), plan, config)
    failure, details = None, ""
    try:
        with seldom_collecting():  # all the time, or each slice of the run would end with a collection of what it left
            trial.run()
    except Exception as error:  # whatever escapes is a finding: a broken promise or a broken node
        failure, details = _one_line(error), "".join(traceback.format_exception(error))
    return trial.result(failure, details)


class _Trial:
    def __init__(self, engine: Engine, injector: Injector, plan: FaultPlan, config: CheckConfig) -> None:
        self.engine, self.injector, self.config = engine, injector, config
        self.probe = Probe(engine)
        last = max((fault.time_ms for fault in injector.schedule.faults), default=0)
        self.heal_ms = max(plan.start_ms + plan.span_ms, last)
        self.safety_checks, self.settled = 0, False

    def run(self) -> None:
        engine, system = self.engine, self.engine.system
        engine.at(self.heal_ms, self.injector.heal)
        self._advance(self.heal_ms)
        self.settled = self._settle(system.settle_ms, self.heal_ms + system.settle_ms_max)
        if system.must_settle and not self.settled:
            raise Violation(f"not quiet {system.settle_ms_max} ms after everything was healed")
        system.check_settled(engine.world)
        found = self.probe.snapshot()
        if system.overlay_is_tco_promised and not found.connectivity.is_tco:
            split = ", ".join(found.interests.topics[int(topic)] for topic in found.connectivity.split[:5])
            raise Violation(f"no TCO: {len(found.connectivity.split)} of {found.topics} topics are split: {split}")

    def result(self, failure: str | None, details: str) -> SeedResult:
        engine, injector = self.engine, self.injector
        world, found = engine.world, self.probe.snapshot()
        return SeedResult(
            seed=world.seed,
            failure=failure,
            details=details,
            planned=injector.schedule,
            happened=injector.happened,
            skipped=injector.skipped,
            injected=injector.injected(),
            faults=dict(sorted(injector.counts.items())),
            safety_checks=self.safety_checks,
            connectivity_checks=self.probe.connectivity_checks,
            repairs=injector.links_formed_since_first,
            counts=dict(engine.system.counts()),
            settled=self.settled,
            time_ms=world.now_ms,
            messages=sum(engine.sent.values()),
            events=engine.events,
            tco=found.connectivity.is_tco,
            split_topics=len(found.connectivity.split),
            digest=engine.hexdigest(),
            overlay_digest=engine.overlay_digest(),
            interests=tuple((name, world.topics_of(name)) for name in world.living),
            links=tuple(world.links()),
        )

    def _advance(self, until_ms: int) -> None:
        now = self.engine.world.now_ms
        while now < until_ms:
            now = min(now + self.config.check_ms, until_ms)
            self.engine.run(now)
            self.engine.check_always()
            self.safety_checks += 1
            self.probe.snapshot()

    def _settle(self, settle_ms: int, limit_ms: int) -> bool:
        while (quiet_ms := self.engine.quiet_from_ms + settle_ms) > self.engine.world.now_ms:
            if self.engine.world.now_ms >= limit_ms:
                return False
            self._advance(min(quiet_ms, limit_ms, self.engine.world.now_ms + self.config.check_ms))
        return True


def _planned(interests: InterestsByNode, seed: int) -> Sequence[tuple[str, str]]:
    from trellis.model import Interests
    from trellis.plan import construct
    from trellis.simulate.run import link_names

    return tuple(link_names(construct(Interests.from_pairs(interests), "lowoda", seed=seed).overlay))


def _one_line(error: Exception) -> str:
    what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
    notes: list[Any] = getattr(error, "__notes__", [])
    return " ".join(" ".join([what.rstrip("."), *(f"({note})" for note in notes)]).split())
