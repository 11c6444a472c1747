"""A churn trace as steps for processes.  [model/churn.py]"""

from __future__ import annotations

from pathlib import Path

import msgspec

from trellis.errors import InputError
from trellis.fleet.interests import expect_few
from trellis.fleet.scenario import Step


class TraceSteps(msgspec.Struct, frozen=True):
    interests: dict[str, tuple[str, ...]]
    steps: tuple[Step, ...]
    absent: tuple[str, ...]  # nodes that do not run at the start


def read_trace(churn: Path, interests: Path, nodes: int | None, speed: float) -> TraceSteps:
    """Read a churn trace as steps, `speed` times as fast as it was recorded. Only the first `nodes` nodes take part."""
    from trellis.model import read_churn
    from trellis.model import read_interests as read
    from trellis.simulate.churn import schedule_of
    from trellis.simulate.run import topics_by_node

    if not speed > 0:
        raise InputError("--speed", f"{speed:g}", "give more than 0")
    table = read(interests)
    schedule = schedule_of(read_churn(churn, table), table)
    wanted = topics_by_node(table)
    for fault in schedule.faults:
        wanted.setdefault(fault.nodes[0], fault.topics)
    chosen = dict(list(wanted.items())[:nodes])
    expect_few(str(interests), len(chosen))
    topics = {name: set(some) for name, some in chosen.items()}
    steps: list[Step] = []
    for fault in schedule.faults:
        name, at = fault.nodes[0], fault.time_ms / 1_000 / speed
        if name not in chosen:
            continue
        if fault.kind == "join":
            changes = [("unsubscribe", topic) for topic in topics[name].difference(fault.topics)]
            changes += [("subscribe", topic) for topic in set(fault.topics).difference(topics[name])]
        else:
            changes = [(fault.kind, topic) for topic in fault.topics]
        for do, topic in sorted(changes):
            steps.append(Step(at=at, do=do, who=(name,), topic=topic))  # type: ignore[arg-type]
            (topics[name].add if do == "subscribe" else topics[name].discard)(topic)
        if fault.kind in ("join", "leave", "crash"):
            steps.append(Step(at=at, do="restart" if fault.kind == "join" else fault.kind, who=(name,)))  # type: ignore[arg-type]
    if not steps:
        raise InputError(str(churn), "nothing happens to these nodes", "give more --nodes, or another trace")
    return TraceSteps(chosen, tuple(steps), tuple(name for name in schedule.absent if name in chosen))
