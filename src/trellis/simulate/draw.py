"""Draw an instance and a fault schedule for each seed of a check.

A seed draws a few kinds of faults of the plan, not all of them. So a fault also happens without others that would hide
its effect. The kind at index `seed mod kinds` is always among them. So consecutive seeds, as many as the plan has
kinds, contain every kind.
"""

from __future__ import annotations

from random import Random

import msgspec

from trellis import ids
from trellis.simulate.schedule import Fault, FaultPlan, Schedule

_TAKES_AWAY = ("crash", "restart", "leave")


class InstanceDraw(msgspec.Struct, frozen=True):
    """Sizes of a small instance. Each node has 1 to `subscriptions` topics, popular ones more often (Zipf 1)."""

    nodes: int = 24
    topics: int = 8
    subscriptions: int = 4


def draw_interests(draw: InstanceDraw, seed: int) -> dict[str, tuple[str, ...]]:
    """Return the topics of each node of a drawn instance."""
    random = Random(ids.stream(seed, "instance"))
    weights = [1 / (place + 1) for place in range(draw.topics)]
    interests = {}
    for number in range(draw.nodes):
        wanted = random.randint(1, min(draw.subscriptions, draw.topics))
        chosen: set[int] = set()
        while len(chosen) < wanted:
            chosen.add(random.choices(range(draw.topics), weights)[0])
        interests[f"n{number}"] = tuple(f"t{place}" for place in sorted(chosen))
    return interests


def draw_schedule(plan: FaultPlan, names: list[str], seed: int) -> Schedule:
    """Return the faults of one seed. The same plan, names and seed give the same schedule."""
    random = Random(ids.stream(seed, "schedule"))
    names = sorted(names)
    always = plan.kinds[seed % len(plan.kinds)]
    kinds = [always, *(kind for kind in plan.kinds if kind != always and random.random() < 0.4)]
    absent = sorted(random.sample(names, max(1, len(names) // 10))) if "join" in kinds and len(names) > 2 else []
    chosen = list(kinds)
    wanted = random.randint(3, max(3, plan.faults_max))
    chosen += [random.choice(kinds) for _ in range(wanted - len(chosen))]
    times = sorted(plan.start_ms + random.randrange(max(1, plan.span_ms)) for _ in chosen)
    random.shuffle(chosen)
    faults: list[Fault] = []
    last_gone, parting = -plan.crash_gap_ms, Random(ids.stream(seed, "parts of groups"))
    for time_ms, kind in zip(times, chosen, strict=True):
        if kind.startswith(_TAKES_AWAY):
            time_ms = max(time_ms, last_gone + plan.crash_gap_ms)
        group = _in_parts(_fault(kind, time_ms, plan, names, random), plan, parting)
        if kind.startswith(_TAKES_AWAY):
            last_gone = group[-1].time_ms
        faults += group
    return Schedule(tuple(sorted(faults, key=lambda fault: fault.time_ms)), tuple(absent))


def _in_parts(fault: Fault, plan: FaultPlan, random: Random) -> list[Fault]:
    """Split half of the crashes and leaves of several nodes into two faults, perhaps of different kinds.

    Both parts together hit at most `crash_size_max` nodes. Without `stagger_ms` nothing is split.
    """
    many = plan.crash_size_max if fault.kind == "leave" else int(fault.value)
    if not plan.stagger_ms or not fault.kind.startswith(("crash", "leave")) or many < 2 or random.random() < 0.5:
        return [fault]
    later = msgspec.structs.replace(fault, time_ms=fault.time_ms + random.randint(1, plan.stagger_ms))
    if fault.kind == "leave":
        return [fault, later]
    first = random.randint(1, many - 1)
    kind = random.choice([kind for kind in plan.kinds if kind.startswith("crash")])
    return [
        msgspec.structs.replace(fault, value=first),
        msgspec.structs.replace(later, kind=kind, value=many - first),
    ]


def _fault(kind: str, time_ms: int, plan: FaultPlan, names: list[str], random: Random) -> Fault:
    duration = random.randint(plan.duration_ms_min, plan.duration_ms_max)
    if kind.startswith("crash"):
        size_min = 2 if kind in ("crash-adjacent", "crash-ring") else 1
        return Fault(time_ms, kind, value=random.randint(min(size_min, plan.crash_size_max), plan.crash_size_max))
    if kind in ("leave", "join", "interest"):
        return Fault(time_ms, kind)
    if kind == "return":
        return Fault(time_ms, kind, duration_ms=duration, value=random.randint(1, 4))
    if kind == "partition":
        side = tuple(sorted(random.sample(names, random.randint(1, max(1, len(names) // 2)))))
        return Fault(time_ms, kind, side, duration_ms=duration)
    if kind == "asymmetric-loss":
        senders, receivers = (tuple(sorted(random.sample(names, max(1, len(names) // 4)))) for _ in range(2))
        value = round(random.uniform(0, min(1.0, 10 * plan.loss_max)), 3)
        return Fault(time_ms, kind, senders, receivers, duration_ms=duration, value=value)
    most = {"loss": plan.loss_max, "duplicate": plan.duplicate_max, "reorder": plan.reorder_max}
    if kind in most:
        return Fault(time_ms, kind, duration_ms=duration, value=round(random.uniform(0.2, 1) * most[kind], 4))
    if kind == "slow":
        return Fault(time_ms, kind, duration_ms=duration, value=random.randint(1, plan.slow_ms_max))
    return Fault(time_ms, kind, duration_ms=duration)  # restart, pause
