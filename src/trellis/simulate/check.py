"""Check one seed: draw faults, run them, check safety all the time, heal, wait until it is quiet, check the rest.

1. Faults happen while the run goes on. Every `check_ms` the safety of the system and the invariants of every node are
   checked.
2. When the time of the plan is over, everything is healed: the network, paused nodes and crashed nodes that restart.
3. The run goes on until nothing has changed for the system's `settle_ms`. If that takes longer than `settle_ms_max`,
   the seed fails.
4. The promises of the system for quiet times are checked, and the overlay is checked topic by topic.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from trellis.measure.cuts import find_cuts
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
    """Settings of a check. Fields without a comment are passed to `Engine`."""

    check_ms: int = 1000  # virtual time between two checks of safety
    network: NetworkConfig = NetworkConfig(latency=Latency("uniform", 5, 15))
    view_share: float = 1.0
    encode: bool = False
    broken_stream_ms: int | None = None
    plan: FaultPlan | None = None  # None: the plan of the system
    # If no overlay is given, start from LowODA's overlay of the nodes that are there at the start.
    planned: bool = False
    instance: InstanceDraw = InstanceDraw()  # the size of the drawn instance if no interests are given


class SeedResult(msgspec.Struct, frozen=True):
    """The result of one seed.

    It has plain values only: it is sent between processes, and equal runs give equal results.
    """

    seed: int
    failure: str | None  # what failed, where and when, in one line; None if the seed passed
    details: str  # the traceback of the failure, or empty
    # The faults as they were drawn, and the faults as they happened, which name all nodes that were hit.
    planned: Schedule
    happened: Schedule
    skipped: int  # faults that could not happen
    injected: dict[str, int]  # how often each kind took effect
    faults: dict[str, int]  # how many faults of each kind happened
    safety_checks: int
    connectivity_checks: int
    repairs: int  # links formed since the first fault
    counts: dict[str, int]  # the result of `System.counts`
    settled: bool
    time_ms: int
    messages: int
    events: int
    tco: bool
    split_topics: int
    digest: str
    overlay_digest: str
    interests: tuple[tuple[str, tuple[str, ...]], ...]  # topics of each living node at the end
    # The overlay at the end: links between living nodes that both ends claim.
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
    """Run one seed. If `schedule` is given, it replaces the drawn one: for replays and for shrinking."""
    system = make_system()
    plan = config.plan or system.fault_plan
    wanted = interests if interests is not None else draw_interests(config.instance, seed)
    planned = schedule if schedule is not None else draw_schedule(plan, list(wanted), seed)
    if (config.planned or system.needs_overlay) and not overlay:
        present = {node: topics for node, topics in wanted.items() if node not in planned.absent}
        overlay = _planned(present, seed, system.connectivity_promised)
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
        # Set around the whole trial: otherwise each slice of the run would end with a garbage collection.
        with seldom_collecting():
            trial.run()
    except Exception as error:  # Any exception is a finding: a broken promise, or a defect of a node.
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
        """Run the phases that the module's docstring lists. Raise Violation if a promise is broken."""
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
        if system.connectivity_promised == 2:
            cuts = find_cuts(found.interests, found.overlay, topics_max=3)
            if cuts.topics:
                worst = "; ".join(str(cut) for cut in cuts.worst)
                raise Violation(f"the loss of one node would split {cuts.topics} of {found.topics} topics: {worst}")

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


def _planned(interests: InterestsByNode, seed: int, connectivity: int) -> Sequence[tuple[str, str]]:
    from trellis.model import Interests
    from trellis.plan import construct
    from trellis.simulate.run import link_names

    made = construct(Interests.from_pairs(interests), "lowoda", connectivity=connectivity, seed=seed)
    return tuple(link_names(made.overlay))


def _one_line(error: Exception) -> str:
    what = str(error) if isinstance(error, Violation) else f"{type(error).__name__}: {error}"
    notes: list[Any] = getattr(error, "__notes__", [])
    return " ".join(" ".join([what.rstrip("."), *(f"({note})" for note in notes)]).split())
