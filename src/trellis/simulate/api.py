"""Define `trellis.simulate`, which Python programs call and the command `trellis simulate` prints the result of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from trellis.errors import InputError
from trellis.model import ChurnTrace, Interests, Overlay
from trellis.simulate.network import NetworkConfig
from trellis.simulate.ranges import require_options, require_run
from trellis.simulate.record import Recorder
from trellis.simulate.run import Progress, Run, RunConfig
from trellis.simulate.run import simulate as run_system
from trellis.simulate.schedule import Schedule
from trellis.simulate.system import System
from trellis.simulate.systems import maker_of

if TYPE_CHECKING:
    from trellis.simulate.by_cycles import CycleRun
    from trellis.simulate.magnet_by_cycles import MagnetRun
    from trellis.simulate.neighbors_by_cycles import NeighborRun
    from trellis.simulate.omen_by_cycles import OMenRun

ENGINES = ("events", "cycles")


def simulate(
    protocol: str | System,
    interests: Interests,
    *,
    options: Mapping[str, Any] | None = None,
    engine: str = "events",
    overlay: Overlay | None = None,
    churn: ChurnTrace | None = None,
    schedule: Schedule | None = None,
    duration_s: float | None = None,
    rounds_per_event: int | None = None,
    warmup_rounds: int = 0,
    seed: int = 1,
    view_share: float = 1.0,
    network: NetworkConfig | None = None,
    encode: bool = False,
    broken_stream_s: float | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Run | CycleRun | NeighborRun | MagnetRun | OMenRun:
    """Run a distributed protocol in virtual time. The same arguments give the same run, event for event.

    The result has a method `summary()`, and `trellis.simulate.run.write_run` writes it to a folder.

    protocol          omen, spidercast, similarity, random, vitis, rvr, opt, magnet, scribe or delivery; or a `System`
                      of your own (`trellis.simulate.system`)
    options           options of the protocol, by name: {"kg": 3}; see `trellis simulate PROTOCOL --help`
    engine            events: message by message; cycles: round by round on arrays, for large networks (omen, vitis,
                      rvr, opt, spidercast, similarity, random, magnet and scribe). See docs/cycles.md
    overlay           links to start from; by default there are none
    churn, schedule   a churn trace, or a schedule of faults of all kinds; give at most one of them
    duration_s        virtual seconds; by default the run ends when nothing changes any more
    rounds_per_event  gossip rounds from one event of `churn` to the next; by default the times of the trace are used
    warmup_rounds     gossip rounds before the first event of `churn`
    view_share        share of the other nodes that each node knows, above 0 and at most 1
    network           latency, loss, duplicates and reordering
    encode            encode and decode every message, as on a real network
    broken_stream_s   seconds until neighbors notice a crash by a broken stream; by default they notice only silence
    recorder          records the run so that it can be replayed
    progress          called after every sample, which is every virtual second

    InputError is raised for a number outside of its range (`trellis.simulate.ranges`).
    """
    require_run(
        {
            "duration_s": duration_s,
            "broken_stream_s": broken_stream_s,
            "rounds_per_event": rounds_per_event,
            "warmup_rounds": warmup_rounds,
            "view_share": view_share,
        }
    )
    if churn is None and (rounds_per_event is not None or warmup_rounds):
        what = "rounds before and between events of a churn trace are given without a trace"
        raise InputError("", what, "give a trace, or leave them out")
    if isinstance(protocol, str):
        require_options(protocol, options or {})
        try:
            system = maker_of(protocol)(**(options or {}))
        except TypeError as error:
            raise InputError(protocol, str(error), f"see: trellis simulate {protocol} --help") from None
    elif options:
        raise InputError(protocol.name, "options are for protocols given by name", "give them to the system itself")
    else:
        system = protocol
    config = RunConfig(
        seed=seed,
        duration_ms=None if duration_s is None else round(1000 * duration_s),
        view_share=view_share,
        network=network or NetworkConfig(),
        encode=encode,
        rounds_per_event=rounds_per_event,
        warmup_rounds=warmup_rounds,
        broken_stream_ms=None if broken_stream_s is None else round(1000 * broken_stream_s),
    )
    if engine not in ENGINES:
        raise InputError("", f'no engine is called "{engine}"', f"choose from {', '.join(ENGINES)}")
    if engine == "cycles":
        from trellis.simulate.by_cycles import simulate_cycles

        if recorder is not None:
            raise InputError("", "the cycle engine sends no messages that could be recorded", "record with events")
        return simulate_cycles(
            system, interests, config, overlay=overlay, churn=churn, schedule=schedule, progress=progress
        )
    return run_system(
        system,
        interests,
        config,
        overlay=overlay,
        churn=churn,
        schedule=schedule,
        recorder=recorder,
        progress=progress,
    )
